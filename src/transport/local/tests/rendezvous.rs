//! Rendezvous that fail, and rendezvous with unauthenticated connections.

mod played;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

use super::super::error::RendezvousError;
use super::super::layout::Layout;
use super::super::peers::Lifeline;
use super::super::rendezvous::{Connected, INTRODUCTION_TIMEOUT, address, connect};
use super::super::socket::{Connection, ReceiveError};
use super::super::wire::{self, Body, Hello, Message, Origin, Welcome};
use super::super::{SIZE_MAX, client, distribute};
use super::config;
use crate::error::{Error, PeerError};
use crate::rendezvous::{Alarm, RendezvousConfig};
use crate::shm::{Area, Region};

const LAYOUT: Layout = Layout {
    size: 2,
    cache_words: 1,
    data_bytes: 0,
};

fn layout(size: usize) -> Layout {
    Layout { size, ..LAYOUT }
}

fn rank(rank: usize, config: &RendezvousConfig) -> RendezvousConfig {
    RendezvousConfig {
        rank,
        ..config.clone()
    }
}

/// Runs the rendezvous of all `ranks`; returns the outcome of each.
fn try_to_connect(
    ranks: Vec<(RendezvousConfig, Layout)>,
) -> Vec<Result<Connected, RendezvousError>> {
    let ranks: Vec<_> = ranks
        .into_iter()
        .map(|(config, layout)| thread::spawn(move || connect(&config, &layout)))
        .collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// Checks that all of `ranks` get the same error, and returns it.
fn same_error(ranks: Vec<(RendezvousConfig, Layout)>) -> RendezvousError {
    let mut errors: Vec<_> = try_to_connect(ranks)
        .into_iter()
        .map(Result::unwrap_err)
        .collect();
    let error = errors.remove(0);
    for other in errors {
        assert_eq!(other, error);
    }
    error
}

/// Connects as soon as rank 0 listens.
fn connect_socket(config: &RendezvousConfig) -> UnixStream {
    let address = address(config).unwrap();
    loop {
        match UnixStream::connect_addr(&address) {
            Ok(stream) => return stream,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn hello(rank: usize, size: usize) -> Body {
    Body::Hello(Hello {
        rank,
        members: (0..size).collect(),
        pid: 1,
        cache_words: LAYOUT.cache_words,
        region_bytes: layout(size).bytes(),
        left_ms: 30_000,
        host_key: "host".to_owned(),
        contract: Vec::new(),
    })
}

fn encode(body: Body) -> Vec<u8> {
    wire::encode(body).unwrap()
}

fn foreign(body: Body) -> Vec<u8> {
    let origin = Origin {
        version: "9.8.7".to_owned(),
        layout: 0xabc,
    };
    wire::frame(&Message { origin, body }).unwrap()
}

#[test]
fn waiting_ranks_receive_the_alarm() {
    let began = Instant::now();
    let raised = move || {
        (began.elapsed() > Duration::from_millis(300))
            .then_some(Error::Peer(PeerError::Lost { rank: 5, pid: 77 }))
    };
    let config = RendezvousConfig {
        alarm: Some(Alarm(Arc::new(raised))),
        ..config("alarm", 3)
    };
    // Rank 2 does not arrive, and in another rendezvous rank 0.
    let elsewhere = RendezvousConfig {
        job_key: format!("{}-elsewhere", config.job_key),
        ..rank(1, &config)
    };
    let ranks = [rank(0, &config), rank(1, &config), elsewhere];
    for outcome in try_to_connect(ranks.map(|config| (config, layout(3))).into()) {
        let error = outcome.unwrap_err();
        assert!(
            error.to_string().starts_with("rank 5 died (process 77)"),
            "{error}"
        );
    }
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "the start timeout is 30 s"
    );
}

#[test]
fn ranks_that_disagree_get_the_same_error_with_both_values() {
    let config = |name| config(name, 2);
    let error = |what: &str, found: &str, expected: &str| RendezvousError::Disagreement {
        what: what.to_owned(),
        first_rank: 0,
        expected: expected.to_owned(),
        rank: 1,
        found: found.to_owned(),
    };

    let two = config("size");
    let three = RendezvousConfig {
        members: Arc::new([0, 1, 2]),
        ..rank(1, &two)
    };
    let found = same_error(vec![(two, layout(2)), (three, layout(3))]);
    assert_eq!(found, error("job size", "3", "2"));

    let zero = config("host-key");
    let one = RendezvousConfig {
        host_key: "other".to_owned(),
        ..rank(1, &zero)
    };
    let found = same_error(vec![(zero, LAYOUT), (one, LAYOUT)]);
    assert_eq!(found, error("host key (RONDE_HOST_ID)", "other", "host"));

    let sets = |sets: &str, config: &RendezvousConfig| RendezvousConfig {
        contract: vec![("process sets".to_owned(), sets.to_owned())],
        ..config.clone()
    };
    let zero = sets("[0, 1] [1]", &config("sets"));
    let one = sets("[0, 1]", &rank(1, &zero));
    let found = same_error(vec![(one, LAYOUT), (zero, LAYOUT)]);
    assert_eq!(found, error("process sets", "[0, 1]", "[0, 1] [1]"));

    let zero = config("words");
    let layout = Layout {
        cache_words: 2,
        ..LAYOUT
    };
    let found = same_error(vec![(rank(1, &zero), layout), (zero, LAYOUT)]);
    assert_eq!(found, error("response cache words", "2", "1"));

    let zero = config("bytes");
    let layout = Layout {
        data_bytes: 4096,
        ..LAYOUT
    };
    let (more, less) = (layout.bytes().to_string(), LAYOUT.bytes().to_string());
    let found = same_error(vec![(rank(1, &zero), layout), (zero, LAYOUT)]);
    assert_eq!(found, error("shared memory bytes", &more, &less));
}

#[test]
fn two_processes_with_one_rank_are_an_error_on_all_ranks() {
    let own = std::process::id();
    for (doubled, ranks) in [(0, vec![0, 0]), (1, vec![0, 1, 1])] {
        let zero = config("duplicate", 3);
        let error = same_error(
            ranks
                .into_iter()
                .map(|r| (rank(r, &zero), layout(3)))
                .collect(),
        );
        let expected = RendezvousError::DuplicateRank {
            rank: doubled,
            first_pid: own,
            pid: own,
        };
        assert_eq!(error, expected);
    }
}

/// Set ranks 0, 1, 2 are ranks 5, 9, 7 of the job.
#[test]
fn errors_of_a_set_name_job_ranks() {
    let set = |name| RendezvousConfig {
        members: Arc::new([5, 9, 7]),
        start_timeout: Duration::from_secs(2),
        ..config(name, 3)
    };
    let zero = set("set-members");
    let other = RendezvousConfig {
        members: Arc::new([5, 7, 9]),
        ..rank(1, &zero)
    };
    let error = same_error(vec![(zero, layout(3)), (other, layout(3))]);
    assert_eq!(
        error.to_string(),
        "rank 7 has members of the process set [5, 7, 9], rank 5 has [5, 9, 7]; start all ranks with the same \
         members of the process set"
    );

    let zero = set("set-missing");
    let error = same_error(vec![(zero.clone(), layout(3)), (rank(2, &zero), layout(3))]);
    assert!(
        matches!(&error, RendezvousError::Missing { missing, size: 3, .. } if missing == &[9]),
        "{error}"
    );
    let error = connect(&rank(2, &zero), &layout(3)).unwrap_err();
    assert!(
        matches!(&error, RendezvousError::Missing { missing, .. } if missing == &[5]),
        "{error}"
    );

    let zero = set("set-memory");
    let layout = Layout {
        data_bytes: 1 << 50,
        ..layout(3)
    };
    let ranks = (0..3).map(|r| (rank(r, &zero), layout)).collect();
    let error = same_error(ranks);
    assert!(
        matches!(error, RendezvousError::Memory { rank: 5, .. }),
        "{error}"
    );
}

#[test]
fn ranks_and_sizes_out_of_range_are_refused_at_once() {
    let zero = config("range", 2);
    let error = connect(&rank(2, &zero), &LAYOUT).unwrap_err();
    assert!(
        matches!(
            error,
            RendezvousError::InvalidRank {
                rank: 2,
                size: 2,
                ..
            }
        ),
        "{error}"
    );
    let many = RendezvousConfig {
        members: (0..=SIZE_MAX).collect(),
        ..zero.clone()
    };
    let error = connect(&many, &layout(SIZE_MAX + 1)).unwrap_err();
    assert!(
        matches!(
            error,
            RendezvousError::TooManyRanks {
                size: 65,
                size_max: 64
            }
        ),
        "{error}"
    );

    // Also by rank 0, if a rank does not detect it itself.
    let server = thread::spawn({
        let zero = zero.clone();
        move || connect(&zero, &LAYOUT)
    });
    let mut stream = connect_socket(&zero);
    stream.write_all(&encode(hello(2, 2))).unwrap();
    let error = server.join().unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            RendezvousError::InvalidRank {
                rank: 2,
                size: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn missing_ranks_are_named_by_all_ranks_that_arrived() {
    let zero = RendezvousConfig {
        start_timeout: Duration::from_millis(2500),
        ..config("missing", 4)
    };
    let error = same_error(vec![(zero.clone(), layout(4)), (rank(2, &zero), layout(4))]);
    let expected = RendezvousError::Missing {
        missing: vec![1, 3],
        size: 4,
        waited_seconds: 2,
    };
    assert_eq!(error, expected);

    let error = connect(&rank(2, &zero), &layout(4)).unwrap_err();
    assert!(
        matches!(&error, RendezvousError::Missing { missing, .. } if missing == &[0]),
        "{error}"
    );
}

#[test]
fn a_rank_that_arrives_after_the_end_gets_the_error_too() {
    let zero = config("late", 4);
    let disagrees = RendezvousConfig {
        host_key: "other".to_owned(),
        ..rank(1, &zero)
    };
    let late = [2, 3].map(|r| {
        let late = rank(r, &zero);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            connect(&late, &layout(4)).unwrap_err()
        })
    });
    let error = same_error(vec![(zero, layout(4)), (disagrees, layout(4))]);
    assert!(
        matches!(&error, RendezvousError::Disagreement { rank: 1, .. }),
        "{error}"
    );
    for late in late {
        assert_eq!(late.join().unwrap(), error);
    }
}

#[test]
fn a_rank_of_another_version_is_refused_by_name_on_both_sides() {
    let zero = config("version", 2);
    let server = thread::spawn({
        let zero = zero.clone();
        move || connect(&zero, &LAYOUT)
    });
    let mut stream = connect_socket(&zero);
    stream.write_all(&foreign(hello(1, 2))).unwrap();
    let error = server.join().unwrap().unwrap_err();
    let own = Origin::own();
    assert_eq!(
        error,
        RendezvousError::Version {
            pid: std::process::id(),
            version: "9.8.7".to_owned(),
            layout: 0xabc,
            first_rank: 0,
            first_version: own.version.clone(),
            first_layout: own.layout,
        }
    );
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let refusal = Body::Refused(error);
    assert_eq!(wire::decode(&answer), Ok(Some((refusal, answer.len()))));

    // The other way round: rank 0 has the other version.
    let zero = config("version-0", 2);
    let listener = UnixListener::bind_addr(&address(&zero).unwrap()).unwrap();
    let client = thread::spawn(move || connect(&rank(1, &zero), &LAYOUT));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&foreign(Body::Go)).unwrap();
    let error = client.join().unwrap().unwrap_err();
    let RendezvousError::Version {
        version,
        first_version,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((version, first_version), (own.version, "9.8.7".to_owned()));
}

#[test]
fn unauthenticated_connections_do_not_disturb() {
    let zero = config("unauthenticated", 2);
    let server = thread::spawn({
        let zero = zero.clone();
        move || connect(&zero, &LAYOUT)
    });
    let began = Instant::now();
    // More connections than are kept, without a message; then several kinds of invalid bytes; then
    // one that disconnects within a message.
    let silent: Vec<_> = (0..200).map(|_| connect_socket(&zero)).collect();
    let whole = encode(hello(1, 2));
    let mut length = whole.clone();
    length[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let excess = [&whole[..], &whole].concat();
    let garbage = [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &length,
        &excess,
        &encode(Body::Go),
        &[0; 100_000],
    ];
    for bytes in garbage {
        let mut stream = connect_socket(&zero);
        // Rank 0 may disconnect before it has read all.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty());
    }
    connect_socket(&zero).write_all(&whole[..20]).unwrap();
    let one = connect(&rank(1, &zero), &LAYOUT).unwrap();
    assert_eq!(one.peers.len(), 2);
    server.join().unwrap().unwrap();
    assert!(
        began.elapsed() < zero.start_timeout,
        "rank 0 did not wait for silent connections"
    );
    drop(silent);
}

#[test]
fn a_rank_0_that_ends_is_named() {
    let zero = config("vanished-0", 2);
    let listener = UnixListener::bind_addr(&address(&zero).unwrap()).unwrap();
    let client = thread::spawn(move || connect(&rank(1, &zero), &LAYOUT));
    drop(listener.accept().unwrap());
    let error = client.join().unwrap().unwrap_err();
    let own = std::process::id();
    assert_eq!(error, RendezvousError::Vanished { rank: 0, pid: own });
}

#[test]
fn a_region_too_large_for_the_machine_is_refused_on_all_ranks() {
    let zero = config("memory", 2);
    let layout = Layout {
        data_bytes: 1 << 50,
        ..LAYOUT
    };
    let error = same_error(vec![(zero.clone(), layout), (rank(1, &zero), layout)]);
    let RendezvousError::Memory {
        rank: 0,
        needed_bytes,
        available_bytes,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(needed_bytes >= 1 << 50 && available_bytes < needed_bytes);
}

#[test]
fn a_timeout_beyond_the_clock_is_a_long_one() {
    let zero = RendezvousConfig {
        start_timeout: Duration::MAX,
        ..config("forever", 2)
    };
    for outcome in try_to_connect(vec![(zero.clone(), LAYOUT), (rank(1, &zero), LAYOUT)]) {
        assert_eq!(outcome.unwrap().peers.len(), 2);
    }
}

#[test]
fn long_job_keys_still_name_one_rendezvous_each() {
    let name = |key: &str| {
        let config = RendezvousConfig {
            job_key: key.to_owned(),
            init: 3,
            ..config("key", 2)
        };
        format!("{:?}", address(&config).unwrap())
    };
    let long = "k".repeat(500);
    assert_eq!(name(&long), name(&long));
    assert_ne!(name(&long), name(&format!("{long}k")));
    assert_ne!(name("job"), name("bob"));
    // Every user can list the names in use; they must not reveal the key.
    assert!(!name("secret").contains("secret"), "{}", name("secret"));
    let digits = name("job").chars().filter(char::is_ascii_hexdigit).count();
    assert!(digits >= 32, "{}", name("job"));
}

/// Without pidfds, the connections of the rendezvous stay open, and their end shows a death.
#[test]
fn without_pidfds_connections_show_a_death() {
    let zero = config("no-pidfd", 3);
    let clients = [1, 2].map(|r| {
        let config = rank(r, &zero);
        thread::spawn(move || client::connect(&config, &layout(3)).unwrap())
    });
    let server = distribute::serve(&zero, &layout(3), |_| None).unwrap();
    let [one, two] = clients.map(|client| client.join().unwrap());
    let hung_up = |connected: &Connected, rank: usize| {
        let Lifeline::Socket(end) = &connected.peers[rank].lifeline else {
            panic!("{:?}", connected.peers[rank]);
        };
        let mut fds = [PollFd::new(end, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    };
    assert!(matches!(one.peers[2].lifeline, Lifeline::Rank0));
    assert!(!hung_up(&server, 1) && !hung_up(&server, 2) && !hung_up(&two, 0));
    drop(one);
    assert!(hung_up(&server, 1) && !hung_up(&server, 2) && !hung_up(&two, 0));
    drop(server);
    assert!(hung_up(&two, 0));
}
