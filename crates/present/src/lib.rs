//! Presentation of results: tables and reports for the terminal, charts, HTML pages, output files
//! and messages.
//!
//! A report is a list of [`Section`]s of paragraphs, lists, [`Table`]s and [charts](chart). Text
//! for the terminal, Markdown and one self-contained [HTML page](html) are rendered from it.
//!
//! ```
//! use ronde_present::{Look, Section, Table, text};
//!
//! let mut table = Table::new(["<rank", "ms"]);
//! table.row(["0", "1.25"]);
//! let section = Section::new("ranks", "Ranks").table(table).text("No rank stands out.");
//! let shown = text([&section], &Look::PLAIN);
//! assert_eq!(shown, "Ranks\n  rank    ms\n  0     1.25\n  No rank stands out.\n");
//! ```

mod appearance;
pub mod chart;
pub mod html;
pub mod interrupt;
mod message;
pub mod output;
mod page;
mod progress;
mod section;
mod table;
mod terminal;

pub use appearance::{Appearance, patterns, style};
pub use message::{EXIT_USAGE, fail, print, warn};
pub use page::{page, titled};
pub use progress::bar;
pub use ronde_job::units;
pub use section::{List, Section, markdown, markup, prose, text};
pub use table::{Align, Cell, Table, plain, wrapped};
pub use terminal::{Look, harmless};
