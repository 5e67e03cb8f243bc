//! Timeline on a full disk, which a limit on the length of files simulates.

use std::process::Command;
use std::sync::Arc;

use flate2::read::GzDecoder;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGXFSZ;

use super::*;

const LIMIT: u64 = 128 << 10;

/// Upper bound of the bytes of one operation in a timeline.
const OPERATION_BYTES: u64 = 2_000;

/// Limits the files of this process to [`LIMIT`].
fn limit_files() {
    // Without a handler, the signal that comes with the error would end the process.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).expect("a handler");
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    let current = Some(LIMIT);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).expect("a lower limit is allowed");
}

#[test]
fn a_full_disk_keeps_all_that_was_written_and_the_job_goes_on() {
    let test = "recording::full_disk::a_full_disk_keeps_all_that_was_written_and_the_job_goes_on";
    for name in ["t.json", "t.json.gz"] {
        let folder = Folder::new();
        let path = folder.file(name);
        let env = [("HOROVOD_TIMELINE", path.to_str().expect("text"))];
        let outcomes = job_with(test, 2, &env, || {
            let context = Context::from_env().expect("the job starts");
            limit_files();
            for _ in 0..60 {
                let sums: Vec<_> = (0..200)
                    .map(|layer| {
                        context.allreduce(&format!("layer{layer}"), vec![1_i32; 4], ReduceOp::Sum)
                    })
                    .collect();
                for sum in sums {
                    assert_eq!(sum.expect("in").wait().expect("out"), vec![2; 4]);
                }
            }
            println!("the job went on");
        });
        for outcome in &outcomes {
            assert!(
                outcome.output.contains("the job went on"),
                "{}",
                outcome.output
            );
        }

        let length = path.metadata().expect("the file is there").len();
        assert!(
            length <= LIMIT && length > LIMIT - OPERATION_BYTES,
            "{name}: {length} bytes"
        );
        let told = &outcomes[0].output;
        assert!(
            told.contains("recording ends here, the job goes on"),
            "{told}"
        );
        let says = format!("{} holds", path.display());
        let sentence = &told[told
            .find(&says)
            .unwrap_or_else(|| panic!("{says:?} in {told}"))..];
        if name == "t.json" {
            let valid =
                format!("all events that were written before, {length} bytes of valid JSON");
            assert!(sentence.contains(&valid), "{sentence}");
            Timeline::read(&path); // checks the format
        } else {
            assert!(
                sentence.contains(&format!("{length} compressed bytes")),
                "{sentence}"
            );
            let mut text = Vec::new();
            let bytes = std::fs::read(&path).expect("readable");
            assert!(GzDecoder::new(&bytes[..]).read_to_end(&mut text).is_err());
            assert!(text.len() as u64 > 4 * LIMIT, "{} bytes", text.len());
        }
        let read = Command::new(env!("CARGO_BIN_EXE_ronde"))
            .arg("timeline")
            .arg(&path)
            .output();
        let read = read.expect("the program runs");
        assert!(
            read.status.success(),
            "{}",
            String::from_utf8_lossy(&read.stderr)
        );
    }
}
