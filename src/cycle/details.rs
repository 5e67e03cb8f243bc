//! Details of a cycle: which ranks have which tensors ready, where the agreement of all ranks is
//! not enough.

use super::Cycle;
use crate::error::{Error, PeerError};

impl Cycle {
    /// Sends rank 0 the details that it needs, and all ranks which joined ranks take part in a
    /// common tensor.
    pub(super) fn exchange_details(&mut self) -> Result<(), Error> {
        self.details.begin(self.agreed.wanted_details());
        if self.details.is_empty() {
            return Ok(()); // the usual case
        }
        self.details.write(&self.block, &mut self.frame);
        self.transport.gather(&self.frame, &mut self.frames)?;
        for (&rank, frame) in self.members.iter().zip(&self.frames) {
            self.details
                .add(frame)
                .map_err(|problem| PeerError::InvalidData { rank, problem })?;
        }
        self.frames.clear();
        if self.agreed.joined_common().iter().all(|bits| *bits == 0) {
            return Ok(());
        }
        if self.transport.rank() == 0 {
            self.agreed.write_held(&self.details, &mut self.frame);
        }
        self.transport.broadcast(&mut self.frame)?;
        self.agreed
            .read_held(&self.frame, self.transport.rank(), &self.block.ready)
            .map_err(|problem| self.invalid_answer(problem))
    }
}
