//! Rendezvous of ranks that match, of ranks that do not, and of unauthenticated connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{as_ranks, configs, free_address, join, wait};
use ronde_net::{Alarm, Config, Mesh, NetError, Peer, Secret};

#[test]
fn all_ranks_know_each_other() {
    for (size, ip) in [
        (1, "127.0.0.1"),
        (2, "::1"),
        (5, "127.0.0.1"),
        (9, "127.0.0.1"),
    ] {
        let peers = as_ranks(configs(size, free_address(ip)), |config| {
            let (mesh, comm) = join(&config).unwrap();
            assert_eq!((mesh.rank(), mesh.size()), (config.rank, config.size));
            // No rank leaves before all have come.
            let all = comm.allgather(vec![1], vec![0; config.size], 1);
            assert_eq!(wait(&mesh, all).unwrap().1, vec![1; config.size]);
            mesh.peers().to_vec()
        });
        let hosts: Vec<&str> = peers[0].iter().map(|peer| peer.host.as_str()).collect();
        let expected: Vec<String> = (0..size).map(|rank| format!("host{rank}")).collect();
        assert_eq!(hosts, expected);
        assert!(peers.iter().all(|of_rank| *of_rank == peers[0]));
        let is_distinct = |peer: &Peer| peers[0].iter().filter(|it| *it == peer).count() == 1;
        assert!(peers[0].iter().all(is_distinct));
    }
}

#[test]
fn a_job_of_one_rank_does_not_listen() {
    let address = free_address("127.0.0.1");
    let mesh = Mesh::join(&configs(1, address).remove(0)).unwrap();
    assert!(TcpStream::connect(address).is_err());
    mesh.turn(Some(Duration::ZERO)).unwrap();
}

#[test]
fn ranks_meet_again_on_the_same_port() {
    as_ranks(configs(3, free_address("127.0.0.1")), |config| {
        for init in 0..4 {
            let (mesh, comm) = join(&Config {
                init,
                ..config.clone()
            })
            .unwrap();
            let all = wait(
                &mesh,
                comm.allgather(vec![config.rank as u8], vec![9; 3], 1),
            );
            assert_eq!(all.unwrap().1, [0, 1, 2]);
            // The ranks leave at different times; the first ones come too early.
            std::thread::sleep(Duration::from_millis(150 * (2 - config.rank as u64)));
        }
    });
}

/// Ends of two ranks of which the second one differs by `change`.
fn ends(change: impl FnOnce(&mut Config)) -> [NetError; 2] {
    let mut configs = configs(2, free_address("127.0.0.1"));
    for config in &mut configs {
        config.start_timeout = Duration::from_secs(3);
    }
    change(&mut configs[1]);
    let ends = as_ranks(configs, |config| Mesh::join(&config).err().unwrap());
    ends.try_into().unwrap()
}

#[test]
fn another_secret_is_reported_on_both_sides() {
    let [zero, one] = ends(|config| config.secret = Secret::random().unwrap());
    assert!(
        matches!(one, NetError::WrongSecret { rank: 1, .. }),
        "{one}"
    );
    let text = one.to_string();
    assert!(
        text.contains("rank 1 on host1") && text.contains("same secret"),
        "{text}"
    );
    let NetError::Missing {
        missing, refused, ..
    } = &zero
    else {
        panic!("{zero}")
    };
    assert_eq!(missing, &[1]);
    assert_eq!(
        refused,
        &["a connection from 127.0.0.1 with another secret"]
    );
}

#[test]
fn another_job_with_the_same_secret_is_named() {
    let [zero, one] = ends(|config| config.job = "elsewhere".into());
    let expected =
        r#"rank 1 on host1 belongs to job "elsewhere" (start 0), rank 0 on host0 to job "test""#;
    for error in [zero, one] {
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn ranks_that_differ_are_named_on_both_sides() {
    for (change, expected) in [
        (
            (|config| config.contract[0].1 = "2048".into()) as fn(&mut Config),
            "rank 1 on host1 has cache capacity 2048, rank 0 on host0 has 1024: give all ranks the \
             same",
        ),
        (
            |config| config.contract[0].0 = "other".into(),
            "rank 1 on host1 has setting other, rank 0 on host0 has cache capacity",
        ),
        (
            |config| config.contract.clear(),
            "rank 1 on host1 has number of settings 0, rank 0 on host0 has 1",
        ),
        (
            |config| config.size = 3,
            "rank 1 on host1 has size 3, rank 0 on host0 has 2",
        ),
        (
            |config| (config.size, config.rank) = (3, 2),
            "rank 2 on host1 has size 3, rank 0 on host0 has 2",
        ),
    ] {
        for error in ends(change) {
            assert!(matches!(error, NetError::Refused { .. }), "{error:?}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}

#[test]
fn ranks_that_come_after_a_refusal_are_told_the_reason() {
    let mut all = configs(4, free_address("127.0.0.1"));
    all[1].contract[0].1 = "2048".into();
    let errors = as_ranks(all, |config| {
        if config.rank > 1 {
            std::thread::sleep(Duration::from_millis(200));
        }
        Mesh::join(&config).err().unwrap()
    });
    for error in errors {
        assert!(
            error.to_string().contains("has cache capacity 2048"),
            "{error}"
        );
    }
}

fn assert_all_join(configs: Vec<Config>) {
    as_ranks(configs, |config| {
        let (mesh, _) = join(&config).unwrap();
        assert_eq!(mesh.check(), Ok(()));
    });
}

#[test]
fn ranks_try_all_addresses_of_rank_0() {
    let reached = free_address("127.0.0.1");
    let mut elsewhere = reached;
    elsewhere.set_ip([127, 0, 0, 2].into());
    let mut all = configs(3, reached);
    all[1].server = elsewhere; // nobody listens there
    all[1].further = vec![elsewhere, reached];
    // Rank 0's own first address is another one.
    all[0].server.set_ip([127, 0, 0, 3].into());
    all[0].further = vec![reached];
    assert_all_join(all);
}

#[test]
fn rank_0_listens_at_the_addresses_that_it_has() {
    let mut all = configs(2, free_address("127.0.0.1"));
    all[0].further = vec![all[0].server];
    // An address of documentation, which no host has.
    all[0].server.set_ip([192, 0, 2, 1].into());
    assert_all_join(all);
}

#[test]
fn a_duplicate_rank_is_named_on_all_sides() {
    let mut all = configs(3, free_address("127.0.0.1"));
    all[2].rank = 1;
    for error in as_ranks(all, |config| Mesh::join(&config).err().unwrap()) {
        let text = error.to_string();
        assert!(text.contains("rank 1 on host"), "{text}");
        assert!(text.contains("is a duplicate: rank 1 on host"), "{text}");
    }
}

#[test]
fn missing_ranks_are_listed() {
    let mut all = configs(4, free_address("127.0.0.1"));
    all.remove(2);
    for config in &mut all {
        config.start_timeout = Duration::from_secs(5);
    }
    let errors = as_ranks(all, |config| Mesh::join(&config).err().unwrap().to_string());
    let error = &errors[0];
    assert!(
        error.starts_with("rank 2 has not connected to rank 0 on host0 at 127.0.0.1:"),
        "{error}"
    );
    assert!(error.contains(" within 5 s"), "{error}");
    assert_eq!(
        [&errors[0]; 2],
        [&errors[1], &errors[2]],
        "rank 0 tells the others"
    );
}

#[test]
fn a_port_that_is_in_use_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut ranks = configs(2, address);
    let error = Mesh::join(&ranks[0]).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, NetError::Listen { rank: 0, .. }), "{text}");
    assert!(
        text.contains(&address.to_string()) && text.contains("another"),
        "{text}"
    );

    // The other ranks reach the other program. One that answers is recognized.
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[b'x'; 100]).unwrap();
        let _ = stream.read(&mut [0]);
    });
    let error = Mesh::join(&ranks[1]).err().unwrap();
    assert!(
        matches!(error, NetError::NotRonde { rank: 1, .. }),
        "{error}"
    );
    answering.join().unwrap();

    // One that is silent is given up.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ranks[1].server = listener.local_addr().unwrap();
    ranks[1].start_timeout = Duration::from_secs(4);
    let error = Mesh::join(&ranks[1]).err().unwrap();
    assert!(matches!(error, NetError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("no answer"), "{error}");
}

/// Connects to `address` as soon as a process listens there.
fn connect(address: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn unauthenticated_connections_are_closed_and_do_not_keep_the_ranks_out() {
    let address = free_address("127.0.0.1");
    let mut all = configs(2, address);
    let late = all.remove(1);
    let zero = std::thread::spawn(move || {
        let (mesh, comm) = join(&all[0]).unwrap();
        wait(&mesh, comm.allgather(vec![0], vec![9; 2], 1))
            .unwrap()
            .1
    });
    // Connections that send nothing, more than may be open at a time.
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    // And some that send what no rank sends.
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0; 64]] {
        let mut stream = connect(address);
        stream.write_all(garbage).unwrap();
        silent.push(stream);
    }
    let one = std::thread::spawn(move || {
        let (mesh, comm) = join(&late).unwrap();
        wait(&mesh, comm.allgather(vec![1], vec![9; 2], 1))
            .unwrap()
            .1
    });
    assert_eq!(one.join().unwrap(), [0, 1]);
    assert_eq!(zero.join().unwrap(), [0, 1]);
    for mut stream in silent {
        // The challenge, and then the end of the connection.
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        assert!(bytes.len() <= 40 + 32, "{} bytes", bytes.len());
    }
}

#[test]
fn an_unauthenticated_connection_is_closed_while_the_mesh_lives() {
    let address = free_address("127.0.0.1");
    let is_over = Arc::new(AtomicBool::new(false));
    let (joined, has_joined) = std::sync::mpsc::channel();
    let ranks = configs(2, address).into_iter().map(|config| {
        let (joined, is_over) = (joined.clone(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let (mesh, comm) = join(&config).unwrap();
            joined.send(()).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                mesh.turn(Some(Duration::from_millis(10))).unwrap();
            }
            let all = comm.allgather(vec![config.rank as u8], vec![9; 2], 1);
            wait(&mesh, all).unwrap().1
        })
    });
    let ranks: Vec<_> = ranks.collect();
    (0..2).for_each(|_| has_joined.recv().unwrap());
    let mut stream = connect(address);
    let limit = Some(Duration::from_secs(20));
    stream.set_read_timeout(limit).unwrap();
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert!(bytes.len() <= 40 + 32, "{} bytes", bytes.len());
    assert!(
        ranks.iter().all(|rank| !rank.is_finished()),
        "the mesh lives"
    );
    is_over.store(true, Ordering::Relaxed);
    for rank in ranks {
        assert_eq!(rank.join().unwrap(), [0, 1]);
    }
}

#[test]
fn ranks_that_wait_for_others_end_with_the_alarm() {
    let began = Instant::now();
    let raised = move || {
        let is_over = began.elapsed() > Duration::from_millis(300);
        is_over.then(|| "the generation is over".to_owned())
    };
    // Rank 2 does not come; of another job, rank 0 does not.
    let mut all = configs(3, free_address("127.0.0.1"));
    all[2] = configs(3, free_address("127.0.0.1")).remove(2);
    let all = all.into_iter().map(|config| Config {
        alarm: Some(Alarm(Arc::new(raised))),
        ..config
    });
    let errors = as_ranks(all.collect(), |config| Mesh::join(&config).err().unwrap());
    for error in &errors {
        // A rank whose peer has ended first may have lost its connection to it.
        let is_other = matches!(error, NetError::Lost { .. } | NetError::Refused { .. });
        assert!(
            is_other || error.to_string() == "the generation is over",
            "{error:?}"
        );
    }
    let ended = |error: &&NetError| matches!(error, NetError::Ended { .. });
    assert!(errors.iter().filter(ended).count() >= 2, "{errors:?}");
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "the start timeout is 60 s"
    );
}
