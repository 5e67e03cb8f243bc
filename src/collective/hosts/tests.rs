//! Operations between hosts on a simulated network: messages arrive in random order and in pieces,
//! and ranks are lost at random times. A failure names its seed.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ronde_net::simulated::Network;

use super::staging::{Lap, Staging};
use super::{Job, allreduce, reducescatter, transfer};
use crate::collective::kernels::{Level, Reducer};
use crate::collective::stream::Stream;
use crate::collective::{Phases, Reduction};
use crate::hosts::{Comm, CommError};
use crate::tensor::{Dtype, ReduceOp, Span};

/// Seeds of each test.
const SEEDS: u64 = 40;
/// Polls and deliveries after which a run counts as stuck.
const STEPS_MAX: usize = 2_000_000;

type Run = Pin<Box<dyn Future<Output = Result<Phases, CommError>>>>;

fn job(network: &std::rc::Rc<Network>, rank: usize, serial: u16) -> Job {
    Job {
        comm: Comm::simulated(network.comm(rank, 1)),
        pipeline: &super::OVER_TCP,
        serial,
        staging: Staging::default(),
        lap: Lap::new(),
    }
}

/// Delivers a message, or polls a rank; returns a rank that has ended by that, and whether without
/// an error.
fn step(network: &Network, runs: &mut [Option<Run>]) -> Option<(usize, bool)> {
    // Without messages on their way, ranks have work of their own.
    if network.draw(3) > 0 && network.deliver() {
        return None;
    }
    let open: Vec<usize> = (0..runs.len())
        .filter(|rank| runs[*rank].is_some())
        .collect();
    let rank = *open.get(network.draw(open.len().max(1)))?;
    let run = runs[rank].as_mut()?;
    match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => {
            runs[rank] = None;
            Some((rank, outcome.is_ok()))
        }
        Poll::Pending => None,
    }
}

/// Runs one operation of each rank to its end; loses rank 0 before step `lost_at`, if any. Returns
/// how each has ended.
fn run(seed: u64, network: &Network, runs: Vec<Run>, lost_at: Option<usize>) -> Vec<bool> {
    let mut ended = vec![None; runs.len()];
    let mut runs: Vec<Option<Run>> = runs.into_iter().map(Some).collect();
    for number in 0..STEPS_MAX {
        if lost_at == Some(number) {
            network.lose(0);
        }
        if ended.iter().all(Option::is_some) {
            return ended.into_iter().flatten().collect();
        }
        if let Some((rank, is_ok)) = step(network, &mut runs) {
            ended[rank] = Some(is_ok);
        }
    }
    panic!("seed {seed}: stuck, ended: {ended:?}");
}

/// A case that a seed draws.
struct Case {
    size: usize,
    reduction: Reduction,
    /// Inputs of the ranks: any bytes, because combining them is defined for all.
    inputs: Vec<Vec<u8>>,
    absent: Vec<usize>,
    /// Number of tensors of the batch.
    tensors: usize,
    /// Whether the results replace the inputs.
    in_place: bool,
}

impl Case {
    fn draw(seed: u64) -> Self {
        let draw = Network::new(1, seed);
        let size = 1 + draw.draw(5);
        let elements = match draw.draw(4) {
            0 => draw.draw(3),
            1 => draw.draw(3_000),
            _ => draw.draw(400_000),
        };
        let dtypes = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I32, Dtype::U8];
        let dtype = dtypes[draw.draw(dtypes.len())];
        let value = |rank: usize, index: usize| {
            let mixed = (index + 1).wrapping_mul(2_654_435_761 + rank) >> 7;
            (mixed % 251) as u8 & 0x3f // no NaN in any type
        };
        let bytes = elements * dtype.size_bytes();
        let input = |rank| (0..bytes).map(|index| value(rank, index)).collect();
        let absent = (1..size).filter(|_| draw.draw(6) == 0).collect();
        Self {
            size,
            reduction: Reduction {
                dtype,
                op: [ReduceOp::Sum, ReduceOp::Max][draw.draw(2)],
                prescale: 1.0,
                postscale: 1.0,
            },
            inputs: (0..size).map(input).collect(),
            absent,
            tensors: 1 + draw.draw(150),
            in_place: draw.draw(2) == 0,
        }
    }

    fn present(&self) -> Vec<usize> {
        super::present(self.size, &self.absent)
    }

    fn reducer(&self) -> Reducer {
        Reducer::new(Level::detect(), &self.reduction, self.size)
    }

    /// All inputs of the ranks that are present, combined in rank order.
    fn expected(&self) -> Vec<u8> {
        let sources: Vec<*const u8> = self
            .present()
            .iter()
            .map(|rank| self.inputs[*rank].as_ptr())
            .collect();
        let mut result = vec![0; self.inputs[0].len()];
        allreduce::reduce(&self.reducer(), &sources, &mut result);
        result
    }

    /// Begins an allreduce on all ranks, to `outputs`.
    fn allreduces(&self, network: &std::rc::Rc<Network>, outputs: &mut [Vec<u8>]) -> Vec<Run> {
        let begin = |(rank, output): (usize, &mut Vec<u8>)| {
            let mut batch = Stream::default();
            let (input, output, bytes) = (&self.inputs[rank], output.as_mut_ptr(), output.len());
            let input = match self.in_place {
                true => output.cast_const(),
                false => input.as_ptr(),
            };
            let unit = self.reduction.dtype.size_bytes();
            let end = |tensor: usize| bytes / unit * tensor / self.tensors * unit;
            for tensor in 0..self.tensors {
                let (begin, end) = (end(tensor), end(tensor + 1));
                match self.absent.contains(&rank) {
                    true => batch.skip(end - begin),
                    false => batch.push(
                        input.wrapping_add(begin),
                        output.wrapping_add(begin),
                        end - begin,
                    ),
                }
            }
            let job = job(network, rank, 7);
            Box::pin(allreduce::allreduce(
                job,
                batch,
                self.reducer(),
                self.present(),
            )) as Run
        };
        outputs.iter_mut().enumerate().map(begin).collect()
    }

    fn outputs(&self) -> Vec<Vec<u8>> {
        match self.in_place {
            true => self.inputs.clone(),
            false => vec![vec![0xee; self.inputs[0].len()]; self.size],
        }
    }
}

#[test]
fn an_allreduce_has_the_bits_of_the_rank_order_whatever_arrives_first() {
    for seed in 0..SEEDS {
        let case = Case::draw(seed);
        let network = Network::new(case.size, seed);
        let mut outputs = case.outputs();
        let runs = case.allreduces(&network, &mut outputs);
        assert!(
            run(seed, &network, runs, None).iter().all(|ok| *ok),
            "seed {seed}"
        );
        let expected = case.expected();
        for rank in case.present() {
            assert!(outputs[rank] == expected, "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn a_lost_rank_ends_the_operation_of_every_rank() {
    let mut failed = 0;
    for seed in 0..SEEDS {
        let case = Case::draw(seed);
        let network = Network::new(case.size, seed);
        let mut outputs = case.outputs();
        let runs = case.allreduces(&network, &mut outputs);
        let ended = run(seed, &network, runs, Some(network.draw(60)));
        failed += ended.iter().filter(|ok| !**ok).count();
        let expected = case.expected();
        for rank in case.present().into_iter().filter(|rank| ended[*rank]) {
            assert!(outputs[rank] == expected, "seed {seed}, rank {rank}");
        }
    }
    assert!(failed > 10, "{failed} operations were hit");
}

/// Runs an allreduce in which rank 0, if it has not ended before, gives up before step
/// `given_up_at`; returns the number of steps, and how many ranks have ended after that.
fn run_without_rank_0(seed: u64, given_up_at: usize) -> (usize, usize) {
    let case = Case::draw(seed);
    let network = Network::new(case.size, seed);
    let mut outputs = case.outputs();
    let runs = case.allreduces(&network, &mut outputs);
    let mut runs: Vec<Option<Run>> = runs.into_iter().map(Some).collect();
    let (expected, present) = (case.expected(), case.present());
    let (mut number, mut ended, mut gave_up) = (0, 0, false);
    // Without rank 0, the others may wait for ever.
    while number < given_up_at.saturating_add(2_000) && runs.iter().any(Option::is_some) {
        if number == given_up_at {
            gave_up = runs[0].take().is_some();
            outputs[0].fill(0x55);
        }
        if let Some((rank, is_ok)) = step(&network, &mut runs) {
            assert!(is_ok, "seed {seed}, rank {rank}");
            let is_right = outputs[rank] == expected || !present.contains(&rank);
            assert!(is_right, "seed {seed}, rank {rank}");
            ended += usize::from(gave_up);
        }
        number += 1;
    }
    let is_untouched = outputs[0].iter().all(|&byte| byte == 0x55);
    assert!(is_untouched || number <= given_up_at, "seed {seed}");
    (number, ended)
}

#[test]
fn memory_of_an_operation_that_is_given_up_is_not_used_any_longer() {
    let mut ended = 0;
    for seed in 0..SEEDS {
        let (steps, _) = run_without_rank_0(seed, usize::MAX);
        let draw = Network::new(1, seed);
        for _ in 0..5 {
            ended += run_without_rank_0(seed, steps - 1 - draw.draw(steps.min(40))).1;
        }
    }
    assert!(ended > 10, "{ended} ranks have ended without rank 0");
}

#[test]
fn a_reducescatter_and_a_broadcast_after_it_do_not_mix() {
    for seed in 0..SEEDS / 2 {
        let case = Case {
            absent: Vec::new(),
            ..Case::draw(seed)
        };
        let network = Network::new(case.size, seed);
        let (bytes, unit) = (case.inputs[0].len(), case.reduction.dtype.size_bytes());
        let elements = bytes / unit;
        let share = |rank: usize| (elements * rank / case.size) * unit;
        let lengths: Vec<usize> = (0..case.size)
            .map(|rank| share(rank + 1) - share(rank))
            .collect();
        let mut scattered: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        let root = case.size - 1;
        let mut copies = vec![vec![0xee; bytes]; case.size];
        copies[root].clone_from(&case.inputs[root]);
        let begin = |rank: usize| {
            // SAFETY: the buffers outlive the runs.
            #[allow(unsafe_code)]
            let [own, copy] = unsafe {
                let (input, output) = (case.inputs[rank].as_ptr(), scattered[rank].as_mut_ptr());
                let copy = copies[rank].as_mut_ptr();
                [
                    Span::new(input, output, bytes),
                    Span::new(copy, copy, bytes),
                ]
            };
            let shares = reducescatter::shares(&[own], &lengths, rank, case.size);
            let mut batch = Stream::default();
            batch.push_span(&copy);
            let (first, second) = (job(&network, rank, 1), job(&network, rank, 2));
            let comm = first.comm.clone();
            let second = Job { comm, ..second };
            let (reducer, present) = (case.reducer(), case.present());
            Box::pin(async move {
                reducescatter::reducescatter(first, shares, reducer, present).await?;
                transfer::broadcast(second, batch, root).await
            }) as Run
        };
        let runs = (0..case.size).map(begin).collect();
        assert!(
            run(seed, &network, runs, None).iter().all(|ok| *ok),
            "seed {seed}"
        );
        assert!(scattered.concat() == case.expected(), "seed {seed}");
        assert!(
            copies.iter().all(|copy| *copy == case.inputs[root]),
            "seed {seed}"
        );
    }
}
