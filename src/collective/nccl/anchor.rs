//! Conversion of the device's times to the host's clock, by an event whose time is known on both.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Nanos};
use crate::collective::asynchronous::DeviceClock;
use crate::device::Mark;
use crate::gpu::{Device, Stream};

/// Validity of an anchor: the device reports times in milliseconds as 32-bit floats, which have a
/// resolution of a microsecond at ten seconds.
const LIFE: Duration = Duration::from_secs(10);

/// Time limit of the device to reach an event on a stream without other work.
const PATIENCE: Duration = Duration::from_millis(20);

/// Device clock on the host's time.
pub(super) struct AnchoredClock {
    device: Arc<Device>,
    /// Stream that only this clock uses; created when it is needed.
    stream: Option<Stream>,
    anchor: Option<Anchor>,
}

/// An event, and the time at which it was reached.
struct Anchor {
    mark: Mark,
    at: Nanos,
}

impl AnchoredClock {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            stream: None,
            anchor: None,
        }
    }

    /// Makes a new anchor; `None` if the device does not answer as expected.
    fn new_anchor(&mut self, clock: &dyn Clock) -> Option<Anchor> {
        let stream = match self.stream {
            Some(stream) => stream,
            None => *self.stream.insert(self.device.gpu.make_stream().ok()?),
        };
        let before = clock.now();
        let mark = self.device.mark(stream, true).ok()?;
        while !mark.has_come().ok()? {
            if clock.now() - before > PATIENCE {
                return None;
            }
            std::hint::spin_loop();
        }
        let at = before + (clock.now() - before) / 2;
        Some(Anchor { mark, at })
    }
}

impl DeviceClock for AnchoredClock {
    fn align(&mut self, clock: &dyn Clock) -> bool {
        let is_good = |anchor: &Anchor| clock.now() - anchor.at <= LIFE;
        if !self.anchor.as_ref().is_some_and(is_good) {
            self.anchor = self.new_anchor(clock);
        }
        self.anchor.is_some()
    }

    fn time_of(&self, mark: &Mark) -> Option<Nanos> {
        let anchor = self.anchor.as_ref()?;
        if !mark.is_timed {
            return None;
        }
        let elapsed_ns = self
            .device
            .gpu
            .elapsed_ns(anchor.mark.event, mark.event)
            .ok()?;
        anchor.at.0.checked_add_signed(elapsed_ns).map(Nanos)
    }
}

impl Drop for AnchoredClock {
    fn drop(&mut self) {
        if let Some(stream) = self.stream {
            self.device.gpu.destroy_stream(stream);
        }
    }
}
