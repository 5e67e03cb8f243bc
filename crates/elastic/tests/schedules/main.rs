//! Simulated elastic jobs: thousands of schedules of faults, rendezvous and resets, drawn from
//! seeds.
//!
//! `TEST_RONDE_SCHEDULES=10000` runs that many; `TEST_RONDE_SCHEDULE_SEED=7` begins with that seed;
//! `TEST_RONDE_SCHEDULE_TRACE=1` prints the events.

mod world;

use world::{Ending, World};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn all_ranks_agree_on_membership_and_step_and_every_job_ends() {
    let first = number("TEST_RONDE_SCHEDULE_SEED", 1);
    let schedules = number("TEST_RONDE_SCHEDULES", 1000);
    let (mut trained, mut resets, mut faults) = (0, 0, 0);
    for seed in first..first + schedules {
        let mut world = World::new(seed);
        match world.run() {
            Ending::Trained => trained += 1,
            Ending::Explained => {}
        }
        resets += world.resets();
        faults += world.faults();
    }
    println!(
        "{schedules} schedules: {faults} faults, {resets} resets, {trained} jobs trained to the end"
    );
    assert!(
        trained * 2 > schedules,
        "only {trained} of {schedules} jobs trained to the end"
    );
    assert!(
        schedules < 100 || resets * 2 > schedules,
        "only {resets} resets"
    );
}
