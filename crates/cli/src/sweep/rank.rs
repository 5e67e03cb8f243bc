//! One rank of a sweep's job: a hidden subcommand, which the supervisor launches once for each
//! rank.
//!
//! Rank 0 receives requests from the supervisor, changes the settings and broadcasts the
//! measurement to the other ranks through the runtime; then all ranks measure.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::channel::{self, Lines, MeasurementRequest, Message};
use crate::bench::LoadArgs;
use crate::error::Error;
use ronde::context::Context;
use ronde::error::Error as RuntimeError;
use ronde::internal::identity::Identity;
use ronde::knobs::Knobs;
use ronde::settings::PartialSettings;
use ronde_lab::bench::{Job, Series};
use ronde_lab::sweep::Point;

/// Name of the hidden subcommand.
pub(crate) const RANK: &str = "__sweep-rank";
/// Flags of the hidden subcommand.
pub(super) const CHANNEL: &str = "--channel";
pub(super) const LOAD: &str = "--load";

/// Action that fails if the supervisor cannot be reached.
const CHANNEL_USE: &str = "communicate with the sweep";

/// Size of a measurement that is broadcast: more than any needs as JSON.
const SERIES_BYTES: usize = 256;

/// Interval between two signs of life.
const ALIVE_EVERY: Duration = Duration::from_millis(500);

/// Arguments of the hidden subcommand.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the supervisor's socket
    #[arg(long)]
    channel: String,
    /// What each step reduces, as JSON
    #[arg(long, value_parser = parse_load)]
    load: LoadArgs,
}

fn parse_load(text: &str) -> Result<LoadArgs, serde_json::Error> {
    serde_json::from_str(text)
}

/// Runs the hidden subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode, Error> {
    // First of all, so that later errors can be reported to the supervisor.
    let mut supervisor = supervisor(args)?;
    let outcome = join().and_then(|context| serve(&context, args, supervisor.as_mut()));
    if let (Err(error), Some(supervisor)) = (&outcome, &supervisor) {
        supervisor.say(&Message::Failed(error.to_string()));
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Connection to the supervisor, on rank 0 only.
fn supervisor(args: &Args) -> Result<Option<Supervisor>, Error> {
    let is_first = Identity::from_env()?.rank == 0;
    let supervisor = is_first.then(|| Supervisor::connect(&args.channel));
    supervisor.transpose().map_err(Error::system(CHANNEL_USE))
}

fn join() -> Result<Context, Error> {
    Ok(Context::builder()
        .knobs(Knobs::from_env()?)
        .quiet_autotune()
        .build()?)
}

/// Measures until there are no more requests.
fn serve(
    context: &Context,
    args: &Args,
    mut supervisor: Option<&mut Supervisor>,
) -> Result<(), Error> {
    let load = args
        .load
        .load(args.load.workload()?, (context.rank(), context.size()));
    let mut job = Job::new(context, &load)?;
    job.agree(&[])?;
    if let Some(supervisor) = &supervisor {
        supervisor.say(&Message::Ready);
    }
    loop {
        let order = match &mut supervisor {
            Some(supervisor) => supervisor.order()?,
            None => None,
        };
        if let Some(order) = &order {
            context.set_settings(change(&order.point))?;
        }
        let time = order.and_then(|order| order.time);
        let Some(series) = tell(context, order.map(|order| order.series))? else {
            return Ok(());
        };
        let times = job.measure(&series, time, || {
            if let Some(supervisor) = &mut supervisor {
                supervisor.alive();
            }
        })?;
        if let Some(supervisor) = &supervisor {
            supervisor.say(&Message::Done(times));
        }
    }
}

/// Change of the settings to those of `point`.
fn change(point: &Point) -> PartialSettings {
    PartialSettings {
        fusion_threshold_bytes: Some(point.fusion_threshold_bytes),
        cycle_time: Some(Duration::from_secs_f64(point.cycle_time_ms / 1e3)),
        cache: Some(point.cache),
        hierarchical_allreduce: Some(point.hierarchical_allreduce),
        ..PartialSettings::default()
    }
}

/// Broadcasts rank 0's next measurement; `None` ends the job.
fn tell(context: &Context, series: Option<Series>) -> Result<Option<Series>, Error> {
    let json = |error| Error::system("write down a measurement")(io::Error::from(error));
    let mut bytes = serde_json::to_vec(&series).map_err(json)?;
    bytes.resize(SERIES_BYTES, b' '); // equal on all ranks
    let told = context.broadcast("sweep.order", bytes, 0);
    let told = told.map_err(RuntimeError::from)?.wait();
    serde_json::from_slice(&told.map_err(RuntimeError::from)?).map_err(json)
}

/// Rank 0's end of the channel.
struct Supervisor {
    orders: Lines,
    channel: UnixStream,
    told: Instant,
}

impl Supervisor {
    fn connect(name: &str) -> std::io::Result<Self> {
        let channel = channel::connect(name)?;
        Ok(Self {
            orders: Lines::new(channel.try_clone()?),
            channel,
            told: Instant::now(),
        })
    }

    /// Returns the next request, or `None` if the supervisor has closed the channel.
    fn order(&mut self) -> Result<Option<MeasurementRequest>, Error> {
        self.orders.next().map_err(Error::system(CHANNEL_USE))
    }

    /// Sends a message. An error is ignored: if the channel is closed, the next request is `None`,
    /// which ends the job.
    fn say(&self, message: &Message) {
        let _ = channel::send(&self.channel, message);
    }

    /// Sends a sign of life if the last one is old enough.
    fn alive(&mut self) {
        if self.told.elapsed() >= ALIVE_EVERY {
            self.say(&Message::Alive);
            self.told = Instant::now();
        }
    }
}
