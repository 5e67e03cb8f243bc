//! The smallest job: the average of one vector per rank.
//!
//! ```sh
//! cargo build --release && cargo build --release --example hello
//! target/release/ronde run -np 3 -- target/release/examples/hello
//! ```

use ronde::{Context, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let context = Context::from_env()?;
    let mine = vec![context.rank() as f32; 4];
    let average = context
        .allreduce("hello", mine, ReduceOp::Average)?
        .wait()?;
    println!("rank {} of {}: {average:?}", context.rank(), context.size());
    Ok(())
}
