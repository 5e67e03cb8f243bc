//! Guide to the page: definitions of the terms that it uses.

use maud::{Markup, html};

use super::parts::{look, title};
use crate::html::swatch;
use ronde_trace::analysis::report::PartKind;

pub(super) fn show() -> Markup {
    html! {
        dl.guide {
            dt { "A step" }
            dd { "lasts from the last result of the step before to its own last result, on the rank named at the top." }
            @for kind in PartKind::ALL {
                dt { (swatch(&look(kind).class())) " " (title(kind)) }
                dd { (look(kind).meaning) "." }
            }
            dt { "Exposed" }
            dd { "is what makes the step longer: time of a part while this rank had nothing left to compute. What is hidden runs behind computation." }
            dt { "Overlap" }
            dd { "is the part of all communication that is hidden." }
            dt { "Step without a rank" }
            dd { "is computed anew from the ready times of the others: every batch moves as early as they allow." }
            dt { "α and β" }
            dd { "are what a message costs however small, and what each byte costs. Batches much smaller than α/β pay mostly α: fuse more of them." }
            dt { "Median, p10, p90" }
            dd { "are the value in the middle, and those below which lie a tenth and nine tenths of all." }
        }
    }
}
