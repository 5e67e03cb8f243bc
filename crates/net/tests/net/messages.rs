//! Messages and collective operations among ranks of one process.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::support::{as_ranks, configs, free_address, join, wait};
use ronde_net::{Comm, Memory, Mesh, NetError, Parts, part_range};

/// Bytes that rank `rank` sends as message `number`: copied, as a rank that does not turn sends no
/// heartbeats.
fn pattern(rank: usize, number: usize, bytes: usize) -> Vec<u8> {
    const PERIOD: usize = 100_003;
    static BYTES: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..PERIOD).map(|at| (at * 31 + (at >> 8)) as u8).collect());
    let begin = rank * 7 + number * 13;
    let mut pattern = Vec::with_capacity(bytes);
    while pattern.len() < bytes {
        let next = &BYTES[(begin + pattern.len()) % PERIOD..];
        pattern.extend_from_slice(&next[..next.len().min(bytes - pattern.len())]);
    }
    pattern
}

/// Such bytes of ranks `0..size`, one after another.
fn of_all(size: usize, of: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    (0..size).map(of).collect::<Vec<_>>().concat()
}

#[test]
fn collective_operations_move_every_byte_to_its_place() {
    for size in [2, 3, 5] {
        as_ranks(configs(size, free_address("127.0.0.1")), move |config| {
            let (mesh, comm) = join(&config).unwrap();
            let rank = config.rank;
            for (number, bytes) in [0, 1, 100, 70_000, 300_007].into_iter().enumerate() {
                let of = |rank| pattern(rank, number, bytes);

                let all = comm.allgather(of(rank), vec![0; size * bytes], bytes);
                let all = wait(&mesh, all).unwrap().1;
                assert_eq!(all, of_all(size, of));

                let root = number % size;
                let chunk = if rank == root {
                    of(root)
                } else {
                    vec![0; bytes]
                };
                let chunk = wait(&mesh, comm.broadcast(chunk, bytes, root)).unwrap();
                assert_eq!(chunk, of(root));

                // Rank r contributes r + 1 times the pattern's first tenth.
                let length = |rank| (rank + 1) * (bytes / 10);
                let parts = Parts::of((0..size).map(length));
                let own = of(rank).repeat(size)[..length(rank)].to_vec();
                let expected = |rank| of(rank).repeat(size)[..length(rank)].to_vec();
                let all = comm.allgather_parts(own, vec![0; parts.bytes()], parts);
                let all = wait(&mesh, all).unwrap().1;
                assert_eq!(all, of_all(size, expected));

                // A scatter of parts and a gather of the parts put the chunk together again.
                let part = bytes.div_ceil(size).max(1);
                let own = part_range(rank, part, bytes);
                let received = vec![0; own.len() * (size - 1)];
                let scattered = comm.scatter(of(rank), received, part, bytes, 5);
                let (mut chunk, received) = wait(&mesh, scattered).unwrap();
                let others = (0..size).filter(|other| *other != rank);
                let expected: Vec<u8> =
                    others.flat_map(|it| of(it)[own.clone()].to_vec()).collect();
                assert_eq!(received, expected);
                chunk[own.clone()].copy_from_slice(&of(0)[own]);
                let chunk = comm.gather_parts_of(chunk, part, bytes, 6);
                assert_eq!(wait(&mesh, chunk).unwrap(), of(0));
            }

            let to = |from: usize, to: usize| pattern(from, to, 1000 * from + 10 * to);
            let sent: Vec<Vec<u8>> = (0..size).map(|other| to(rank, other)).collect();
            let expected: Vec<Vec<u8>> = (0..size).map(|other| to(other, rank)).collect();
            let lengths = |messages: &[Vec<u8>]| Parts::of(messages.iter().map(Vec::len));
            let received = lengths(&expected);
            let memory = vec![0; received.bytes()];
            let moved = comm.alltoall_parts((sent.concat(), lengths(&sent)), (memory, received));
            let [_, (memory, _)] = wait(&mesh, moved).unwrap();
            assert_eq!(memory, expected.concat());
        });
    }
}

#[test]
fn many_operations_are_in_flight_at_once_and_end_in_any_order() {
    as_ranks(configs(3, free_address("127.0.0.1")), |config| {
        let (mesh, comm) = join(&config).unwrap();
        let other = Comm::new(&mesh, 7, &[0, 1, 2]).unwrap();
        let begin = |number: usize| {
            let bytes = 1 + number * 9_999 % 300_000;
            let comm = if number.is_multiple_of(2) {
                &comm
            } else {
                &other
            };
            let own = pattern(config.rank, number, bytes);
            (bytes, comm.allgather(own, vec![0; 3 * bytes], bytes))
        };
        let mut flights: Vec<_> = (0..60).map(|number| (number, begin(number))).collect();
        while let Some((number, (bytes, pending))) = flights.pop() {
            let all = wait(&mesh, pending).unwrap().1;
            for rank in 0..3 {
                let of_rank = &all[rank * bytes..][..bytes];
                assert!(
                    of_rank == pattern(rank, number, bytes),
                    "{number} of {rank}"
                );
            }
        }
    });
}

#[test]
fn a_message_larger_than_the_window_waits_for_its_receive_and_delays_no_other() {
    const BYTES: usize = 50 << 20;
    as_ranks(configs(2, free_address("127.0.0.1")), |config| {
        // Before the ranks join: heartbeats are sent only while a rank turns.
        let large = pattern(0, 1, BYTES);
        let (mesh, data) = join(&config).unwrap();
        let control = Comm::new(&mesh, 1, &[0, 1]).unwrap();
        if config.rank == 0 {
            let large = data.send(large, 1, 3);
            let second = data.send(b"second".to_vec(), 1, 4);
            for number in 0..100 {
                let answer = control.receive(vec![0], Some(1), number);
                wait(&mesh, control.send(vec![1], 1, number)).unwrap();
                assert_eq!(wait(&mesh, answer).unwrap(), [2]);
            }
            wait(&mesh, large).unwrap();
            wait(&mesh, second).unwrap();
        } else {
            for number in 0..100 {
                let question = control.receive(vec![0], None, number);
                assert_eq!(wait(&mesh, question).unwrap(), [1]);
                wait(&mesh, control.send(vec![2], 0, number)).unwrap();
            }
            // Received in the other order, too.
            let second = data.receive(vec![0; 6], Some(0), 4);
            let received = data.receive(vec![0; BYTES], Some(0), 3);
            assert_eq!(wait(&mesh, second).unwrap(), b"second");
            assert!(wait(&mesh, received).unwrap() == large);
        }
    });
}

/// Memory that a test lends and looks at.
fn lent(bytes: Vec<u8>) -> (Rc<RefCell<Vec<u8>>>, Rc<dyn Memory>) {
    let memory = Rc::new(RefCell::new(bytes));
    (Rc::clone(&memory), memory)
}

#[test]
fn parts_of_lent_memory_are_exchanged_in_place() {
    as_ranks(configs(3, free_address("127.0.0.1")), |config| {
        let (mesh, comm) = join(&config).unwrap();
        let rank = config.rank;
        for (number, bytes) in [1, 100, 300_007].into_iter().enumerate() {
            let of = |rank| pattern(rank, number, bytes);
            let (memory, chunk) = (
                lent([vec![9; 5], of(rank), vec![9; 5]].concat()),
                5..5 + bytes,
            );
            let part = bytes.div_ceil(3);
            let own = part_range(rank, part, bytes);
            let received = vec![0; 2 * own.len()];
            let received = comm.receive_from_all(received, own.len(), 1);
            let sent = comm.send_parts(&memory.1, &chunk, part, 1);
            let expected = (0..3).filter(|other| *other != rank);
            let expected: Vec<u8> = expected
                .flat_map(|other| of(other)[own.clone()].to_vec())
                .collect();
            assert_eq!(wait(&mesh, received).unwrap(), expected);
            wait(&mesh, sent).unwrap();
            // Every rank keeps its own part: the chunk is put together from all of them.
            let results = comm.receive_parts(&memory.1, &chunk, part, 2);
            let own = 5 + own.start..5 + own.end;
            let sent = comm.send_to_all(&memory.1, &own, 2);
            wait(&mesh, results).unwrap();
            wait(&mesh, sent).unwrap();
            let chunk: Vec<u8> = (0..3)
                .flat_map(|rank| of(rank)[part_range(rank, part, bytes)].to_vec())
                .collect();
            let all = [vec![9; 5], chunk, vec![9; 5]].concat();
            assert!(*memory.0.borrow() == all, "{bytes} bytes on rank {rank}");
            assert_eq!(
                Rc::strong_count(&memory.1),
                2,
                "nothing holds it any longer"
            );
        }
    });
}

#[test]
fn messages_from_memory_that_is_taken_back_arrive_as_they_were() {
    const BYTES: usize = 12 << 20; // more than a socket takes at once, less than the window
    as_ranks(configs(2, free_address("127.0.0.1")), |config| {
        let (memory, lent) = lent(pattern(config.rank, 1, BYTES));
        let expected = pattern(1 - config.rank, 1, BYTES);
        let (mesh, comm) = join(&config).unwrap();
        let sent = comm.send_to_all(&lent, &(0..BYTES), 1);
        mesh.flush();
        drop(sent);
        comm.detach(&lent);
        assert_eq!(Rc::strong_count(&lent), 2);
        memory.borrow_mut().fill(0);
        let received = comm.receive_from_all(vec![0; BYTES], BYTES, 1);
        assert!(wait(&mesh, received).unwrap() == expected);
        // The copy is sent whole before this rank leaves.
        let met = comm.allgather(vec![1], vec![0; 2], 1);
        wait(&mesh, met).unwrap();
    });
}

#[test]
fn what_a_rank_has_sent_before_it_leaves_arrives_and_nothing_else_does() {
    as_ranks(configs(2, free_address("127.0.0.1")), |config| {
        let (mesh, comm) = join(&config).unwrap();
        if config.rank == 1 {
            drop(comm.send(pattern(1, 1, 1 << 20), 0, 1));
            return;
        }
        let never = comm.receive(vec![0; 1], Some(1), 2);
        let left = NetError::Left {
            rank: 1,
            host: "host1".into(),
        };
        assert_eq!(wait(&mesh, never).unwrap_err(), left);
        let last = comm.receive(vec![0; 1 << 20], Some(1), 1);
        assert!(wait(&mesh, last).unwrap() == pattern(1, 1, 1 << 20));
        assert_eq!(wait(&mesh, comm.send(vec![1], 1, 1)).unwrap_err(), left);
        assert_eq!(mesh.check(), Ok(()));
    });
}

/// Runs `body` as rank 0 when rank 1 has left and rank 0 has read nothing of it; the last argument is
/// the error of operations with rank 1.
fn once_rank_1_has_left(body: impl Fn(&Mesh, &Comm, NetError) + Send + Sync + 'static) {
    let has_left = std::sync::Arc::new(std::sync::Barrier::new(2));
    as_ranks(configs(2, free_address("127.0.0.1")), move |config| {
        let (mesh, comm) = join(&config).unwrap();
        if config.rank == 1 {
            // It does not wait long for rank 0, which reads nothing.
            drop((comm, mesh));
            has_left.wait();
            return;
        }
        has_left.wait();
        let left = NetError::Left {
            rank: 1,
            host: "host1".into(),
        };
        body(&mesh, &comm, left);
    });
}

#[test]
fn the_farewell_of_a_rank_is_read_after_a_write_to_it_has_failed() {
    once_rank_1_has_left(|mesh, comm, left| {
        // The other side refuses the first message, and the next write fails.
        let sends: Vec<_> = (0..100)
            .map(|tag| {
                let sent = comm.send(vec![1], 1, tag);
                mesh.flush();
                sent
            })
            .collect();
        let last = sends.into_iter().next_back().expect("there are some");
        assert_eq!(wait(mesh, last).unwrap_err(), left);
        assert_eq!(mesh.check(), Ok(()));
    });
}

#[test]
fn the_end_of_a_connection_is_read_with_the_bytes_before_it() {
    once_rank_1_has_left(|mesh, comm, left| {
        let mut never = comm.receive(vec![0; 1], Some(1), 2);
        // One event is for both.
        mesh.turn(Some(Duration::ZERO)).unwrap();
        assert_eq!(never.test().unwrap_err(), left);
    });
}

#[test]
fn another_length_than_expected_ends_the_job_on_both_sides() {
    let ends = as_ranks(configs(2, free_address("127.0.0.1")), |config| {
        let (mesh, comm) = join(&config).unwrap();
        let pending = match config.rank {
            0 => comm.receive(vec![0; 5], Some(1), 0),
            _ => {
                wait(&mesh, comm.send(vec![0; 6], 0, 0)).unwrap();
                comm.receive(vec![0; 1], Some(0), 0)
            }
        };
        wait(&mesh, pending).unwrap_err().to_string()
    });
    let problem = "a message of 6 bytes, where one of 5 is expected";
    assert!(ends[0].contains("rank 1 on host1"), "{}", ends[0]);
    assert!(ends[0].contains(problem), "{}", ends[0]);
    assert!(
        ends[1].starts_with("rank 0 on host0 is lost") || ends[1].contains(problem),
        "{}",
        ends[1]
    );
}

#[test]
fn another_thread_ends_a_turn() {
    as_ranks(configs(2, free_address("127.0.0.1")), |config| {
        let (mesh, comm) = join(&config).unwrap();
        let waker = mesh.waker();
        let began = Instant::now();
        let waking = std::thread::spawn(move || {
            while began.elapsed() < Duration::from_secs(1) {
                waker.wake();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut turns = 0;
        while !waking.is_finished() {
            mesh.turn(None).unwrap();
            turns += 1;
        }
        waking.join().unwrap();
        // Without the waker, a turn lasts half a second.
        assert!(turns > 10, "{turns}");
        wait(&mesh, comm.allgather(vec![0], vec![0; 2], 1)).unwrap();
    });
}
