//! Connection of this process to the launcher of an elastic job.
//!
//! A thread sends a sign of life each second, which code that holds the GIL does not delay, and
//! keeps the launcher's messages until Python asks for them.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ronde_elastic::wire::{LINE_BYTES_MAX, Reply, Request};
use ronde_elastic::{Ready, Seat};

use crate::flight::SLICE;

/// Interval of the signs of life.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Reason of an abort when the generation is over.
pub(crate) const OVER: &str = "another rank of the elastic job has ended";

static CONNECTION: OnceLock<Connection> = OnceLock::new();

/// Variables of the rank's identity with their values, number of the generation, and address of
/// rank 0, unless all ranks share memory.
type Identity = (Vec<(&'static str, usize)>, u64, Option<String>);

struct Connection {
    stream: UnixStream,
    news: Arc<News>,
}

/// Messages of the launcher that Python has not asked for yet.
#[derive(Default)]
struct News {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    answer: Option<Answer>,
    /// Generation of this process.
    generation: u64,
    is_over: bool,
    /// Ranks because of which this process could not join its generation, as far as is known.
    failed_join: Option<Vec<usize>>,
    added: bool,
    removed: bool,
    /// The connection has ended.
    is_closed: bool,
}

enum Answer {
    Seat { seat: Seat, server: Option<String> },
    Leave,
}

impl News {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, reply: Reply) {
        let mut state = self.state();
        match reply {
            Reply::Seat { seat, server } => {
                state.generation = seat.generation;
                state.failed_join = None;
                (state.is_over, state.added, state.removed) = (false, false, false);
                state.answer = Some(Answer::Seat { seat, server });
            }
            Reply::Leave => state.answer = Some(Answer::Leave),
            Reply::Over(generation) => state.is_over |= generation == state.generation,
            Reply::Updated { added, removed } => {
                state.added |= added;
                state.removed |= removed;
            }
        }
        self.arrived.notify_all();
    }
}

/// Reads the launcher's messages and sends signs of life, until the connection ends.
fn listen(mut stream: &UnixStream, news: &News) {
    let mut line = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => {
                for &byte in &bytes[..count] {
                    if byte != b'\n' {
                        line.push(byte);
                        continue;
                    }
                    // The launcher has another version, or it is another program.
                    let Ok(reply) = String::from_utf8_lossy(&line).parse() else {
                        return;
                    };
                    news.take(reply);
                    line.clear();
                    if news.state().is_over {
                        crate::runtime::abort(OVER);
                    }
                }
                if line.len() > LINE_BYTES_MAX {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if send(stream, &Request::Alive).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn send(mut stream: &UnixStream, request: &Request) -> std::io::Result<()> {
    stream.write_all(format!("{request}\n").as_bytes())
}

fn connect() -> std::io::Result<Connection> {
    let variable = |name| {
        let missing = || std::io::Error::other(format!("{name} is not set"));
        std::env::var_os(name).ok_or_else(missing)
    };
    let member = variable("RONDE_ELASTIC_MEMBER")?;
    let member = member.to_str().and_then(|member| member.parse().ok());
    let member =
        member.ok_or_else(|| std::io::Error::other("RONDE_ELASTIC_MEMBER is not a number"))?;
    let stream = UnixStream::connect(variable("RONDE_ELASTIC_SOCKET")?)?;
    stream.set_read_timeout(Some(ALIVE_INTERVAL))?;
    send(&stream, &Request::Hello(member))?;
    let news = Arc::<News>::default();
    let (reader, of_reader) = (stream.try_clone()?, Arc::clone(&news));
    std::thread::Builder::new()
        .name("ronde-elastic".into())
        .spawn(move || {
            listen(&reader, &of_reader);
            of_reader.state().is_closed = true;
            of_reader.arrived.notify_all();
        })?;
    Ok(Connection { stream, news })
}

/// Whether the launcher has ended this process's generation.
pub(crate) fn is_over() -> bool {
    CONNECTION
        .get()
        .is_some_and(|connection| connection.news.state().is_over)
}

/// Notes that this process could not join its generation because of other ranks: `lost`, as far as
/// is known. The launcher gets them with the next request for a place.
pub(crate) fn note_failed_join(lost: &[usize]) {
    if let Some(connection) = CONNECTION.get() {
        connection.news.state().failed_join = Some(lost.to_vec());
    }
}

/// Whether this process could not join its generation because of other ranks.
#[pyfunction]
pub(crate) fn elastic_join_failed() -> bool {
    let connection = CONNECTION.get();
    connection.is_some_and(|connection| connection.news.state().failed_join.is_some())
}

/// Asks the launcher of an elastic job for this process's place in the next generation, and waits
/// for it. `why`: "started", "interrupted" or "failed". Returns the variables of the rank's
/// identity with their values, the number of the generation, and the address of rank 0 (None if all
/// ranks share memory); None if the process is no longer needed.
#[pyfunction]
#[pyo3(signature = (why, has_state, /))]
pub(crate) fn elastic_seat(
    py: Python<'_>,
    why: &str,
    has_state: bool,
) -> PyResult<Option<Identity>> {
    let failed = |error: std::io::Error| {
        PyRuntimeError::new_err(format!(
            "no connection to the launcher of the elastic job: {error}"
        ))
    };
    let connection = match CONNECTION.get() {
        Some(connection) => connection,
        None => {
            let connection = connect().map_err(failed)?;
            CONNECTION.get_or_init(|| connection)
        }
    };
    let news = &connection.news;
    let why = match why {
        "started" => Ready::Started,
        "interrupted" => Ready::Interrupted,
        "failed" => {
            let mut state = news.state();
            Ready::Failed {
                generation: state.generation,
                has_state,
                lost: state.failed_join.take().unwrap_or_default(),
            }
        }
        other => return Err(PyValueError::new_err(format!("{other:?} is not a reason"))),
    };
    news.state().answer = None;
    send(&connection.stream, &Request::Ready(why)).map_err(failed)?;
    loop {
        let answer = py.detach(|| {
            let state = news.state();
            let has_none = |state: &mut State| state.answer.is_none() && !state.is_closed;
            let waited = news.arrived.wait_timeout_while(state, SLICE, has_none);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            match (state.answer.take(), state.is_closed) {
                (Some(answer), _) => Ok(Some(answer)),
                (None, true) => Err(failed(ErrorKind::ConnectionAborted.into())),
                (None, false) => Ok(None),
            }
        })?;
        match answer {
            Some(Answer::Leave) => return Ok(None),
            Some(Answer::Seat { seat, server }) => {
                let variables = seat.place().variables().into();
                return Ok(Some((variables, seat.generation, server)));
            }
            None => py.check_signals()?,
        }
    }
}

/// Returns whether processes were added, and whether hosts were removed, since the last call.
#[pyfunction]
pub(crate) fn elastic_changes() -> (bool, bool) {
    CONNECTION.get().map_or((false, false), |connection| {
        let mut state = connection.news.state();
        (
            std::mem::take(&mut state.added),
            std::mem::take(&mut state.removed),
        )
    })
}
