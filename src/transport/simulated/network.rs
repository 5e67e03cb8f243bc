//! Simulated network: the hosts of a job exchange partial states, by the code of the real
//! transport.
//!
//! Each host has a clock. A message occupies its sender and its receiver for a time, and arrives
//! after the latency and the time of its bytes. The states do not depend on the times.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::transport::rounds::{self, Exchanged, InvalidState};

/// Costs of a message between hosts, ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    /// From the call of the sender until the receiver has a short message.
    pub(crate) latency_ns: f64,
    pub(crate) ns_per_byte: f64,
    /// Time for which a message occupies the sender or the receiver.
    pub(crate) busy_ns: f64,
    /// Computation of a host in each round: writing its state and merging another one.
    pub(crate) merge_ns: f64,
}

/// Message that has been sent and not received.
struct Message {
    arrives_ns: f64,
    bytes: Vec<u8>,
}

/// Modification of a message.
pub(crate) type Modify = Box<dyn Fn(&mut Vec<u8>)>;

/// Hosts and the messages between them.
pub(crate) struct Network {
    costs: Costs,
    /// Each host's time, ns.
    clocks: Vec<Cell<f64>>,
    /// Bytes that each host has received.
    received: Vec<Cell<usize>>,
    /// Messages by sender and receiver.
    in_flight: RefCell<HashMap<(usize, usize), VecDeque<Message>>>,
    /// Messages that were received.
    swaps: Cell<usize>,
    /// Host whose messages are modified, and how.
    hostile: Option<(usize, Modify)>,
}

impl Network {
    /// A network of `hosts` hosts, at time 0.
    pub(crate) fn new(hosts: usize, costs: Costs) -> Self {
        Self {
            costs,
            clocks: vec![Cell::new(0.0); hosts],
            received: vec![Cell::new(0); hosts],
            in_flight: RefCell::default(),
            swaps: Cell::default(),
            hostile: None,
        }
    }

    /// Modifies all messages of `host`.
    pub(crate) fn set_hostile(&mut self, host: usize, modify: Modify) {
        self.hostile = Some((host, modify));
    }

    /// The latest time of all hosts, ns.
    pub(crate) fn now_ns(&self) -> f64 {
        self.clocks.iter().map(Cell::get).fold(0.0, f64::max)
    }

    /// Largest number of bytes that a host has received.
    pub(crate) fn received_max(&self) -> usize {
        self.received
            .iter()
            .map(Cell::get)
            .max()
            .unwrap_or_default()
    }

    /// Has all hosts exchange their states; returns what each of them has then. A host that waits
    /// for one that has given up gives up with the same reason.
    pub(crate) fn exchange(&self, states: Vec<Exchanged>) -> Vec<Result<Exchanged, InvalidState>> {
        let count = states.len();
        let mut hosts: Vec<_> = states
            .into_iter()
            .enumerate()
            .map(|(own, state)| {
                let swap = async move |to, from, message| self.swap(own, to, from, message).await;
                Box::pin(rounds::exchange(own, count, state, swap))
            })
            .map(Host::Runs)
            .collect();
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let before = self.swaps.get();
            hosts.iter_mut().for_each(|host| host.poll(&mut context));
            if self.swaps.get() == before {
                break;
            }
        }
        let ended: Vec<_> = hosts.into_iter().map(Host::end).collect();
        let first = ended.iter().flatten().find_map(|end| end.as_ref().err());
        let first = first.cloned();
        let ended = ended.into_iter();
        ended
            .map(|end| end.unwrap_or_else(|| Err(first.clone().expect("a host has given up"))))
            .collect()
    }

    async fn swap(
        &self,
        own: usize,
        to: usize,
        from: usize,
        mut message: Vec<u8>,
    ) -> Result<Vec<u8>, Infallible> {
        let now = self.clocks[own].get();
        if let Some((_, modify)) = self.hostile.as_ref().filter(|(host, _)| *host == own) {
            modify(&mut message);
        }
        let sent = Message {
            arrives_ns: now + self.costs.latency_ns + self.costs.ns_per_byte * message.len() as f64,
            bytes: message,
        };
        let queues = &self.in_flight;
        queues
            .borrow_mut()
            .entry((own, to))
            .or_default()
            .push_back(sent);
        let came = std::future::poll_fn(|_| {
            let mut queues = queues.borrow_mut();
            let came = queues.get_mut(&(from, own)).and_then(VecDeque::pop_front);
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        // It can receive once its own message has been sent.
        let free = now + 2.0 * self.costs.busy_ns;
        self.clocks[own].set(free.max(came.arrives_ns) + self.costs.merge_ns);
        self.swaps.update(|swaps| swaps + 1);
        let received = &self.received[own];
        received.set(received.get() + came.bytes.len());
        Ok(came.bytes)
    }
}

type End = Result<Exchanged, InvalidState>;

enum Host<F> {
    Runs(Pin<Box<F>>),
    Ended(End),
}

impl<F: Future<Output = Result<End, Infallible>>> Host<F> {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Self::Runs(future) = self
            && let Poll::Ready(Ok(end)) = future.as_mut().poll(context)
        {
            *self = Self::Ended(end);
        }
    }

    fn end(self) -> Option<End> {
        match self {
            Self::Ended(end) => Some(end),
            Self::Runs(_) => None,
        }
    }
}
