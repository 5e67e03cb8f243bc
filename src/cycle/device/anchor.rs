//! The device's time on the host's clock: an event whose moment is known on both.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Nanos};
use crate::gpu::{Device, Mark};

/// How long one anchor is good: a device tells times in milliseconds as 32-bit floats, of which ten seconds leave a microsecond.
const LIFE: Duration = Duration::from_secs(10);

/// The device is asked for so long whether it has come to an event, on a stream where nothing else is.
const PATIENCE: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct Anchor {
    mark: Mark,
    at: Nanos,
    stream: Own,
}

/// A stream that nothing else is put on.
struct Own {
    stream: crate::gpu::Stream,
    device: Arc<Device>,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.device.gpu.destroy_stream(self.stream);
    }
}

impl Anchor {
    /// The anchor, a new one if it is too old; none if the device does not answer as it should.
    pub(super) fn renewed<'a>(
        known: &'a mut Option<Self>,
        device: &Arc<Device>,
        clock: &dyn Clock,
    ) -> Option<&'a Self> {
        if known.as_ref().is_none_or(|known| clock.now() - known.at > LIFE) {
            let stream = match known.take() {
                Some(known) => known.stream,
                None => Own {
                    stream: device.gpu.make_stream().ok()?,
                    device: Arc::clone(device),
                },
            };
            *known = Self::drop_at(stream, device, clock);
        }
        known.as_ref()
    }

    fn drop_at(stream: Own, device: &Arc<Device>, clock: &dyn Clock) -> Option<Self> {
        let before = clock.now();
        let mark = device.mark(stream.stream, true).ok()?;
        while !device.gpu.has_come(mark.event).ok()? {
            if clock.now() - before > PATIENCE {
                return None;
            }
            std::hint::spin_loop();
        }
        let at = before + (clock.now() - before) / 2;
        Some(Self { mark, at, stream })
    }

    /// When a mark was reached, which was.
    pub(super) fn time_of(&self, mark: &Mark) -> Option<Nanos> {
        if !mark.is_timed {
            return None;
        }
        let elapsed_ns = self
            .stream
            .device
            .gpu
            .elapsed_ns(self.mark.event, mark.event)
            .ok()?;
        self.at.0.checked_add_signed(elapsed_ns).map(Nanos)
    }
}
