//! Modifications of control data: blocks, requests and responses, field by field, and their bytes.
//!
//! A modification may leave the data unchanged, or make it something that a correct rank could have
//! sent.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Draw;
use crate::command::TimelineCommand;
use crate::negotiation::response::{decode, encode};
use crate::negotiation::{
    Agreed, Block, Group, JOIN, OpKind, Params, Refusal, Request, RequestList, Response,
    ResponseList, Status,
};
use crate::tensor::{Dtype, ReduceOp};

/// Numbers at the limits of lengths and sums.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    5,
    63,
    64,
    65,
    1 << 20,
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

const KINDS: [OpKind; 8] = [
    OpKind::Allreduce,
    OpKind::Allgather,
    OpKind::Broadcast,
    OpKind::Join,
    OpKind::Alltoall,
    OpKind::Barrier,
    OpKind::Reducescatter,
    OpKind::Agree,
];

/// Modifies one field of `block`.
pub(super) fn block(draw: &mut Draw, block: &mut Block) {
    let bits = 64 * block.ready.len();
    match draw.below(11) {
        0 => block.status = Status(draw.below(64) as u32),
        1 => block.status = Status(1 << draw.below(32)),
        2 if bits > 0 => {
            let bit = draw.below(bits);
            block.ready[bit / 64] ^= 1 << (bit % 64);
        }
        3 if bits > 0 => {
            let word = draw.below(block.ready.len());
            block.ready[word] = draw.pick(&[0, u64::MAX]);
        }
        4 if bits > 0 => {
            let bit = draw.below(bits);
            number(draw, &mut block.ready_us[bit]);
        }
        5 => {
            let words = (block.ready.len() + draw.below(3)).saturating_sub(1);
            block.ready.resize(words, 0);
            block.ready_us.resize(64 * words, 0);
        }
        6 => number(draw, &mut block.settings.version),
        7 => number(draw, &mut block.settings.value.fusion_threshold_bytes),
        8 => number(draw, &mut block.settings.value.cycle_time_ns),
        9 => number(draw, &mut block.latest_us),
        _ => block.settings.value = block.settings.with_switches(draw.below(8) as u64),
    }
}

/// Modifies one field of a frame of requests.
pub(super) fn requests(draw: &mut Draw, frame: &mut Vec<u8>) {
    message(draw, frame, |draw, list: &mut RequestList| {
        if !change_list(draw, &mut list.requests) {
            match pick_mut(draw, &mut list.requests) {
                Some(asked) => request(draw, asked),
                None => list.requests.push(invented(draw)),
            }
        }
    });
}

/// Modifies one field of a frame of responses.
pub(super) fn responses(draw: &mut Draw, frame: &mut Vec<u8>) {
    message(draw, frame, |draw, list: &mut ResponseList| {
        match draw.below(10) {
            0 => list.evict.push(edge(draw) as u32),
            1 => {
                list.evict.pop();
            }
            2 => list.commands.push(TimelineCommand::Stop),
            3 => list.joined.push(edge(draw) as u32),
            4 => {
                list.joined.pop();
            }
            _ => {
                if !change_list(draw, &mut list.responses)
                    && let Some(given) = pick_mut(draw, &mut list.responses)
                {
                    response(draw, given);
                }
            }
        }
    });
}

/// Modifies the message in `frame` by `change`. Once in four times, or if it is no such message,
/// modifies its bytes.
fn message<T: Serialize + DeserializeOwned>(
    draw: &mut Draw,
    frame: &mut Vec<u8>,
    change: impl FnOnce(&mut Draw, &mut T),
) {
    match decode::<T>(frame) {
        Ok(mut message) if !draw.one_in(4) => {
            change(draw, &mut message);
            encode(&message, frame).expect("a message can be encoded");
        }
        _ => bytes(draw, frame),
    }
}

/// Modifies some bytes.
pub(super) fn bytes(draw: &mut Draw, frame: &mut Vec<u8>) {
    let length = frame.len();
    match draw.below(4) {
        0 if length > 0 => frame.truncate(draw.below(length)),
        1 if length > 0 => {
            let at = draw.below(length);
            frame[at] = draw.below(256) as u8;
        }
        2 if length > 0 => {
            let at = draw.below(length);
            frame[at] ^= 1 << draw.below(8);
        }
        _ => frame.extend((0..1 + draw.below(9)).map(|_| draw.below(256) as u8)),
    }
}

/// Sometimes removes, repeats or moves an item; returns whether it did.
fn change_list<T: Clone>(draw: &mut Draw, items: &mut Vec<T>) -> bool {
    if items.is_empty() || !draw.one_in(4) {
        return false;
    }
    let (at, to) = (draw.below(items.len()), draw.below(items.len()));
    match draw.below(3) {
        0 => {
            items.remove(at);
        }
        1 => items.insert(to, items[at].clone()),
        _ => items.swap(at, to),
    }
    true
}

fn pick_mut<'a, T>(draw: &mut Draw, items: &'a mut [T]) -> Option<&'a mut T> {
    let at = draw.below(items.len().max(1));
    items.get_mut(at)
}

fn request(draw: &mut Draw, request: &mut Request) {
    match draw.below(8) {
        0 => name(draw, &mut request.name),
        1 => number(draw, &mut request.ready_us),
        _ => params(draw, &mut request.params),
    }
}

fn invented(draw: &mut Draw) -> Request {
    let mut request = Request {
        name: "t0".into(),
        params: Params::plain(OpKind::Allreduce, Dtype::F32, [1].into_iter().collect()),
        ready_us: 0,
    };
    for _ in 0..draw.below(3) {
        self::request(draw, &mut request);
    }
    request
}

fn name(draw: &mut Draw, name: &mut Arc<str>) {
    *name = draw
        .pick(&["", "t0", "t1", "barrier", "ronde.barrier", "ronde.x", JOIN])
        .into();
}

fn params(draw: &mut Draw, params: &mut Params) {
    match draw.below(14) {
        0 => params.kind = draw.pick(&KINDS),
        1 => params.dtype = draw.pick(&Dtype::ALL),
        2 => params.wire_dtype = draw.one_in(2).then(|| draw.pick(&Dtype::ALL)),
        3 => params.shape.push(edge(draw) as usize),
        4 => {
            params.shape.pop();
        }
        5 | 6 => {
            let lengths = params.shape.len();
            if lengths > 0 {
                let mut length = params.shape[draw.below(lengths)] as u64;
                number(draw, &mut length);
                params.shape[draw.below(lengths)] = length as usize;
            }
        }
        7 => params.op = draw.pick(&ReduceOp::ALL),
        8 => params.prescale = draw.pick(&[0.0, 2.0, f64::NAN, f64::INFINITY]),
        9 => params.root = edge(draw) as u32,
        10 => {
            let mut splits = params.splits.take().unwrap_or_default().into_vec();
            if !change_list(draw, &mut splits) {
                match pick_mut(draw, &mut splits) {
                    Some(rows) => number(draw, rows),
                    None => splits.push(edge(draw)),
                }
            }
            params.splits = (!draw.one_in(4)).then(|| splits.into());
        }
        11 => {
            params.group = draw.one_in(2).then(|| Group {
                tag: edge(draw),
                size: edge(draw) as u32,
            });
        }
        12 => params.device = draw.one_in(2).then_some(0),
        _ => params.needs_all = !params.needs_all,
    }
}

fn response(draw: &mut Draw, response: &mut Response) {
    match draw.below(8) {
        0 => name(draw, &mut response.name),
        1 => {
            response.group = draw.one_in(2).then(|| Group {
                tag: edge(draw),
                size: edge(draw) as u32,
            });
        }
        2 => response.outcome = Err(refusal(draw)),
        3 => response.outcome = Ok(Agreed::default()),
        _ => match &mut response.outcome {
            Ok(agreed) => self::agreed(draw, agreed),
            Err(refused) => *refused = refusal(draw),
        },
    }
}

fn agreed(draw: &mut Draw, agreed: &mut Agreed) {
    match draw.below(6) {
        0 | 1 => match pick_mut(draw, &mut agreed.rows) {
            Some(rows) => number(draw, rows),
            None => agreed.rows.push(edge(draw)),
        },
        2 => {
            change_list(draw, &mut agreed.rows);
        }
        3 => agreed.absent.push(edge(draw) as u32),
        4 => {
            agreed.absent.pop();
        }
        _ => match &mut agreed.params {
            Some(agreed) => params(draw, agreed),
            none => *none = Some(invented(draw).params),
        },
    }
}

fn refusal(draw: &mut Draw) -> Refusal {
    match draw.below(3) {
        0 => Refusal::TooLarge {
            rows: (0..draw.below(9)).map(|_| edge(draw)).collect(),
        },
        1 => Refusal::Joined {
            rank: edge(draw) as u32,
        },
        _ => Refusal::Mismatch {
            first_rank: edge(draw) as u32,
            expected: Box::new(invented(draw).params),
            rank: edge(draw) as u32,
            found: Box::new(invented(draw).params),
        },
    }
}

fn edge(draw: &mut Draw) -> u64 {
    draw.pick(&EDGES)
}

/// Replaces a number.
fn number(draw: &mut Draw, number: &mut u64) {
    *number = match draw.below(4) {
        0 => number.wrapping_add(1),
        1 => number.wrapping_sub(1),
        2 => *number ^ 1 << draw.below(64),
        _ => edge(draw),
    };
}
