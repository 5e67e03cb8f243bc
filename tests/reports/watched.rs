//! Parts of the tests of metrics and live page: files with tokens, a lost rank, invalid settings.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use ronde::{Context, ReduceOp};

use crate::support::{Folder, start_separately};

/// Makes a file with a token and this mode, before the ranks start. Returns its path.
pub(crate) fn token_file(folder: &Folder, token: &str, mode: u32) -> String {
    let file = folder.file("token");
    if std::env::var_os("TEST_RONDE_BODY").is_none() {
        std::fs::write(&file, token).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("its owner");
    }
    file.to_str().expect("text").to_owned()
}

/// Exchanges tensors until another rank is lost, and ends the context.
pub(crate) fn lose_a_rank(context: Context) {
    let error = loop {
        let handle = context.allreduce("more", vec![1.0f32], ReduceOp::Sum);
        match handle.map(|handle| handle.wait()) {
            Ok(Ok(_)) => {}
            Ok(Err(failed)) | Err(failed) => break failed.error,
        }
    };
    assert!(error.is_peer_gone(), "{error}");
}

/// Checks that a job does not start with an address that is in use, or invalid, or with a file of
/// other variables that is invalid: errors name the variable, the value and a solution.
pub(crate) fn invalid_settings_are_refused(
    test: &str,
    address: &str,
    token_file_variable: &str,
    file: (&str, &str),
) {
    let folder = Folder::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let in_use = taken.local_addr().expect("it is bound").to_string();
    let token = token_file(&folder, "0123456789abcdef", 0o644);
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case; 4] = [
        (
            &[(address, &in_use)],
            &[address, &in_use, "choose another port"],
        ),
        (
            &[(address, "page")],
            &[address, "neither PORT nor HOST:PORT"],
        ),
        (
            &[(address, "0"), (token_file_variable, &token)],
            &[token_file_variable, "chmod 600"],
        ),
        (&[(address, "0"), file], &[file.0, file.1]),
    ];
    for (env, texts) in cases {
        let job = start_separately(test, 1, env, || {
            let error = Context::from_env().map(drop).expect_err("refused");
            println!("{error}");
        });
        let Some(job) = job else { return };
        let outcome = &job.finish()[0];
        for text in texts {
            assert!(outcome.output.contains(text), "{text}: {}", outcome.output);
        }
    }
}
