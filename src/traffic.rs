//! What a process sends over MPI, counted.

use serde::Serialize;

/// What this process has begun to send over MPI since it started, heartbeats included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MpiTraffic {
    /// Messages to other ranks.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Calls of MPI's own collectives, which are messages of MPI's making: not counted above.
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

    /// What has come since `before`.
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
    fn what_came_since_and_what_was_there_before_are_all() {
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
