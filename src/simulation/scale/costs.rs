//! Measured costs of messages and of the computation of a cycle.

use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ronde_net::{Comm, Config, Mesh, Pending, Secret};

use super::{TENSORS, adopt, agreement, block, state_of};
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::transport::local::LocalTransport;
use crate::transport::simulated::Costs;
use crate::transport::{Combine, Transport};

/// Costs, ns unless stated otherwise. Times are medians.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// A short message between hosts, from the call of the sender until the receiver has it.
    pub(super) latency_ns: f64,
    pub(super) ns_per_byte: f64,
    /// Time for which a message occupies its sender or its receiver.
    pub(super) busy_ns: f64,
    /// A frame through shared memory between two ranks, and for each byte.
    pub(super) local_latency_ns: f64,
    pub(super) local_ns_per_byte: f64,
    /// Adding the block of a rank.
    pub(super) add_ns: f64,
    /// Writing a state and merging another one.
    pub(super) merge_ns: f64,
    /// Reading the combination of all.
    pub(super) adopt_ns: f64,
    /// Length of a block.
    pub(super) block_bytes: usize,
}

impl Measured {
    pub(super) fn network(&self) -> Costs {
        Costs {
            latency_ns: self.latency_ns,
            ns_per_byte: self.ns_per_byte,
            busy_ns: self.busy_ns,
            merge_ns: self.merge_ns,
        }
    }

    /// A message between hosts.
    pub(super) fn message_ns(&self, bytes: usize) -> f64 {
        self.latency_ns.max(2.0 * self.busy_ns) + self.ns_per_byte * bytes as f64
    }

    /// Messages of `count` hosts to one, or from one to them.
    pub(super) fn fan_ns(&self, count: f64, bytes: usize) -> f64 {
        if count == 0.0 {
            return 0.0;
        }
        self.latency_ns + (count - 1.0) * self.busy_ns + count * self.ns_per_byte * bytes as f64
    }

    /// A frame between two ranks of a host.
    pub(super) fn local_ns(&self, bytes: usize) -> f64 {
        self.local_latency_ns + self.local_ns_per_byte * bytes as f64
    }

    pub(super) fn json(&self) -> String {
        let Self {
            latency_ns,
            ns_per_byte,
            busy_ns,
            local_latency_ns,
            local_ns_per_byte,
            add_ns,
            merge_ns,
            adopt_ns,
            block_bytes,
        } = self;
        format!(
            "{{\"latency_ns\": {latency_ns:.0}, \"ns_per_byte\": {ns_per_byte:.4}, \
             \"busy_ns\": {busy_ns:.0}, \"local_latency_ns\": {local_latency_ns:.0}, \
             \"local_ns_per_byte\": {local_ns_per_byte:.4}, \"add_ns\": {add_ns:.0}, \
             \"merge_ns\": {merge_ns:.0}, \"adopt_ns\": {adopt_ns:.0}, \
             \"block_bytes\": {block_bytes}}}"
        )
    }
}

/// Median time of `run`, ns, of `repeats`.
fn median_ns(repeats: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let began = Instant::now();
            run();
            began.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    times[repeats / 2]
}

/// Short and long messages.
const SHORT_BYTES: usize = 200;
const LONG_BYTES: usize = 1 << 20;

/// Measures all costs on this machine: messages between hosts over loopback TCP, spinning.
pub(super) fn measure() -> Measured {
    let mut measured = Measured::default();
    let round_trips = [SHORT_BYTES, LONG_BYTES].map(round_trip_ns);
    let local = [SHORT_BYTES, 30_000].map(local_round_trip_ns);
    let per_byte = |times: [f64; 2], lengths: [usize; 2]| {
        ((times[1] - times[0]) / (2 * (lengths[1] - lengths[0])) as f64).max(0.0)
    };
    measured.ns_per_byte = per_byte(round_trips, [SHORT_BYTES, LONG_BYTES]);
    measured.latency_ns = round_trips[0] / 2.0;
    measured.busy_ns = stream_ns(SHORT_BYTES);
    measured.local_ns_per_byte = per_byte(local, [SHORT_BYTES, 30_000]);
    measured.local_latency_ns = local[0] / 2.0;
    let contribution = block(1);
    let contribution = contribution.contribution(false);
    measured.block_bytes = 8 * (3 + contribution.words());
    const MANY: usize = 1_000;
    let each = |ns: f64| ns / MANY as f64;
    let mut agreed = agreement(8);
    measured.add_ns = each(median_ns(101, || {
        agreed.start(contribution.fact_words());
        (0..MANY).for_each(|_| agreed.add(1, &contribution).expect("valid"));
    }));
    let (mut state, other) = (state_of(0, 2), state_of(1, 2).message());
    measured.merge_ns = each(median_ns(101, || {
        for _ in 0..MANY {
            state.message();
            state.merge(&other).expect("valid");
        }
    }));
    let mut all = state_of(0, 1);
    measured.adopt_ns = each(median_ns(11, || {
        (0..MANY).for_each(|_| assert!(adopt(&mut all, 1, 8).is_held(TENSORS - 1)));
    }));
    measured
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// Runs `body` on two ranks of a mesh, and returns what rank 0 returns.
fn on_mesh(body: fn(&Mesh, &Comm, usize) -> f64, bytes: usize) -> f64 {
    let server = free_address();
    let secret = Secret::random().expect("random bytes");
    let run = move |rank: usize| {
        let mut config = Config::new(rank, 2, server, secret.clone(), "scale");
        config.host_key = format!("host{rank}");
        let mesh: Rc<Mesh> = Mesh::join(&config).expect("both come");
        let comm = Comm::new(&mesh, 0, &[0, 1]).expect("a channel");
        body(&mesh, &comm, bytes)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn({
            let run = run.clone();
            move || run(1)
        });
        let measured = run(0);
        other.join().expect("it ends");
        measured
    })
}

fn wait<B>(mesh: &Mesh, mut pending: Pending<B>) -> B {
    loop {
        if let Some(memory) = pending.test().expect("no rank is lost") {
            return memory;
        }
        mesh.turn(Some(Duration::ZERO)).expect("no rank is lost");
    }
}

/// Round trip of messages of `bytes` bytes over loopback TCP, ns.
fn round_trip_ns(bytes: usize) -> f64 {
    on_mesh(
        |mesh, comm, bytes| {
            let other = 1 - comm.rank();
            let mut memory = vec![0; bytes];
            median_ns(1_001, || {
                for turn in 0..2 {
                    let own = std::mem::take(&mut memory);
                    memory = match turn == comm.rank() {
                        true => wait(mesh, comm.send(own, other, 1)),
                        false => wait(mesh, comm.receive(own, Some(other), 1)),
                    };
                }
            })
        },
        bytes,
    )
}

/// Time of each message of a stream, ns.
fn stream_ns(bytes: usize) -> f64 {
    const MESSAGES: usize = 10_000;
    on_mesh(
        |mesh, comm, bytes| {
            let other = 1 - comm.rank();
            if comm.rank() == 0 {
                let began = Instant::now();
                for _ in 0..MESSAGES {
                    wait(mesh, comm.send(vec![0; bytes], other, 1));
                }
                wait(mesh, comm.receive(vec![0; 1], Some(other), 2));
                return began.elapsed().as_nanos() as f64 / MESSAGES as f64;
            }
            for _ in 0..MESSAGES {
                wait(mesh, comm.receive(vec![0; bytes], Some(other), 1));
            }
            wait(mesh, comm.send(vec![0; 1], other, 2));
            0.0
        },
        bytes,
    )
}

/// A gather and a broadcast of `bytes` bytes between two ranks of a host, ns.
fn local_round_trip_ns(bytes: usize) -> f64 {
    let run = |rank: usize| {
        let config = RendezvousConfig {
            job_key: format!("test-scale-{}-{bytes}", std::process::id()),
            init: 0,
            rank,
            members: [0, 1].into(),
            start_timeout: Duration::from_secs(60),
            warn_after: Duration::ZERO,
            host_key: "host".to_owned(),
            contract: Vec::new(),
            alarm: None,
        };
        let patience = Patience {
            spin: Duration::from_millis(1),
            warn_after: Duration::ZERO,
            give_up_after: None,
        };
        let opened = LocalTransport::open(&config, 1, 4096, |_| patience).expect("both come");
        let mut transport = opened.transport;
        let (mut frames, mut frame) = (Vec::new(), vec![0; bytes]);
        median_ns(1_001, || {
            transport.gather(&frame, &mut frames).expect("both stay");
            transport.broadcast(&mut frame).expect("both stay");
        })
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(1));
        run(0)
    })
}
