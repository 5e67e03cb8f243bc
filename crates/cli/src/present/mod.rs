//! Presentation for all subcommands: units, tables, pages of text, the terminal and output files.

mod appearance;
pub(crate) mod interrupt;
mod message;
pub(crate) mod output;
mod page;
mod progress;
mod section;
mod table;
mod terminal;

pub(crate) use appearance::{Appearance, patterns, style};
pub(crate) use message::{fail, print, warn};
pub(crate) use page::{page, titled};
pub(crate) use progress::bar;
pub(crate) use ronde_job::units;
pub(crate) use section::{List, Section, markup, prose, text};
pub(crate) use table::{Cell, Table, plain, wrapped};
pub(crate) use terminal::{Look, harmless};
