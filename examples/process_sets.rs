//! Process sets: the even and the odd ranks average among themselves while all ranks average
//! together.
//!
//! ```sh
//! cargo build --release && cargo build --release --example process_sets
//! target/release/ronde run -np 3 -- target/release/examples/process_sets
//! ```

use ronde::{Context, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let context = Context::builder().dynamic_process_sets().build()?;
    let rank = context.rank();
    if context.size() == 1 {
        println!("one rank is all there is: start two or more");
        return Ok(());
    }
    // Every rank adds both sets, in the same order, and is a member of one.
    let even: Vec<usize> = (0..context.size()).step_by(2).collect();
    let odd: Vec<usize> = (1..context.size()).step_by(2).collect();
    let evens = context.add_process_set(&even)?;
    let odds = context.add_process_set(&odd)?;
    let mine = if rank % 2 == 0 { evens } else { odds };

    // Concurrent: equal names in two sets are different tensors.
    let all = context.allreduce("loss", vec![rank as f32], ReduceOp::Average)?;
    let half = mine.allreduce("loss", vec![rank as f32], ReduceOp::Average)?;
    let (all, half) = (all.wait()?, half.wait()?);
    println!(
        "rank {rank}: average of ranks {:?} is {}, of all {}",
        mine.ranks(),
        half[0],
        all[0]
    );

    let expected = mine.ranks().iter().sum::<usize>() as f32 / mine.size() as f32;
    assert_eq!(half[0], expected);
    Ok(())
}
