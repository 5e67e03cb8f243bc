//! Presentation for all subcommands: units, tables, pages of text, the terminal and output files.

pub(crate) mod interrupt;
mod message;
pub(crate) mod output;
mod page;
pub(crate) mod part;
mod progress;
mod section;
mod table;
mod terminal;

pub(crate) use message::{fail, print, warn};
pub(crate) use page::{page, titled};
pub(crate) use progress::bar;
pub(crate) use ronde_job::units;
pub(crate) use section::{List, Section, markup, prose, text};
pub(crate) use table::{Cell, Table, plain, wrapped};
pub(crate) use terminal::{Look, harmless};
