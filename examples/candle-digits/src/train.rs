//! Training loops: data-parallel, and for comparison that of one process on the joined batches.

use anyhow::Result;
use candle_core::{D, Tensor};
use candle_nn::loss::cross_entropy;
use candle_nn::{Optimizer, SGD};

use crate::data::Digits;
use crate::model::Model;
use crate::ranks::Ranks;
use crate::report;

/// Step size of plain SGD. An optimizer that divides by the gradients' size, such as AdamW, would
/// amplify rounding differences where a gradient is nearly 0, and make the comparison with one
/// process meaningless.
const LEARNING_RATE: f64 = 0.2;

/// Parameters of the training, equal on all ranks.
pub(crate) struct Plan {
    /// Passes over the training digits.
    pub(crate) epochs: u32,
    /// Digits per rank and step.
    pub(crate) batch: usize,
    /// Number of ranks.
    pub(crate) ranks: usize,
    /// Seed of the order.
    pub(crate) seed: u64,
}

impl Plan {
    /// Digits per step, over all ranks.
    pub(crate) fn joined_batch(&self) -> usize {
        self.batch * self.ranks
    }

    /// Number of whole joined batches in an epoch; the remaining digits, others in each epoch, are
    /// not used.
    pub(crate) fn steps_per_epoch(&self, digits: &Digits) -> usize {
        digits.train_len() / self.joined_batch()
    }
}

/// Trains `model` with all ranks, each on its share of every batch; rank 0 reports every epoch.
///
/// # Errors
/// Those of candle and Ronde.
pub(crate) fn train(model: &Model, digits: &Digits, plan: &Plan, ranks: &Ranks) -> Result<()> {
    let mut optimizer = optimizer(model)?;
    for epoch in 0..plan.epochs {
        let mut loss_sum = 0.0;
        for joined in digits
            .order(plan.seed, epoch)
            .chunks_exact(plan.joined_batch())
        {
            let share = &joined[ranks.rank() * plan.batch..][..plan.batch];
            let loss = loss(model, digits, share)?;
            let mut gradients = loss.backward()?;
            ranks.average_gradients(model, &mut gradients)?;
            optimizer.step(&gradients)?;
            ranks.mark_step();
            loss_sum += f64::from(loss.to_scalar::<f32>()?);
        }
        let loss = ranks.average(loss_sum / plan.steps_per_epoch(digits) as f64)?;
        let accuracy = accuracy(model, digits, ranks)?;
        if ranks.rank() == 0 {
            report::epoch(epoch, plan, loss, accuracy);
        }
    }
    Ok(())
}

/// Trains `model` as one process does with the joined batches: this function does not use Ronde.
///
/// # Errors
/// Those of candle.
pub(crate) fn train_alone(model: &Model, digits: &Digits, plan: &Plan) -> Result<()> {
    let mut optimizer = optimizer(model)?;
    for epoch in 0..plan.epochs {
        for joined in digits
            .order(plan.seed, epoch)
            .chunks_exact(plan.joined_batch())
        {
            optimizer.step(&loss(model, digits, joined)?.backward()?)?;
        }
    }
    Ok(())
}

fn optimizer(model: &Model) -> Result<SGD> {
    let vars = model
        .parameters()
        .iter()
        .map(|parameter| parameter.var.clone());
    Ok(SGD::new(vars.collect(), LEARNING_RATE)?)
}

/// Mean loss of the digits with these `indices`.
fn loss(model: &Model, digits: &Digits, indices: &[usize]) -> Result<Tensor> {
    let batch = digits.batch(indices)?;
    Ok(cross_entropy(
        &model.forward(&batch.pixels)?,
        &batch.labels,
    )?)
}

/// Fraction of the test digits that the model classifies correctly; every rank tests its share.
fn accuracy(model: &Model, digits: &Digits, ranks: &Ranks) -> Result<f64> {
    let batch = digits.batch(&digits.test_part(ranks.rank(), ranks.size()))?;
    let guesses = model.forward(&batch.pixels)?.argmax(D::Minus1)?;
    let right = guesses.eq(&batch.labels)?.to_vec1::<u8>()?;
    let right: i64 = right.into_iter().map(i64::from).sum();
    Ok(ranks.sum(right)? as f64 / digits.test_len() as f64)
}
