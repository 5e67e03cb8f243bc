//! Tests of submissions while the device is busy: tensors that wait and share a batch, and callers
//! that continue at once.

use std::sync::Arc;

use super::job::{GPU_FUSION_THRESHOLD_BYTES, Rank, Tensors, Told, job, on_all};
use crate::gpu::simulated::{Did, Fabric};
use crate::queue::Ticket;
use crate::settings::Settings;

/// Allocates a tensor of six bytes of one on a rank's device.
fn ones(rank: &Rank) -> u64 {
    rank.gpu.allocate_with(&[1; 6])
}

/// Runs cycles without new batches on the device.
fn cycles(ranks: &[Rank], name: &str) {
    for count in 0..3 {
        let sums = on_all(ranks, |rank| rank.sum_in_host(&format!("{name}{count}")));
        assert!(
            sums.into_iter()
                .all(|sum| sum.expect("the job goes on") == ranks.len() as u8)
        );
    }
}

fn await_in_flight(ranks: &[Rank], in_flight: usize) {
    ranks
        .iter()
        .for_each(|rank| rank.await_in_flight(in_flight));
}

/// Submits one tensor on every rank and waits until it is the last of this many in flight.
fn launch(ranks: &[Rank], name: &str, at: &[u64], in_flight: usize) -> Vec<Arc<Ticket>> {
    await_in_flight(ranks, in_flight - 1);
    let tickets = ranks
        .iter()
        .map(|rank| rank.submit(name, at[rank.rank], 6))
        .collect();
    await_in_flight(ranks, in_flight);
    tickets
}

/// Returns the tensors of the device batches that the observer received.
fn batches(rank: &Rank) -> Vec<Vec<String>> {
    let told = rank.told().into_iter();
    told.filter_map(|told| match told {
        Told::OnDevice(names, _) => Some(names),
        _ => None,
    })
    .collect()
}

#[test]
fn what_comes_while_the_device_is_busy_travels_together() {
    for seed in 0..4 {
        let fabric = Fabric::new(seed, 2);
        let ranks = job(&fabric, 2);
        on_all(&ranks, |rank| Tensors::of(rank, 1, 8).step(rank, 2));
        ranks[1].gpu.hang();
        let at: Vec<Vec<u64>> = (0..5).map(|_| ranks.iter().map(ones).collect()).collect();
        let mut tickets = launch(&ranks, "a", &at[0], 1);
        fabric.run_dry(); // the device has begun it
        tickets.extend(launch(&ranks, "b", &at[1], 2));
        for (name, at) in ["c", "d", "e"].iter().zip(&at[2..]) {
            tickets.extend(ranks.iter().map(|rank| rank.submit(name, at[rank.rank], 6)));
            cycles(&ranks, name);
        }
        assert!(tickets.iter().all(|ticket| !ticket.is_done()));
        ranks[1].gpu.come_to();
        on_all(&ranks, |rank| {
            for ticket in tickets.iter().skip(rank.rank).step_by(2) {
                rank.wait(ticket).expect("nothing is broken");
            }
            for at in &at {
                assert_eq!(rank.gpu.read(at[rank.rank], 6), [2; 6]);
            }
        });
        cycles(&ranks, "last"); // they report the last batch
        for rank in &ranks {
            assert_eq!(
                batches(rank)[1..],
                [vec!["a"], vec!["b"], vec!["c", "d", "e"]],
                "seed {seed}"
            );
        }
    }
}

#[test]
fn what_waits_for_its_data_holds_nobody_up() {
    let fabric = Fabric::new(31, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| Tensors::of(rank, 1, 8).step(rank, 2));
    let holds: Vec<_> = ranks
        .iter()
        .map(|rank| rank.gpu.hold(rank.stream))
        .collect();
    let at: Vec<Vec<u64>> = (0..4).map(|_| ranks.iter().map(ones).collect()).collect();
    let mut tickets = Vec::new();
    for (count, (name, at)) in ["a", "b", "c", "d"].iter().zip(&at).enumerate() {
        tickets.extend(launch(&ranks, name, at, count + 1));
        fabric.run_dry();
    }
    ranks
        .iter()
        .zip(holds)
        .for_each(|(rank, hold)| rank.gpu.release(hold));
    on_all(&ranks, |rank| {
        for ticket in tickets.iter().skip(rank.rank).step_by(2) {
            rank.wait(ticket).expect("nothing is broken");
        }
    });
}

#[test]
fn who_has_joined_has_sent_what_came_before() {
    let fabric = Fabric::new(32, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| Tensors::of(rank, 1, 8).step(rank, 2));
    ranks[1].gpu.hang();
    let at: Vec<Vec<u64>> = (0..3).map(|_| ranks.iter().map(ones).collect()).collect();
    launch(&ranks, "a", &at[0], 1);
    fabric.run_dry();
    launch(&ranks, "b", &at[1], 2);
    let last: Vec<_> = ranks
        .iter()
        .map(|rank| rank.submit("c", at[2][rank.rank], 6))
        .collect();
    let joins = [ranks[0].without_data(crate::negotiation::JOIN, crate::negotiation::OpKind::Join)];
    std::thread::sleep(std::time::Duration::from_millis(20));
    ranks[1].gpu.come_to();
    on_all(&ranks, |rank| {
        rank.wait(&last[rank.rank]).expect("nothing is broken")
    });
    // The data of rank 0, too: it was not absent.
    assert_eq!(ranks[1].gpu.read(at[2][1], 6), [2; 6]);
    let join = ranks[1].without_data(crate::negotiation::JOIN, crate::negotiation::OpKind::Join);
    ranks[1].wait(&join).expect("all have joined");
    ranks[0].wait(&joins[0]).expect("all have joined");
}

#[test]
fn batches_on_the_device_have_a_bound_of_their_own_that_can_change() {
    let length = GPU_FUSION_THRESHOLD_BYTES as usize / 2;
    let fabric = Fabric::new(33, 1);
    let ranks = job(&fabric, 1);
    let rank = &ranks[0];
    let places = [(); 3].map(|()| rank.gpu.allocate_with(&vec![1; length]));
    // Not as a group, which is never split.
    let step = |names: [&str; 3]| {
        let cycle = rank.engine.cycle.lock().expect("nobody panics");
        let entries = names
            .iter()
            .zip(places)
            .map(|(name, at)| rank.entry(name, at, length));
        let tickets: Vec<_> = entries
            .map(|entry| rank.engine.queue.submit(entry).expect("submitted"))
            .collect();
        drop(cycle);
        rank.engine.queue.doorbell.wake_self();
        tickets
            .iter()
            .for_each(|ticket| rank.wait(ticket).expect("nothing is broken"));
    };
    let change = |gpu_fusion_threshold_bytes| {
        rank.settings.change(|settings| Settings {
            gpu_fusion_threshold_bytes,
            ..*settings
        });
    };
    step(["a", "b", "c"]);
    change(4 * length as u64);
    step(["d", "e", "f"]);
    change(0);
    step(["g", "h", "i"]);
    assert_eq!(rank.sum_in_host("last").expect("the job goes on"), 1);
    let expected = [
        vec!["a", "b"],
        vec!["c"],
        vec!["d", "e", "f"],
        vec!["g"],
        vec!["h"],
        vec!["i"],
    ];
    assert_eq!(batches(rank), expected);
}

#[test]
fn an_early_answer_comes_before_the_result_which_a_stream_waits_for() {
    for seed in 0..4 {
        let fabric = Fabric::new(seed, 2);
        let ranks = job(&fabric, 2);
        on_all(&ranks, |rank| Tensors::of(rank, 1, 8).step(rank, 2));
        ranks[1].gpu.hang();
        let at: Vec<u64> = ranks.iter().map(ones).collect();
        let submit = |rank: &Rank| {
            let entry = rank.entry_for("w", at[rank.rank], 6, true);
            rank.engine
                .queue
                .submit(entry)
                .expect("no name is in flight")
        };
        let follow = |rank: &Rank, ticket: &Ticket| {
            rank.wait(ticket).expect("nothing is broken");
            let mark = ticket.awaited().expect("it is on its way");
            for _ in 0..2 {
                mark.precede(rank.stream).expect("a stream that is there");
            }
        };
        let negotiated = || {
            ranks[0]
                .told()
                .iter()
                .filter(|told| **told == Told::Negotiated("w".to_owned()))
                .count()
        };
        on_all(&ranks, |rank| follow(rank, &submit(rank)));
        let again: Vec<_> = ranks.iter().map(submit).collect();
        cycles(&ranks, "host");
        assert_eq!(
            (negotiated(), ranks[0].gpu.read(at[0], 6)),
            (1, vec![1; 6]),
            "seed {seed}"
        );
        assert!(again.iter().all(|ticket| !ticket.is_done()));
        ranks[1].gpu.come_to();
        on_all(&ranks, |rank| {
            follow(rank, &again[rank.rank]);
            follow(rank, &submit(rank));
        });
        fabric.run_dry();
        await_in_flight(&ranks, 0);
        cycles(&ranks, "last");
        let rank = &ranks[0];
        assert_eq!(rank.gpu.read(at[0], 6), [8; 6]);
        let of_tensor = rank.told().into_iter().filter_map(|told| match told {
            Told::Negotiated(name) if name == "w" => Some('n'),
            Told::OnDevice(names, _) if names.iter().any(|name| name == "w") => Some('e'),
            _ => None,
        });
        assert_eq!(of_tensor.collect::<String>(), "nenene", "seed {seed}");
        let is_follow =
            |did: &Did| matches!(did, Did::Followed(stream, _) if *stream == rank.stream);
        assert_eq!(
            rank.gpu.notes().iter().filter(|did| is_follow(did)).count(),
            3
        );
    }
}
