//! Jobs on other hosts: flags of `ronde run` for them, with horovodrun's names, and the command
//! line of the machine's `mpirun`.
//!
//! This process is replaced by `mpirun`, which therefore handles signals, standard input and the
//! exit code. The output of `mpirun --version` distinguishes Open MPI from the launchers that
//! derive from MPICH's Hydra (MPICH, Intel MPI, MVAPICH).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::ValueHint;

use super::hosts::is_this_machine;
use super::output::say;
use super::rank::ELASTIC_VARIABLES;
use super::threads;
use ronde::internal::identity::IDENTITY_VARIABLES;

/// Options of every `ssh` that starts ranks: it asks no questions, which no terminal could answer,
/// and accepts the key of a host that it does not know, but no changed one.
pub(super) const SSH_OPTIONS: [&str; 2] = ["BatchMode=yes", "StrictHostKeyChecking=accept-new"];

/// Variables that replace `ssh`, or its options, in Open MPI.
const AGENT_VARIABLES: [&str; 4] = [
    "OMPI_MCA_plm_rsh_agent",
    "OMPI_MCA_plm_rsh_args",
    "PRTE_MCA_plm_ssh_agent",
    "PRTE_MCA_plm_ssh_args",
];

/// Kind of the machine's launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    OpenMpi,
    Hydra,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MpirunError {
    #[error(
        "mpirun, which is to start the ranks, cannot be run: {source}; install Open MPI or MPICH on \
         all hosts, or start the ranks without it, through ssh (--tcp)"
    )]
    Missing { source: io::Error },
    #[error(
        "mpirun --version says {said:?}, which is neither Open MPI's nor Hydra's; start the command \
         with it yourself"
    )]
    Unknown { said: String },
    #[error("Hydra's mpirun has no equivalent of {flag}; pass its own option with --mpi-args")]
    Flag { flag: &'static str },
    #[error("cannot execute mpirun: {source}")]
    Exec { source: io::Error },
    #[error("--mpi-args: {text:?} has an open quote")]
    Quote { text: String },
    #[error("{flag}: {value:?} {reason}")]
    Value {
        flag: &'static str,
        value: OsString,
        reason: &'static str,
    },
}

impl MpirunError {
    /// Exit code as in a shell: 127 for a command that does not exist.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Missing { .. } => 127,
            Self::Exec { .. } => 126,
            Self::Unknown { .. } | Self::Flag { .. } | Self::Quote { .. } | Self::Value { .. } => {
                super::EXIT_USAGE
            }
        }
    }
}

/// Flags for jobs that `mpirun` starts.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct MpiFlags {
    /// Start the ranks with mpirun, also on this machine
    #[arg(long)]
    mpi: bool,
    /// Print the mpirun command line that starts the job, and end
    #[arg(long)]
    pub(super) print_command: bool,
    /// Further options for mpirun, as one argument
    #[arg(long, value_name = "\"OPTIONS\"", allow_hyphen_values = true)]
    #[arg(value_hint = ValueHint::Other)]
    mpi_args: Option<String>,
    /// Options of mpirun for binding ranks to cores [default: no binding]
    #[arg(long, value_name = "\"OPTIONS\"", allow_hyphen_values = true)]
    #[arg(value_hint = ValueHint::Other)]
    binding_args: Option<String>,
    /// Start the ranks through ssh, without MPI, and connect them over TCP; with --mpi: MPI uses
    /// TCP between hosts
    #[arg(long)]
    pub(super) tcp: bool,
    /// Port of ssh on the other hosts
    #[arg(short = 'p', long, value_name = "PORT")]
    pub(super) ssh_port: Option<u16>,
    /// Key of ssh for the other hosts
    #[arg(short = 'i', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) ssh_identity_file: Option<OsString>,
    /// Network interfaces between the hosts, such as eth0,eth1; also --network-interface, once for
    /// each
    #[arg(long, alias = "network-interface", value_name = "NAMES", value_hint = ValueHint::Other)]
    pub(super) network_interfaces: Vec<String>,
}

impl MpiFlags {
    /// Flags with only `--mpi-args`.
    pub(super) fn with_args(mpi_args: Option<String>) -> Self {
        Self {
            mpi_args,
            ..Self::default()
        }
    }

    /// Whether the flags require `mpirun`, whatever the hosts.
    pub(super) fn need_mpirun(&self) -> bool {
        self.mpi || self.print_command || self.mpi_args.is_some() || self.binding_args.is_some()
    }

    /// Binding options: the user's, else `usual`.
    fn binding(&self, usual: &[&str]) -> Result<Vec<String>, MpirunError> {
        match &self.binding_args {
            Some(text) => split(text),
            None => Ok(usual.iter().map(ToString::to_string).collect()),
        }
    }
}

/// Job to start.
#[derive(Clone, Debug, Default)]
pub(super) struct Launch {
    pub(super) num_proc: usize,
    /// Hosts and their slots; if empty, `mpirun` finds the hosts itself, such as a batch system's.
    pub(super) hosts: Vec<(String, usize)>,
    /// Variables for the ranks, in addition to those of this process.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Names of this process's variables to export.
    pub(super) exported: Vec<OsString>,
    /// Whether each line of output begins with its rank; `timestamp` adds the time.
    pub(super) prefix: bool,
    pub(super) timestamp: bool,
    pub(super) output_filename: Option<OsString>,
    pub(super) command: Vec<OsString>,
    pub(super) flags: MpiFlags,
    /// Whether variables choose the program, or its options, by which Open MPI starts its daemons.
    pub(super) has_agent: bool,
}

impl Launch {
    /// Returns the command line. Exports this process's variables too, and warns beforehand if
    /// `mpirun` will refuse the launch.
    ///
    /// # Errors
    /// No `mpirun`, or one that does not support a requested flag; a value that it would take for
    /// an option or would split.
    pub(super) fn line(mut self) -> Result<Vec<OsString>, MpirunError> {
        for (name, _) in std::env::vars_os() {
            let is_set = self.environment.iter().any(|(own, _)| *own == name);
            if is_exported(&name) && !is_set && !self.exported.contains(&name) {
                self.exported.push(name);
            }
        }
        let kind = kind()?;
        let cores = threads::cores().unwrap_or(usize::MAX);
        let has = |name: &str| std::env::var_os(name).is_some();
        self.has_agent = AGENT_VARIABLES.iter().any(|name| has(name));
        if let Some(reason) = too_many_for_cores(kind, &self, cores, has) {
            say(super::LABEL, &reason);
        }
        let is_root = rustix::process::geteuid().is_root();
        command_line(kind, &self, is_root)
    }

    /// Rejects values that `mpirun`, or an `ssh` that it starts, would take for options or would
    /// split. The values of `--mpi-args` and `--binding-args` are options by intention; host names
    /// are checked by their parser.
    fn check(&self) -> Result<(), MpirunError> {
        let refuse = |flag, value: &OsStr, reason| {
            let value = value.to_owned();
            Err(MpirunError::Value {
                flag,
                value,
                reason,
            })
        };
        let is_option = |value: &OsStr| value.as_encoded_bytes().starts_with(b"-");
        let interfaces = &self.flags.network_interfaces;
        for name in interfaces.iter().flat_map(|names| names.split(',')) {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/@".contains(&byte);
            if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_allowed) {
                let reason =
                    "is not the name of a network interface; write for example eth0, or 10.0.0.0/8";
                return refuse("--network-interfaces", name.as_ref(), reason);
            }
        }
        if let Some(file) = &self.flags.ssh_identity_file {
            // Open MPI splits the arguments of ssh at blanks and does not interpret quotes.
            let is_word = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
            if is_option(file) || !file.to_str().is_some_and(is_word) {
                let reason = "cannot be passed on to ssh; give a path in UTF-8 without blanks that \
                              does not begin with '-'";
                return refuse("--ssh-identity-file", file, reason);
            }
        }
        match self.command.first() {
            Some(program) if is_option(program) => {
                let reason =
                    "begins with '-', so mpirun would read it as an option; write ./ before it";
                refuse("the command", program, reason)
            }
            _ => Ok(()),
        }
    }
}

/// Runs `mpirun --version` to find its kind.
fn kind() -> Result<Kind, MpirunError> {
    let output = Command::new("mpirun").arg("--version").output();
    let output = output.map_err(|source| MpirunError::Missing { source })?;
    kind_of(&String::from_utf8_lossy(&output.stdout))
}

/// Whether this machine has an `mpirun`, a library of the same MPI, and the plug-in for it. Hydra
/// has no options for `ssh` or for the time of a line: if they were given, it is not usable.
pub(super) fn is_usable(needs_options: bool) -> bool {
    let family = match kind() {
        Ok(Kind::OpenMpi) => "Open MPI",
        Ok(Kind::Hydra) if !needs_options => "MPICH",
        _ => return false,
    };
    let has_both = |mpi: &ronde::MpiFound| mpi.library.is_ok() && mpi.plugin.is_ok();
    let mut found = ronde::mpi_libraries().into_iter();
    found.any(|mpi| mpi.family == family && has_both(&mpi))
}

fn kind_of(said: &str) -> Result<Kind, MpirunError> {
    if said.contains("Open MPI") || said.contains("OpenRTE") || said.contains("PRRTE") {
        Ok(Kind::OpenMpi)
    } else if said.contains("HYDRA") || said.contains("Intel(R) MPI") {
        Ok(Kind::Hydra)
    } else {
        Err(MpirunError::Unknown {
            said: said.lines().next().unwrap_or_default().into(),
        })
    }
}

/// Variables of an outer launcher or elastic job, which do not describe the new ranks.
fn outer_variables() -> impl Iterator<Item = &'static str> {
    let names = IDENTITY_VARIABLES.iter().chain(&ELASTIC_VARIABLES);
    names.copied()
}

/// Whether a variable of this process has the same meaning for the ranks, on another host too, so
/// that it may be exported.
pub(super) fn is_exported(name: &OsStr) -> bool {
    const OWN: &str = "BASH_FUNC_ OMPI_ PMIX_ PMI_ HYDRA_ SSH_ XDG_";
    const HERE: [&str; 9] = [
        "OLDPWD",
        "PWD",
        "SHLVL",
        "HOSTNAME",
        "DISPLAY",
        "TERM",
        "_",
        "RONDE_HOST_ID",
        "HOROVOD_HOSTNAME",
    ];
    let name = name.to_string_lossy();
    !OWN.split(' ').any(|prefix| name.starts_with(prefix))
        && !HERE.contains(&&*name)
        && !outer_variables().any(|outer| outer == name)
        && !name.ends_with("CUDA_VISIBLE_DEVICES")
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn command_line(kind: Kind, launch: &Launch, is_root: bool) -> Result<Vec<OsString>, MpirunError> {
    launch.check()?;
    let mut line: Vec<OsString> = vec!["mpirun".into()];
    match kind {
        Kind::OpenMpi => open_mpi(launch, is_root, &mut line)?,
        Kind::Hydra => hydra(launch, &mut line)?,
    }
    if let Some(text) = &launch.flags.mpi_args {
        line.extend(split(text)?.into_iter().map(OsString::from));
    }
    line.extend(launch.command.iter().cloned());
    Ok(line)
}

/// Returns an error text if `mpirun` will refuse this launch: without a number of slots, Open MPI
/// starts at most as many ranks as there are cores. `has` tells whether a variable is set; `cores`
/// is the number of cores that this process may use.
fn too_many_for_cores(
    kind: Kind,
    launch: &Launch,
    cores: usize,
    has: impl Fn(&str) -> bool,
) -> Option<String> {
    // Variables of a batch system's allocation, or of settings that allow more ranks.
    const TOLD: [&str; 7] = [
        "OMPI_MCA_rmaps_base_oversubscribe",
        "OMPI_MCA_rmaps_base_mapping_policy",
        "OMPI_MCA_orte_default_hostfile",
        "SLURM_JOB_ID",
        "PBS_JOBID",
        "LSB_JOBID",
        "PE_HOSTFILE",
    ];
    let num_proc = launch.num_proc;
    let options = [&launch.flags.mpi_args, &launch.flags.binding_args];
    let has_word = |options: &String| {
        let mut words = ["oversubscribe", "host", "-H"].into_iter();
        words.any(|word| options.contains(word))
    };
    let is_told = !launch.hosts.is_empty()
        || TOLD.iter().any(|name| has(name))
        || options.into_iter().flatten().any(has_word);
    (kind == Kind::OpenMpi && num_proc > cores && !is_told).then(|| {
        format!(
            "{num_proc} ranks on a machine of {cores} cores: Open MPI's mpirun refuses that unless \
             it is told otherwise, with -H localhost:{num_proc} or --mpi-args=--oversubscribe; \
             `ronde run` without --mpi starts them by itself"
        )
    })
}

fn open_mpi(launch: &Launch, is_root: bool, line: &mut Vec<OsString>) -> Result<(), MpirunError> {
    let flags = &launch.flags;
    let mut add = |words: &[&str]| line.extend(words.iter().map(OsString::from));
    if is_root {
        add(&["--allow-run-as-root"]);
    }
    add(&["-np", &launch.num_proc.to_string()]);
    if !launch.hosts.is_empty() {
        add(&["-H", &list(&launch.hosts)]);
    }
    for word in flags.binding(&["--bind-to", "none", "--map-by", "slot"])? {
        add(&[&word]);
    }
    if launch.prefix {
        add(&["--tag-output"]);
    }
    if launch.timestamp {
        add(&["--timestamp-output"]);
    }
    let mut ssh: Vec<String> = Vec::new();
    let has_agent = |options: &String| options.contains("plm_");
    let has_agent = launch.has_agent || flags.mpi_args.as_ref().is_some_and(has_agent);
    if launch.hosts.iter().any(|(host, _)| !is_this_machine(host)) && !has_agent {
        ssh.extend(SSH_OPTIONS.map(|option| format!("-o {option}")));
    }
    ssh.extend(flags.ssh_port.map(|port| format!("-p {port}")));
    let file = flags.ssh_identity_file.as_ref();
    ssh.extend(file.map(|file| format!("-i {}", file.to_string_lossy())));
    if !ssh.is_empty() {
        add(&["--mca", "plm_rsh_args", &ssh.join(" ")]);
    }
    if !flags.network_interfaces.is_empty() {
        let names = flags.network_interfaces.join(",");
        add(&["--mca", "btl_tcp_if_include", &names]);
        add(&["--mca", "oob_tcp_if_include", &names]);
    }
    if flags.tcp {
        add(&["--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self"]);
    }
    for name in &launch.exported {
        line.extend(["-x".into(), name.clone()]);
    }
    for (name, value) in &launch.environment {
        let pair: OsString = [name, OsStr::new("="), value].into_iter().collect();
        line.extend(["-x".into(), pair]);
    }
    if let Some(folder) = &launch.output_filename {
        line.extend(["--output-filename".into(), folder.clone()]);
    }
    Ok(())
}

fn hydra(launch: &Launch, line: &mut Vec<OsString>) -> Result<(), MpirunError> {
    let flags = &launch.flags;
    if flags.ssh_port.is_some() || flags.ssh_identity_file.is_some() {
        let flag = "--ssh-port and --ssh-identity-file";
        return Err(MpirunError::Flag { flag });
    }
    if flags.tcp {
        return Err(MpirunError::Flag { flag: "--tcp" });
    }
    if launch.timestamp {
        let flag = "--prefix-output-with-timestamp";
        return Err(MpirunError::Flag { flag });
    }
    let mut add = |words: &[&str]| line.extend(words.iter().map(OsString::from));
    add(&["-n", &launch.num_proc.to_string()]);
    if !launch.hosts.is_empty() {
        add(&["-hosts", &list(&launch.hosts)]);
    }
    for word in flags.binding(&["-bind-to", "none"])? {
        add(&[&word]);
    }
    if launch.prefix {
        add(&["-prepend-rank"]);
    }
    if !flags.network_interfaces.is_empty() {
        add(&["-iface", &flags.network_interfaces.join(",")]);
    }
    if !launch.exported.is_empty() {
        let names = launch.exported.iter().map(|name| name.to_string_lossy());
        add(&["-genvlist", &names.collect::<Vec<_>>().join(",")]);
    }
    for (name, value) in &launch.environment {
        line.extend(["-genv".into(), name.clone(), value.clone()]);
    }
    if let Some(folder) = &launch.output_filename {
        for (option, stream) in [
            ("-outfile-pattern", "stdout"),
            ("-errfile-pattern", "stderr"),
        ] {
            let pattern = Path::new(folder).join(format!("rank.%r.{stream}"));
            line.extend([option.into(), pattern.into_os_string()]);
        }
    }
    Ok(())
}

fn list(hosts: &[(String, usize)]) -> String {
    let hosts = hosts.iter().map(|(host, slots)| format!("{host}:{slots}"));
    hosts.collect::<Vec<_>>().join(",")
}

/// Splits a text into words as a shell does, without expansions.
fn split(text: &str) -> Result<Vec<String>, MpirunError> {
    shlex::split(text).ok_or_else(|| MpirunError::Quote { text: text.into() })
}

/// Replaces this process by `mpirun`; returns only an error.
pub(super) fn exec(line: &[OsString]) -> MpirunError {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    for name in outer_variables() {
        command.env_remove(name);
    }
    let source = command.exec();
    MpirunError::Exec { source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argv::quoted;

    fn launch(flags: MpiFlags) -> Launch {
        Launch {
            num_proc: 4,
            hosts: vec![("a".into(), 2), ("b".into(), 2)],
            environment: vec![("HOROVOD_AUTOTUNE".into(), "1".into())],
            exported: vec!["PATH".into()],
            prefix: true,
            command: vec!["python".into(), "train me.py".into()],
            flags,
            ..Launch::default()
        }
    }

    #[test]
    fn the_output_of_the_version_tells_the_kind() {
        for (said, kind) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs", Kind::OpenMpi),
            ("HYDRA build details:\n    Version: 4.0.2", Kind::Hydra),
            ("Intel(R) MPI Library for Linux* OS", Kind::Hydra),
        ] {
            assert_eq!(kind_of(said).unwrap(), kind);
        }
        let error = kind_of("frobnicate 1\nmore").unwrap_err().to_string();
        assert!(error.contains("\"frobnicate 1\""), "{error}");
    }

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        flags: MpiFlags,
        #[arg(last = true)]
        command: Vec<OsString>,
    }

    /// Command line for the kind of launcher that the first word names, and the flags after it; for
    /// `openmpi/2`, the warning about two cores.
    fn answer(input: &str) -> String {
        let words = shlex::split(input).unwrap();
        let (kind, is_root) = match words[0].as_str() {
            word if word.starts_with("hydra") => (Kind::Hydra, false),
            word => (Kind::OpenMpi, word == "root"),
        };
        let Flags { flags, command } = clap::Parser::parse_from(&words);
        let mut launch = launch(flags);
        if !command.is_empty() {
            launch.command = command;
        }
        if let Some((_, cores)) = words[0].split_once('/') {
            launch.hosts.retain(|_| words[0].contains("hosts"));
            let has = |name: &str| name == "SLURM_JOB_ID" && words[0].contains("slurm");
            let warned = too_many_for_cores(kind, &launch, cores.parse().unwrap(), has);
            return warned.unwrap_or_else(|| "no warning".to_owned());
        }
        match command_line(kind, &launch, is_root) {
            Ok(line) => quoted(&line),
            Err(error) => format!("{error} (exit code {})", error.exit_code()),
        }
    }

    #[test]
    fn flags_become_options_of_mpirun_and_values_that_look_like_options_are_refused() {
        ronde_cases::check("mpirun.txt", answer);
    }

    #[test]
    fn variables_of_this_host_are_not_exported() {
        let names = "PATH HOROVOD_FUSION_THRESHOLD LD_LIBRARY_PATH OMP_NUM_THREADS VIRTUAL_ENV";
        for name in names.split(' ') {
            assert!(is_exported(OsStr::new(name)), "{name}");
        }
        let names = "BASH_FUNC_x%% OLDPWD CUDA_VISIBLE_DEVICES OMPI_COMM_WORLD_RANK HOSTNAME \
                     HOROVOD_HOSTNAME a-b";
        for name in names.split(' ') {
            assert!(!is_exported(OsStr::new(name)), "{name}");
        }
    }
}
