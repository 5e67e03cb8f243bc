//! Metadata of a timeline: names of tensors, wall clock, and the members that Ronde adds.

use super::super::complaint::FilePosition;
use super::super::event::Event;
use super::super::json::{Value, member};
use super::super::model::{Clock, Format};
use super::super::reader::Out;
use super::tracks::Tracks;

/// Reads a metadata event.
pub(super) fn metadata(
    event: &Event<'_>,
    place: FilePosition<'_>,
    tracks: &mut Tracks,
    out: &mut Out<'_>,
) {
    match event.name.raw {
        b"process_name" => {
            let epoch_us = event.argument("start_time_since_epoch_in_micros");
            if let Some(epoch_ns) = epoch_us.and_then(Value::us_as_ns) {
                out.source.epoch_ns = Some(epoch_ns);
            }
            if let Some(name) = event.argument("name")
                && let Some(track) = tracks.find(event.process)
            {
                let name = out.name(&name.decode());
                tracks.name(track, name, place, out);
            }
        }
        b"process_labels" => {
            if let Some(cycles) = event.argument("dropped_cycles").and_then(Value::count) {
                out.source.dropped_cycles = cycles;
            }
            if let Some(Value::Nested(ronde)) = event.argument("ronde") {
                of_ronde(ronde, out);
            }
        }
        b"ronde_clock" => of_ronde(event.arguments, out),
        _ => {}
    }
}

/// Reads the `ronde` member of a header, or the members that follow when the clocks have been
/// compared again; the last ones apply.
pub(crate) fn of_ronde(ronde: &[u8], out: &mut Out<'_>) {
    let source = &mut out.source;
    let count = |key| member(ronde, key).and_then(Value::count);
    let integer = |key| member(ronde, key).and_then(Value::integer);
    let small = |key| count(key).and_then(|number| u32::try_from(number).ok());
    if source.format == Format::Horovod {
        source.format = Format::Ronde;
    }
    source.rank = small("rank").or(source.rank);
    source.size = small("size").or(source.size);
    source.fusion_threshold_bytes =
        count("fusion_threshold_bytes").or(source.fusion_threshold_bytes);
    source.gpu_fusion_threshold_bytes =
        count("gpu_fusion_threshold_bytes").or(source.gpu_fusion_threshold_bytes);
    let cycle_time_ms = member(ronde, "cycle_time_ms").and_then(Value::number);
    source.cycle_time_ms = cycle_time_ms.or(source.cycle_time_ms);
    if let Some(backend @ Value::Text(_)) = member(ronde, "backend") {
        source.backend = Some(backend.decode().into_owned());
    }
    source.shaped |= matches!(member(ronde, "link"), Some(Value::Nested(_)));
    if let Some(zero_ns) = integer("zero_ns") {
        source.clock = Some(Clock {
            zero_ns,
            offset_ns: integer("offset_ns").unwrap_or(0),
            error_ns: count("error_ns").unwrap_or(0),
            drift_ppm: member(ronde, "drift_ppb")
                .and_then(Value::number)
                .unwrap_or(0.0)
                / 1e3,
        });
    }
}

/// Infers rank and size after the whole file has been read.
pub(super) fn infer(highest_rank: Option<u32>, out: &mut Out<'_>) {
    let source = &mut out.source;
    if source.rank.is_none() {
        // Horovod records on rank 0 only.
        source.rank = rank_of_name(&source.path).or(Some(0));
    }
    if source.size.is_none() {
        source.size = highest_rank.map(|rank| rank + 1);
    }
}

/// Rank in a file name such as `t.rank3.json`.
fn rank_of_name(path: &std::path::Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    name.split('.')
        .find_map(|part| part.strip_prefix("rank")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_names() {
        let rank = |name| rank_of_name(std::path::Path::new(name));
        assert_eq!(rank("x/t.rank3.json"), Some(3));
        assert_eq!(rank("x/t.rank12.old.json.gz"), Some(12));
        assert_eq!(rank("rank1/t.json"), None);
    }
}
