//! Tests of the end of a rank with batches on its device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::assert_clean;
use super::job::{Rank, Tensors, job, on_all};
use crate::error::{Error, PeerError};
use crate::gpu::GpuError;
use crate::gpu::simulated::{Did, Fabric, SimulatedGpu};
use crate::negotiation::{JOIN, OpKind};
use crate::queue::Ticket;

fn broken(text: &str) -> GpuError {
    GpuError::Call {
        call: "cuEventSynchronize",
        name: "CUDA_ERROR_ECC_UNCORRECTABLE".to_owned(),
        text: text.to_owned(),
        advice: "",
    }
}

/// Makes the ranks launch a batch that does not end, because rank 1 never executes its call.
fn stuck(ranks: &[Rank]) -> Vec<Vec<Arc<Ticket>>> {
    let tensors: Vec<Tensors> = ranks.iter().map(|rank| Tensors::of(rank, 2, 30)).collect();
    on_all(ranks, |rank| tensors[rank.rank].step(rank, ranks.len()));
    ranks[1].gpu.hang();
    ranks.iter().for_each(|rank| rank.await_in_flight(0));
    let tickets = ranks
        .iter()
        .map(|rank| tensors[rank.rank].submit(rank))
        .collect();
    ranks.iter().for_each(|rank| rank.await_in_flight(2));
    tickets
}

/// Nothing is freed while it may be in use: the communicator is aborted first, and aborted work has
/// ended.
fn assert_order(gpu: &SimulatedGpu) {
    let notes = gpu.notes();
    let at = |what: fn(&Did) -> bool| notes.iter().position(what);
    let aborted = at(|did| matches!(did, Did::Aborted(_))).expect("it is aborted");
    let freed = at(|did| matches!(did, Did::Freed { .. })).expect("it is freed");
    assert!(aborted < freed, "{notes:?}");
    let gave_up = notes.iter().rposition(|did| matches!(did, Did::GaveUp(..)));
    assert!(
        gave_up.is_none_or(|gave_up| aborted < gave_up && gave_up < freed),
        "{notes:?}"
    );
}

#[test]
fn survivors_of_a_lost_peer_are_told_within_seconds() {
    let fabric = Fabric::new(21, 3);
    let ranks = job(&fabric, 3);
    let tickets = stuck(&ranks);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let why = Error::Internal {
            rank: 1,
            message: "lost".to_owned(),
        };
        ranks[1].engine.queue.abort(&why);
        for (rank, tickets) in ranks.iter().zip(&tickets) {
            scope.spawn(move || {
                for ticket in tickets {
                    let error = rank.wait(ticket).expect_err("rank 1 is lost");
                    assert!(error.to_string().contains("rank 1"), "{error}");
                }
            });
        }
    });
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let gpus: Vec<_> = ranks.iter().map(|rank| Arc::clone(&rank.gpu)).collect();
    drop(ranks);
    for gpu in gpus {
        assert_order(&gpu);
        assert_clean(gpu.alive(), 2);
    }
}

#[test]
fn a_shutdown_ends_what_does_not_end_by_itself() {
    let fabric = Fabric::new(22, 2);
    let ranks = job(&fabric, 2);
    let tickets = stuck(&ranks);
    on_all(&ranks, |rank| rank.shut_down(&Error::ShutDown));
    for (rank, tickets) in ranks.iter().zip(&tickets) {
        for ticket in tickets {
            assert!(
                matches!(
                    ticket.outcome(),
                    Some(Err(Error::ShutDown | Error::Peer(PeerError::Left { .. })))
                ),
                "{:?}",
                ticket.outcome()
            );
        }
        assert_order(&rank.gpu);
        assert_clean(rank.gpu.alive(), 2);
    }
}

#[test]
fn a_shutdown_lets_what_ends_soon_end() {
    let fabric = Fabric::new(23, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| {
        let tensors = Tensors::of(rank, 2, 30);
        tensors.step(rank, 2);
        rank.await_in_flight(0);
        let hold = rank.gpu.hold(rank.stream);
        let tickets = tensors.submit(rank);
        rank.await_in_flight(2);
        std::thread::scope(|scope| {
            scope.spawn(|| rank.shut_down(&Error::ShutDown));
            std::thread::sleep(Duration::from_millis(200));
            rank.gpu.release(hold);
        });
        for ticket in tickets {
            assert!(
                matches!(ticket.outcome(), Some(Ok(()))),
                "{:?}",
                ticket.outcome()
            );
        }
        tensors.check(rank, 2);
    });
}

#[test]
fn a_shutdown_does_not_wait_for_results_that_a_lost_peer_withholds() {
    let fabric = Fabric::new(24, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| Tensors::of(rank, 1, 8).step(rank, 2));
    ranks[1].gpu.hang();
    on_all(&ranks, |rank| {
        let at = rank.gpu.allocate_with(&[1; 6]);
        let entry = rank.entry_for("early", at, 6, true);
        let ticket = rank.engine.queue.submit(entry).expect("a new name");
        rank.wait(&ticket).expect("it is answered at the launch");
        assert!(ticket.awaited().is_some(), "it is on its way");
    });
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| ranks[0].shut_down(&Error::ShutDown));
        std::thread::sleep(Duration::from_millis(300));
        let why = Error::Internal {
            rank: 1,
            message: "lost".to_owned(),
        };
        ranks[1].engine.queue.abort(&why);
    });
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let notes = ranks[0].gpu.notes();
    assert!(
        notes.iter().any(|did| matches!(did, Did::Aborted(_))),
        "{notes:?}"
    );
}

#[test]
fn a_rank_that_has_joined_stays_for_results_that_others_were_promised() {
    let fabric = Fabric::new(27, 2);
    let ranks = job(&fabric, 2);
    on_all(&ranks, |rank| Tensors::of(rank, 1, 8).step(rank, 2));
    let _join = ranks[1].without_data(JOIN, OpKind::Join);
    let hold = ranks[0].gpu.hold(ranks[0].stream);
    let at = ranks[0].gpu.allocate_with(&[7; 6]);
    let entry = ranks[0].entry_for("early", at, 6, true);
    let ticket = ranks[0].engine.queue.submit(entry).expect("a new name");
    ranks[0]
        .wait(&ticket)
        .expect("it is answered at the launch");
    ranks[1].await_in_flight(1);
    std::thread::scope(|scope| {
        scope.spawn(|| ranks[1].shut_down(&Error::ShutDown));
        // Longer than for a batch that nobody was answered for.
        std::thread::sleep(Duration::from_millis(1500));
        ranks[0].gpu.release(hold);
    });
    ranks[0].await_in_flight(0);
    assert_eq!(ranks[0].gpu.read(at, 6), [7; 6]);
    for rank in &ranks {
        let notes = rank.gpu.notes();
        let gave_up = notes.iter().any(|did| matches!(did, Did::GaveUp(..)));
        assert!(!gave_up, "rank {}: {notes:?}", rank.rank);
    }
}

#[test]
fn an_error_of_the_device_ends_the_job_and_says_why() {
    let fabric = Fabric::new(24, 2);
    let ranks = job(&fabric, 2);
    let tickets = stuck(&ranks);
    ranks[0].gpu.break_down(broken("a cosmic ray"));
    on_all(&ranks, |rank| {
        for ticket in &tickets[rank.rank] {
            let error = rank.wait(ticket).expect_err("the device is broken");
            let text = error.to_string();
            assert!(
                text.contains("cosmic ray") || rank.rank == 1 && text.contains("rank 0"),
                "{text}"
            );
        }
        assert!(rank.sum_in_host("host").is_err(), "the context is over");
    });
    let gpu = Arc::clone(&ranks[1].gpu);
    drop(ranks);
    assert_order(&gpu);
}

#[test]
fn a_fusion_buffer_that_is_to_grow_is_not_waited_for_when_a_peer_is_lost() {
    const MIB: usize = 1 << 20;
    let fabric = Fabric::new(26, 2);
    let ranks = job(&fabric, 2);
    let tickets = stuck(&ranks);
    let began = Instant::now();
    let large = on_all(&ranks, |rank| {
        let names = ["x", "y", "z"];
        let places = names.map(|_| rank.gpu.allocate_with(&vec![1; MIB]));
        let entries = names
            .iter()
            .zip(places)
            .map(|(name, at)| rank.entry(name, at, MIB));
        let queue = &rank.engine.queue;
        queue.submit_group(entries.collect()).expect("submitted")
    });
    std::thread::sleep(Duration::from_millis(100)); // both wait for the buffer to be free
    ranks[1].gpu.break_down(broken("a cosmic ray"));
    on_all(&ranks, |rank| {
        for ticket in tickets[rank.rank].iter().chain(&large[rank.rank]) {
            rank.wait(ticket).expect_err("rank 1 is lost");
        }
    });
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let gpu = Arc::clone(&ranks[0].gpu);
    drop(ranks);
    assert_order(&gpu);
}

#[test]
fn calls_that_fail_at_launch_end_the_job_and_leave_nothing_behind() {
    for call in [
        "launch",
        "call",
        "record",
        "follow",
        "allocate",
        "join",
        "is_ready",
        "make_event",
        "unique_id",
    ] {
        let fabric = Fabric::new(25, 2);
        let ranks = job(&fabric, 2);
        let error_is_set = std::sync::Barrier::new(2);
        on_all(&ranks, |rank| {
            let tensors = Tensors::of(rank, 2, 30);
            if rank.rank == 0 {
                // The calls of the submission itself must not fail.
                let gpu = Arc::clone(&rank.gpu);
                let tickets = tensors.submit(rank);
                let is_early = tickets.iter().any(|ticket| ticket.is_done());
                gpu.fail_next(call, broken(call));
                rank.gpu.say(call);
                error_is_set.wait();
                assert!(!is_early);
                wait_all(rank, &tickets, call);
            } else {
                error_is_set.wait();
                wait_all(rank, &tensors.submit(rank), call);
            }
        });
        let gpus: Vec<_> = ranks.iter().map(|rank| Arc::clone(&rank.gpu)).collect();
        drop(ranks);
        for (rank, gpu) in gpus.iter().enumerate() {
            let alive = gpu.alive();
            assert_eq!(
                (alive.allocations, alive.communicators),
                (2, 0),
                "{call}, rank {rank}: {alive:?}"
            );
        }
    }
}

fn wait_all(rank: &Rank, tickets: &[Arc<Ticket>], call: &str) {
    for ticket in tickets {
        let error = rank.wait(ticket).expect_err(call);
        assert!(
            rank.rank == 1 || error.to_string().contains(call),
            "{call}: {error}"
        );
    }
}
