//! Rendezvous client: the side of all ranks other than 0.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ronde_net::not_come;
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::rendezvous::RendezvousConfig;
use crate::shm::{Area, Region, RegionError};

use super::error::RendezvousError;
use super::layout::Layout;
use super::memory;
use super::peers::{Lifeline, Peer, is_stopped};
use super::rendezvous::{
    ALARM_INTERVAL, Connected, GRACE, INTRODUCTION_TIMEOUT, check_holder, deadline, name, silent,
    system,
};
use super::socket::{self, Connection, Credentials, ReceiveError};
use super::wire::{Body, FrameError, Hello, Origin, Welcome, shorten};

/// Pauses between two attempts to connect: the first, doubled up to the longest.
const KNOCK_PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Time between two checks whether another process holds the name without listening.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the rendezvous as a rank other than 0.
///
/// # Errors
/// Any [`RendezvousError`].
pub(super) fn connect(
    config: &RendezvousConfig,
    layout: &Layout,
) -> Result<Connected, RendezvousError> {
    let come_by = deadline(config.start_timeout);
    let give_up = deadline(config.start_timeout.saturating_add(GRACE));
    let (stream, server) = knock(config, come_by)?;
    let mut connection = Connection::connected(stream);
    let outcome = take_part(config, layout, &mut connection, server, come_by, give_up);
    match outcome {
        Ok((region, welcome, pidfds)) => {
            let stream = connection.into_stream();
            let peers = lifelines(config.rank, &welcome, &pidfds, stream);
            Ok(Connected { region, peers })
        }
        Err(error) => {
            if let RendezvousError::Ended { .. } = error {
                // Rank 0 may not know the cause yet, and would report this rank as missing.
                let _ = connection.send(Body::Refused(error.clone()), &[], Instant::now());
            }
            Err(error)
        }
    }
}

/// Runs the rendezvous from the `Hello` to the start.
fn take_part(
    config: &RendezvousConfig,
    layout: &Layout,
    connection: &mut Connection,
    server: Credentials,
    come_by: Instant,
    give_up: Instant,
) -> Result<(Area, Welcome, Vec<Arc<OwnedFd>>), RendezvousError> {
    introduce(config, layout, connection, come_by, give_up)?;
    wait_for_admission(config, connection, server, give_up)?;
    let welcome = match hear(config, connection, give_up)? {
        Some(Body::Welcome(welcome)) => welcome,
        Some(body) => return Err(unexpected(config, &body)),
        None => return Err(silent(config, &[(config.job_rank(0), server.pid)])),
    };
    let mapped = map(config, layout, &welcome, connection.take_descriptors());
    let report = match &mapped {
        Ok(_) => Body::Ready,
        Err(error) => Body::Refused(error.clone()),
    };
    send(config, connection, report, give_up)?;
    let (region, pidfds) = mapped?;
    match hear(config, connection, give_up)? {
        Some(Body::Go) => Ok((region, welcome, pidfds)),
        Some(body) => Err(unexpected(config, &body)),
        None => Err(silent(config, &[(config.job_rank(0), server.pid)])),
    }
}

/// Connects to rank 0 as soon as it listens, if it is a process of this user.
fn knock(
    config: &RendezvousConfig,
    come_by: Instant,
) -> Result<(UnixStream, Credentials), RendezvousError> {
    let name = name(config);
    let mut pause = KNOCK_PAUSES.0;
    // Time since which a process has held the name without accepting a connection. Rank 0 listens
    // as soon as it has the name, and its backlog is larger than the number of ranks.
    let mut held: Option<Instant> = None;
    let mut looked = Instant::now();
    let late = config.late_warnings();
    loop {
        match socket::connect(&name) {
            Ok(stream) => {
                let server = check_holder(config, &stream)?;
                return Ok((stream, server));
            }
            Err(Errno::CONNREFUSED) if looked.elapsed() < LOOK_INTERVAL => {}
            Err(Errno::CONNREFUSED) => {
                looked = Instant::now();
                held = is_taken(&name).then(|| held.unwrap_or(looked));
            }
            Err(Errno::AGAIN) => held = held.or_else(|| Some(Instant::now())),
            Err(error) => {
                let what = format!("connect to rank {}", config.job_rank(0));
                return Err(system(config, &what, error));
            }
        }
        config.check_alarm()?;
        if held.is_some_and(|since| since.elapsed() >= INTRODUCTION_TIMEOUT) {
            return Err(name_held(config, None));
        }
        if Instant::now() >= come_by {
            return Err(match held {
                Some(_) => name_held(config, None),
                None => RendezvousError::Missing {
                    missing: vec![config.job_rank(0)],
                    size: config.size(),
                    waited_seconds: config.start_timeout.as_secs(),
                },
            });
        }
        late.warn(|| not_come(&[config.job_rank(0)]));
        std::thread::sleep(pause);
        pause = (2 * pause).min(KNOCK_PAUSES.1);
    }
}

/// Whether some process holds the abstract name `name`, even without listening.
fn is_taken(name: &str) -> bool {
    let path = format!(" @{name}");
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    table.lines().any(|line| line.ends_with(&path))
}

/// Sends this rank's `Hello` to a process of this user; this rank will wait until `come_by`.
pub(super) fn introduce(
    config: &RendezvousConfig,
    layout: &Layout,
    connection: &Connection,
    come_by: Instant,
    send_by: Instant,
) -> Result<(), RendezvousError> {
    let left = come_by.saturating_duration_since(Instant::now());
    let hello = Hello {
        rank: config.rank,
        members: config.members.to_vec(),
        pid: std::process::id(),
        cache_words: layout.cache_words,
        region_bytes: layout.bytes(),
        // Rounded up: rank 0 must not give up before this rank would.
        left_ms: u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
        host_key: shorten(&config.host_key),
        contract: config
            .contract
            .iter()
            .map(|(what, value)| (what.clone(), shorten(value)))
            .collect(),
    };
    send(config, connection, Body::Hello(hello), send_by)
}

/// Waits for the answer to the `Hello`. Rank 0 answers at once; otherwise the holder of the name is
/// not rank 0, or it is stopped.
fn wait_for_admission(
    config: &RendezvousConfig,
    connection: &mut Connection,
    server: Credentials,
    give_up: Instant,
) -> Result<(), RendezvousError> {
    let answer_by = give_up.min(Instant::now() + INTRODUCTION_TIMEOUT);
    let mut answer = hear(config, connection, answer_by)?;
    let stopped = answer.is_none() && server.pid != 0 && is_stopped(server.pid);
    if stopped {
        answer = hear(config, connection, give_up)?;
    }
    match answer {
        Some(Body::Admitted) => Ok(()),
        Some(body) => Err(unexpected(config, &body)),
        None if stopped => Err(silent(config, &[(config.job_rank(0), server.pid)])),
        None => Err(name_held(config, Some(server))),
    }
}

/// Error: another program holds the name.
pub(super) fn name_held(config: &RendezvousConfig, holder: Option<Credentials>) -> RendezvousError {
    RendezvousError::NameHeld {
        rank: config.own_job_rank(),
        pid: holder.map_or(0, |holder| holder.pid),
        uid: holder.map(|holder| holder.uid),
    }
}

fn send(
    config: &RendezvousConfig,
    connection: &Connection,
    body: Body,
    deadline: Instant,
) -> Result<(), RendezvousError> {
    match connection.send(body, &[], deadline) {
        // Rank 0 has closed the connection; its last message can still be read, and is a better
        // error than this one.
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(Errno::TIMEDOUT) => {
            let pid = socket::credentials(connection.stream()).map_or(0, |server| server.pid);
            Err(silent(config, &[(config.job_rank(0), pid)]))
        }
        Err(error) => Err(system(
            config,
            &format!("write to rank {}", config.job_rank(0)),
            error,
        )),
    }
}

/// Returns rank 0's next message, `None` if there is none by `deadline`; a refusal becomes the
/// error that it carries.
pub(super) fn hear(
    config: &RendezvousConfig,
    connection: &mut Connection,
    deadline: Instant,
) -> Result<Option<Body>, RendezvousError> {
    let failed = |error| {
        let what = format!(
            "receive shared memory and descriptors from rank {}",
            config.job_rank(0)
        );
        system(config, &what, error)
    };
    loop {
        match connection.try_receive() {
            Ok(Some(Body::Refused(error))) => return Err(error),
            Ok(Some(body)) => return Ok(Some(body)),
            Ok(None) => {}
            Err(ReceiveError::Gone) => {
                return Err(RendezvousError::Vanished {
                    rank: config.job_rank(0),
                    pid: socket::credentials(connection.stream()).map_or(0, |server| server.pid),
                });
            }
            Err(ReceiveError::Frame(FrameError::Foreign(rank0), _)) => {
                let own = Origin::own();
                return Err(RendezvousError::Version {
                    pid: std::process::id(),
                    version: own.version,
                    layout: own.layout,
                    first_rank: config.job_rank(0),
                    first_version: rank0.version,
                    first_layout: rank0.layout,
                });
            }
            Err(ReceiveError::Frame(problem, bytes)) => {
                return Err(RendezvousError::Malformed {
                    rank: config.job_rank(0),
                    bytes,
                    problem: problem.to_string(),
                });
            }
            Err(ReceiveError::System(error)) => return Err(failed(error)),
        }
        config.check_alarm()?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let pause = match config.alarm {
            Some(_) => left.min(ALARM_INTERVAL),
            None => left,
        };
        connection.wait_readable(pause).map_err(failed)?;
    }
}

/// Maps the region; the first descriptor of the `Welcome` is its file.
fn map(
    config: &RendezvousConfig,
    layout: &Layout,
    welcome: &Welcome,
    descriptors: Vec<OwnedFd>,
) -> Result<(Area, Vec<Arc<OwnedFd>>), RendezvousError> {
    let mut descriptors = descriptors.into_iter();
    let file = descriptors.next();
    let pidfds: Vec<Arc<OwnedFd>> = descriptors.map(Arc::new).collect();
    let named = welcome
        .pidfds
        .iter()
        .flatten()
        .all(|&index| index < pidfds.len());
    let complete = [welcome.pids.len(), welcome.pidfds.len()] == [config.size(); 2];
    let Some(file) = file.filter(|_| named && complete) else {
        return Err(unexpected(config, &Body::Welcome(welcome.clone())));
    };
    let bytes = layout.bytes();
    memory::check_mapping(config.own_job_rank(), bytes)?;
    let invalid = |problem: String| RendezvousError::InvalidMemory {
        first_rank: config.job_rank(0),
        rank: config.own_job_rank(),
        problem,
    };
    let region = Region::open(&file, bytes).map_err(|error| match error {
        RegionError::System(error) => system(
            config,
            &format!("map {bytes} bytes of shared memory"),
            error,
        ),
        error => invalid(error.to_string()),
    })?;
    let region = Area::whole(Arc::new(region));
    layout.check(&region).map_err(invalid)?;
    Ok((region, pidfds))
}

/// Returns the lifeline of each rank.
fn lifelines(
    rank: usize,
    welcome: &Welcome,
    pidfds: &[Arc<OwnedFd>],
    stream: UnixStream,
) -> Vec<Peer> {
    let end = Arc::new(OwnedFd::from(stream));
    let own_pidfd = welcome.pidfds[rank];
    let lifeline = |(peer, pidfd): (usize, &Option<usize>)| match *pidfd {
        None if peer == rank => Lifeline::Held {
            _ends: vec![Arc::clone(&end)],
        },
        None if peer == 0 => Lifeline::Socket(Arc::clone(&end)),
        None => Lifeline::Rank0,
        Some(_) if *pidfd == own_pidfd => Lifeline::Own,
        Some(index) => Lifeline::Pidfd(Arc::clone(&pidfds[index])),
    };
    let lifelines = welcome.pidfds.iter().enumerate().map(lifeline);
    let peers = welcome.pids.iter().zip(lifelines);
    peers
        .map(|(&pid, lifeline)| Peer { pid, lifeline })
        .collect()
}

fn unexpected(config: &RendezvousConfig, body: &Body) -> RendezvousError {
    RendezvousError::Malformed {
        rank: config.job_rank(0),
        bytes: 0,
        problem: shorten(&format!("unexpected message {body:?}")),
    }
}
