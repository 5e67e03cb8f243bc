//! Simulated communicators, and NCCL's operations among their ranks.

use super::kernel::Value;
use super::post::Post;
use super::world::Hardware;
use super::{Call, UniqueId};
use crate::gpu::{Combine, Combined, Number};

/// A communicator: its ranks and their calls.
pub(super) struct Group {
    pub(super) id: UniqueId,
    /// Devices of the ranks, by rank; empty before the first has joined.
    members: Vec<Option<usize>>,
    /// Number of collectives that each rank has put on a stream.
    put: Vec<usize>,
    rounds: Vec<Round>,
    /// Sends and receives.
    post: Post,
}

/// Position of a call among those of its communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A collective, with its number on this rank.
    Together(usize),
    /// Sends and receives: ranks without any take no part.
    Apart(u64),
}

/// One collective, of all ranks.
struct Round {
    arrived: Vec<Option<Vec<Call>>>,
    is_done: bool,
}

impl Group {
    pub(super) fn new(id: UniqueId) -> Self {
        Self {
            id,
            members: Vec::new(),
            put: Vec::new(),
            rounds: Vec::new(),
            post: Post::default(),
        }
    }

    pub(super) fn take_in(
        &mut self,
        rank: usize,
        size: usize,
        device: usize,
    ) -> Result<(), String> {
        if self.members.is_empty() {
            self.members.resize(size, None);
            self.put.resize(size, 0);
        }
        if self.members.len() != size {
            return Err(format!(
                "a communicator of {size} where others want {}",
                self.members.len()
            ));
        }
        match self.members.get_mut(rank) {
            Some(member @ None) => *member = Some(device),
            Some(Some(other)) => return Err(format!("rank {rank} is device {other} already")),
            None => return Err(format!("rank {rank} of {size}")),
        }
        Ok(())
    }

    /// Returns the devices by rank, when all have joined.
    fn devices(&self) -> Vec<usize> {
        self.members.iter().flatten().copied().collect()
    }

    pub(super) fn is_ready(&self, rank: usize) -> bool {
        let is_connected = self.put[rank] == 0 || self.put.iter().all(|&calls| calls > 0);
        self.members.iter().all(Option::is_some) && is_connected
    }

    /// Returns the position of a call that rank `rank` puts on a stream now.
    pub(super) fn next(&mut self, rank: usize, calls: &[Call], key: u64) -> Turn {
        if calls.iter().any(is_to_one) {
            return Turn::Apart(key);
        }
        self.put[rank] += 1;
        Turn::Together(self.put[rank] - 1)
    }

    pub(super) fn is_done(&self, turn: Turn) -> bool {
        match turn {
            Turn::Together(round) => self.rounds.get(round).is_some_and(|round| round.is_done),
            Turn::Apart(key) => self.post.is_done(key),
        }
    }

    /// The stream of rank `rank` has reached these calls.
    pub(super) fn arrive(
        &mut self,
        hardware: &mut [Hardware],
        rank: usize,
        turn: Turn,
        calls: Vec<Call>,
    ) -> Result<(), String> {
        let devices = self.devices();
        let round = match turn {
            Turn::Together(round) => round,
            Turn::Apart(key) => return self.post.arrive(hardware, &devices, rank, key, &calls),
        };
        let size = self.members.len();
        if self.rounds.len() <= round {
            self.rounds.resize_with(round + 1, || Round {
                arrived: vec![None; size],
                is_done: false,
            });
        }
        let round = &mut self.rounds[round];
        round.arrived[rank] = Some(calls);
        let all: Option<Vec<Vec<Call>>> = round.arrived.iter().cloned().collect();
        let Some(all) = all else { return Ok(()) };
        round.is_done = true;
        perform(hardware, &devices, &all)
    }

    /// Rank `rank` has left.
    pub(super) fn withdraw(&mut self, rank: usize) {
        for round in self.rounds.iter_mut().filter(|round| !round.is_done) {
            round.arrived[rank] = None;
        }
        self.post.withdraw(rank);
    }
}

/// Whether a call is point-to-point.
fn is_to_one(call: &Call) -> bool {
    matches!(call, Call::Send { .. } | Call::Receive { .. })
}

/// Memory that one rank reads or writes for one call.
struct Touch {
    rank: usize,
    call: usize,
    at: u64,
    bytes: usize,
}

/// Executes the calls of the ranks of `devices`: `lists` has each rank's calls, which are one
/// group.
fn perform(
    hardware: &mut [Hardware],
    devices: &[usize],
    lists: &[Vec<Call>],
) -> Result<(), String> {
    if lists.iter().any(|list| list.len() != lists[0].len()) {
        return Err(format!("ranks make different numbers of calls: {lists:x?}"));
    }
    let mut reads = Vec::new();
    let mut writes: Vec<(Touch, Vec<u8>)> = Vec::new();
    for call in 0..lists[0].len() {
        let column: Vec<Call> = lists.iter().map(|list| list[call]).collect();
        collective(hardware, devices, &column, call, &mut reads, &mut writes)?;
    }
    // Calls of one group are executed together.
    for (write, _) in &writes {
        let meets = |read: &&Touch| {
            read.rank == write.rank
                && read.call != write.call
                && read.at < write.at + write.bytes as u64
                && write.at < read.at + read.bytes as u64
        };
        if let Some(read) = reads.iter().find(meets) {
            return Err(format!(
                "call {} writes what call {} reads: {:x?}",
                write.call, read.call, lists[write.rank]
            ));
        }
    }
    for (write, bytes) in writes {
        hardware[devices[write.rank]]
            .memory
            .write(write.at, &bytes)?;
    }
    Ok(())
}

fn read(
    hardware: &[Hardware],
    devices: &[usize],
    touch: Touch,
    reads: &mut Vec<Touch>,
) -> Result<Vec<u8>, String> {
    let bytes = hardware[devices[touch.rank]]
        .memory
        .read(touch.at, touch.bytes)?
        .to_vec();
    reads.push(touch);
    Ok(bytes)
}

/// Returns the properties of a call that must be equal on all ranks: all except addresses.
fn common(call: Call) -> Call {
    let mut call = call;
    match &mut call {
        Call::Allreduce(Combined { from, to, .. })
        | Call::Reducescatter(Combined { from, to, .. })
        | Call::Reduce(Combined { from, to, .. }, _)
        | Call::Allgather { from, to, .. }
        | Call::Broadcast { from, to, .. } => (*from, *to) = (0, 0),
        Call::Send { from: address, .. } | Call::Receive { to: address, .. } => *address = 0,
    }
    call
}

/// Executes one call of all ranks.
fn collective(
    hardware: &[Hardware],
    devices: &[usize],
    column: &[Call],
    call: usize,
    reads: &mut Vec<Touch>,
    writes: &mut Vec<(Touch, Vec<u8>)>,
) -> Result<(), String> {
    let size = column.len();
    if column
        .iter()
        .any(|other| common(*other) != common(column[0]))
    {
        return Err(format!("ranks call different things: {column:x?}"));
    }
    // Lengths of input and output, and the position of one in the other if they are not disjoint.
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    for (rank, own) in column.iter().enumerate() {
        let (from, to, count, number) = match *own {
            Call::Allreduce(combined)
            | Call::Reducescatter(combined)
            | Call::Reduce(combined, _) => {
                (combined.from, combined.to, combined.count, combined.number)
            }
            Call::Allgather {
                from,
                to,
                count,
                number,
            }
            | Call::Broadcast {
                from,
                to,
                count,
                number,
                ..
            } => (from, to, count, number),
            Call::Send { .. } | Call::Receive { .. } => return Err("not a collective".to_owned()),
        };
        let bytes = count * number.bytes();
        let (input, output) = match own {
            Call::Allgather { .. } => (bytes, size * bytes),
            Call::Reducescatter(_) => (size * bytes, bytes),
            _ => (bytes, bytes),
        };
        let in_place = match own {
            Call::Allgather { .. } => from == to + (rank * bytes) as u64,
            Call::Reducescatter(_) => to == from + (rank * bytes) as u64,
            _ => from == to,
        };
        let is_read = !matches!(own, Call::Broadcast { root, .. } if *root != rank);
        let is_disjoint = from + input as u64 <= to || to + output as u64 <= from;
        if is_read && !in_place && !is_disjoint {
            return Err(format!("input and output overlap: {own:x?}"));
        }
        if bytes == 0
            || !from.is_multiple_of(number.bytes() as u64)
            || !to.is_multiple_of(number.bytes() as u64)
        {
            return Err(format!("nothing, or not aligned: {own:x?}"));
        }
        let touch = |at, bytes| Touch {
            rank,
            call,
            at,
            bytes,
        };
        inputs.push(match is_read {
            true => read(hardware, devices, touch(from, input), reads)?,
            false => Vec::new(),
        });
        let is_written = !matches!(own, Call::Reduce(_, root) if *root != rank);
        outputs.push(touch(to, if is_written { output } else { 0 }));
    }
    let results: Vec<Vec<u8>> = match column[0] {
        Call::Allreduce(what) => vec![combined(&inputs, what)?; size],
        Call::Allgather { .. } => vec![inputs.concat(); size],
        Call::Reducescatter(what) => {
            let all = combined(&inputs, what)?;
            all.chunks_exact(what.count * what.number.bytes())
                .map(<[u8]>::to_vec)
                .collect()
        }
        Call::Reduce(what, root) => {
            let mut results = vec![Vec::new(); size];
            *results.get_mut(root).ok_or("a root that is not there")? = combined(&inputs, what)?;
            results
        }
        Call::Broadcast { root, .. } => {
            vec![inputs.get(root).ok_or("a root that is not there")?.clone(); size]
        }
        Call::Send { .. } | Call::Receive { .. } => Vec::new(),
    };
    writes.extend(outputs.into_iter().zip(results));
    Ok(())
}

/// Reduces the ranks' elements in rank order.
fn combined(inputs: &[Vec<u8>], what: Combined) -> Result<Vec<u8>, String> {
    let Combined {
        number, combine, ..
    } = what;
    let is_float = matches!(
        number,
        Number::F16 | Number::Bf16 | Number::F32 | Number::F64
    );
    if number == Number::I16 || (combine == Combine::Average && !is_float) {
        return Err(format!("no {combine:?} of {number:?}"));
    }
    let width = number.bytes();
    let elements = inputs[0].len() / width;
    let element = |at: usize| {
        let column = inputs
            .iter()
            .map(|input| Value::of(&input[at * width..][..width], number));
        // Half precision is rounded at each step.
        let rounded = |value: Value| Value::of(&value.rounded(number), number);
        let result = column.reduce(|a, b| rounded(both(a, b, combine)));
        let result = result.map(|sum| match (combine, sum) {
            (Combine::Average, Value::Single(sum)) => Value::Single(sum / inputs.len() as f32),
            (Combine::Average, Value::Double(sum)) => Value::Double(sum / inputs.len() as f64),
            (_, result) => result,
        });
        result
            .map(|result| result.rounded(number))
            .unwrap_or_default()
    };
    Ok((0..elements).flat_map(element).collect())
}

fn both(a: Value, b: Value, combine: Combine) -> Value {
    macro_rules! float {
        ($kind:path, $a:expr, $b:expr) => {
            $kind(match combine {
                Combine::Sum | Combine::Average => $a + $b,
                Combine::Product => $a * $b,
                Combine::Max if $a.is_nan() || $a > $b => $a,
                Combine::Min if $a.is_nan() || $a < $b => $a,
                Combine::Max | Combine::Min => $b,
            })
        };
    }
    match (a, b) {
        (Value::Single(a), Value::Single(b)) => float!(Value::Single, a, b),
        (Value::Double(a), Value::Double(b)) => float!(Value::Double, a, b),
        (Value::Whole(a), Value::Whole(b)) => Value::Whole(match combine {
            Combine::Sum | Combine::Average => a.wrapping_add(b),
            Combine::Product => a.wrapping_mul(b),
            Combine::Max => a.max(b),
            Combine::Min => a.min(b),
        }),
        _ => a, // both are elements of one type
    }
}
