//! The program under test.

use std::process::Command;

/// The program, in an environment without launchers and settings.
pub(crate) fn ronde() -> Command {
    const FOREIGN: [&str; 9] = [
        "HOROVOD_",
        "RONDE_",
        "BYTEPS_",
        "OMPI_",
        "PMI",
        "SLURM_",
        "WORLD_SIZE",
        "RANK",
        "LOCAL_",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ronde"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if FOREIGN.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}
