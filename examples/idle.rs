//! Measures what a job costs while it does nothing: CPU time of each rank over some seconds without operations.
//!
//! ```sh
//! cargo build --release --example idle
//! target/release/ronde run -np 2 -- target/release/examples/idle 10
//! ```

use std::time::Duration;

use ronde::{Context, Error, ReduceOp};

fn main() -> Result<(), Error> {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let context = Context::from_env()?;
    for step in 0..100 {
        context.allreduce("x", vec![step; 1000], ReduceOp::Sum)?.wait()?;
    }
    let before = cpu();
    std::thread::sleep(Duration::from_secs(seconds));
    let used = cpu() - before;
    println!(
        "rank {}: cpu {:.3} %",
        context.rank(),
        100.0 * used.as_secs_f64() / seconds as f64
    );
    context.barrier()
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
