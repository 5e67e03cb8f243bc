//! Bytes that arrive: to the memory of a receive, or through the parser of frames.

use std::io::Read;
use std::time::Instant;

use smallvec::SmallVec;

use super::{Core, Phase};
use crate::config::VERSION;
use crate::control::{Control, NotUnderstood};
use crate::error::{Loss, NetError};
use crate::inbound::{Arrival, Place};
use crate::link::{End, Link, Stage};
use crate::memory::{Filled, Slice};

/// Bytes that are read from one connection before others have their turn.
const READ_BUDGET: usize = 1 << 20;
/// Reads of so many bytes of a connection that has failed: more than its window.
const REST_READS_MAX: usize = 64;
/// Bytes behind the memory of a receive that are read with it: the next header, and a short
/// message. More would be copied a second time where a long message goes on.
const BEHIND_BYTES: usize = 4 << 10;
/// A frame with so many bytes left is read to the memory of its receive.
const DIRECT_BYTES_MIN: usize = 4 << 10;

impl Core {
    /// Reads what had arrived when a write failed: the other side may have said why it ends.
    pub(super) fn read_rest(&mut self, index: usize) {
        let Some(mut link) = self.links[index].take_if(|link| link.is_open()) else {
            return;
        };
        for _ in 0..REST_READS_MAX {
            if !matches!(self.read_link(&mut link, index), Ok(true)) {
                break;
            }
        }
        self.links[index] = Some(link);
    }

    pub(super) fn read(&mut self, index: usize) {
        let Some(mut link) = self.links.get_mut(index).and_then(Option::take) else {
            return;
        };
        let outcome = self.read_link(&mut link, index);
        if let Some(error) = &self.verdict {
            link.outbound.fail(error);
        }
        self.links[index] = Some(link);
        match outcome {
            Ok(true) => self.readable.push(index),
            Ok(false) => {}
            Err(end) => return self.end(index, end),
        }
        self.write(index);
    }

    /// Reads from a connection that is taken out of the list at `index`; returns whether more may
    /// be there.
    fn read_link(&mut self, link: &mut Link, index: usize) -> Result<bool, End> {
        if matches!(link.stage, Stage::Connecting) {
            link.check_connected()?;
            if matches!(link.stage, Stage::Connecting) {
                return Ok(false);
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = self.read_all(link, index, &mut scratch);
        self.scratch = scratch;
        outcome
    }

    /// Reads until nothing is left (false) or the budget is used (true).
    fn read_all(&mut self, link: &mut Link, index: usize, scratch: &mut [u8]) -> Result<bool, End> {
        let mut budget = READ_BUDGET;
        while budget > 0 {
            let memory = self.memory(link)?;
            let direct = memory.as_ref().map_or(0, |(_, slice)| slice.bytes());
            let outcome = match &memory {
                Some((_, slice)) => slice.read_from(&mut link.stream, &mut scratch[..BEHIND_BYTES]),
                None => link.stream.read(scratch).map(|bytes| Filled {
                    bytes,
                    room: scratch.len(),
                }),
            };
            let (count, wanted) = match outcome {
                Ok(Filled { bytes: 0, .. }) => return Err(End::Closed),
                Ok(Filled { bytes, room }) => (bytes, room),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            link.heard = Instant::now();
            self.has_moved = true;
            if let Some((place, _)) = memory {
                self.wrote(link, place, count.min(direct))?;
            }
            self.take_in(link, index, &scratch[..count.saturating_sub(direct)])?;
            // Further bytes are a further event. The end is not, if it came with these bytes.
            if count < wanted && !link.is_ending {
                return Ok(false);
            }
            budget = budget.saturating_sub(count);
        }
        Ok(true)
    }

    /// Place and memory of the next bytes, if they are many and their receive waits.
    fn memory(&mut self, link: &mut Link) -> Result<Option<(Place, Slice)>, End> {
        let Some((place, remaining)) = link
            .inbound
            .place()
            .filter(|(_, remaining)| *remaining >= DIRECT_BYTES_MIN)
        else {
            return Ok(None);
        };
        let from = link.rank.expect("an open connection has a rank");
        let (memory, cost) = self.inbox.memory(from, place).map_err(End::Invalid)?;
        link.take(place.channel, cost)?;
        Ok(memory.map(|slice| (place, slice.part(0..remaining))))
    }

    /// `count` bytes were read to the memory for `place`.
    fn wrote(&mut self, link: &mut Link, place: Place, count: usize) -> Result<(), End> {
        let from = link.rank.expect("an open connection has a rank");
        link.inbound.advance(count);
        let taken = self.inbox.wrote(from, place, count);
        link.count(place.channel, place.offset, count, taken)
    }

    /// Takes in bytes of a connection.
    fn take_in(&mut self, link: &mut Link, index: usize, bytes: &[u8]) -> Result<(), End> {
        let was_open = link.is_open();
        let mut bytes = link.authenticate(bytes, &self.config.secret)?;
        if link.is_open() && !was_open {
            self.introduce(link, index)?;
        }
        while !bytes.is_empty() {
            // The hello alone says whose the following bytes are.
            let count = match link.rank {
                None => bytes.len().min(link.inbound.missing()),
                Some(_) => bytes.len(),
            };
            let (head, rest) = bytes.split_at(count);
            bytes = rest;
            let mut controls = SmallVec::<[_; 2]>::new();
            let mut counts = SmallVec::<[_; 4]>::new();
            let (rank, inbox) = (link.rank, &mut self.inbox);
            link.inbound
                .feed(head, &mut |arrival| {
                    match arrival {
                        Arrival::Control(message) => {
                            controls.push(Control::decode(message, VERSION));
                        }
                        Arrival::Data(place, bytes) => {
                            let from = rank.ok_or("a message before the hello")?;
                            let taken = inbox.arrive(from, place, bytes)?;
                            counts.push((place, bytes.len(), taken));
                        }
                    }
                    Ok(())
                })
                .map_err(End::Invalid)?;
            for (place, count, taken) in counts {
                link.count(place.channel, place.offset, count, taken)?;
            }
            for control in controls {
                let control = control.map_err(|why| self.not_understood(link, why))?;
                self.control(link, index, control)?;
            }
        }
        Ok(())
    }

    fn not_understood(&mut self, link: &mut Link, why: NotUnderstood) -> End {
        match why {
            NotUnderstood::Malformed { bytes } => {
                End::Invalid(format!("a message of {bytes} bytes that cannot be read"))
            }
            NotUnderstood::Version { found } => self.refuse_version(link, &found),
        }
    }

    fn control(&mut self, link: &mut Link, index: usize, message: Control) -> Result<(), End> {
        match (message, link.rank) {
            (Control::Hello(hello), None) => self.on_hello(link, index, hello),
            (_, None) => Err(End::Invalid("a message before the hello".to_owned())),
            (Control::Start(peers), Some(0)) if self.phase == Phase::Waiting => {
                self.on_start(peers).map_err(End::Invalid)
            }
            (Control::Refused(reason), Some(_)) => Err(End::Refused(reason)),
            (Control::Later(reason), Some(_)) => Err(End::Later(reason)),
            (Control::Beat, Some(_)) => Ok(()),
            (Control::Credit { channel, taken }, Some(_)) => {
                link.outbound.credit(channel, taken).map_err(End::Invalid)
            }
            (Control::Bye, Some(_)) => {
                link.is_leaving = true;
                Ok(())
            }
            (Control::Gone { rank, reason }, Some(by)) if (rank as usize) < self.config.size => {
                let rank = rank as usize;
                if rank == self.config.rank {
                    self.fail_all(NetError::GivenUp { rank, reason });
                } else {
                    self.lose(rank, Loss::Reported { by, reason });
                }
                Ok(())
            }
            (message, Some(_)) => Err(End::Invalid(format!("an unexpected message {message:?}"))),
        }
    }
}
