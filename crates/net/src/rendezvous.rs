//! Rendezvous: rank 0 waits for all ranks, compares them with itself, and tells each where the
//! others are; then neighbours connect.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::address::seen_from;
use crate::config::VERSION;
use crate::control::{Control, Hello, Peer, shortened};
use crate::error::NetError;
use crate::late::{LateWarnings, not_come};
use crate::link::{End, Link};
use crate::mesh::{Core, Phase};
use crate::neighbours;

/// How much longer than rank 0 the others wait for its answer.
const VERDICT_PATIENCE: Duration = Duration::from_secs(3);

/// Time for which rank 0, after it has refused a rank, tells the reason to those that come later.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// Runs the rendezvous; returns all ranks in order.
pub(crate) fn run(core: &mut Core) -> Result<Vec<Peer>, NetError> {
    let deadline = Instant::now() + core.config.start_timeout;
    let config = &core.config;
    let (rank, size) = (config.rank, config.size);
    let peer = Peer {
        host: config.host.clone(),
        host_key: config.host_key.clone(),
        address: config.server,
    };
    if rank == 0 {
        core.peers.insert(0, peer);
        if size > 1 {
            core.listen_as_server()?;
            let gathered = gather(core, deadline);
            if let Err(NetError::Refused { .. }) = gathered {
                core.refuse_latecomers();
            }
            gathered?;
        }
        core.start();
    } else {
        reach(core, deadline)?;
    }
    let ranks: Vec<usize> = neighbours::of(rank, size).into_iter().collect();
    let connect_by = Instant::now() + core.config.connect_timeout();
    connect_at_start(core, &ranks, connect_by.min(deadline))?;
    Ok(core.peers.values().cloned().collect())
}

/// Rank 0: waits for all ranks and starts them.
fn gather(core: &mut Core, deadline: Instant) -> Result<(), NetError> {
    let size = core.config.size;
    let late = LateWarnings::new(core.config.warn_after, core.config.start_timeout);
    while core.peers.len() < size {
        core.turn(Some(until(deadline).min(late.due_in())))?;
        core.check_start()?;
        let missing = (0..size).filter(|it| !core.peers.contains_key(it));
        late.warn(|| not_come(&missing.clone().collect::<Vec<_>>()));
        if Instant::now() >= deadline {
            let error = NetError::Missing {
                missing: missing.collect(),
                host: core.config.host.clone(),
                address: core.config.server,
                waited_seconds: core.config.start_timeout.as_secs(),
                refused: std::mem::take(&mut core.notes),
            };
            core.tell_all(&Control::Refused(error.to_string()));
            return Err(error);
        }
    }
    let peers = core.peers.values().cloned().collect();
    core.tell_all(&Control::Start(peers));
    Ok(())
}

/// Another rank: connects to rank 0 and waits for the start.
fn reach(core: &mut Core, deadline: Instant) -> Result<(), NetError> {
    let (rank, host) = (core.config.rank, core.config.host.clone());
    let mut address = core.config.server;
    let further = core.config.further.clone().into_iter();
    let mut addresses = further.chain([address]).cycle();
    core.begin_connect(0, address);
    let mut reason = "no answer".to_owned();
    let mut retry_at = None;
    let late = LateWarnings::new(core.config.warn_after, core.config.start_timeout);
    while core.phase == Phase::Waiting {
        let wait_until = retry_at.unwrap_or(deadline + VERDICT_PATIENCE);
        core.turn(Some(until(wait_until).min(late.due_in())))?;
        core.check_start()?;
        late.warn(|| match core.link_to(0) {
            Some(_) => "not all ranks have come".to_owned(),
            None => format!("no connection to rank 0 at {address} ({reason})"),
        });
        match core.attempts.remove(&0) {
            None => {}
            Some(End::Refused(reason)) => return Err(NetError::Refused { reason }),
            Some(End::NotRonde) => {
                return Err(NetError::NotRonde {
                    rank,
                    host,
                    address,
                });
            }
            Some(End::WrongSecret) => {
                return Err(NetError::WrongSecret {
                    rank,
                    host,
                    address,
                });
            }
            Some(end) => {
                reason = end.to_string();
                retry_at = Some(Instant::now() + RETRY);
            }
        }
        if retry_at.is_some_and(|at| Instant::now() >= at) {
            retry_at = None;
            address = addresses.next().expect("the server's at least");
            core.config.server = address;
            core.begin_connect(0, address);
        }
        // Rank 0 may be about to say which ranks are missing.
        let patience = core.link_to(0).map_or(Duration::ZERO, |_| VERDICT_PATIENCE);
        if Instant::now() >= deadline + patience {
            return Err(not_started(core, address, reason));
        }
    }
    Ok(())
}

/// Error of a rank that rank 0, at `address`, has not started in time; `reason` is why the last
/// attempt to connect has failed.
fn not_started(core: &mut Core, address: SocketAddr, reason: String) -> NetError {
    let (rank, host) = (core.config.rank, core.config.host.clone());
    let waited_seconds = core.config.start_timeout.as_secs();
    match core.link_to(0) {
        Some(_) => NetError::NotStarted {
            rank,
            host,
            address,
            waited_seconds,
        },
        None => NetError::Unreachable {
            rank,
            host,
            address,
            waited_seconds,
            reason,
        },
    }
}

/// Like [`connect`], at the start of the job, which needs all of `ranks`: if one is not connected
/// in time, the other ranks learn the reason.
pub(crate) fn connect_at_start(
    core: &mut Core,
    ranks: &[usize],
    deadline: Instant,
) -> Result<(), NetError> {
    let outcome = connect(core, ranks, deadline);
    if let Err(error @ NetError::Lost { rank, .. }) = &outcome {
        core.give_up(*rank, error.clone()); // nothing if the mesh is over already
    }
    outcome
}

/// Connects this rank to `ranks`, which do the same: of two ranks, the higher one connects.
pub(crate) fn connect(core: &mut Core, ranks: &[usize], deadline: Instant) -> Result<(), NetError> {
    let own = core.config.rank;
    let mut missing: Vec<usize> = ranks.iter().copied().filter(|rank| *rank != own).collect();
    let mut retry_at = Instant::now();
    loop {
        // A rank that has left was connected before. It needs nothing more: operations with it
        // fail.
        missing.retain(|rank| !core.by_rank.contains_key(rank) && !core.left.contains(rank));
        if missing.is_empty() {
            return core.check();
        }
        core.check_start()?;
        let now = Instant::now();
        if now >= deadline {
            let rank = missing[0];
            let end = core.attempts.remove(&rank).unwrap_or(End::Timeout);
            return Err(NetError::Lost {
                rank,
                host: core.host(rank),
                loss: crate::Loss::Failed {
                    reason: format!(
                        "no connection with rank {own} on {} within {} s: {end}",
                        core.config.host,
                        core.config.connect_timeout().as_secs()
                    ),
                },
            });
        }
        if now >= retry_at {
            retry_at = now + RETRY;
            for &rank in missing.iter().filter(|rank| **rank < own) {
                if !core.is_connecting(rank) {
                    let address = core.peers[&rank].address;
                    core.begin_connect(rank, seen_from(core.config.server, address));
                }
            }
        }
        core.turn(Some(until(deadline.min(retry_at))))?;
    }
}

fn until(at: Instant) -> Duration {
    at.saturating_duration_since(Instant::now())
}

impl Core {
    /// Like [`check`](Self::check); the alarm counts as well.
    fn check_start(&self) -> Result<(), NetError> {
        self.check()?;
        let alarm = self.config.alarm.as_ref();
        match alarm.and_then(|alarm| (alarm.0)()) {
            Some(reason) => Err(NetError::Ended { reason }),
            None => Ok(()),
        }
    }

    /// The connecting side, which is authenticated, introduces itself.
    pub(crate) fn introduce(&mut self, link: &mut Link, index: usize) -> Result<(), End> {
        let local = link.stream.local_addr()?;
        // The interface that reaches rank 0 is the one that other ranks reach. On rank 0's host it
        // may be a loopback interface: then they look for this rank where they find rank 0.
        let is_like_rank_0 = self.config.on_all_interfaces && local.ip().is_loopback();
        let bound = match self.listeners.first() {
            Some(listener) => listener.local_addr()?,
            None => match is_like_rank_0 {
                true => self.listen_everywhere(0),
                false => self.listen((local.ip(), 0).into()),
            }
            .map_err(|error| End::Failed(error.to_string()))?,
        };
        let address = match bound.ip().is_unspecified() {
            true => SocketAddr::new(local.ip(), bound.port()),
            false => bound,
        };
        let config = &self.config;
        let number = |number: usize| u32::try_from(number).expect("ranks are few");
        link.outbound.push_control(&Control::Hello(Hello {
            version: VERSION.to_owned(),
            job: config.job.clone(),
            init: config.init,
            rank: number(config.rank),
            size: number(config.size),
            peer: Peer {
                host: config.host.clone(),
                host_key: config.host_key.clone(),
                address,
            },
            contract: config.contract.clone(),
        }));
        link.deadline = None;
        self.by_rank
            .insert(link.rank.expect("known from the start"), index);
        Ok(())
    }

    /// The accepting side handles the hello of the connecting rank.
    pub(crate) fn on_hello(
        &mut self,
        link: &mut Link,
        index: usize,
        mut hello: Hello,
    ) -> Result<(), End> {
        let rank = hello.rank as usize;
        hello.peer.host = shortened(&hello.peer.host);
        hello.peer.host_key = shortened(&hello.peer.host_key);
        if (&hello.job, hello.init) != (&self.config.job, self.config.init) {
            // It may be early for the next mesh, or have the wrong port: it tries again.
            let reason = format!(
                "rank {rank} on {} belongs to job {:?} (start {}), rank {} on {} to job {:?} (start \
                 {})",
                hello.peer.host,
                shortened(&hello.job),
                hello.init,
                self.config.rank,
                self.config.host,
                self.config.job,
                self.config.init
            );
            send_last(link, &Control::Later(reason.clone()));
            return Err(End::Later(reason));
        }
        self.arrived.insert(rank);
        if let (Phase::Gathering, Some(NetError::Refused { reason })) = (&self.phase, &self.verdict)
        {
            return Err(self.refuse(link, reason.clone()));
        }
        if let Some(difference) = self.difference(&hello) {
            return Err(self.refuse(link, difference));
        }
        if self.by_rank.contains_key(&rank) || rank == self.config.rank {
            let first = match self.peers.get(&rank) {
                Some(peer) => format!("on {}", peer.host),
                None => "with the same number".to_owned(),
            };
            let reason = format!(
                "rank {rank} on {} is a duplicate: rank {rank} {first} is connected already; give \
                 each process its own rank",
                hello.peer.host
            );
            return Err(self.refuse(link, reason));
        }
        if self.phase == Phase::Gathering {
            self.peers.insert(rank, hello.peer);
        }
        link.rank = Some(rank);
        link.stage = crate::link::Stage::Open;
        link.deadline = None;
        self.by_rank.insert(rank, index);
        Ok(())
    }

    /// Describes the first difference between another rank's configuration and this one's.
    fn difference(&self, hello: &Hello) -> Option<String> {
        let config = &self.config;
        let differ = |what: &str, found: &str, own: &str| {
            Some(format!(
                "rank {} on {} has {what} {}, rank {} on {} has {}: give all ranks the same",
                hello.rank,
                hello.peer.host,
                shown(found),
                config.rank,
                config.host,
                shown(own)
            ))
        };
        if hello.size as usize != config.size {
            return differ("size", &hello.size.to_string(), &config.size.to_string());
        }
        if hello.rank >= hello.size {
            return Some(format!(
                "rank {} on {} is not a rank of a job of {} ranks",
                hello.rank, hello.peer.host, config.size
            ));
        }
        let number = |count: usize| count.to_string();
        let (theirs, ours) = (&hello.contract, &config.contract);
        if theirs.len() != ours.len() {
            return differ(
                "number of settings",
                &number(theirs.len()),
                &number(ours.len()),
            );
        }
        let mut pairs = theirs.iter().zip(ours);
        let ((name, found), (own_name, own)) = pairs.find(|(theirs, ours)| theirs != ours)?;
        match name == own_name {
            true => differ(&shortened(name), found, own),
            false => differ("setting", name, own_name),
        }
    }

    /// Refuses a rank of another version.
    pub(crate) fn refuse_version(&mut self, link: &mut Link, found: &str) -> End {
        let reason = format!(
            "a rank at {} runs ronde {found}, rank {} on {} runs ronde {VERSION}: install the same \
             version on all hosts",
            link.address.ip(),
            self.config.rank,
            self.config.host
        );
        self.refuse(link, reason)
    }

    /// Refuses a rank of this job. Before the start, the job cannot start any more.
    fn refuse(&mut self, link: &mut Link, reason: String) -> End {
        send_last(link, &Control::Refused(reason.clone()));
        if self.phase == Phase::Gathering && self.verdict.is_none() {
            self.tell_all(&Control::Refused(reason.clone()));
            self.fail_all(NetError::Refused {
                reason: reason.clone(),
            });
        }
        End::Refused(reason)
    }

    /// Rank 0: tells the reason to ranks that come after the first refusal, for a moment.
    fn refuse_latecomers(&mut self) {
        let until = Instant::now() + REFUSAL_TIME;
        while Instant::now() < until && self.arrived.len() < self.config.size - 1 {
            if self.turn(Some(RETRY)).is_err() {
                return;
            }
        }
    }

    /// Takes in rank 0's list of all ranks.
    pub(crate) fn on_start(&mut self, peers: Vec<Peer>) -> Result<(), String> {
        if peers.len() != self.config.size {
            return Err(format!(
                "a list of {} ranks of {}",
                peers.len(),
                self.config.size
            ));
        }
        self.peers = peers.into_iter().enumerate().collect();
        self.start();
        Ok(())
    }
}

/// Sends a last message: the socket of a new connection has room for it, or has failed already.
fn send_last(link: &mut Link, message: &Control) {
    link.outbound.push_control(message);
    if let Err(error) = link.outbound.write(&mut link.stream) {
        tracing::debug!(address = %link.address, %error, "a refused rank does not learn the reason");
    }
}

/// A value in a sentence.
fn shown(value: &str) -> String {
    match value {
        "" => "none".to_owned(),
        value => shortened(value),
    }
}
