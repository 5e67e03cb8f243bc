//! A complete training job: a digit classifier, trained with candle on several ranks; Ronde
//! averages the gradients.
//!
//! ```sh
//! cargo build --release && cargo build --release -p candle-digits
//! target/release/ronde run -np 2 -- target/release/candle-digits --reference
//! ```
//!
//! The data-parallel part is in `ranks.rs`: the weights of rank 0 are broadcast before the first
//! step, and gradients are averaged in every step, between `backward` and the optimizer. The rest
//! is the program for one process, except that each rank uses its part of every batch.

mod data;
mod model;
mod ranks;
mod report;
mod train;

use anyhow::{Result, ensure};
use clap::Parser;

use data::Digits;
use model::Model;
use ranks::Ranks;
use train::{Plan, train, train_alone};

/// Largest allowed difference of a weight from that of one process on the joined batches. Both
/// compute the same sums in another order, so gradients differ in the last places (6e-8 of a value
/// near 1 in f32). Observed with 24 seeds on 2 and 3 ranks: up to 9e-7 after 30 epochs, with 3 of
/// them 1.4e-6 after 300; this is some ten times that. An average that is wrong by a thousandth
/// gives 2e-4 after 10 epochs, a sum in its place 0.2.
const TOLERANCE: f32 = 1e-5;

/// Trains a small network on handwritten digits; start it with `ronde run`, or alone.
#[derive(Parser)]
#[command(name = "candle-digits")]
struct Flags {
    /// Passes over the training digits
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Digits per rank and step; the joined batch has this many from every rank
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Seed of the split, the order and the first weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Then rank 0 trains alone on the joined batches, too, and compares the weights
    #[arg(long)]
    reference: bool,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let ranks = Ranks::join()?;
    ranks.share_cores()?;

    let digits = Digits::load(flags.seed)?;
    let plan = Plan {
        epochs: flags.epochs,
        batch: usize::from(flags.batch),
        ranks: ranks.size(),
        seed: flags.seed,
    };
    let steps = plan.steps_per_epoch(&digits);
    ensure!(
        steps > 0,
        "{} ranks x --batch {} are more than the {} training digits: lower one of them",
        plan.ranks,
        plan.batch,
        digits.train_len()
    );

    // Every rank draws its own weights and then receives those of rank 0.
    let model = Model::random(flags.seed.wrapping_add(ranks.rank() as u64))?;
    ranks.broadcast_parameters(&model)?;
    let start = model.copy()?;

    if ranks.rank() == 0 {
        report::plan(&plan, &digits);
    }
    train(&model, &digits, &plan, &ranks)?;

    ensure!(
        ranks.identical(&model)?,
        "the ranks' weights differ: this is a bug in Ronde"
    );
    if ranks.rank() == 0 {
        let size = ranks.size();
        println!("ranks with the same weights, bit for bit: {size} of {size}");
    }
    if flags.reference && ranks.rank() == 0 {
        train_alone(&start, &digits, &plan)?;
        let off = model.distance(&start)?;
        println!(
            "reference: one process on the joined batches is at most {off:.1e} away (tolerance {TOLERANCE:.0e})"
        );
        ensure!(
            off <= TOLERANCE,
            "a weight is {off:e} away from that of one process, tolerance {TOLERANCE:e}"
        );
    }
    ranks.leave()
}
