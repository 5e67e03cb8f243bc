//! `ronde licenses`: prints notices and licences of the third-party files inside this program.

use std::process::ExitCode;

use crate::chart::picture::FONT_LICENCE;
use crate::html::ECHARTS_LICENCES;

/// Print the licences of the charts and the font inside this program
#[derive(clap::Args)]
pub(super) struct Args {}

pub(super) fn main() -> ExitCode {
    super::print(&format!(
        "{ECHARTS_LICENCES}\n{}\n\nFont of PNG pictures\n\n{FONT_LICENCE}",
        "=".repeat(80)
    ))
}
