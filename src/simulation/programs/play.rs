//! Program of a rank: runs its part of a random program, in the simulator or in a process.

#![allow(unsafe_code)] // submits, and reads results at their address

use std::collections::BTreeMap;
use std::time::Duration;

use super::draw::Draw;
use super::program::{Action, Deed, Program};
use super::reference::{Output, expected};
use super::work::Work;
use crate::clock::Nanos;
use crate::context::{Operation, ProcessSet, RawHandle, RawOutput, RawTensor};
use crate::error::Error;
use crate::negotiation::{JOIN, OpKind};

/// Environment of a rank: the simulator, or a process of its own.
pub(super) trait Stage {
    /// Returns the rank's process set at position `place` of the program, of which it is a member.
    fn set(&self, place: usize) -> &ProcessSet;
    /// Called before an action is submitted.
    fn begin(&self, step: usize, action: usize);
    fn pause(&self, duration: Duration);
    /// Waits for an operation in the set at `place`.
    fn wait(&self, place: usize, handle: &RawHandle) -> Result<(), Error>;
}

/// Result of an action on one rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// One output for each tensor; one without bytes for a barrier and a join.
    pub(super) outputs: Vec<Result<Output, Error>>,
    /// Join: the last rank to join, as reported to this rank.
    pub(super) last_joined: Option<usize>,
}

/// Time at which a rank submitted each action, by step and action.
pub(super) type Begun = BTreeMap<(usize, usize), Nanos>;

/// Outcomes by step and action; `None` if the rank took no part.
pub(super) type Played = Vec<Vec<Option<Outcome>>>;

/// Runs `rank`'s part. Its random numbers depend only on the program's seed and the rank.
pub(super) fn play(program: &Program, rank: usize, stage: &impl Stage) -> Played {
    let mut draw = Draw::new(program.seed.rotate_left(32) ^ rank as u64);
    let played = program
        .steps
        .iter()
        .map(|actions| vec![None; actions.len()]);
    let mut played: Played = played.collect();
    let mut joining: Vec<Flight> = Vec::new();
    for (step, actions) in program.steps.iter().enumerate() {
        let mut flights = Vec::new();
        for action in order(actions, rank, &mut draw) {
            if draw.one_in(4) {
                stage.pause(Duration::from_micros(draw.below(600) as u64));
            }
            stage.begin(step, action);
            flights.push(Flight::begin(
                program,
                rank,
                (step, action),
                stage,
                &mut draw,
            ));
        }
        flights.append(&mut joining);
        (joining, flights) = flights.into_iter().partition(|flight| flight.until > step);
        draw.shuffle(&mut flights);
        for flight in flights {
            let (step, action) = flight.at;
            played[step][action] = Some(flight.land(stage));
        }
    }
    played
}

/// Returns the actions of a step in which `rank` takes part, in an order of its own; a join comes
/// after all others in its set.
fn order(actions: &[Action], rank: usize, draw: &mut Draw) -> Vec<usize> {
    let mut order: Vec<usize> = (0..actions.len())
        .filter(|&action| actions[action].ranks.contains(&rank))
        .collect();
    draw.shuffle(&mut order);
    let is_join = |action: &usize| matches!(actions[*action].deed, Deed::Join { .. });
    let (joins, mut order): (Vec<usize>, Vec<usize>) = order.into_iter().partition(is_join);
    for join in joins {
        let is_before = |action: &usize| actions[*action].set == actions[join].set;
        let first = order.iter().rposition(is_before).map_or(0, |last| last + 1);
        order.insert(first + draw.below(order.len() - first + 1), join);
    }
    order
}

/// An action that has been submitted, with its memory.
struct Flight {
    at: (usize, usize),
    set: usize,
    /// Step at whose end it is waited for.
    until: usize,
    loads: Vec<Load>,
    handles: Result<Vec<RawHandle>, Error>,
}

/// Memory of one tensor, aligned for all element types.
struct Load {
    input: Vec<u64>,
    output: Room,
    shape: Vec<usize>,
    bytes: usize,
}

/// Destination of the result.
enum Room {
    InPlace,
    /// Memory of the caller, and its length in bytes.
    Given(Vec<u64>, usize),
    Allocated,
}

impl Flight {
    fn begin(
        program: &Program,
        rank: usize,
        at: (usize, usize),
        stage: &impl Stage,
        draw: &mut Draw,
    ) -> Self {
        let (step, action) = at;
        let Action { set, deed, .. } = &program.steps[step][action];
        let members = &program.sets[*set];
        let (process_set, count) = (stage.set(*set), deed.tensors().len());
        let loads = (0..count).map(|tensor| Load::new(program, rank, (step, action, tensor), draw));
        let mut loads: Vec<Load> = loads.collect();
        let work = |tensor| program.work(step, action, tensor, rank);
        let parts = loads.iter_mut().enumerate().map(|(tensor, load)| {
            let work: &Work = work(tensor);
            (work.operation(members, rank), load.raw(work))
        });
        let parts: Vec<(Operation<'_>, RawTensor<'_>)> = parts.collect();
        let one = |handle: Result<RawHandle, Error>| Ok(vec![handle?]);
        // SAFETY: inputs and outputs are on the heap, in `loads`, and are neither moved nor
        // accessed before `land` has waited for all handles. (A simulated rank that vanishes frees
        // them earlier; its other agents then vanish without another access.)
        let handles = unsafe {
            match deed {
                Deed::Tensors { group: None, .. } => {
                    one(process_set.submit(&parts[0].0, &parts[0].1))
                }
                Deed::Tensors {
                    group: Some(group), ..
                } => process_set.submit_group(group, &parts),
                Deed::Barrier => one(process_set.submit_bare("barrier", OpKind::Barrier)),
                Deed::Join { .. } => one(process_set.submit_bare(JOIN, OpKind::Join)),
            }
        };
        Self {
            at,
            set: *set,
            until: if let Deed::Join { over } = deed {
                *over
            } else {
                step
            },
            loads,
            handles,
        }
    }

    fn land(self, stage: &impl Stage) -> Outcome {
        let handles = match self.handles {
            Ok(handles) => handles,
            Err(error) => {
                let count = self.loads.len().max(1);
                return Outcome {
                    outputs: vec![Err(error); count],
                    last_joined: None,
                };
            }
        };
        let mut outcome = Outcome::default();
        let ends: Vec<Result<(), Error>> = handles
            .iter()
            .map(|handle| stage.wait(self.set, handle))
            .collect();
        let mut loads = self.loads.into_iter();
        for (handle, end) in handles.iter().zip(ends) {
            let delivery = handle.take_delivery();
            outcome.last_joined = delivery.as_ref().and_then(|delivery| delivery.last_joined);
            let load = loads.next();
            outcome.outputs.push(end.map(|()| match load {
                Some(load) => load.unload(delivery.unwrap_or_default()),
                None => Output::default(),
            }));
        }
        outcome
    }
}

impl Load {
    fn new(program: &Program, rank: usize, at: (usize, usize, usize), draw: &mut Draw) -> Self {
        let (step, action, tensor) = at;
        let members = &program.sets[program.steps[step][action].set];
        let work = program.work(step, action, tensor, rank);
        let input = program.input(step, action, tensor, rank);
        let is_same_size = matches!(
            work.operation(members, rank),
            Operation::Allreduce { .. } | Operation::Broadcast { .. }
        );
        let result_bytes = if is_same_size {
            Some(input.len())
        } else {
            let result = expected(program, step, action, tensor, rank);
            result.ok().map(|output| output.bytes.len())
        };
        let output = match (draw.below(3), result_bytes) {
            (0, _) | (_, None) => Room::Allocated,
            (1, Some(_)) if is_same_size => Room::InPlace,
            (_, Some(bytes)) => Room::Given(vec![0; bytes.div_ceil(8)], bytes),
        };
        let words = input.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        Self {
            input: words.collect(),
            output,
            shape: work.shape(members, rank),
            bytes: input.len(),
        }
    }

    fn raw<'a>(&'a mut self, work: &'a Work) -> RawTensor<'a> {
        let input = self.input.as_mut_ptr().cast::<u8>();
        RawTensor {
            name: &work.name,
            dtype: work.dtype,
            wire_dtype: None,
            shape: &self.shape,
            device: crate::tensor::Device::Cpu,
            input,
            output: match &mut self.output {
                Room::InPlace => RawOutput::Into {
                    address: input,
                    bytes: self.bytes,
                },
                Room::Given(words, bytes) => RawOutput::Into {
                    address: words.as_mut_ptr().cast(),
                    bytes: *bytes,
                },
                Room::Allocated => RawOutput::Allocate,
            },
        }
    }

    /// Returns the result after the operation has succeeded.
    fn unload(self, delivery: crate::Delivery) -> Output {
        let bytes_of = |words: &[u64], bytes: usize| -> Vec<u8> {
            words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .take(bytes)
                .collect()
        };
        let bytes = match &self.output {
            Room::InPlace => bytes_of(&self.input, self.bytes),
            Room::Given(words, bytes) => bytes_of(words, *bytes),
            Room::Allocated => {
                let memory = delivery
                    .memory
                    .as_ref()
                    .expect("allocated, as was asked for");
                // SAFETY: the operation has succeeded, so all of the result is written, and this is
                // its only owner.
                unsafe { std::slice::from_raw_parts(memory.address(), memory.bytes()) }.to_vec()
            }
        };
        // An allreduce, and a broadcast to the caller's memory, have no delivery: the shape is the
        // input's.
        let is_delivered = !delivery.shape.is_empty();
        Output {
            bytes,
            shape: if is_delivered {
                delivery.shape.to_vec()
            } else {
                self.shape
            },
            splits: delivery.splits,
        }
    }
}
