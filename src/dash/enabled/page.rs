//! Page: the server of a process, and the context whose job it shows.

use std::sync::{Arc, Mutex};

use ronde_dash::{Config, Dash, DashError};

use super::feed::Source;
use super::handler::Handler;
use super::recorder::Recorder;
use super::shared::Shared;
use crate::dash::{ADDRESS, Job};
use crate::error::{Error, SettingsError};
use crate::knobs::Knobs;
use crate::listening::listening;
use crate::logging;
use crate::sync::{lock, shared_or};

/// Variable that names the token's file.
const TOKEN: &str = "RONDE_DASH_TOKEN_FILE";

/// Server of a process. It continues when its context has ended.
pub(super) struct Page {
    config: Config,
    pub(super) dash: Dash,
    /// Handler of the context that the page shows, while that runs.
    handler: Arc<Mutex<Option<Handler>>>,
}

/// The page of this process; a context with other settings gets another one.
static PAGE: Mutex<Option<Arc<Page>>> = Mutex::new(None);

/// Opens the page for a job.
///
/// # Errors
/// An address that cannot be listened on, a file without a token.
pub(in crate::dash) fn open(
    knobs: &Knobs,
    address: &str,
    job: &Job<'_>,
) -> Result<Recorder, Error> {
    let config = Config {
        address: address.to_owned(),
        token_file: knobs.dash_token_file.clone(),
        control: knobs.dash_control,
    };
    let is_same = |page: &Page| page.config == config;
    let page = shared_or(&PAGE, is_same, || Page::start(config.clone(), knobs))?;
    let shared = Arc::new(Shared::new(job.identity.size));
    *lock(&page.handler) = Some(Handler {
        controls: Arc::clone(job.controls),
        shared: Arc::clone(&shared),
    });
    if knobs.autotune {
        job.progress.want_news();
    }
    let source = Source {
        page,
        progress: Arc::clone(job.progress),
        times: job.times.clone(),
        ranks: job.identity.size,
        backend: job.backend,
        is_tuned: knobs.autotune,
        timeline: knobs.timeline_path().map(|path| path.display().to_string()),
    };
    Ok(Recorder::new(shared, source))
}

impl Page {
    fn start(config: Config, knobs: &Knobs) -> Result<Self, Error> {
        let handler = Arc::<Mutex<Option<Handler>>>::default();
        let dash = listening(knobs, DashError::is_in_use, || {
            let of_context = Arc::clone(&handler);
            Dash::start(&config, move |command| match &*lock(&of_context) {
                Some(handler) => handler.handle(command),
                None => Err("the job has ended".to_owned()),
            })
        });
        let dash = dash.map_err(|error| refused(&config.address, error))?;
        logging::tell(dash.announcement());
        Ok(Self {
            config,
            dash,
            handler,
        })
    }

    /// The context has ended.
    pub(super) fn release(&self) {
        *lock(&self.handler) = None;
    }
}

fn refused(address: &str, error: DashError) -> Error {
    Error::Settings(match error {
        DashError::TokenFile(path, error) => SettingsError::Secret {
            path,
            variable: TOKEN,
            reason: error.to_string(),
        },
        error => SettingsError::Listen {
            what: "the live page",
            address: address.to_owned(),
            variable: ADDRESS,
            reason: error.to_string(),
        },
    })
}
