//! The simulated GPU detects incorrect use.

use super::*;
use crate::gpu::{Combine, Combined, Entry, Number};

fn copy(from: u64, to: u64, elements: usize) -> Box<Table> {
    let entry = Entry { from, to, elements };
    Table::of(Kernel::Copy, 1.0, 1, &[entry]).remove(0)
}

#[test]
fn a_missing_wait_shows_and_one_that_is_there_holds() {
    let mut seen = Vec::new();
    for seed in 0..20 {
        for waits in [false, true] {
            let fabric = Fabric::new(seed, 1);
            let gpu = fabric.gpu(0);
            let (theirs, ours) = (gpu.stream(), gpu.stream());
            let (from, to) = (gpu.allocate_with(&[0]), gpu.allocate_with(&[0]));
            gpu.write_on(theirs, from, vec![7]);
            let (ready, done) = (gpu.make_event(true).unwrap(), gpu.make_event(true).unwrap());
            gpu.record(ready, theirs).unwrap();
            if waits {
                gpu.follow(ours, ready).unwrap();
            }
            gpu.launch(Kernel::Copy, &copy(from, to, 1), ours).unwrap();
            gpu.record(done, ours).unwrap();
            assert_eq!(
                gpu.read(to, 1),
                [0],
                "nothing is done before somebody waits"
            );
            gpu.wait(done).unwrap();
            let copied = gpu.read(to, 1)[0];
            if waits {
                assert_eq!(copied, 7);
            } else {
                seen.push(copied);
            }
        }
    }
    assert!(seen.contains(&0) && seen.contains(&7), "{seen:?}");
}

#[test]
fn memory_that_is_not_there_breaks_the_device_and_is_kept() {
    let fabric = Fabric::new(1, 2);
    let gpu = fabric.gpu(0);
    let stream = gpu.stream();
    let (here, gone) = (gpu.allocate_with(&[1; 8]), gpu.allocate_with(&[2; 8]));
    let elsewhere = fabric.gpu(1).allocate_with(&[3; 8]);
    gpu.free(gone);
    for (from, to, elements, what) in [
        (gone, here, 8, "after they were freed"),
        (here, here + 4, 8, "4 bytes into an allocation of 8"),
        (elsewhere, here, 8, "bytes at"),
    ] {
        let gpu = fabric.gpu(0);
        gpu.launch(Kernel::Copy, &copy(from, to, elements), stream)
            .unwrap();
        let event = gpu.make_event(true).unwrap();
        gpu.record(event, stream).unwrap();
        assert!(gpu.wait(event).is_err());
        let failures = fabric.failures();
        assert!(
            failures.len() == 1 && failures[0].contains(what),
            "{failures:?}"
        );
        let mut world = gpu.world();
        world.devices[0].broken = None;
        let queue = world.queue(0, stream).unwrap();
        queue.work.clear();
    }
}

#[test]
fn dead_handles_are_named() {
    let fabric = Fabric::new(1, 1);
    let gpu = fabric.gpu(0);
    let (stream, event) = (gpu.stream(), gpu.make_event(true).unwrap());
    gpu.destroy_event(event);
    assert!(gpu.record(event, stream).is_err());
    gpu.destroy_stream(stream);
    assert!(gpu.is_capturing(stream).is_err());
    let communicator = gpu.join(&gpu.unique_id().unwrap(), 0, 1).unwrap();
    gpu.abort(communicator);
    assert!(gpu.is_ready(communicator).is_err());
    let address = gpu.allocate_with(&[1]);
    gpu.free(address);
    gpu.free(address);
    let failures = fabric.failures();
    let expected = ["Event", "Stream", "Communicator", "freed twice"];
    assert!(
        failures
            .iter()
            .zip(expected)
            .all(|(failure, what)| failure.contains(what)),
        "{failures:?}"
    );
    assert_eq!(failures.len(), expected.len());
}

/// Makes two ranks with a communicator.
fn pair(fabric: &Arc<Fabric>) -> [(Arc<SimulatedGpu>, Communicator, Stream); 2] {
    let id = fabric.gpu(0).unique_id().unwrap();
    [0, 1].map(|rank| {
        let gpu = fabric.gpu(rank);
        let communicator = gpu.join(&id, rank, 2).unwrap();
        let stream = gpu.stream();
        (gpu, communicator, stream)
    })
}

fn sum(at: u64, count: usize) -> Call {
    Call::Allreduce(Combined {
        from: at,
        to: at,
        count,
        number: Number::U8,
        combine: Combine::Sum,
    })
}

#[test]
fn a_call_is_done_when_all_ranks_have_come() {
    let fabric = Fabric::new(5, 2);
    let ranks = pair(&fabric);
    let data = ranks.each_ref().map(|(gpu, ..)| gpu.allocate_with(&[3, 4]));
    let events = ranks
        .each_ref()
        .map(|(gpu, ..)| gpu.make_event(true).unwrap());
    let put = |rank: usize| {
        let (gpu, communicator, stream) = &ranks[rank];
        gpu.call(*communicator, &[sum(data[rank], 2)], *stream)
            .unwrap();
        gpu.record(events[rank], *stream).unwrap();
    };
    put(0);
    assert!(
        !ranks[0].0.is_ready(ranks[0].1).unwrap(),
        "connections are not made alone"
    );
    fabric.run_dry();
    assert!(!ranks[0].0.has_come(events[0]).unwrap());
    put(1);
    ranks[0].0.wait(events[0]).unwrap();
    assert_eq!(ranks[0].0.read(data[0], 2), [6, 8]);
    ranks[1].0.wait(events[1]).unwrap();
    assert_eq!(ranks[1].0.read(data[1], 2), [6, 8]);
}

#[test]
fn who_does_not_come_is_waited_for_until_the_abort() {
    let fabric = Fabric::new(6, 2);
    let ranks = pair(&fabric);
    ranks[1].0.hang();
    let data = ranks.each_ref().map(|(gpu, ..)| gpu.allocate_with(&[3, 4]));
    for ((gpu, communicator, stream), at) in ranks.iter().zip(data) {
        gpu.call(*communicator, &[sum(at, 2)], *stream).unwrap();
    }
    let (gpu, communicator, stream) = &ranks[0];
    let event = gpu.make_event(true).unwrap();
    gpu.record(event, *stream).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gpu.wait(event));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        gpu.abort(*communicator);
        waiting.join().unwrap().unwrap();
    });
    assert!(
        gpu.notes()
            .contains(&Did::GaveUp(*stream, vec![sum(data[0], 2)]))
    );
    assert_eq!(gpu.read(data[0], 2), [3, 4]);
}

#[test]
fn ranks_that_do_not_call_alike_are_found_out() {
    let fabric = Fabric::new(7, 2);
    let ranks = pair(&fabric);
    for (rank, (gpu, communicator, stream)) in ranks.iter().enumerate() {
        let at = gpu.allocate_with(&[0; 4]);
        gpu.call(*communicator, &[sum(at, 2 + rank)], *stream)
            .unwrap();
    }
    fabric.run_dry();
    let failures = fabric.failures();
    assert!(
        failures.len() == 1 && failures[0].contains("different things"),
        "{failures:?}"
    );
}
