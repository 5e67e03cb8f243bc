//! Step times of a job on a network with high latency: one for each setting, whatever the ranks'
//! first tensors and the settings before.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::member::{Member, RankState, Setup};
use crate::command::Command;
use crate::settings::PartialSettings;
use crate::sync::lock;
use crate::transport::simulated::{SimulatedSet, World};

const RANKS: usize = 2;
const TENSORS: u64 = 16;
/// Time between two tensors of a step.
const BETWEEN: Duration = Duration::from_micros(1_250);
/// Elements of a tensor, 8 bytes each.
const ELEMENTS: usize = 1_000;
const LATENCY_NS: u64 = 15_000_000;
const NS_PER_BYTE: f64 = 1.0;
/// Cycle times, µs: without a hold, the first batch ends before the last tensor, and begins one
/// cycle time later if the first tensor of a rank is late.
const CYCLE_US: u64 = 4_220;
const OTHER_CYCLE_US: u64 = 100_000;

/// Returns the time of each step, ms: first with another cycle time, if `enters`, then with
/// [`CYCLE_US`]. Rank 1 submits its tensors `late_us` later than rank 0.
fn step_ms(seed: u64, early: bool, late_us: u64, enters: bool) -> Vec<f64> {
    let world = World::new(RANKS, seed);
    let set = SimulatedSet::new(&world, &[0, 1]);
    set.set_message(LATENCY_NS, NS_PER_BYTE);
    let setup = Setup {
        cache_capacity: 64,
        cache_capacity_max: 64,
        threshold_bytes: 1 << 20,
        early,
        retune_every: 0,
    };
    let times: Arc<Mutex<Vec<f64>>> = Arc::default();
    for rank in 0..RANKS {
        let member = Member::start(&world, &set, rank, setup, &RankState::default());
        let (in_world, times) = (Arc::clone(&world), Arc::clone(&times));
        let late = Duration::from_micros(if rank == 1 { late_us } else { 0 });
        world.spawn(rank, "its program".to_owned(), move || {
            let cycle_us = if enters { OTHER_CYCLE_US } else { CYCLE_US };
            change(&member, rank, cycle_us);
            for step in 0..24 {
                if enters && step == 12 {
                    change(&member, rank, CYCLE_US);
                }
                let began = in_world.present();
                one_step(&in_world, &member, late);
                if rank == 0 {
                    let took = in_world.present() - began;
                    lock(&times).push(took.as_secs_f64() * 1e3);
                }
            }
            member.shut_down();
        });
    }
    world.run();
    std::mem::take(&mut *lock(&times))
}

fn change(member: &Member, rank: usize, cycle_us: u64) {
    if rank == 0 {
        let change = PartialSettings {
            cycle_time: Some(Duration::from_micros(cycle_us)),
            ..PartialSettings::default()
        };
        let ticket = member.command(Command::Settings(change)).expect("open");
        member.wait(&ticket, None);
    }
}

fn one_step(world: &World, member: &Member, late: Duration) {
    let began = world.present() + late;
    let mut buffers = vec![vec![1_i64; ELEMENTS]; TENSORS as usize];
    let mut tickets = Vec::new();
    for (index, buffer) in (0..).zip(&mut buffers) {
        world.sleep_until(began + BETWEEN * index);
        let name = format!("t{index}");
        tickets.push(member.submit_sum(&name, buffer).expect("open"));
    }
    for ticket in &tickets {
        member.wait(ticket, None);
    }
    assert!(buffers.iter().flatten().all(|&sum| sum == RANKS as i64));
}

/// Range of the last steps.
fn last(step_ms: &[f64]) -> (f64, f64) {
    let last = &step_ms[step_ms.len() - 6..];
    let least = last.iter().copied().fold(f64::INFINITY, f64::min);
    (least, last.iter().copied().fold(0.0, f64::max))
}

#[test]
fn a_setting_has_one_step_time_whatever_was_before() {
    // Without early cycles, and so without a hold: three batches or two. If both ranks submit at
    // the same time, the seed decides whether the first cycle finds the tensors of both.
    let unheld = [0, 100].map(|late_us| last(&step_ms(1, false, late_us, false)));
    assert!(unheld[0].1 > 44.0 && unheld[1].1 < 40.0, "{unheld:?}");
    for seed in 0..2 {
        for (late_us, enters) in [(0, false), (100, false), (0, true), (100, true)] {
            let (least, most) = last(&step_ms(seed, true, late_us, enters));
            assert!(
                least > 33.5 && most < 34.5,
                "seed {seed}, {late_us} us late, enters {enters}: {least} to {most} ms"
            );
        }
    }
}
