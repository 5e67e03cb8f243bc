//! Rendezvous in which the test plays a rank, or the program that holds the name.

#![allow(unsafe_code)] // changes the user of a thread

use super::*;

/// Returns the next message on a connection.
fn next(connection: &mut Connection) -> Result<Body, ReceiveError> {
    loop {
        if let Some(body) = connection.try_receive()? {
            return Ok(body);
        }
        connection.wait_readable(Duration::from_secs(30)).unwrap();
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Set rank `rank` of `size`, run by the test until it is admitted.
fn admitted(zero: &RendezvousConfig, rank: usize) -> Connection {
    let mut connection = Connection::connected(connect_socket(zero));
    connection
        .send(hello(rank, zero.size()), &[], soon())
        .unwrap();
    assert_eq!(next(&mut connection).unwrap(), Body::Admitted);
    connection
}

/// An [`admitted`] rank, run by the test until it has to map the region.
fn welcomed(zero: &RendezvousConfig, rank: usize) -> Connection {
    let mut connection = admitted(zero, rank);
    let body = next(&mut connection).unwrap();
    assert!(matches!(body, Body::Welcome(_)), "{body:?}");
    connection
}

/// Rank 0, run by the test until set rank 1 waits for the region.
fn welcoming(zero: &RendezvousConfig, listener: &UnixListener) -> Connection {
    let (stream, _) = listener.accept().unwrap();
    let mut connection = Connection::accepted(stream);
    let body = next(&mut connection).unwrap();
    assert!(matches!(body, Body::Hello(_)), "{body:?}");
    connection.send(Body::Admitted, &[], soon()).unwrap();
    assert_eq!(zero.size(), 2);
    connection
}

fn welcome() -> Body {
    Body::Welcome(Welcome {
        pids: vec![0; 2],
        pidfds: vec![None; 2],
    })
}

#[test]
fn a_rank_that_ends_before_all_have_arrived_ends_the_rendezvous() {
    for (bytes, gone) in [(&b""[..], true), (&b"x"[..], false)] {
        let zero = config("vanished", 3);
        let server = thread::spawn({
            let zero = zero.clone();
            move || connect(&zero, &layout(3))
        });
        let mut stream = admitted(&zero, 1).into_stream();
        stream.write_all(bytes).unwrap();
        let stream = (!gone).then_some(stream);
        let error = server.join().unwrap().unwrap_err();
        match gone {
            true => assert!(
                matches!(error, RendezvousError::Vanished { rank: 1, .. }),
                "{error}"
            ),
            false => assert!(
                matches!(error, RendezvousError::Malformed { rank: 1, .. }),
                "{error}"
            ),
        }
        drop(stream);
    }
}

#[test]
fn messages_that_arrive_in_one_piece_are_taken_one_by_one() {
    let (one, other) = UnixStream::pair().unwrap();
    let (one, mut other) = (Connection::accepted(one), Connection::connected(other));
    let refusal = Body::Refused(RendezvousError::Vanished { rank: 2, pid: 7 });
    let file: OwnedFd = std::fs::File::open("/proc/self/stat").unwrap().into();
    one.send(Body::Admitted, &[], soon()).unwrap();
    one.send(welcome(), &[file.as_fd()], soon()).unwrap();
    one.send(Body::Go, &[], soon()).unwrap();
    one.send(refusal.clone(), &[], soon()).unwrap();
    let half = encode(Body::Ready);
    let mut stream = one.into_stream();
    stream.write_all(&half[..9]).unwrap();
    for expected in [Body::Admitted, welcome(), Body::Go, refusal] {
        assert_eq!(next(&mut other).unwrap(), expected);
    }
    assert_eq!(other.take_descriptors().len(), 1);
    assert!(matches!(other.try_receive(), Ok(None)));
    stream.write_all(&half[9..]).unwrap();
    assert_eq!(next(&mut other).unwrap(), Body::Ready);
    drop(stream);
    assert!(matches!(next(&mut other), Err(ReceiveError::Gone)));
}

/// A stopped process does not read: messages to it fill the socket's buffer.
#[test]
fn a_peer_that_does_not_read_delays_a_sender_at_most_until_the_deadline() {
    let (one, _other) = UnixStream::pair().unwrap();
    let one = Connection::accepted(one);
    let long = || {
        Body::Refused(RendezvousError::Ended {
            reason: "x".repeat(60_000),
        })
    };
    let began = Instant::now();
    let deadline = began + Duration::from_millis(300);
    let error = (0..1000).find_map(|_| one.send(long(), &[], deadline).err());
    assert_eq!(error, Some(Errno::TIMEDOUT));
    assert!(Instant::now() >= deadline);
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// Rank 1 stops answering at some point; the start timeout ends the rendezvous for the others, and
/// names rank 1.
#[test]
fn a_silent_rank_ends_the_rendezvous_at_its_one_deadline() {
    for (phase, reach) in [admitted, welcomed].into_iter().enumerate() {
        let zero = RendezvousConfig {
            start_timeout: Duration::from_secs(2),
            ..config("silent", 3)
        };
        let began = Instant::now();
        let ranks: Vec<_> = [0, 2]
            .map(|r| {
                let config = rank(r, &zero);
                thread::spawn(move || connect(&config, &layout(3)).unwrap_err())
            })
            .into();
        let silent = reach(&zero, 1);
        for error in ranks.into_iter().map(|rank| rank.join().unwrap()) {
            let expected = RendezvousError::Silent {
                ranks: vec![1],
                pids: vec![std::process::id()],
                stopped: vec![],
                waited_seconds: 2,
            };
            assert_eq!(error, expected, "phase {phase}");
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(2), "phase {phase}: {took:?}");
        assert!(took < Duration::from_secs(15), "phase {phase}: {took:?}");
        drop(silent);
    }
}

/// The others do not wait as long as rank 0 would, but as long as the first of them.
#[test]
fn the_first_ranks_start_timeout_counts_for_all() {
    let zero = RendezvousConfig {
        start_timeout: Duration::from_secs(60),
        ..config("first", 3)
    };
    let hasty = RendezvousConfig {
        start_timeout: Duration::from_secs(2),
        ..rank(1, &zero)
    };
    let began = Instant::now();
    let error = same_error(vec![(zero, layout(3)), (hasty, layout(3))]);
    assert!(
        matches!(&error, RendezvousError::Missing { missing, .. } if missing == &[2]),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn rank_0_that_falls_silent_is_named_by_the_others() {
    for with_region in [false, true] {
        let zero = RendezvousConfig {
            start_timeout: Duration::from_secs(2),
            ..config("silent-0", 2)
        };
        let listener = UnixListener::bind_addr(&address(&zero).unwrap()).unwrap();
        let client = thread::spawn({
            let zero = zero.clone();
            move || connect(&rank(1, &zero), &LAYOUT)
        });
        let mut connection = welcoming(&zero, &listener);
        if with_region {
            let (region, file) = Region::create("ronde-test", LAYOUT.bytes()).unwrap();
            LAYOUT.stamp(&Area::whole(Arc::new(region)));
            connection.send(welcome(), &[file.as_fd()], soon()).unwrap();
            assert_eq!(next(&mut connection).unwrap(), Body::Ready);
        }
        let error = client.join().unwrap().unwrap_err();
        let RendezvousError::Silent { ranks, pids, .. } = error else {
            panic!("{error}");
        };
        assert_eq!((ranks, pids), (vec![0], vec![std::process::id()]));
    }
}

/// If a rank ends before all are ready, all others name this rank.
#[test]
fn a_rank_that_dies_before_the_start_is_named_by_all() {
    for (phase, reach) in [admitted, welcomed].into_iter().enumerate() {
        for ready in [false, true] {
            let zero = config("dies", 4);
            let ranks: Vec<_> = [0, 2]
                .map(|r| {
                    let config = rank(r, &zero);
                    thread::spawn(move || connect(&config, &layout(4)).unwrap_err())
                })
                .into();
            // Rank 3 is ready, or never will be: in both cases no rank has received `Go`.
            let mut other = admitted(&zero, 3);
            let dying = thread::spawn({
                let zero = zero.clone();
                move || drop(reach(&zero, 1))
            });
            let mut answer = next(&mut other);
            if matches!(answer, Ok(Body::Welcome(_))) {
                if ready {
                    let _ = other.send(Body::Ready, &[], soon()); // rank 0 may have given up already
                }
                answer = next(&mut other);
            }
            dying.join().unwrap();
            let pid = std::process::id();
            let expected = RendezvousError::Vanished { rank: 1, pid };
            assert_eq!(
                answer.unwrap(),
                Body::Refused(expected.clone()),
                "phase {phase}"
            );
            for error in ranks.into_iter().map(|rank| rank.join().unwrap()) {
                assert_eq!(error, expected, "phase {phase}");
            }
        }
    }
}

/// Death between the last `Ready` and `Go`: all others start, and detect the death as they would at
/// any later time.
#[test]
fn a_rank_that_dies_during_the_start_does_not_stop_the_others() {
    for _ in 0..20 {
        let zero = config("dies-late", 4);
        let ranks: Vec<_> = [0, 2]
            .map(|r| {
                let config = rank(r, &zero);
                thread::spawn(move || connect(&config, &layout(4)))
            })
            .into();
        let dying = thread::spawn({
            let zero = zero.clone();
            move || welcomed(&zero, 1)
        });
        let mut last = welcomed(&zero, 3);
        let dying = dying.join().unwrap();
        dying.send(Body::Ready, &[], soon()).unwrap();
        last.send(Body::Ready, &[], soon()).unwrap();
        drop(dying); // its only unread message of rank 0 is `Go`
        // Either rank 0 has detected the death before it sent a `Go`, or every rank has received
        // `Go`.
        let answer = next(&mut last).unwrap();
        let pid = std::process::id();
        let refusal = RendezvousError::Vanished { rank: 1, pid };
        for outcome in ranks.into_iter().map(|rank| rank.join().unwrap()) {
            match &answer {
                Body::Go => assert_eq!(outcome.unwrap().peers.len(), 4),
                other => {
                    assert_eq!(other, &Body::Refused(refusal.clone()));
                    assert_eq!(outcome.unwrap_err(), refusal);
                }
            }
        }
        assert!(
            matches!(next(&mut last), Err(ReceiveError::Gone)),
            "and nothing after it"
        );
    }
}

/// The file that rank 0 sends is checked before it is mapped: a short file would be a SIGBUS later.
#[test]
fn files_that_are_not_the_memory_of_the_job_are_refused() {
    let bytes = LAYOUT.bytes();
    let unsealed: OwnedFd =
        rustix::fs::memfd_create("ronde-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&unsealed, bytes as u64).unwrap();
    let sealed = |bytes| Region::create("ronde-test", bytes).unwrap().1;
    let shorter = format!("{} bytes instead of {bytes}", bytes - 4096);
    let cases = [
        (unsealed, "not sealed"),
        (sealed(bytes - 4096), &shorter),
        (sealed(bytes + 4096), "bytes instead of"),
        (sealed(bytes), "begins with the words [0, 0, 0]"),
        (
            std::fs::File::open("/proc/self/stat").unwrap().into(),
            "not sealed",
        ),
    ];
    for (file, part) in cases {
        let zero = config("memory-file", 2);
        let listener = UnixListener::bind_addr(&address(&zero).unwrap()).unwrap();
        let client = thread::spawn({
            let zero = zero.clone();
            move || connect(&rank(1, &zero), &LAYOUT)
        });
        let mut connection = welcoming(&zero, &listener);
        connection.send(welcome(), &[file.as_fd()], soon()).unwrap();
        let error = client.join().unwrap().unwrap_err();
        let RendezvousError::InvalidMemory {
            first_rank: 0,
            rank: 1,
            problem,
        } = &error
        else {
            panic!("{error}");
        };
        assert!(problem.contains(part), "{problem}");
        assert_eq!(next(&mut connection).unwrap(), Body::Refused(error));
    }
}

/// A `Welcome` with numbers out of range, and one without a file.
#[test]
fn a_welcome_that_does_not_fit_is_refused() {
    let of = |pids: usize, pidfds: Vec<Option<usize>>| Welcome {
        pids: vec![1; pids],
        pidfds,
    };
    for (welcome, files) in [
        (of(2, vec![None; 2]), 0),
        (of(2, vec![None, Some(0)]), 1),
        (of(2, vec![Some(usize::MAX), None]), 1),
        (of(1, vec![None; 2]), 1),
        (of(2, vec![None; 3]), 1),
        (of(0, vec![]), 1),
    ] {
        let zero = config("welcome", 2);
        let listener = UnixListener::bind_addr(&address(&zero).unwrap()).unwrap();
        let client = thread::spawn({
            let zero = zero.clone();
            move || connect(&rank(1, &zero), &LAYOUT)
        });
        let connection = welcoming(&zero, &listener);
        let (_region, file) = Region::create("ronde-test", LAYOUT.bytes()).unwrap();
        let files: Vec<_> = (0..files).map(|_| file.as_fd()).collect();
        connection
            .send(Body::Welcome(welcome), &files, soon())
            .unwrap();
        let error = client.join().unwrap().unwrap_err();
        assert!(
            matches!(error, RendezvousError::Malformed { rank: 0, .. }),
            "{error}"
        );
    }
}

/// A `Hello` with numbers that no rank would send is refused, and rank 0 sends that error.
#[test]
fn introductions_with_impossible_values_are_errors() {
    let change = |change: fn(&mut Hello)| {
        let Body::Hello(mut hello) = hello(1, 2) else {
            panic!()
        };
        change(&mut hello);
        hello
    };
    for hello in [
        change(|hello| hello.rank = usize::MAX),
        change(|hello| hello.rank = 0),
        change(|hello| hello.members = Vec::new()),
        change(|hello| hello.members = (0..2000).map(|rank| usize::MAX - rank).collect()),
        change(|hello| hello.region_bytes = usize::MAX),
        change(|hello| hello.cache_words = usize::MAX),
        change(|hello| hello.host_key = "\u{1}".repeat(9000)),
        change(|hello| hello.contract = vec![("x".to_owned(), "\u{1}".repeat(9000))]),
    ] {
        let zero = config("impossible", 2);
        let server = thread::spawn({
            let zero = zero.clone();
            move || connect(&zero, &LAYOUT)
        });
        let mut connection = Connection::connected(connect_socket(&zero));
        connection
            .send(Body::Hello(hello.clone()), &[], soon())
            .unwrap();
        let error = server.join().unwrap().unwrap_err();
        assert_eq!(
            next(&mut connection).unwrap(),
            Body::Refused(error),
            "{:?}",
            (hello.rank, hello.region_bytes)
        );
    }
}

/// Another program of this user holds the name: it accepts connections without an answer, or
/// accepts none.
#[test]
fn a_name_that_another_program_holds_is_reported_by_every_rank_at_once() {
    for backlog in [Some(128), None] {
        let zero = RendezvousConfig {
            start_timeout: Duration::from_secs(600),
            ..config("squat", 3)
        };
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        let name = crate::transport::local::rendezvous::name(&zero);
        let name = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::bind(&socket, &name).unwrap();
        if let Some(backlog) = backlog {
            rustix::net::listen(&socket, backlog).unwrap();
        }
        let began = Instant::now();
        let ranks = (0..3).map(|r| (rank(r, &zero), layout(3))).collect();
        for (r, outcome) in try_to_connect(ranks).into_iter().enumerate() {
            let (pid, uid) = match backlog {
                Some(_) => (
                    std::process::id(),
                    Some(rustix::process::geteuid().as_raw()),
                ),
                None => (0, None),
            };
            assert_eq!(
                outcome.unwrap_err(),
                RendezvousError::NameHeld { rank: r, pid, uid }
            );
        }
        assert!(
            began.elapsed() < 6 * INTRODUCTION_TIMEOUT,
            "the start timeout is 600 s"
        );
    }
}

/// A socket that another user holds, in the one case that can be tested: with the right to become
/// another user.
#[test]
fn a_name_that_another_user_holds_is_reported_by_every_rank_and_receives_nothing() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("left out: only root can become another user");
    }
    const OTHER: u32 = 65_533;
    let zero = config("other-user", 3);
    let name = crate::transport::local::rendezvous::name(&zero);
    let (report, mut said) = UnixStream::pair().unwrap();
    // A separate thread, of which alone the user changes: the libc's `setresuid` would change it
    // for all threads.
    let holder = thread::spawn(move || {
        // SAFETY: changes the user of this thread, which does nothing else before it ends.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, OTHER, OTHER, OTHER) };
        assert_eq!(changed, 0);
        let address =
            <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
                .unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let mut report = report;
        report.write_all(b"!").unwrap();
        (0..3)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).unwrap();
                heard.len()
            })
            .sum::<usize>()
    });
    said.read_exact(&mut [0]).unwrap();
    let began = Instant::now();
    let ranks = (0..3).map(|r| (rank(r, &zero), layout(3))).collect();
    for (r, outcome) in try_to_connect(ranks).into_iter().enumerate() {
        let error = outcome.unwrap_err();
        let expected = RendezvousError::ForeignUser {
            rank: r,
            pid: std::process::id(),
            found: OTHER,
            expected: rustix::process::geteuid().as_raw(),
        };
        assert_eq!(error, expected);
    }
    assert!(began.elapsed() < zero.start_timeout);
    assert_eq!(holder.join().unwrap(), 0, "bytes sent to another user");
}
