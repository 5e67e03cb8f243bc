//! Command-line arguments of `ronde dash`.

use std::path::PathBuf;

use clap::ValueHint;

const EXAMPLES: &str = "\
Examples:
  ronde dash autotune.csv                     a page that follows this log; its URL is printed
  ronde dash monday.csv tuesday.csv           the log that changed last; follows both
  ronde dash autotune.csv --port 8080         at http://127.0.0.1:8080
  ssh -L 8080:127.0.0.1:8080 login-node       in another terminal: the page of another machine
  ronde run --dash 8080 -np 4 -- python train.py
                                              the page of a running job, with all of its steps";

const LONG_ABOUT: &str = "\
Show autotune logs as a live page: trials, expected values of all settings, gain, cost, events

Reads logs of Horovod (HOROVOD_AUTOTUNE_LOG) and of Ronde, finished or growing, plain or \
gzipped, and follows them until it is ended. A log of another job that is appended to the file, or \
replaces it, is shown from its beginning, and the page says so. Of several files, the page shows \
the one that changed last.

The page is for this machine only unless --host says otherwise. It needs a token, which is part of \
the printed URL and changes with every start unless --token-file names one. Browsers show a \
running job with `ronde run --dash`, or with RONDE_DASH under mpirun, srun and torchrun.";

/// Show autotune logs as a live page, which follows them
#[derive(clap::Args)]
#[command(
    override_usage = "ronde dash LOG.csv… [OPTIONS]",
    long_about = LONG_ABOUT,
    after_help = EXAMPLES
)]
pub(crate) struct Args {
    /// Autotune logs; - is standard input, which is read to its end
    #[arg(value_name = "LOG.csv|-", required = true, value_hint = ValueHint::AnyPath)]
    pub(super) paths: Vec<PathBuf>,
    /// Port of the page; 0 is any free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) port: u16,
    /// Host to listen on; other machines can reach any but 127.0.0.1
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(super) host: String,
    /// File of mode 0600 with the token of the page, instead of one that is drawn
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) token_file: Option<PathBuf>,
}

impl Args {
    /// The address, as `HOST:PORT`.
    pub(super) fn address(&self) -> String {
        let host = &self.host;
        match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]:{}", self.port),
            false => format!("{host}:{}", self.port),
        }
    }
}
