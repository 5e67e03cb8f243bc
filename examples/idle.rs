//! Measures the cost of an idle job: messages and CPU time of each rank over some seconds without
//! operations.
//!
//! ```sh
//! cargo build --release && cargo build --release --example idle
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
        context
            .allreduce("x", vec![step; 1000], ReduceOp::Sum)?
            .wait()?;
    }
    let (before, sent_before) = (cpu(), context.mpi_traffic());
    std::thread::sleep(Duration::from_secs(seconds));
    let used = cpu() - before;
    let sent = context.mpi_traffic().zip(sent_before);
    let messages = sent.map_or(0, |(sent, before)| (sent - before).messages);
    println!(
        "rank {}: {:.1} MPI messages a second, cpu {:.3} %",
        context.rank(),
        messages as f64 / seconds as f64,
        100.0 * used.as_secs_f64() / seconds as f64
    );
    context.barrier()
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
