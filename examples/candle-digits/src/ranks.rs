//! Communication between the ranks: all uses of Ronde in this program.

use anyhow::{Context as _, Result};
use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor};
use ronde::{Context, Error, Reduce, ReduceOp};

use crate::model::Model;

/// The context of this rank.
pub(crate) struct Ranks {
    context: Context,
}

impl Ranks {
    /// Joins the job that `ronde run` has started; without it, a job of one rank.
    ///
    /// # Errors
    /// Those of Ronde, here and below: the loss of a rank is an error on all others. They are
    /// converted to [`Error`], so that `downcast_ref` finds it, and the buffers are dropped.
    pub(crate) fn join() -> Result<Self> {
        let context = Context::from_env()?;
        Ok(Self { context })
    }

    pub(crate) fn rank(&self) -> usize {
        self.context.rank()
    }

    pub(crate) fn size(&self) -> usize {
        self.context.size()
    }

    /// Limits candle's threads to this rank's share of the cores; by default every rank would use
    /// all cores. `RAYON_NUM_THREADS` overrides this.
    pub(crate) fn share_cores(&self) -> Result<()> {
        if std::env::var_os("RAYON_NUM_THREADS").is_none() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = (cores / self.context.local_size()).max(1);
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build_global()?;
        }
        Ok(())
    }

    /// Broadcasts rank 0's weights. Submits all tensors before waiting, so that they are fused.
    pub(crate) fn broadcast_parameters(&self, model: &Model) -> Result<()> {
        let mut in_flight = Vec::new();
        for parameter in model.parameters() {
            let values = parameter.var.flatten_all()?.to_vec1::<f32>()?;
            in_flight.push((
                parameter,
                self.context
                    .broadcast(&parameter.name, values, 0)
                    .map_err(Error::from)?,
            ));
        }
        for (parameter, handle) in in_flight {
            let values = Tensor::from_vec(
                handle.wait().map_err(Error::from)?,
                parameter.var.shape(),
                &Device::Cpu,
            )?;
            parameter.var.set(&values)?;
        }
        Ok(())
    }

    /// Replaces each gradient by its average over the ranks. The last layer's gradients are
    /// submitted first, as the backward pass computes them: earlier ones are reduced while later
    /// ones are still copied.
    pub(crate) fn average_gradients(&self, model: &Model, gradients: &mut GradStore) -> Result<()> {
        let mut in_flight = Vec::new();
        for parameter in model.parameters().iter().rev() {
            let (name, var) = (&parameter.name, &parameter.var);
            let gradient = gradients
                .get(var)
                .with_context(|| format!("{name} has no gradient"))?;
            let values = gradient.flatten_all()?.to_vec1::<f32>()?;
            let average = Reduce::from(ReduceOp::Average).shape(var.dims());
            let handle = self.context.allreduce(name, values, average);
            in_flight.push((var, handle.map_err(Error::from)?));
        }
        for (var, handle) in in_flight {
            let average = handle.wait().map_err(Error::from)?;
            let average = Tensor::from_vec(average, var.shape(), &Device::Cpu)?;
            gradients.insert(var, average);
        }
        Ok(())
    }

    /// Marks the end of a training step, for the tuner and the step metrics.
    pub(crate) fn mark_step(&self) {
        self.context.mark_step();
    }

    /// The average of `value` over the ranks.
    pub(crate) fn average(&self, value: f64) -> Result<f64, Error> {
        let average = self
            .context
            .allreduce("average", vec![value], ReduceOp::Average)?;
        Ok(average.wait()?[0])
    }

    /// The sum of `value` over the ranks.
    pub(crate) fn sum(&self, value: i64) -> Result<i64, Error> {
        let sum = self.context.allreduce("sum", vec![value], ReduceOp::Sum)?;
        Ok(sum.wait()?[0])
    }

    /// Whether all ranks have bitwise equal weights: then the minimum and maximum of the bits over
    /// the ranks are equal. Compares bits as integers: floats have two zeros that are equal, and
    /// NaNs that are not.
    pub(crate) fn identical(&self, model: &Model) -> Result<bool> {
        let bits: Vec<i32> = model
            .weights()?
            .into_iter()
            .map(|weight| weight.to_bits() as i32)
            .collect();
        Ok(self.are_equal(bits)?)
    }

    fn are_equal(&self, values: Vec<i32>) -> Result<bool, Error> {
        let least = self
            .context
            .allreduce("least", values.clone(), ReduceOp::Min)?;
        let greatest = self.context.allreduce("greatest", values, ReduceOp::Max)?;
        Ok(least.wait()? == greatest.wait()?)
    }

    /// Leaves the job after all ranks are done.
    pub(crate) fn leave(self) -> Result<()> {
        self.context.barrier()?;
        self.context.shutdown();
        Ok(())
    }
}
