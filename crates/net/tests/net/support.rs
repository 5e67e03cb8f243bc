//! Ranks of a mesh as threads of a test.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ronde_net::{Comm, Config, Mesh, NetError, Pending, Reservation, Secret};

/// An address of this host that no other process listens on, nor gets from the operating system: it
/// is bound until this process ends.
pub(crate) fn free_address(ip: &str) -> SocketAddr {
    let any = SocketAddr::new(ip.parse().expect("an address"), 0);
    let reserved = Reservation::bind(any).expect("a free port");
    let address = reserved.address();
    std::mem::forget(reserved);
    address
}

/// Configurations of `size` ranks on hosts `host0`, `host1`, …
pub(crate) fn configs(size: usize, server: SocketAddr) -> Vec<Config> {
    let secret = Secret::random().expect("random bytes");
    let config = |rank| Config {
        host: format!("host{rank}"),
        host_key: format!("key{rank}"),
        contract: vec![("cache capacity".into(), "1024".into())],
        start_timeout: Duration::from_secs(60),
        ..Config::new(rank, size, server, secret.clone(), "test")
    };
    (0..size).map(config).collect()
}

/// Runs `body` as each rank, and returns what the ranks return.
pub(crate) fn as_ranks<T: Send + 'static>(
    configs: Vec<Config>,
    body: impl Fn(Config) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let body = std::sync::Arc::new(body);
    let start = |config: Config| {
        let body = std::sync::Arc::clone(&body);
        std::thread::spawn(move || body(config))
    };
    let threads: Vec<_> = configs.into_iter().map(start).collect();
    let join = |thread: std::thread::JoinHandle<T>| match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    threads.into_iter().map(join).collect()
}

/// Joins the job and creates a communicator of all ranks.
pub(crate) fn join(config: &Config) -> Result<(Rc<Mesh>, Comm), NetError> {
    let mesh = Mesh::join(config)?;
    let all: Vec<usize> = (0..config.size).collect();
    let comm = Comm::new(&mesh, 0, &all)?;
    Ok((mesh, comm))
}

/// Drives `mesh` until `pending` is complete.
pub(crate) fn wait<B>(mesh: &Mesh, mut pending: Pending<B>) -> Result<B, NetError> {
    loop {
        if let Some(memory) = pending.test()? {
            return Ok(memory);
        }
        // An error of the mesh is an error of the operation.
        let _ = mesh.turn(Some(Duration::from_secs(1)));
    }
}
