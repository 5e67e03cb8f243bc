//! Listener for Prometheus: answers `/metrics` in the format that the client asks for.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use prometheus_client::encoding::prometheus_text;
use ronde_http::{Limits, Request, Response, Server, Token};

use super::metrics::Metrics;
use crate::error::{Error, SettingsError};
use crate::knobs::Knobs;
use crate::listening::listening;

/// Variables that name the address and the token.
const ADDRESS: &str = "RONDE_METRICS_ADDR";
const TOKEN: &str = "RONDE_METRICS_TOKEN_FILE";

/// The only path.
const PATH: &str = "/metrics";

const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Listens on `address`. Clients must send the token in the file at `token`, if there is one.
///
/// # Errors
/// An invalid address or one that is in use; a file without a token.
pub(super) fn start(
    address: &str,
    token: Option<&Path>,
    metrics: &Arc<Metrics>,
    knobs: &Knobs,
) -> Result<Server, Error> {
    let refused = |reason: String| {
        Error::Settings(SettingsError::Listen {
            what: "metrics",
            address: address.to_owned(),
            variable: ADDRESS,
            reason,
        })
    };
    let token = token.map(read_token).transpose()?;
    let is_open = token.is_none();
    let socket = ronde_http::address(address).map_err(|error| refused(error.to_string()))?;
    let token = Arc::new(token);
    let server = listening(
        knobs,
        |error: &std::io::Error| error.kind() == ErrorKind::AddrInUse,
        || {
            let (token, metrics) = (Arc::clone(&token), Arc::clone(metrics));
            let respond = move |request: &Request| respond(request, (*token).as_ref(), &metrics);
            Server::start(socket, Limits::default(), "ronde-metrics", respond)
        },
    );
    let server =
        server.map_err(|error| refused(format!("{error}{}", ronde_http::listen_hint(&error))))?;
    let address = server.address();
    tracing::info!("metrics: http://{address}{PATH}");
    if is_open && !address.ip().is_loopback() {
        tracing::warn!(
            "metrics: everybody who reaches {address} can read them; {TOKEN} makes a token necessary"
        );
    }
    Ok(server)
}

fn read_token(path: &Path) -> Result<Token, Error> {
    Token::read(path).map_err(|error| {
        Error::Settings(SettingsError::Secret {
            path: path.to_owned(),
            variable: TOKEN,
            reason: error.to_string(),
        })
    })
}

fn respond(request: &Request, token: Option<&Token>, metrics: &Metrics) -> Response {
    if token.is_some_and(|token| !token.is_in(request)) {
        return Response::error(
            401,
            "the metrics need the token, as `Authorization: Bearer TOKEN`",
        )
        .with("WWW-Authenticate", "Bearer");
    }
    if request.path() != PATH {
        return Response::error(404, "the metrics are at /metrics");
    }
    if !matches!(request.method(), "GET" | "HEAD") {
        return Response::error(405, "the metrics can only be read").with("Allow", "GET, HEAD");
    }
    let is_open = request.accepts(OPEN_METRICS) > request.accepts("text/plain");
    let (content_type, text) = match is_open {
        true => (OPEN_METRICS_TYPE, metrics.open_metrics()),
        false => (prometheus_text::CONTENT_TYPE, metrics.prometheus()),
    };
    text.map_or_else(
        |_| Response::error(500, "the metrics cannot be written as text"),
        |text| Response::text(content_type, text),
    )
}
