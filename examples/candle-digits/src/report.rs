//! Output of the program, on rank 0.

use crate::data::Digits;
use crate::train::Plan;

/// Prints the plan of the training.
pub(crate) fn plan(plan: &Plan, digits: &Digits) {
    println!(
        "ranks: {}; digits: {} to train on, {} to test on; batch: {} per rank, {} joined; {} epochs of {} steps",
        plan.ranks,
        digits.train_len(),
        digits.test_len(),
        plan.batch,
        plan.joined_batch(),
        plan.epochs,
        plan.steps_per_epoch(digits)
    );
}

/// Prints the progress: at most ten lines for a training.
pub(crate) fn epoch(epoch: u32, plan: &Plan, loss: f64, accuracy: f64) {
    let (number, every) = (epoch + 1, plan.epochs.div_ceil(10));
    if number == 1 || number == plan.epochs || number % every == 0 {
        println!(
            "epoch {number:3}  loss {loss:.4}  accuracy {:.1} %",
            100.0 * accuracy
        );
    }
}
