//! Counters of the messages that a process sends over MPI or TCP.

use serde::Serialize;

/// Messages that this process has begun to send over MPI or TCP since it started, heartbeats
/// included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MpiTraffic {
    /// Number of messages to other ranks.
    pub messages: u64,
    /// Number of bytes in them.
    pub bytes: u64,
    /// Number of collective operations of the library or of the mesh. The messages inside them are
    /// not counted above.
    pub collectives: u64,
}

impl std::ops::Add for MpiTraffic {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            messages: self.messages + more.messages,
            bytes: self.bytes + more.bytes,
            collectives: self.collectives + more.collectives,
        }
    }
}

impl std::ops::Sub for MpiTraffic {
    type Output = Self;

    /// Messages since `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            messages: self.messages - before.messages,
            bytes: self.bytes - before.bytes,
            collectives: self.collectives - before.collectives,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_messages_and_later_messages_add_up() {
        let of = |messages, bytes, collectives| MpiTraffic {
            messages,
            bytes,
            collectives,
        };
        let (before, now) = (of(3, 384, 2), of(10, 4_480, 7));
        assert_eq!(now - before, of(7, 4_096, 5));
        assert_eq!(before + (now - before), now);
    }
}
