//! Handles as futures: submit operations, compute, and `.await` the results where they are needed.
//!
//! ```sh
//! cargo build --release && cargo build --release --example async_await
//! target/release/ronde run -np 3 -- target/release/examples/async_await
//! ```

use ronde::{Context, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let context = Context::from_env()?;
    pollster::block_on(step(&context)) // any executor works: Ronde wakes the task and needs no runtime
}

async fn step(context: &Context) -> Result<(), Error> {
    let rank = context.rank() as f32;
    // All three are submitted before the first is awaited, so they may be fused into one batch.
    let loss = context.allreduce("loss", vec![rank], ReduceOp::Average)?;
    let slowest = context.allreduce("slowest", vec![rank], ReduceOp::Max)?;
    let gradient = context.allreduce("gradient", vec![rank; 1_000_000], ReduceOp::Average)?;

    // … compute; other tasks of this thread run while these wait …
    let (loss, slowest) = (loss.await?[0], slowest.await?[0]);
    let gradient: Vec<f32> = gradient.await?;
    println!(
        "rank {} of {}: loss {loss}, slowest rank {slowest}, gradient of {} ending in {:?}",
        context.rank(),
        context.size(),
        gradient.len(),
        gradient.last()
    );
    Ok(())
}
