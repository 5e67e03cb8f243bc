//! Appearance of the parts of a step, on the terminal and in charts and pages.

use ronde_trace::analysis::report::PartKind;

use crate::chart::{Data, Series};
use crate::present::Appearance;
use crate::present::units::capitalized;

/// Appearances of all parts.
pub(super) fn all() -> [&'static Appearance; PartKind::COUNT] {
    PartKind::ALL.map(appearance)
}

/// Returns the appearance of a part.
pub(super) fn appearance(kind: PartKind) -> &'static Appearance {
    match kind {
        PartKind::Compute => &Appearance {
            meaning: "this rank has tensors that are not ready yet; communication that overlaps it \
                      costs nothing",
            colour: "--part-compute",
            light: "#aeb6be",
            dark: "#5d6771",
            hatch: "",
            cell: '░',
            ansi: 244,
        },
        PartKind::WaitForRanks => &Appearance {
            meaning: "tensors are ready here, but not on every rank",
            colour: "--part-wait",
            light: "#d95f02",
            dark: "#f08a4b",
            hatch: "M-2 2l4 -4M0 8l8 -8M6 10l4 -4",
            cell: '▚',
            ansi: 160,
        },
        PartKind::Negotiation => &Appearance {
            meaning: "tensors are ready on all ranks and their batch has not begun: cycle time, \
                      negotiation, the previous batch",
            colour: "--part-negotiation",
            light: "#e6ab02",
            dark: "#e5bd4f",
            hatch: "M1 2h2M5 6h2",
            cell: '▒',
            ansi: 178,
        },
        PartKind::Prepare => &Appearance {
            meaning: "waiting for data or the device, allocation of buffers",
            colour: "--part-prepare",
            light: "#b8639f",
            dark: "#d58abb",
            hatch: "M0 0l8 8M8 0l-8 8",
            cell: '▞',
            ansi: 133,
        },
        PartKind::CopyIn => &Appearance {
            meaning: "into the fusion buffer, shared memory or the host",
            colour: "--part-copy-in",
            light: "#6bb5e8",
            dark: "#7cc4f2",
            hatch: "M0 2h8M0 6h8",
            cell: '▖',
            ansi: 74,
        },
        PartKind::Collective => &Appearance {
            meaning: "the operation itself: transfer, reduction and waiting for peers",
            colour: "--part-collective",
            light: "#0b5fa5",
            dark: "#3b82d0",
            hatch: "",
            cell: '█',
            ansi: 32,
        },
        PartKind::CopyOut => &Appearance {
            meaning: "from there into the results",
            colour: "--part-copy-out",
            light: "#1b9e77",
            dark: "#35b58d",
            hatch: "M2 0v8M6 0v8",
            cell: '▝',
            ansi: 36,
        },
        PartKind::GpuIdle => &Appearance {
            meaning: "no kernel and no copy runs on the GPU (from a profiler's trace only)",
            colour: "--part-gpu-idle",
            light: "#e3e6ea",
            dark: "#3a424b",
            hatch: "M1 1h1M5 5h1",
            cell: '·',
            ansi: 250,
        },
        PartKind::GpuOther => &Appearance {
            meaning: "the GPU copies or sets memory, or runs a kernel of unknown type",
            colour: "--part-gpu-other",
            light: "#8da0cb",
            dark: "#9fb2dd",
            hatch: "M0 4h8",
            cell: '▘',
            ansi: 108,
        },
    }
}

/// Name of a part as a heading.
pub(super) fn title(kind: PartKind) -> String {
    capitalized(kind.name())
}

/// Returns a series with the appearance of a part.
pub(super) fn series(kind: PartKind, data: Data) -> Series {
    let Appearance { colour, hatch, .. } = *appearance(kind);
    Series {
        hatch,
        ..Series::new(title(kind), colour, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_part_has_colours_and_characters_of_its_own() {
        let values: [fn(&Appearance) -> String; 4] = [
            |part| part.colour.to_owned(),
            |part| part.light.to_owned(),
            |part| part.dark.to_owned(),
            |part| part.cell.to_string(),
        ];
        for value in values {
            let distinct: HashSet<String> = all().map(value).into();
            assert_eq!(distinct.len(), PartKind::COUNT, "{distinct:?}");
        }
        let hatches = all().map(|part| part.hatch);
        assert!(
            hatches.windows(2).all(|two| two[0] != two[1]),
            "{hatches:?}"
        );
    }
}
