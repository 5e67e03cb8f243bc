//! Uneven data: rank r has r + 1 batches; a rank without data joins, and the others go on without
//! it.
//!
//! ```sh
//! cargo build --release && cargo build --release --example join
//! target/release/ronde run -np 3 -- target/release/examples/join
//! ```

use ronde::{Context, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let context = Context::from_env()?;
    let batches = context.rank() + 1;
    for batch in 0..batches {
        let sum = context
            .allreduce("gradient", vec![1.0f32; 4], ReduceOp::Sum)?
            .wait()?;
        let rows = context
            .allgather("metrics", vec![context.rank() as i64], &[1])?
            .wait()?;
        println!(
            "rank {}, batch {batch}: {} ranks, {:?}",
            context.rank(),
            sum[0],
            rows.tensor
        );
        assert_eq!(sum[0] as usize, context.size() - batch); // the number of ranks that still have data
        assert_eq!(rows.tensor.len(), context.size() - batch);
    }
    let last = context.join()?;
    assert_eq!(last, context.size() - 1);
    println!(
        "rank {}: rank {last} was the last to finish",
        context.rank()
    );
    Ok(())
}
