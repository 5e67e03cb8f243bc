//! Turns: what is sent and received while the owner of a mesh drives it, heartbeats, and the end.

use std::time::{Duration, Instant};

use mio::Token;

use super::{CONNECTING_TICK, Core, LINKS, LISTENER, Phase, WAKER};
use crate::control::Control;
use crate::error::{Loss, NetError};
use crate::link::{End, Link, Stage};
use crate::neighbours;

/// Interval of a rank's heartbeats to each neighbour.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// A neighbour that has sent nothing for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often a rank looks for silent neighbours and late connections.
const TICK: Duration = Duration::from_millis(500);
/// After a pause of this length between two looks it is this rank that was stopped.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a mesh that ends tries to send what is left.
const FAREWELL: Duration = Duration::from_secs(1);

impl Core {
    /// How often `tick` is due.
    pub(super) fn tick_interval(&self) -> Duration {
        let mut links = self.links.iter().flatten();
        match links.any(|link| link.deadline.is_some()) {
            true => CONNECTING_TICK,
            false => TICK,
        }
    }

    /// See [`Mesh::turn`], except that the verdict is no error here.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) -> Result<bool, NetError> {
        self.flush();
        let tick = self.tick_interval();
        let timeout = match self.readable.is_empty() && !self.has_moved {
            true if timeout == Some(Duration::ZERO) => Duration::ZERO,
            true => {
                let until_tick = tick.saturating_sub(self.ticked.elapsed());
                timeout.map_or(until_tick, |timeout| timeout.min(until_tick))
            }
            // An operation that the caller has begun since the last turn may have completed others.
            false => Duration::ZERO,
        };
        let mut events = self.events.take().expect("returned below");
        match self.poll.poll(&mut events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => events.clear(),
            Err(error) => {
                self.events = Some(events);
                return Err(NetError::system("epoll_wait")(error));
            }
        }
        for event in &events {
            match event.token() {
                WAKER => {}
                LISTENER => self.accept(),
                Token(token) => {
                    let index = token - LINKS;
                    if (event.is_read_closed() || event.is_error())
                        && let Some(Some(link)) = self.links.get_mut(index)
                    {
                        link.is_ending = true;
                    }
                    if event.is_readable() || event.is_read_closed() || event.is_error() {
                        self.readable.push(index);
                    }
                    if event.is_writable() || event.is_error() {
                        self.write(index);
                    }
                }
            }
        }
        self.events = Some(events);
        let mut readable = std::mem::take(&mut self.readable);
        readable.sort_unstable();
        readable.dedup();
        readable.into_iter().for_each(|index| self.read(index));
        if self.ticked.elapsed() >= tick {
            self.tick();
        }
        Ok(std::mem::take(&mut self.has_moved))
    }

    /// See [`Mesh::glance`].
    pub(super) fn glance(&mut self) -> Result<bool, NetError> {
        let Some(index) = self.awaited.filter(|_| self.readable.is_empty()) else {
            return self.turn(Some(Duration::ZERO));
        };
        self.flush();
        self.read(index);
        Ok(std::mem::take(&mut self.has_moved))
    }

    /// Closes connections that are late, sends heartbeats, and looks for silent neighbours.
    fn tick(&mut self) {
        let now = Instant::now();
        let pause = now.duration_since(std::mem::replace(&mut self.ticked, now));
        if pause > PAUSE_MAX {
            // Messages that the others sent during the pause are still to be read.
            for link in self.links.iter_mut().flatten() {
                link.heard = now;
            }
        }
        for index in 0..self.links.len() {
            let deadline = self.links[index].as_ref().and_then(|link| link.deadline);
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.end(index, End::Timeout);
            }
        }
        if self.phase != Phase::Started {
            return;
        }
        let (rank, size) = (self.config.rank, self.config.size);
        if now >= self.next_beat {
            self.next_beat = now + BEAT_INTERVAL;
            for after in neighbours::after(rank, size) {
                self.tell(after, &Control::Beat);
            }
        }
        for before in neighbours::before(rank, size) {
            let Some(link) = self.link_to(before) else {
                continue;
            };
            let silent = now.duration_since(link.heard);
            if silent >= SILENCE_MAX && !link.is_leaving {
                let seconds = silent.as_secs();
                self.lose(before, Loss::Silent { seconds });
            }
        }
    }

    /// Begins the time of heartbeats.
    pub(crate) fn start(&mut self) {
        let now = Instant::now();
        self.phase = Phase::Started;
        (self.ticked, self.next_beat) = (now, now);
        for link in self.links.iter_mut().flatten() {
            link.heard = now;
        }
    }

    pub(super) fn write(&mut self, index: usize) {
        if self.phase == Phase::Leaving {
            return;
        }
        let Some(Some(link)) = self.links.get_mut(index) else {
            return;
        };
        let outcome = match link.stage {
            Stage::Connecting => link.check_connected().map(|()| false),
            _ => link.outbound.write(&mut link.stream).map_err(End::from),
        };
        match outcome {
            Ok(has_written) => self.has_moved |= has_written,
            Err(end) => {
                self.read_rest(index);
                self.end(index, end);
            }
        }
    }

    /// See [`Mesh::say_farewell`].
    pub(super) fn say_farewell(&mut self) {
        self.close_listeners();
        // Without a closing message, the others report this rank as lost.
        let is_orderly = self.verdict.is_none() && !std::thread::panicking();
        let is_first = !std::mem::replace(&mut self.has_said_farewell, true);
        if self.phase == Phase::Started && is_orderly && is_first {
            self.tell_all(&Control::Bye);
        }
    }

    /// Tells the others that this rank needs nothing more, and sends what is left.
    pub(super) fn leave(&mut self) {
        self.say_farewell();
        let is_busy = |link: &Link| link.is_open() && !link.outbound.is_idle();
        self.turn_while(is_busy);
        self.phase = Phase::Leaving;
        for link in self.links.iter().flatten() {
            // The other side may have closed it already.
            let _ = link.stream.shutdown(std::net::Shutdown::Write);
        }
        // A socket that is closed before everything was read discards what it has not sent yet. The
        // other side closes the connection when it has read the end.
        self.turn_while(Link::is_open);
    }

    /// Turns as long as a connection `is` so, but not for long.
    fn turn_while(&mut self, is: impl Fn(&Link) -> bool) {
        let began = Instant::now();
        while began.elapsed() < FAREWELL && self.links.iter().flatten().any(&is) {
            if self.turn(Some(CONNECTING_TICK)).is_err() {
                break;
            }
        }
    }
}
