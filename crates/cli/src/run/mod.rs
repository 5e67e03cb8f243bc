//! `ronde run`: launcher that starts the ranks of a job on this machine and supervises them, or
//! starts them on other hosts, by `mpirun` or through `ssh`.
//!
//! The flags have horovodrun's names where they apply. Each rank gets its identity in `HOROVOD_*`
//! variables and has its own process group. Its output is printed line by line with the prefix
//! `[<rank>]<stdout>:` or `[<rank>]<stderr>:`, also for a single rank; `--no-prefix` omits the
//! prefixes. Rank 0 inherits standard input unless that is a terminal (a process group in the
//! background would be stopped when it reads from it); the other ranks have no standard input.

mod elastic;
mod elsewhere;
mod guard;
mod hosts;
mod job;
mod lines;
mod mpirun;
mod output;
mod process;
mod rank;
mod refused;
mod signals;
mod sink;
mod spec;
mod ssh;
mod stream;
mod threads;
mod wait;
mod watch;

pub(crate) use elastic::ElasticError;
pub use elastic::{ELASTIC_AGENT, elastic_agent_main};
pub(crate) use elsewhere::Elsewhere;
pub(crate) use guard::Guard;
pub use guard::{GUARD, guard_main};
pub(crate) use hosts::HostsError;
pub use job::launch;
pub(crate) use job::{Ended, launch_until};
pub(crate) use mpirun::MpirunError;
pub use spec::{LaunchError, LaunchSpec, Output};
pub(crate) use ssh::SshError;
pub use ssh::{AGENT, agent_main};

use hosts::RankPlacement;
use mpirun::{Launch, MpiFlags};
use ssh::SshFlags;

use super::argv::quoted;
use super::error::Error;
use super::knob_flags::KnobFlags;
use super::{EXIT_USAGE, print, program};
use clap::ValueHint;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Limit of `-np`, larger than any job; one host has at most
/// [`MAX_RANKS`](ronde::internal::identity::MAX_RANKS).
const RANKS_MAX: u64 = 1 << 20;

/// First words of the launcher's messages.
const LABEL: &str = "ronde run";

const EXAMPLES: &str = "\
Examples:
  ronde run -np 2 -- python train.py
  ronde run -np 4 --fusion-threshold-mb 32 --cycle-time-ms 2 -- python train.py
  ronde run -np 4 --autotune --autotune-log-file tune.csv -- python train.py
  ronde run -np 4 --config-file horovod.yaml -- ./train
  ronde run -np 2 --output-filename logs -- ./train      writes logs/rank.0/stdout and so on
  ronde run -np 8 -H node1:4,node2:4 -- ./train          through mpirun, or ssh if MPI is missing
  ronde run -np 8 -H node1:4,node2:4 --tcp -- ./train    through ssh, without MPI
  ronde run -np 8 -H node1:4,node2:4 --print-command -- ./train
  ronde run -np 4 --min-np 2 -- python train.py          elastic: ranks that fail are replaced

OMP_NUM_THREADS is set to each rank's share of its host's cores, unless it is set already or
--no-thread-limit is given. Ranks that mpirun starts get it only if it is set here.

Standard input goes to rank 0 of a job on this machine, unless it is a terminal; other ranks have \
none.

Exit code: that of the rank that failed first (128 + n for signal n), 127 if the command does not \
exist, 126 if it cannot be executed, 2 for wrong usage, 1 for other errors of the launcher.";

/// Start the ranks of a job, on this machine or on several hosts
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, version, disable_version_flag = true)]
#[command(override_usage = "ronde run -np N [OPTIONS] [--] CMD…")]
pub(super) struct Args {
    /// Number of ranks; also -np
    #[arg(
        long,
        visible_alias = "np",
        value_name = "N",
        required_unless_present_any = refused::names().chain(["check_build"])
    )]
    #[arg(value_parser = crate::range::whole::<u64>(1, RANKS_MAX))]
    num_proc: Option<u64>,
    /// Hosts and their slots, as in localhost:4 or node1:4,node2:4; mpirun or ssh starts ranks on
    /// other machines than this
    #[arg(short = 'H', long, value_name = "HOST:SLOTS,…", value_hint = ValueHint::Other)]
    #[arg(conflicts_with = "hostfile")]
    hosts: Option<String>,
    /// File with a line such as "localhost slots=4" for each host; also -hostfile
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    hostfile: Option<PathBuf>,
    /// Write each rank's output also to DIR/rank.<rank>/stdout and stderr
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output_filename: Option<PathBuf>,
    /// Put the time before each line of output
    #[arg(long, visible_alias = "prefix-timestamp")]
    prefix_output_with_timestamp: bool,
    /// Print the ranks' output without prefixes
    #[arg(long, conflicts_with = "prefix_output_with_timestamp")]
    no_prefix: bool,
    /// Leave OMP_NUM_THREADS unset, instead of setting it to each rank's share of its host's cores
    #[arg(long)]
    no_thread_limit: bool,
    /// Print the start and the end of each rank
    #[arg(long)]
    verbose: bool,
    /// Print the features of this build; also -cb
    #[arg(long)]
    check_build: bool,
    /// Print the version
    #[arg(short = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    elastic: elastic::ElasticFlags,
    #[command(flatten)]
    mpi: MpiFlags,
    /// Command that starts this program on hosts that ssh reaches [default: the one of this host]
    #[arg(long, value_name = "\"COMMAND\"", value_hint = ValueHint::Other)]
    agent: Option<String>,
    /// Accepted for compatibility with horovodrun: nothing is cached
    #[arg(long, hide = true)]
    disable_cache: bool,
    /// horovodrun's name: ranks on other machines are started through ssh, without MPI
    #[arg(long, hide = true, conflicts_with = "mpi")]
    gloo: bool,
    #[command(flatten)]
    refused: refused::Refused,
    #[command(flatten)]
    flags: KnobFlags,
    /// Command of each rank, and its arguments
    #[arg(last = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    #[arg(required_unless_present_any = refused::names().chain(["check_build"]))]
    command: Vec<OsString>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Error> {
    if args.check_build {
        return Ok(print(&check_build()));
    }
    let knobs = args.flags.knobs()?;
    let num_proc = args.num_proc.map_or(1, |num_proc| num_proc as usize); // checked by clap
    let place = hosts::place(args.hosts.as_deref(), args.hostfile.as_deref(), num_proc)?;
    let elastic = elastic_job(&args, num_proc, &place)?;
    let mut environment: Vec<(OsString, OsString)> = args
        .flags
        .settings()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    environment.push(("PYTHONUNBUFFERED".into(), "1".into()));
    // Horovod's launcher tells NCCL the same. A network (10.0.0.0/8) is no name.
    let interfaces = args.mpi.network_interfaces.join(",");
    let is_named = !interfaces.is_empty() && !interfaces.contains('/');
    if is_named && std::env::var_os(NCCL_INTERFACES).is_none() {
        environment.push((NCCL_INTERFACES.into(), interfaces.into()));
    }
    let starter = match elastic {
        Some(_) => Starter::Here,
        None => starter(&args, &place)?,
    };
    if elastic.is_none()
        && starter != Starter::Ssh
        && !args.no_thread_limit
        && std::env::var_os(threads::VARIABLE).is_none()
    {
        // Without a list of hosts, mpirun uses those of a batch system.
        let are_here = starter == Starter::Here
            || matches!(&place, RankPlacement::Here(hosts) if !hosts.is_empty());
        let (threads, note) = threads::limit(are_here, num_proc, threads::cores());
        environment.extend(threads.map(|n| (threads::VARIABLE.into(), n.to_string().into())));
        note.into_iter().for_each(|note| output::say(LABEL, &note));
    }
    if starter == Starter::Mpirun {
        return start_by_mpirun(args, num_proc, place, environment);
    }
    let spec = LaunchSpec {
        label: LABEL.into(),
        command: args.command,
        num_proc,
        environment,
        output: match (args.no_prefix, args.prefix_output_with_timestamp) {
            (true, _) => Output::Plain,
            (_, timestamp) => Output::Prefixed { timestamp },
        },
        output_dir: args.output_filename,
        verbose: args.verbose,
        guard: program::again(),
    };
    // The launcher has some open files for each rank or host. Ranks on this machine inherit the
    // limit, which they would raise themselves to connect over TCP.
    ronde_net::raise_open_files_limit();
    if elastic.is_none() && starter == Starter::Here {
        return Ok(ExitCode::from(launch(&spec)?));
    }
    let flags = SshFlags {
        ssh_port: args.mpi.ssh_port,
        ssh_identity_file: args.mpi.ssh_identity_file,
        interfaces: args.mpi.network_interfaces,
        agent: args.agent,
        backend: args.flags.lookup(BACKEND),
        timeout: knobs.start_timeout(ronde::knobs::START_TIMEOUT),
        limits_threads: !args.no_thread_limit,
    };
    if let Some(job) = elastic {
        return Ok(ExitCode::from(elastic::launch(&spec, job, &flags)?));
    }
    let (RankPlacement::Hosts(mut hosts) | RankPlacement::Here(mut hosts)) = place;
    if hosts.is_empty() {
        hosts.push(("localhost".into(), num_proc));
    }
    Ok(ExitCode::from(ssh::launch(&spec, &hosts, &flags)?))
}

/// Returns the elastic job that the flags describe, if it is one.
///
/// # Errors
/// Flags that do not fit each other.
fn elastic_job(
    args: &Args,
    num_proc: usize,
    place: &RankPlacement,
) -> Result<Option<elastic::Elastic>, Error> {
    if !args.elastic.is_elastic() {
        args.elastic.check_unused()?;
        return Ok(None);
    }
    if args.mpi.need_mpirun() {
        return Err(ElasticError::Mpirun.into());
    }
    let (RankPlacement::Here(hosts) | RankPlacement::Hosts(hosts)) = place;
    Ok(Some(args.elastic.job(num_proc, hosts.clone())?))
}

/// Variable of the interfaces that NCCL uses.
const NCCL_INTERFACES: &str = "NCCL_SOCKET_IFNAME";

/// Variable of the backend.
const BACKEND: &str = "RONDE_BACKEND";

/// Way to start the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Starter {
    /// This process, on this machine.
    Here,
    Mpirun,
    Ssh,
}

/// Chooses the way to start the ranks: by the flags, by the backend, and by the MPI of this
/// machine.
fn starter(args: &Args, place: &RankPlacement) -> Result<Starter, Error> {
    // As the runtime reads it.
    let backend = args.flags.lookup(BACKEND).unwrap_or_default();
    let backend = backend.to_string_lossy().trim().to_ascii_lowercase();
    if args.mpi.need_mpirun() {
        return Ok(Starter::Mpirun);
    }
    // Open MPI supports IPv6 only where it was built for it, which Debian's was not.
    let needs_ipv6 = || match place {
        RankPlacement::Here(_) => false,
        RankPlacement::Hosts(hosts) => hosts
            .iter()
            .any(|(host, _)| !hosts::is_this_machine(host) && hosts::has_only_ipv6(host)),
    };
    let needs_options = args.mpi.ssh_port.is_some()
        || args.mpi.ssh_identity_file.is_some()
        || args.prefix_output_with_timestamp;
    let is_here = matches!(place, RankPlacement::Here(_));
    Ok(match backend.as_str() {
        "mpi" | "local" if args.mpi.tcp => {
            return Err(Error::TcpContradicted);
        }
        _ if args.mpi.tcp => Starter::Ssh,
        // On one machine too, unless its ranks have been told where to meet.
        "tcp" if !is_here || std::env::var_os(ssh::SERVER).is_none() => Starter::Ssh,
        _ if is_here => Starter::Here,
        "mpi" => Starter::Mpirun,
        _ if args.gloo || !mpirun::is_usable(needs_options) || needs_ipv6() => Starter::Ssh,
        _ => Starter::Mpirun,
    })
}

/// Replaces this process by `mpirun`, or prints its command line.
fn start_by_mpirun(
    args: Args,
    num_proc: usize,
    place: RankPlacement,
    environment: Vec<(OsString, OsString)>,
) -> Result<ExitCode, Error> {
    let only_print = args.mpi.print_command;
    if let Some(folder) = args.output_filename.as_ref().filter(|_| !only_print) {
        // Hydra expects it.
        std::fs::create_dir_all(folder).map_err(|source| Error::Folder {
            path: folder.clone(),
            source,
        })?;
    }
    let launch = Launch {
        num_proc,
        hosts: match place {
            RankPlacement::Here(hosts) | RankPlacement::Hosts(hosts) => hosts,
        },
        environment,
        prefix: !args.no_prefix,
        timestamp: args.prefix_output_with_timestamp,
        output_filename: args.output_filename.map(PathBuf::into_os_string),
        command: args.command,
        flags: args.mpi,
        ..Launch::default()
    };
    let line = launch.line()?;
    if only_print {
        return Ok(print(&format!("{}\n", quoted(&line))));
    }
    if args.verbose {
        output::say(LABEL, &quoted(&line));
    }
    Err(mpirun::exec(&line).into())
}

/// Text of `--check-build`, in horovodrun's format, then the MPIs that were found.
fn check_build() -> String {
    let mark = |there| if there { "X" } else { " " };
    let mpis = ronde::mpi_libraries();
    let has_mpi = mpis
        .iter()
        .any(|mpi| mpi.library.is_ok() && mpi.plugin.is_ok());
    format!(
        "Ronde v{}:\n\n\
         Available Frameworks:\n    [{python}] TensorFlow\n    [{python}] PyTorch\n    \
         [{python}] Keras\n    [{python}] JAX\n    [ ] MXNet\n    [X] Rust\n\n\
         Available Controllers:\n    [{mpi}] MPI\n    [ ] Gloo\n    [X] TCP\n    [X] Local\n\n\
         Available Tensor Operations:\n    [{nccl}] NCCL\n    [ ] DDL\n    [ ] CCL\n    \
         [{mpi}] MPI\n    [ ] Gloo\n    [X] TCP\n    [X] Shared memory\n\n\
         MPI libraries:\n{libraries}",
        env!("CARGO_PKG_VERSION"),
        mpi = mark(has_mpi),
        nccl = mark(ronde::nccl_version().is_some()), // loaded when needed
        python = mark(program::is_contained()), // by the Python package, which works with all four
        libraries = mpis.iter().map(mpi_lines).collect::<String>(),
    )
}

/// Lines on one family of MPIs: library and version, plug-in, or the reasons why there is none.
fn mpi_lines(mpi: &ronde::MpiFound) -> String {
    let mark = if mpi.library.is_ok() && mpi.plugin.is_ok() {
        "X"
    } else {
        " "
    };
    let library = match &mpi.library {
        Ok((file, version)) => format!("{version}, {}", file.display()),
        Err(reason) => reason.clone(),
    };
    let plugin = match &mpi.plugin {
        Ok(file) => file.display().to_string(),
        Err(reason) => reason.clone(),
    };
    format!(
        "    [{mark}] {}\n        library: {library}\n        plug-in: {plugin}\n",
        mpi.family
    )
}
