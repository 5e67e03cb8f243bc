//! Reader for BytePS's `comm.json`: unordered rows, one for each synchronization of a tensor (`tid`
//! is `total`) and one for each stage of each partition (`tid` is the partition's key).
//!
//! All rows are kept until the file ends, 40 bytes each.
//!
//! | in the file | in the model |
//! | --- | --- |
//! | start of the `total` row | ready time on this rank: a tick, if the rank is known |
//! | from there to the first stage that moves data, after a `COORDINATE_*` stage | negotiation |
//! | from the first stage that moves data to the end of the `total` row | execution |
//! | all stages | activities; those named `COORDINATE_*` are time spent waiting for data |
//!
//! Where there is a negotiation, the `COORDINATE_*` activities lie within it, before the execution.
//! The time that a tensor spends in BytePS's queue before its first stage counts as negotiation,
//! because the file does not distinguish the two. Sizes and element types are not in the file.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use smallvec::SmallVec;

use super::complaint::{Complaint, FilePosition};
use super::event::{Event, Id};
use super::json::{NS_MAX, Text};
use super::model::{Activity, Kind, NameId, Operation, Span, Tick};
use super::reader::Out;
use super::vocabulary;

/// Prefix of tensor names.
const PREFIX: &[u8] = b"Comm.";

/// Stage number of a `total` row.
const WHOLE: u16 = u16::MAX;

/// Maximum number of stages, more than BytePS has; further stages share the last number.
const STAGES_MAX: usize = 1 << 12;

/// Reader for `comm.json`.
#[derive(Debug, Default)]
pub(super) struct Byteps {
    rows: Vec<Row>,
    tensors: Numbers,
    stages: Numbers,
    keys: Numbers,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    tensor: u32,
    key: u32,
    stage: u16,
    span: Span,
    /// Index of the synchronization that the row belongs to, once known.
    group: u32,
}

/// One synchronization of one tensor.
#[derive(Clone, Copy, Debug)]
struct Group {
    tensor: u32,
    whole: Option<Span>,
    /// Range of its rows, after sorting.
    rows: (u32, u32),
    began: i64,
}

impl Byteps {
    /// Reads the next event.
    pub(super) fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) {
        if event.phase != b'X' {
            return;
        }
        let argument = event.argument("name");
        let tensor = match (event.process, &argument) {
            (Id::Text(pid), _) => pid,
            (_, Some(name)) => name.characters(),
            _ => {
                let detail = || format!("{:?}", event.name.decode());
                return out.complaints.add(Complaint::NoProcess, place, detail);
            }
        };
        let Some(span) = out.span(event, place) else {
            return;
        };
        let rest = event.name.raw.strip_prefix(tensor);
        let stage = match rest {
            Some(b"") => None,
            Some(rest) => Some(rest.strip_prefix(b".").unwrap_or(rest)),
            // The name does not begin with the tensor's name: its last part is the stage.
            None => event.name.raw.rsplit(|&byte| byte == b'.').next(),
        };
        let is_whole = event.thread == Id::Text(b"total") || stage.is_none();
        let stage = match stage {
            Some(stage) if !is_whole => (self.stages.number(stage) as usize).min(STAGES_MAX) as u16,
            _ => WHOLE,
        };
        let key = match event.thread {
            Id::Number(key) => self.keys.number(&key.to_le_bytes()),
            Id::Text(key) => self.keys.number(key),
            Id::None => u32::MAX,
        };
        self.rows.push(Row {
            tensor: self.tensors.number(tensor),
            key,
            stage,
            span,
            group: 0,
        });
    }

    /// Reads a member beside the events, which may be Ronde's own.
    pub(super) fn header(&mut self, key: &str, value: &[u8], out: &mut Out<'_>) {
        if key == "ronde" {
            super::horovod::of_ronde(value, out);
        }
    }

    /// Ends the file: sorts the rows and passes the operations to the visitor.
    pub(super) fn finish(mut self, out: &mut Out<'_>) {
        let zero = self
            .rows
            .iter()
            .map(|row| row.span.began)
            .min()
            .unwrap_or(0);
        for row in &mut self.rows {
            // Relative to a wall clock before 1970, the time would overflow.
            row.span.began = row.span.began.saturating_sub(zero).min(NS_MAX);
            row.span.ended = row.span.ended.saturating_sub(zero).min(NS_MAX);
        }
        out.source.epoch_ns = Some(zero);
        if out.source.rank.is_none() {
            out.source.rank = rank_of_folder(&out.source.path);
        }
        let groups = self.group(out);
        let tensors: Vec<NameId> = self.tensors.names(|raw| {
            let plain = Text {
                raw: raw.strip_prefix(PREFIX).unwrap_or(raw),
                escaped: true,
            };
            out.name(&plain.decode())
        });
        let stages = self.stages.names(|raw| {
            let id = out.name(&String::from_utf8_lossy(raw));
            (
                id,
                vocabulary::stage(raw),
                raw.starts_with(vocabulary::COORDINATE),
            )
        });
        for group in groups {
            let rows = &self.rows[group.rows.0 as usize..group.rows.1 as usize];
            let mut operation = operation(rows, group.whole, &stages, out.source.rank);
            operation.tensor = tensors[group.tensor as usize];
            out.visitor.operation(&operation);
        }
    }

    /// Assigns each row to a synchronization. Sorts rows by synchronization, and synchronizations
    /// by time.
    fn group(&mut self, out: &mut Out<'_>) -> Vec<Group> {
        let rows = &mut self.rows;
        rows.sort_unstable_by_key(|row| {
            (
                row.tensor,
                row.span.began,
                row.stage != WHOLE,
                row.span.ended,
            )
        });
        let mut groups: Vec<Group> = Vec::new();
        for rows in rows.chunk_by_mut(|one, other| one.tensor == other.tensor) {
            let tensor = rows[0].tensor;
            let mut whole = None;
            // Group of the rows outside of any `total` row, and the stages it has.
            let mut loose: Option<(u32, HashSet<(u32, u16)>)> = None;
            for row in rows {
                let next = groups.len() as u32;
                let mut group = |whole| {
                    groups.push(Group {
                        tensor,
                        whole,
                        rows: (0, 0),
                        began: row.span.began,
                    });
                    next
                };
                if row.stage == WHOLE {
                    row.group = group(Some(row.span));
                    whole = Some((row.group, row.span));
                    continue;
                }
                if let Some((group, span)) = whole
                    && row.span.began <= span.ended
                {
                    row.group = group;
                    continue;
                }
                out.complaints
                    .add(Complaint::Orphan, FilePosition::default(), String::new);
                // A repeated stage begins another synchronization.
                match &mut loose {
                    Some((group, seen)) if !seen.contains(&(row.key, row.stage)) => {
                        seen.insert((row.key, row.stage));
                        row.group = *group;
                    }
                    loose => {
                        row.group = group(None);
                        *loose = Some((row.group, HashSet::from([(row.key, row.stage)])));
                    }
                }
            }
        }
        rows.sort_unstable_by_key(|row| {
            (
                row.group,
                row.span.began,
                row.span.ended,
                row.stage,
                row.key,
            )
        });
        let mut first = 0;
        for rows in rows.chunk_by(|one, other| one.group == other.group) {
            groups[rows[0].group as usize].rows = (first, first + rows.len() as u32);
            first += rows.len() as u32;
        }
        groups.sort_by_key(|group| group.began);
        groups
    }
}

/// Converts one synchronization to an operation of the model; the tensor is not set.
fn operation(
    rows: &[Row],
    whole: Option<Span>,
    stages: &[(NameId, super::model::Phase, bool)],
    rank: Option<u32>,
) -> Operation {
    let stage = |row: &Row| stages.get(usize::from(row.stage)).copied();
    let parts = || rows.iter().filter(|row| row.stage != WHOLE);
    let began = whole.map_or_else(|| rows[0].span.began, |span| span.began);
    let ended = whole.map(|span| span.ended);
    let ended = ended
        .or_else(|| parts().map(|row| row.span.ended).max())
        .unwrap_or(began);
    let moving = parts().find(|row| stage(row).is_some_and(|(_, _, coordinates)| !coordinates));
    let moved = moving.map(|row| row.span.began.clamp(began, ended));
    let coordinated = parts()
        .next()
        .and_then(stage)
        .is_some_and(|(_, _, coordinates)| coordinates);
    let start = match moved {
        Some(moved) if coordinated => moved,
        None if coordinated => ended,
        _ => began,
    };
    let activities: SmallVec<[Activity; 4]> = parts()
        .filter_map(|row| Some((row, stage(row)?)))
        .map(|(row, (name, phase, _))| Activity {
            name,
            phase,
            span: row.span,
        })
        .collect();
    Operation {
        tensor: NameId(0),
        kind: Kind::Allreduce,
        negotiation: coordinated.then_some(Span {
            began,
            ended: start,
        }),
        ticks: rank
            .map(|rank| Tick { rank, at: began })
            .into_iter()
            .collect(),
        execution: Some(Span {
            began: start,
            ended,
        }),
        activities,
        sums: None,
        dtype: None,
        elements: None,
        bytes: None,
        refused: false,
    }
}

/// Numbers of strings, in order of first appearance.
#[derive(Debug, Default)]
struct Numbers {
    known: HashMap<Box<[u8]>, u32>,
    /// String of the last lookup: consecutive rows mostly have the same one.
    last: (Box<[u8]>, u32),
}

impl Numbers {
    fn number(&mut self, name: &[u8]) -> u32 {
        if !self.known.is_empty() && *self.last.0 == *name {
            return self.last.1;
        }
        let next = self.known.len() as u32;
        let number = match self.known.get(name) {
            Some(&number) => number,
            None => *self.known.entry(name.into()).or_insert(next),
        };
        self.last = (name.into(), number);
        number
    }

    /// Applies `each` to every string, in order.
    fn names<T>(&self, each: impl FnMut(&[u8]) -> T) -> Vec<T> {
        let mut sorted: Vec<_> = self.known.iter().collect();
        sorted.sort_unstable_by_key(|&(_, &number)| number);
        sorted
            .into_iter()
            .map(|(name, _)| &**name)
            .map(each)
            .collect()
    }
}

/// Rank that `<dir>/<local rank>/comm.json` or `<dir>/node<k>/<local rank>/comm.json` belongs to, if
/// it is certain: after the first node this takes the number of ranks on a node, counted in the
/// first node's folders. The number of a folder may also be a date or the number of a run, so
/// another than 0 counts only if it is below the number of such folders.
fn rank_of_folder(path: &Path) -> Option<u32> {
    let path = std::path::absolute(path).ok()?;
    let number = |path: &Path| -> Option<u32> { path.file_name()?.to_str()?.parse().ok() };
    let file = path.file_name()?;
    let numbered = |above: &Path| -> Option<u32> {
        let paths = std::fs::read_dir(above)
            .ok()?
            .flatten()
            .map(|entry| entry.path());
        let ranks = paths.filter(|path| number(path).is_some() && path.join(file).is_file());
        ranks.count().try_into().ok()
    };
    let folder = path.parent()?;
    let local_rank = number(folder)?;
    let above = folder.parent()?;
    if local_rank > 0 && local_rank >= numbered(above)? {
        return None;
    }
    let node = above
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix("node")?.parse().ok());
    let Some(node @ 1_u32..) = node else {
        return Some(local_rank);
    };
    let first = numbered(above.parent()?)?;
    (local_rank < first).then(|| node.checked_mul(first)?.checked_add(local_rank))?
}

#[cfg(test)]
mod tests;
