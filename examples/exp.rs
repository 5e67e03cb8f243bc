//! Experiment.
use ronde::Context;
use ronde::bench::{self, models, Load, Observer, Plan, Progress};
struct Quiet;
impl Observer for Quiet {
    fn progress(&mut self, _: Progress) {}
    fn verdict_reached(&mut self) -> bool { false }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let context = Context::from_env().unwrap();
    let workload = models::workload(&args[1]).unwrap();
    let steps: usize = args[2].parse().unwrap();
    let schedule = bench::schedule::Schedule::new(&workload, std::time::Duration::ZERO, Default::default());
    let plan = Plan { load: Load { workload, schedule, chunk_bytes: 512 << 10 }, warmup_steps: 3, tuning_steps_max: 0, steps };
    let m = bench::run(&context, &plan, &mut Quiet).unwrap();
    if context.rank() == 0 {
        let s = bench::report::StepSummary::new(&m.step_ms).unwrap();
        println!("{} p10 {:.2} p50 {:.2} p90 {:.2} {:?}", context.backend(), s.p10, s.p50, s.p90, m.mpi);
    }
}
