//! Jobs on other hosts: builds the command line of the machine's `mpirun` and executes it.
//!
//! This process is replaced by `mpirun`, which therefore handles signals, standard input and the
//! exit code. The output of `mpirun --version` distinguishes Open MPI from the launchers that
//! derive from MPICH's Hydra (MPICH, Intel MPI, MVAPICH).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Kind of the machine's launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    OpenMpi,
    Hydra,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum MpirunError {
    #[error(
        "ranks on other hosts are started by mpirun, which cannot be run: {source}; install Open MPI or MPICH on all hosts, or use this machine alone (-H localhost:N)"
    )]
    Missing { source: io::Error },
    #[error(
        "mpirun --version says {said:?}, which is neither Open MPI's nor Hydra's; start the command with it yourself"
    )]
    Unknown { said: String },
    #[error("{flag} has no equivalent in Hydra's mpirun; pass its own option with --mpi-args")]
    Flag { flag: &'static str },
    #[error("cannot become mpirun: {source}")]
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
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Missing { .. } => 127,
            Self::Exec { .. } => 126,
            Self::Unknown { .. } | Self::Flag { .. } | Self::Quote { .. } | Self::Value { .. } => {
                super::EXIT_USAGE
            }
        }
    }
}

/// Job to start, with its options.
#[derive(Clone, Debug, Default)]
pub(super) struct Launch {
    pub(super) num_proc: usize,
    /// Hosts and their slots; if empty, `mpirun` finds the hosts itself, such as a batch system's.
    pub(super) hosts: Vec<(String, usize)>,
    /// Variables for the ranks, in addition to those of this process.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// Names of this process's variables to export.
    pub(super) exported: Vec<OsString>,
    pub(super) is_root: bool,
    /// Whether each line of output begins with its rank; `timestamp` adds the time.
    pub(super) prefix: bool,
    pub(super) timestamp: bool,
    pub(super) ssh_port: Option<u16>,
    pub(super) ssh_identity_file: Option<OsString>,
    pub(super) interfaces: Option<String>,
    pub(super) tcp: bool,
    /// Options that replace the usual binding options.
    pub(super) binding_args: Option<String>,
    pub(super) mpi_args: Option<String>,
    pub(super) output_filename: Option<OsString>,
    pub(super) command: Vec<OsString>,
}

impl Launch {
    /// Binding options: the user's, else `usual`.
    fn binding(&self, usual: &[&str]) -> Result<Vec<String>, MpirunError> {
        match &self.binding_args {
            Some(text) => split(text),
            None => Ok(usual.iter().map(ToString::to_string).collect()),
        }
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
        for name in self.interfaces.iter().flat_map(|names| names.split(',')) {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:/@".contains(&byte);
            if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_allowed) {
                let reason =
                    "is not the name of a network interface; write for example eth0, or 10.0.0.0/8";
                return refuse("--network-interfaces", name.as_ref(), reason);
            }
        }
        if let Some(file) = &self.ssh_identity_file {
            // Open MPI splits the arguments of ssh at blanks and does not interpret quotes.
            let is_one_word = file
                .to_str()
                .is_some_and(|text| !text.is_empty() && !text.contains(char::is_whitespace));
            if is_option(file) || !is_one_word {
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
pub(super) fn kind() -> Result<Kind, MpirunError> {
    let output = Command::new("mpirun").arg("--version").output();
    let output = output.map_err(|source| MpirunError::Missing { source })?;
    kind_of(&String::from_utf8_lossy(&output.stdout))
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

/// Whether a variable of this process has the same meaning on another host, so that it may be
/// exported.
pub(super) fn is_exported(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let own = [
        "BASH_FUNC_",
        "OMPI_",
        "PMIX_",
        "PMI_",
        "HYDRA_",
        "SSH_",
        "XDG_",
    ];
    let here = ["OLDPWD", "PWD", "SHLVL", "HOSTNAME", "DISPLAY", "TERM", "_"];
    !own.iter().any(|prefix| name.starts_with(prefix))
        && !here.contains(&&*name)
        && !name.ends_with("CUDA_VISIBLE_DEVICES")
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Builds the command line.
///
/// # Errors
/// A flag that this kind of `mpirun` does not support; a value that it would take for an option or
/// would split.
pub(super) fn command_line(kind: Kind, launch: &Launch) -> Result<Vec<OsString>, MpirunError> {
    launch.check()?;
    let mut line: Vec<OsString> = vec!["mpirun".into()];
    match kind {
        Kind::OpenMpi => open_mpi(launch, &mut line)?,
        Kind::Hydra => hydra(launch, &mut line)?,
    }
    if let Some(text) = &launch.mpi_args {
        line.extend(split(text)?.into_iter().map(OsString::from));
    }
    line.extend(launch.command.iter().cloned());
    Ok(line)
}

/// Returns an error text if `mpirun` will refuse this launch: without a number of slots, Open MPI
/// starts at most as many ranks as there are cores. `has` tells whether a variable is set; `cores`
/// is the number of cores that this process may use.
pub(super) fn too_many_for_cores(
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
    let options = [&launch.mpi_args, &launch.binding_args];
    let is_told = !launch.hosts.is_empty()
        || TOLD.iter().any(|name| has(name))
        || options.iter().any(|options| {
            let options = options.as_deref().unwrap_or_default();
            ["oversubscribe", "host", "-H"]
                .iter()
                .any(|word| options.contains(word))
        });
    (kind == Kind::OpenMpi && num_proc > cores && !is_told).then(|| {
        format!(
            "{num_proc} ranks on a machine of {cores} cores: Open MPI's mpirun refuses that unless it is told otherwise, with \
             -H localhost:{num_proc} or --mpi-args=--oversubscribe; `ronde run` without --mpi starts them by itself"
        )
    })
}

fn open_mpi(launch: &Launch, line: &mut Vec<OsString>) -> Result<(), MpirunError> {
    let mut add = |words: &[&str]| line.extend(words.iter().map(OsString::from));
    if launch.is_root {
        add(&["--allow-run-as-root"]);
    }
    add(&["-np", &launch.num_proc.to_string()]);
    if !launch.hosts.is_empty() {
        add(&["-H", &list(&launch.hosts)]);
    }
    let binding = launch.binding(&["--bind-to", "none", "--map-by", "slot"])?;
    add(&binding.iter().map(String::as_str).collect::<Vec<_>>());
    if launch.prefix {
        add(&["--tag-output"]);
    }
    if launch.timestamp {
        add(&["--timestamp-output"]);
    }
    let mut ssh = Vec::new();
    if let Some(port) = launch.ssh_port {
        ssh.push(format!("-p {port}"));
    }
    if let Some(file) = &launch.ssh_identity_file {
        ssh.push(format!("-i {}", file.to_string_lossy()));
    }
    if !ssh.is_empty() {
        add(&["--mca", "plm_rsh_args", &ssh.join(" ")]);
    }
    if let Some(interfaces) = &launch.interfaces {
        add(&["--mca", "btl_tcp_if_include", interfaces]);
        add(&["--mca", "oob_tcp_if_include", interfaces]);
    }
    if launch.tcp {
        add(&["--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self"]);
    }
    for name in &launch.exported {
        line.extend(["-x".into(), name.clone()]);
    }
    for (name, value) in &launch.environment {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        line.extend(["-x".into(), pair]);
    }
    if let Some(folder) = &launch.output_filename {
        line.extend(["--output-filename".into(), folder.clone()]);
    }
    Ok(())
}

fn hydra(launch: &Launch, line: &mut Vec<OsString>) -> Result<(), MpirunError> {
    if launch.ssh_port.is_some() || launch.ssh_identity_file.is_some() {
        return Err(MpirunError::Flag {
            flag: "--ssh-port and --ssh-identity-file",
        });
    }
    if launch.tcp {
        return Err(MpirunError::Flag { flag: "--tcp" });
    }
    let mut add = |words: &[&str]| line.extend(words.iter().map(OsString::from));
    add(&["-n", &launch.num_proc.to_string()]);
    if !launch.hosts.is_empty() {
        add(&["-hosts", &list(&launch.hosts)]);
    }
    let binding = launch.binding(&["-bind-to", "none"])?;
    add(&binding.iter().map(String::as_str).collect::<Vec<_>>());
    if launch.prefix {
        add(&["-prepend-rank"]);
    }
    if let Some(interfaces) = &launch.interfaces {
        add(&["-iface", interfaces]);
    }
    if !launch.exported.is_empty() {
        let names: Vec<_> = launch
            .exported
            .iter()
            .map(|name| name.to_string_lossy())
            .collect();
        add(&["-genvlist", &names.join(",")]);
    }
    for (name, value) in &launch.environment {
        line.extend(["-genv".into(), name.clone(), value.clone()]);
    }
    if let Some(folder) = &launch.output_filename {
        let pattern = std::path::Path::new(folder).join("rank.%r");
        line.extend(["-outfile-pattern".into(), pattern.into_os_string()]);
    }
    Ok(())
}

fn list(hosts: &[(String, usize)]) -> String {
    let hosts: Vec<String> = hosts
        .iter()
        .map(|(host, slots)| format!("{host}:{slots}"))
        .collect();
    hosts.join(",")
}

/// Splits a text into words as a shell does, without expansions.
fn split(text: &str) -> Result<Vec<String>, MpirunError> {
    shlex::split(text).ok_or_else(|| MpirunError::Quote { text: text.into() })
}

/// Quotes the command line so that it can be pasted into a shell.
pub(super) fn quoted(line: &[OsString]) -> String {
    let words = line.iter().map(|word| word.to_string_lossy());
    let quoted = words.map(|word| {
        shlex::try_quote(&word).map_or_else(|_| word.to_string(), |word| word.into_owned())
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Replaces this process by `mpirun`; returns only an error.
pub(super) fn exec(line: &[OsString]) -> MpirunError {
    let source = Command::new(&line[0]).args(&line[1..]).exec();
    MpirunError::Exec { source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            num_proc: 4,
            hosts: vec![("a".into(), 2), ("b".into(), 2)],
            environment: vec![("HOROVOD_AUTOTUNE".into(), "1".into())],
            exported: vec!["PATH".into()],
            prefix: true,
            command: vec!["python".into(), "train me.py".into()],
            ..Launch::default()
        }
    }

    #[test]
    fn the_two_families_are_told_apart() {
        assert_eq!(
            kind_of("mpirun (Open MPI) 4.1.4\n\nReport bugs").unwrap(),
            Kind::OpenMpi
        );
        assert_eq!(
            kind_of("HYDRA build details:\n    Version: 4.0.2").unwrap(),
            Kind::Hydra
        );
        assert_eq!(
            kind_of("Intel(R) MPI Library for Linux* OS").unwrap(),
            Kind::Hydra
        );
        assert!(
            kind_of("frobnicate 1\nmore")
                .unwrap_err()
                .to_string()
                .contains("\"frobnicate 1\"")
        );
    }

    #[test]
    fn lines_of_both() {
        let line = command_line(Kind::OpenMpi, &launch()).unwrap();
        assert_eq!(
            quoted(&line),
            "mpirun -np 4 -H 'a:2,b:2' --bind-to none --map-by slot --tag-output -x PATH -x 'HOROVOD_AUTOTUNE=1' python 'train me.py'"
        );
        let line = command_line(Kind::Hydra, &launch()).unwrap();
        assert_eq!(
            quoted(&line),
            "mpirun -n 4 -hosts 'a:2,b:2' -bind-to none -prepend-rank -genvlist PATH -genv HOROVOD_AUTOTUNE 1 python 'train me.py'"
        );
    }

    #[test]
    fn what_mpirun_will_refuse_is_known() {
        let here = Launch {
            hosts: Vec::new(),
            ..launch()
        };
        let of = |kind, launch: &Launch, cores, variable: &str| {
            too_many_for_cores(kind, launch, cores, |name| name == variable)
        };
        let text = of(Kind::OpenMpi, &here, 2, "").unwrap();
        assert!(
            text.starts_with("4 ranks on a machine of 2 cores") && text.contains("-H localhost:4")
        );
        let more = Launch {
            mpi_args: Some("--oversubscribe".into()),
            ..here.clone()
        };
        for (kind, launch, cores, variable) in [
            (Kind::OpenMpi, &here, 4, ""),
            (Kind::OpenMpi, &launch(), 2, ""), // with the hosts' slots
            (Kind::OpenMpi, &more, 2, ""),
            (Kind::OpenMpi, &here, 2, "SLURM_JOB_ID"),
            (Kind::Hydra, &here, 2, ""),
        ] {
            assert_eq!(
                of(kind, launch, cores, variable),
                None,
                "{kind:?} {cores} {variable}"
            );
        }
    }

    #[test]
    fn what_is_given_for_mpirun_stands_before_the_command() {
        let launch = Launch {
            is_root: true,
            ssh_port: Some(2222),
            ssh_identity_file: Some("key".into()),
            interfaces: Some("eth0".into()),
            tcp: true,
            binding_args: Some("--bind-to core".into()),
            mpi_args: Some("--mca a 'b c'".into()),
            ..launch()
        };
        let line = quoted(&command_line(Kind::OpenMpi, &launch).unwrap());
        for part in [
            "--allow-run-as-root -np 4",
            "--bind-to core --tag-output",
            "--mca plm_rsh_args '-p 2222 -i key'",
            "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0",
            "--mca pml ob1 --mca btl 'tcp,vader,self'",
            "-x 'HOROVOD_AUTOTUNE=1' --mca a 'b c' python",
        ] {
            assert!(line.contains(part), "{part} in: {line}");
        }
        let error = command_line(Kind::Hydra, &launch).unwrap_err().to_string();
        assert!(error.contains("--ssh-port"), "{error}");
        let open = Launch {
            mpi_args: Some("a 'b".into()),
            ..launch
        };
        assert!(matches!(
            command_line(Kind::OpenMpi, &open),
            Err(MpirunError::Quote { .. })
        ));
    }

    #[test]
    fn values_that_mpirun_or_ssh_would_read_as_something_else_are_refused() {
        let base = || Launch {
            interfaces: Some("eth0,10.0.0.0/8,ib0:1".into()),
            ssh_identity_file: Some("/home/me/.ssh/id".into()),
            ssh_port: Some(22),
            ..launch()
        };
        assert!(command_line(Kind::OpenMpi, &base()).is_ok());
        let of = |launch: &Launch| command_line(Kind::OpenMpi, launch).unwrap_err();
        for names in ["-x", "eth0,-x", "eth0,", "eth0;x", "eth 0"] {
            let interfaces = Some(names.into());
            let error = of(&Launch {
                interfaces,
                ..base()
            });
            assert!(
                error.to_string().starts_with("--network-interfaces: "),
                "{error}"
            );
            assert_eq!(error.exit_code(), super::super::EXIT_USAGE);
        }
        for file in ["", "-oProxyCommand=x", "key -oProxyCommand=x", "a\nb"] {
            let ssh_identity_file = Some(file.into());
            let error = of(&Launch {
                ssh_identity_file,
                ..base()
            });
            assert!(
                error.to_string().starts_with("--ssh-identity-file: "),
                "{error}"
            );
        }
        let command = vec!["--hostfile".into(), "x".into()];
        let error = of(&Launch { command, ..base() }).to_string();
        assert!(
            error.starts_with("the command: \"--hostfile\" begins with '-'"),
            "{error}"
        );
    }

    #[test]
    fn what_belongs_to_this_host_does_not_travel() {
        for name in [
            "PATH",
            "HOROVOD_FUSION_THRESHOLD",
            "LD_LIBRARY_PATH",
            "OMP_NUM_THREADS",
            "VIRTUAL_ENV",
        ] {
            assert!(is_exported(OsStr::new(name)), "{name}");
        }
        for name in [
            "BASH_FUNC_x%%",
            "OLDPWD",
            "CUDA_VISIBLE_DEVICES",
            "OMPI_COMM_WORLD_RANK",
            "HOSTNAME",
            "a b",
        ] {
            assert!(!is_exported(OsStr::new(name)), "{name}");
        }
    }
}
