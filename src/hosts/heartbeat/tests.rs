use ronde_net::{Config, Mesh, NetError, Secret};

use super::*;
use crate::hosts::world::{Carrier, World};

struct Silence;

impl Bell for Silence {
    fn rung(&self, _: u64) -> bool {
        false
    }

    fn alarm(&self) {}
}

/// Number of the set of all ranks.
const WORLD: u64 = 77;

/// Heartbeat of rank 0 of `size`, over TCP, whose messages stay in its outbox.
fn heartbeat(size: usize) -> Heartbeat {
    let secret = Secret::random().unwrap();
    let config = Config::new(0, 1, "127.0.0.1:1".parse().unwrap(), secret, "test");
    let open = move || {
        let mesh = Mesh::join(&config)?;
        Ok::<_, NetError>((World::new(Carrier::Tcp(mesh)), ()))
    };
    let patience = Patience {
        spin: Duration::ZERO,
        warn_after: Duration::ZERO,
        give_up_after: Some(Duration::from_secs(30)),
    };
    let started = Engine::start("test", Duration::from_secs(10), &|| {}, open);
    let (engine, ()) = started.ok().expect("an engine");
    Heartbeat::new(
        &engine,
        0,
        WORLD,
        (0..size).map(|rank| format!("host{rank}")).collect(),
        Arc::default(),
        patience,
    )
}

#[test]
fn a_member_that_has_left_before_this_rank_created_the_set_is_known_to_have_left() {
    let heartbeat = heartbeat(3);
    let (set, rank) = (7, 1);
    heartbeat.hear(Envelope {
        from: rank,
        message: Message::Left { set, rank },
    });
    heartbeat.listen(set, &Arc::from([0, 1, 2]), Vec::new(), Arc::new(Silence));
    let known = heartbeat.check_set(set);
    assert!(
        matches!(known, Err(Error::Peer(PeerError::Left { rank: 1 }))),
        "{known:?}"
    );
    let told = lock(&heartbeat.outbox).pop_front();
    assert_eq!(told, Some((Message::Left { set, rank }, vec![1, 2])));
}

#[test]
fn messages_about_a_set_that_this_rank_has_left_are_not_kept() {
    let heartbeat = heartbeat(3);
    let all: Arc<[usize]> = Arc::from([0, 1, 2]);
    for set in 0..2 * OTHERS_MAX as u64 {
        heartbeat.listen(set, &all, Vec::new(), Arc::new(Silence));
        heartbeat.leave(set, false, None);
        let message = Message::Left { set, rank: 1 };
        heartbeat.hear(Envelope { from: 1, message });
    }
    let others = lock(&heartbeat.others);
    assert!(others.early.is_empty(), "{} sets", others.early.len());
    assert_eq!(others.left.len(), OTHERS_MAX);
}

#[test]
fn a_member_that_has_left_does_not_end_a_wait_whose_operation_may_go_on() {
    let heartbeat = heartbeat(3);
    let all: Arc<[usize]> = Arc::from([0, 1, 2]);
    heartbeat.listen(WORLD, &all, Vec::new(), Arc::new(Silence));
    let message = Message::Left {
        set: WORLD,
        rank: 1,
    };
    heartbeat.hear(Envelope { from: 1, message });
    // An operation that needs the rank fails by itself.
    let waited = 2 * LEFT_GRACE;
    heartbeat.check_wait(WORLD, waited, waited).unwrap();
    heartbeat.check_outside(WORLD, waited).unwrap();
    assert!(heartbeat.check_set(WORLD).is_err());
}

#[test]
fn the_cycles_of_the_set_of_all_ranks_say_nothing_of_waits_in_other_sets() {
    let heartbeat = heartbeat(2);
    heartbeat.entered.store(5, Ordering::Release);
    let message = Message::Beat { entered: 3 };
    heartbeat.hear(Envelope { from: 1, message });
    let long = Duration::from_secs(31);
    heartbeat.check_wait(7, long, long).unwrap();
    let late = heartbeat.check_wait(WORLD, long, long);
    assert!(
        matches!(late, Err(Error::Peer(PeerError::Stalled { rank: 1, .. }))),
        "{late:?}"
    );
}

#[test]
fn a_forwarded_loss_names_the_host_of_the_lost_rank() {
    type IsExpected = fn(&PeerError) -> bool;
    let cases: [(How, IsExpected); 2] = [
        (
            How::Silent { seconds: 6 },
            |error| matches!(error, PeerError::Silent { rank: 2, host, silent_seconds: 6 } if host == "host2"),
        ),
        (How::disconnected("reset"), |error| {
            matches!(error, PeerError::Disconnected { rank: 2, host, reason }
                if host == "host2" && reason == "reset")
        }),
    ];
    for (how, is_expected) in cases {
        let heartbeat = heartbeat(4);
        let message = Message::Ended { rank: 2, how };
        heartbeat.hear(Envelope {
            from: 3,
            message: message.clone(),
        });
        match heartbeat.check() {
            Err(Error::Peer(error)) if is_expected(&error) => {}
            other => panic!("{other:?}"),
        }
        let told = lock(&heartbeat.outbox).pop_front();
        assert_eq!(told.map(|(message, _)| message), Some(message));
    }
}
