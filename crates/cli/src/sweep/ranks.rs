//! Supervisor's side of a running job: its ranks are started once and make many measurements.
//!
//! Two threads serve a job: one launches it and waits for its end, the other reads rank 0's
//! messages. The caller that waits for a measurement receives events from both, and gives up if
//! there is no sign of a step for too long.

use std::ffi::OsString;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::channel::{self, Lines, Listener, MeasurementRequest, Message};
use super::plan::Plan;
use super::rank::{CHANNEL, LOAD, RANK};
use crate::error::Error;
use crate::program;
use crate::run::{Ended, LaunchError, LaunchSpec, Output, launch_until};
use ronde_lab::bench::SeriesTimes;

/// Interval between two checks whether to continue waiting.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Factor on the patience for a step during the start: ranks map and fill buffers, so they need
/// longer to start than for a step.
const START_FACTOR: u32 = 4;

/// Time limit for ranks to exit after the request to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// Reason why there is no measurement.
#[derive(Debug)]
pub(super) enum Failure {
    /// The job has ended, with the reason.
    Job(String),
    /// The caller has stopped waiting.
    Abandoned,
}

/// Running job.
pub(super) struct Ranks {
    np: u32,
    events: Receiver<Event>,
    channel: Option<UnixStream>,
    /// The ranks are killed when this is closed.
    stop: UnixStream,
    threads: Vec<JoinHandle<()>>,
    /// Error that rank 0 reported.
    complaint: Option<String>,
}

enum Event {
    Connected(UnixStream),
    Said(Message),
    Ended(Result<Ended, LaunchError>),
}

impl Ranks {
    /// Starts `np` ranks of `plan`'s job and waits until they are ready, while `go_on` returns
    /// true.
    ///
    /// # Errors
    /// A socket or a thread cannot be created. The inner failure: the ranks do not start.
    pub(super) fn start(
        plan: &Plan,
        np: u32,
        patience: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Result<Self, Failure>, Error> {
        let listener = Listener::bind().map_err(Error::system("listen to rank 0"))?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::system("make a socket pair"))?;
        let name = listener.name().to_owned();
        let spec = spec(plan, np, &name)?;
        let (sender, events) = channel();
        let mut ranks = Self {
            np,
            events,
            channel: None,
            stop,
            threads: Vec::new(),
            complaint: None,
        };
        let messages = sender.clone();
        ranks.thread("ronde-sweep-job", move || {
            let outcome = launch_until(&spec, stopped.as_fd());
            // Without a rank 0, the reader still waits for a connection. An error means that it
            // does not.
            let _ = channel::connect(&name);
            // An error means that the receiver has been dropped.
            let _ = sender.send(Event::Ended(outcome));
        })?;
        ranks.thread("ronde-sweep-rank0", move || read(&listener, &messages))?;
        Ok(match ranks.receive(patience * START_FACTOR, go_on) {
            Ok(_) => Ok(ranks),
            Err(failure) => Err(failure),
        })
    }

    /// Number of ranks.
    pub(super) fn np(&self) -> u32 {
        self.np
    }

    /// Requests the measurement `order` and waits for its result, with `patience` for each step,
    /// while `go_on` returns true.
    ///
    /// # Errors
    /// [`Failure`]; the job cannot be used again.
    pub(super) fn measure(
        &mut self,
        order: &MeasurementRequest,
        patience: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<SeriesTimes, Failure> {
        if let Some(channel) = &self.channel {
            // An error means that rank 0 has ended, which an event will report.
            let _ = channel::send(channel, order);
        }
        loop {
            if let Message::Done(times) = self.receive(patience, go_on)? {
                return Ok(times);
            }
        }
    }

    /// Requests the ranks to exit, and waits for their end.
    pub(super) fn leave(mut self) {
        if let Some(channel) = &self.channel {
            // An error means that rank 0 has ended already.
            let _ = channel.shutdown(Shutdown::Write);
        }
        let until = Instant::now() + LEAVE_WITHIN;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(event) = self.events.recv_timeout(left())
            && !matches!(event, Event::Ended(_))
        {}
        self.end();
    }

    /// Returns the next message that is not a sign of life.
    fn receive(
        &mut self,
        patience: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Message, Failure> {
        let mut heard = Instant::now();
        loop {
            match self.events.recv_timeout(LOOK_EVERY) {
                Ok(Event::Connected(channel)) => self.channel = Some(channel),
                Ok(Event::Said(Message::Alive)) => heard = Instant::now(),
                Ok(Event::Said(Message::Failed(complaint))) => self.complaint = Some(complaint),
                Ok(Event::Said(message)) => return Ok(message),
                // A job that ends because of the interruption is not a failure of the measurement.
                Ok(Event::Ended(_)) if !go_on() => return Err(Failure::Abandoned),
                Ok(Event::Ended(outcome)) => return Err(self.failure(outcome)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Job("its launcher ended".to_owned()));
                }
            }
            if !go_on() {
                return Err(Failure::Abandoned);
            }
            if heard.elapsed() > patience {
                self.end();
                let seconds = patience.as_secs_f64();
                return Err(Failure::Job(format!("it hangs: no step in {seconds:.0} s")));
            }
        }
    }

    /// Reason of the job's end, together with the last messages of rank 0.
    fn failure(&mut self, outcome: Result<Ended, LaunchError>) -> Failure {
        while let Ok(event) = self.events.recv_timeout(LOOK_EVERY) {
            if let Event::Said(Message::Failed(complaint)) = event {
                self.complaint = Some(complaint);
            }
        }
        let cause = match outcome {
            Ok(Ended {
                cause: Some(cause), ..
            }) => cause,
            Ok(Ended { code, cause: None }) => format!("the job ended with code {code}"),
            Err(error) => error.to_string(),
        };
        Failure::Job(match self.complaint.take() {
            Some(complaint) => format!("{cause}: {complaint}"),
            None => cause,
        })
    }

    fn thread(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = Builder::new().name(name.to_owned()).spawn(body);
        self.threads
            .push(thread.map_err(Error::system("start a thread"))?);
        Ok(())
    }

    /// Kills the remaining ranks, and waits for their end.
    fn end(&mut self) {
        // An error means that the launcher has ended already.
        let _ = self.stop.shutdown(Shutdown::Both);
        self.channel = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.end();
    }
}

/// Forwards rank 0's messages as events, until the channel is closed.
fn read(listener: &Listener, events: &Sender<Event>) {
    let forward = || -> io::Result<()> {
        let stream = listener.accept()?;
        let mut lines = Lines::new(stream.try_clone()?);
        let mut is_heard = events.send(Event::Connected(stream)).is_ok();
        while is_heard && let Some(message) = lines.next()? {
            is_heard = events.send(Event::Said(message)).is_ok();
        }
        Ok(())
    };
    if let Err(error) = forward() {
        let text = format!("cannot receive from rank 0: {error}");
        // An error means that the receiver has been dropped.
        let _ = events.send(Event::Said(Message::Failed(text)));
    }
}

/// Launch of the ranks: this program with the hidden subcommand.
fn spec(plan: &Plan, np: u32, name: &str) -> Result<LaunchSpec, Error> {
    let load = serde_json::to_string(&plan.load)
        .map_err(io::Error::from)
        .map_err(Error::system("write down the job"))?;
    let arguments = [RANK, CHANNEL, name, LOAD, &load].map(OsString::from);
    let settings = plan.settings.iter();
    let mut environment: Vec<(OsString, OsString)> = settings
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let mut command = program::again_with(arguments);
    let mut num_proc = np as usize;
    if let Some(elsewhere) = plan.elsewhere()
        && elsewhere.is_elsewhere(num_proc)?
    {
        // The local process is then mpirun, which starts the ranks and exports its RONDE_JOB_ID to
        // them.
        command = elsewhere.command_line(num_proc, std::mem::take(&mut environment), command)?;
        num_proc = 1;
    }
    Ok(LaunchSpec {
        label: "ronde: sweep".to_owned(),
        command,
        num_proc,
        environment,
        output: Output::Prefixed { timestamp: false },
        output_dir: None,
        verbose: false,
        guard: program::again(),
    })
}
