//! Input that is not a timeline or is damaged, and outputs that cannot be written.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::trace::Job;
use super::*;

#[test]
fn a_file_that_is_not_a_trace_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("nothing")).unwrap();
    let cases: [(&str, &[u8], &str); 5] = [
        ("empty.json", b"", "is empty"),
        ("binary", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", ""),
        ("page.json", b"<!doctype html><html></html>", "HTML"),
        ("other.json", b"{\"weights\": [1, 2, 3]}", "JSON"),
        (
            "log.csv",
            b"cycle_time_ms,tensor_fusion_threshold,score\n1,2,3\n",
            "autotune log",
        ),
    ];
    for (name, content, part) in cases {
        fs::write(folder.path().join(name), content).unwrap();
        assert_fails(&timeline(folder.path(), &[name]), 1, &[name, part]);
    }
    assert_fails(
        &timeline(folder.path(), &["nothing"]),
        1,
        &["no trace in nothing"],
    );
    assert_fails(&timeline(folder.path(), &["gone.json"]), 1, &["gone.json"]);
    assert_fails(&timeline(folder.path(), &["/dev/null"]), 1, &["/dev/null"]);
}

#[test]
fn one_rank_twice_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::default();
    job.record(folder.path());
    fs::write(folder.path().join("copy.json"), job.ronde(1)).unwrap();
    let output = timeline(folder.path(), &["t.json", "t.rank1.json", "copy.json"]);
    assert_fails(&output, 1, &["t.rank1.json", "copy.json", "rank 1"]);
}

#[test]
fn a_damaged_number_of_ranks_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job {
        steps: 1000,
        tensors: 10,
        step_us: 40_000,
        ..Job::default()
    };
    let text = job.ronde(0).replacen("\"size\": 2,", "\"size\": 65536,", 1);
    assert!(text.contains("65536"), "{}", &text[..500]);
    fs::write(folder.path().join("t.json"), text).unwrap();
    // A time for each rank of each operation would need 10 GB.
    let limited = "ulimit -v 2000000; exec \"$0\" timeline t.json";
    let mut shell = Command::new("sh");
    shell.args(["-c", limited, env!("CARGO_BIN_EXE_ronde")]);
    let output = shell.current_dir(folder.path()).output().unwrap();
    assert!(
        stdout(&output).contains("1,000 steps"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_damaged_file_is_read_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = Job::default().ronde(0);
    // In the middle of the sixth or seventh step.
    fs::write(folder.path().join("cut.json"), &whole[..whole.len() / 2]).unwrap();
    let output = timeline(folder.path(), &["cut.json", "--json", "cut.report"]);
    let text = stdout(&output);
    assert!(text.contains("cut.json") && text.contains("  ! "), "{text}");
    let report = json(&folder.path().join("cut.report"));
    let steps = report["steps"].as_array().unwrap().len();
    assert!((5..=7).contains(&steps), "{steps}");

    // With JSON on standard output, problems are reported on standard error.
    let output = timeline(folder.path(), &["cut.json", "--json", "-"]);
    let (out, err) = texts(&output);
    assert!(serde_json::from_str::<Value>(&out).is_ok());
    assert!(
        output.status.success() && err.starts_with("ronde: timeline: warning: "),
        "{err}"
    );
}

#[test]
fn a_gzip_cut_short_is_read_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let Some(compressed) = gzip(Job::default().ronde(0).as_bytes()) else {
        eprintln!("skipped: gzip is not there");
        return;
    };
    fs::write(folder.path().join("t.json.gz"), &compressed).unwrap();
    let text = stdout(&timeline(folder.path(), &["t.json.gz"]));
    assert!(text.contains("12 steps"), "{text}");
    fs::write(
        folder.path().join("cut.json.gz"),
        &compressed[..compressed.len() / 2],
    )
    .unwrap();
    let text = stdout(&timeline(folder.path(), &["cut.json.gz"]));
    assert!(text.contains("  ! "), "{text}");
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new("gzip")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    // Its output fits a pipe and need not be read meanwhile.
    child.stdin.take()?.write_all(bytes).ok()?;
    Some(child.wait_with_output().ok()?.stdout)
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    for flag in ["--json", "--csv", "--html", "--profile", "--merge"] {
        let output = timeline(folder.path(), &["t.json", flag, "no/such/out"]);
        assert_fails(&output, 1, &["cannot write no/such/out", "No such file"]);
        assert!(output.stdout.is_empty(), "{output:?}");
        assert_fails(
            &timeline(folder.path(), &["t.json", flag, "."]),
            1,
            &["cannot write ."],
        );
        assert_fails(
            &timeline(folder.path(), &["t.json", flag, "./t.json"]),
            2,
            &["is an input"],
        );
    }
    let twice = timeline(folder.path(), &["t.json", "--json", "x", "--csv", "./x"]);
    assert_fails(&twice, 2, &["./x is to be written twice"]);
    let twice = timeline(folder.path(), &["t.json", "--json", "-", "--csv", "-"]);
    assert_fails(&twice, 2, &["- is to be written twice"]);
    // No file is left behind or changed.
    let entries = fs::read_dir(folder.path()).unwrap();
    assert_eq!(entries.count(), 2);
    let kept = fs::read_to_string(folder.path().join("t.json")).unwrap();
    assert_eq!(kept, Job::default().ronde(0));
}

#[test]
fn a_full_disk_is_reported_without_temporary_names() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = ronde(folder.path());
    command
        .args(["timeline", "t.json", "--json", "-"])
        .stdout(full);
    assert_fails(
        &command.output().unwrap(),
        1,
        &["cannot write standard output", "No space left"],
    );
}

#[test]
fn a_pipe_is_read_but_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::default();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    // Refused before any reading: the pipe has no writer.
    let output = timeline(folder.path(), &["pipe", "--merge", "m.json"]);
    assert_fails(&output, 2, &["--merge reads its inputs twice", "pipe"]);
    let writer = std::thread::spawn(move || fs::write(pipe, job.ronde(0)).unwrap());
    assert!(stdout(&timeline(folder.path(), &["pipe"])).contains("12 steps"));
    writer.join().unwrap();
}

#[test]
fn a_file_that_may_not_be_written_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    let kept = folder.path().join("kept.json");
    fs::write(&kept, "kept").unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o444)).unwrap();
    // Root may write to the file, and a folder is no file for anybody.
    let is_root = fs::OpenOptions::new().append(true).open(&kept).is_ok();
    let refused = if is_root { "folder" } else { "kept.json" };
    fs::create_dir(folder.path().join("folder")).unwrap();
    assert_fails(
        &timeline(folder.path(), &["t.json", "--json", refused]),
        1,
        &[refused],
    );
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
}

#[test]
fn outputs_that_need_events_are_refused_for_a_report() {
    let folder = tempfile::tempdir().unwrap();
    Job::default().record(folder.path());
    stdout(&timeline(folder.path(), &["t.json", "--json", "r.json"]));
    let output = timeline(folder.path(), &["r.json", "--merge", "m.json"]);
    assert_fails(&output, 2, &["the timelines themselves"]);
    stdout(&timeline(folder.path(), &["r.json", "--profile", "p.json"]));
}

#[test]
fn a_profile_of_tensors_without_sizes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ", \"args\": {\"dtype\": \"float32\", \"shape\": \"[250000]\"}";
    let sizeless = Job::default().ronde(0).replace(sizes, "");
    fs::write(folder.path().join("t.json"), sizeless).unwrap();
    let output = timeline(folder.path(), &["t.json", "--profile", "p.json"]);
    assert_fails(
        &output,
        1,
        &["no profile", "`grad.0`", "type is not in the file"],
    );
    // The report was printed before the error.
    assert!(!output.stdout.is_empty());
    assert!(!folder.path().join("p.json").exists());
}
