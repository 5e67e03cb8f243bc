//! Flags of `ronde run` for jobs that `mpirun` starts, with horovodrun's names.

use std::ffi::OsString;

use clap::ValueHint;

use super::mpirun::{self, Launch, MpirunError};

/// Flags for jobs that `mpirun` starts.
#[derive(clap::Args, Debug, Default)]
pub(super) struct MpiFlags {
    /// Start the ranks with mpirun, also on this machine
    #[arg(long)]
    mpi: bool,
    /// Print the mpirun command line that starts the job, and end
    #[arg(long)]
    print_command: bool,
    /// Further options for mpirun, as one argument
    #[arg(long, value_name = "\"OPTIONS\"", allow_hyphen_values = true, value_hint = ValueHint::Other)]
    mpi_args: Option<String>,
    /// Options of mpirun for binding ranks to cores [default: no binding]
    #[arg(long, value_name = "\"OPTIONS\"", allow_hyphen_values = true, value_hint = ValueHint::Other)]
    binding_args: Option<String>,
    /// Use TCP between hosts, even if MPI supports a faster network
    #[arg(long)]
    tcp: bool,
    /// Port of ssh on the other hosts
    #[arg(short = 'p', long, value_name = "PORT")]
    ssh_port: Option<u16>,
    /// Key of ssh for the other hosts
    #[arg(short = 'i', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    ssh_identity_file: Option<OsString>,
    /// Network interfaces between the hosts, such as eth0,eth1; also --network-interface, once for each
    #[arg(long, alias = "network-interface", value_name = "NAMES", value_hint = ValueHint::Other)]
    network_interfaces: Vec<String>,
}

impl MpiFlags {
    /// Flags with only `--mpi-args`.
    pub(super) fn of(mpi_args: Option<String>) -> Self {
        Self {
            mpi_args,
            ..Self::default()
        }
    }

    /// Whether the flags require `mpirun`, whatever the hosts.
    pub(super) fn wanted(&self) -> bool {
        self.mpi
            || self.print_command
            || self.tcp
            || self.mpi_args.is_some()
            || self.binding_args.is_some()
    }

    /// Whether the command line is only printed.
    pub(super) fn only_print(&self) -> bool {
        self.print_command
    }

    /// Completes `launch` with these flags and returns the command line. Warns beforehand if
    /// `mpirun` will refuse the launch.
    ///
    /// # Errors
    /// No `mpirun`, or one that does not support a requested flag.
    pub(super) fn command_line(&self, launch: Launch) -> Result<Vec<OsString>, MpirunError> {
        let mut exported = launch.exported;
        for (name, _) in std::env::vars_os() {
            let is_set = launch.environment.iter().any(|(own, _)| *own == name);
            if mpirun::is_exported(&name) && !is_set && !exported.contains(&name) {
                exported.push(name);
            }
        }
        let launch = Launch {
            exported,
            is_root: rustix::process::geteuid().is_root(),
            ssh_port: self.ssh_port,
            ssh_identity_file: self.ssh_identity_file.clone(),
            interfaces: Some(self.network_interfaces.join(",")).filter(|names| !names.is_empty()),
            tcp: self.tcp,
            binding_args: self.binding_args.clone(),
            mpi_args: self.mpi_args.clone(),
            ..launch
        };
        let kind = mpirun::kind()?;
        let cores = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        let has = |name: &str| std::env::var_os(name).is_some();
        if let Some(reason) = mpirun::too_many_for_cores(kind, &launch, cores, has) {
            eprintln!("ronde run: {reason}");
        }
        mpirun::command_line(kind, &launch)
    }
}
