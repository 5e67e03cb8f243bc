//! The limit of open files: a mesh raises it, and an error names it.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::support::{configs, free_address};
use ronde_net::Mesh;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Set for the process whose limits the test changes.
const PROCESS: &str = "NET_TEST_OPEN_FILES";

/// The body of that process; this test does nothing unless it is started as one.
#[test]
fn process() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    const HARD: u64 = 40;
    let limits = |soft| Rlimit {
        current: Some(soft),
        maximum: Some(HARD),
    };
    setrlimit(Resource::Nofile, limits(20)).unwrap();
    let mut zero = configs(2, free_address("127.0.0.1")).remove(0);
    zero.start_timeout = Duration::from_secs(3);
    let server = zero.server;
    let rank_0 = std::thread::spawn(move || Mesh::join(&zero).err().unwrap());
    // Each connection is two files of this process. The kernel accepts them before the mesh does.
    while !rank_0.is_finished() {
        let all: Vec<_> = (0..HARD)
            .map_while(|_| TcpStream::connect(server).ok())
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        drop(all);
    }
    assert_eq!(getrlimit(Resource::Nofile), limits(HARD));
    let error = rank_0.join().unwrap().to_string();
    assert!(error.contains("limit of open files (ulimit -n)"), "{error}");
}

#[test]
fn the_limit_is_raised_and_named_where_it_is_reached() {
    let mut process = Command::new(std::env::current_exe().unwrap());
    let process = process.args(["open_files::process", "--exact", "--nocapture"]);
    let output = process.env(PROCESS, "1").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}
