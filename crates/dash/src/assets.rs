//! Files of the page, compressed when a browser first asks for them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use ronde_http::{Request, Response};

/// A file of the page.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
    gzip: OnceLock<Option<Vec<u8>>>,
}

const fn asset(name: &'static str, content_type: &'static str, text: &'static str) -> Asset {
    Asset {
        name,
        content_type,
        text,
        gzip: OnceLock::new(),
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All files; the first one is the page itself.
static ASSETS: [Asset; 8] = [
    asset(
        "",
        "text/html; charset=utf-8",
        include_str!("page/index.html"),
    ),
    asset("common.css", STYLE, ronde_charts::STYLE),
    asset("dash.css", STYLE, include_str!("page/dash.css")),
    asset("echarts.js", SCRIPT, ronde_charts::ECHARTS),
    asset("charts.js", SCRIPT, ronde_charts::CHARTS_SCRIPT),
    asset("dash.js", SCRIPT, include_str!("page/dash.js")),
    asset("icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
    asset(
        "licences.txt",
        "text/plain; charset=utf-8",
        ronde_charts::ECHARTS_LICENCES,
    ),
];

/// Page for a client without a session.
pub(crate) const LOGIN: &str = include_str!("page/login.html");

/// Returns the file of this name.
pub(crate) fn response(name: &str, request: &Request) -> Option<Response> {
    let asset = ASSETS.iter().find(|asset| asset.name == name)?;
    let encodings = request.header("accept-encoding").unwrap_or_default();
    let accepts_gzip = encodings.split(',').any(|one| one.trim() == "gzip");
    let gzip = asset.gzip.get_or_init(|| compressed(asset.text).ok());
    match gzip {
        Some(bytes) if accepts_gzip => {
            let response = Response::bytes(asset.content_type, bytes.clone());
            Some(response.with("Content-Encoding", "gzip"))
        }
        _ => Some(Response::text(asset.content_type, asset.text)),
    }
}

fn compressed(text: &str) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

/// Version of the files: a page of another version loads itself again.
pub(crate) fn version() -> u64 {
    let mut hasher = DefaultHasher::new();
    for asset in &ASSETS {
        asset.text.hash(&mut hasher);
    }
    hasher.finish() >> 12 // JavaScript's numbers have 53 bits
}
