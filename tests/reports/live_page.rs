//! Tests of the live page of a running job: events over HTTP, controls, and invalid settings.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ronde::{Context, ReduceOp};
use serde_json::Value;

use crate::support::program::until;
use crate::support::{Folder, Outcome, free_port, job_separately, start_separately};
use crate::watched::{invalid_settings_are_refused, lose_a_rank, token_file};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Time in which an event must arrive.
const PATIENCE: Duration = Duration::from_secs(120);

/// An open page: the updates that it has got so far.
struct Page {
    updates: Arc<Mutex<Vec<Value>>>,
    thread: JoinHandle<()>,
}

fn connect(method: &str, path: &str, body: &str) -> TcpStream {
    let port = std::env::var("RONDE_DASH").expect("set by the test");
    let address = format!("127.0.0.1:{port}");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    let length = body.len();
    let request = format!(
        "{method} /{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

impl Page {
    fn open() -> Self {
        let stream = BufReader::new(connect("GET", "events", ""));
        let updates = Arc::<Mutex<Vec<Value>>>::default();
        let thread = std::thread::spawn({
            let updates = Arc::clone(&updates);
            move || {
                for line in stream.lines().map_while(Result::ok) {
                    if let Some(data) = line.strip_prefix("data: ") {
                        let update = serde_json::from_str(data).expect("JSON");
                        updates.lock().unwrap().push(update);
                    }
                }
            }
        });
        Self { updates, thread }
    }

    /// Entries of a list, or values, of all updates so far.
    fn all(&self, name: &str) -> Vec<Value> {
        let updates = self.updates.lock().unwrap();
        let found = updates.iter().filter_map(|update| update.get(name));
        let rows = |value: &Value| match value.get("rows").and_then(Value::as_array) {
            Some(rows) if name != "ranks" => rows.clone(),
            _ => vec![value.clone()],
        };
        found.flat_map(rows).collect()
    }

    /// Waits until there are `count` of them; returns all.
    fn wait_for_count(&self, name: &str, count: usize) -> Vec<Value> {
        until(|| Some(self.all(name)).filter(|all| all.len() >= count))
    }

    /// Waits until one of them is `wanted`.
    fn wait(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let all = self.all(name);
            if let Some(found) = all.iter().find(|value| wanted(value)) {
                return found.clone();
            }
            assert!(began.elapsed() < PATIENCE, "{name}: {all:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self, kind: &str, text: &str) -> Value {
        self.wait("log", |entry| {
            entry["kind"] == kind && entry["text"].as_str().unwrap().contains(text)
        })
    }
}

/// Gives a command; returns the status and the text of the answer.
fn control(body: &str) -> (u16, String) {
    let mut answer = String::new();
    let mut stream = connect("POST", "control", body);
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    let (_, text) = answer.split_once("\r\n\r\n").expect("a head");
    (status.expect("a status"), text.trim().to_owned())
}

/// Trains for some steps of three tensors, with a slow rank 1.
fn train(context: &Context, steps: usize) {
    for _ in 0..steps {
        if context.rank() == 1 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let submit = |name| context.allreduce(name, vec![1.0f32; 1000], ReduceOp::Sum);
        for handle in ["a", "b", "c"].map(submit) {
            handle.expect("in").wait().expect("out");
        }
        context.mark_step();
    }
}

#[test]
fn a_page_shows_steps_ranks_and_the_end_of_each_job_of_the_process() {
    const STEPS: usize = 250; // two reports of the ranks' times, which come once a second
    const TEST: &str = "live_page::a_page_shows_steps_ranks_and_the_end_of_each_job_of_the_process";
    let folder = Folder::new();
    let (address, token) = (free_port().to_string(), token_file(&folder, TOKEN, 0o600));
    let env = [
        ("RONDE_DASH", &address[..]),
        ("RONDE_DASH_TOKEN_FILE", &token[..]),
        ("HOROVOD_CYCLE_TIME", "0.5"),
    ];
    let outcomes = job_separately(TEST, 2, &env, || {
        let context = Context::from_env().expect("the job starts");
        if context.rank() != 0 {
            train(&context, STEPS);
            drop(context);
            train(&Context::from_env().expect("the next job starts"), 3);
            return;
        }
        let page = Page::open();
        train(&context, STEPS);
        let job = page.wait("job", |_| true);
        assert_eq!((&job["ranks"], &job["hosts"]), (&2.into(), &1.into()));
        // First step, number of steps, three times its time, settings, …
        // A server that gets little time combines steps, so no row has to begin at step 100.
        let number = |value: &Value| value.as_u64().expect("a number");
        let step = page.wait("steps", |row| number(&row[0]) + number(&row[1]) > 100);
        // A step after one that ended late is short.
        let step_ms = step[2].as_f64().expect("a number");
        assert!(step_ms > 0.0 && step_ms < 8000.0, "{step}");
        assert_eq!(step[6], 0.5, "{step}");
        // Rank 1 is late in most steps, but not in those at which rank 0 has just got no time.
        page.wait("ranks", |ranks| {
            let of = |index: usize, name: &str| ranks["rows"][index][name].as_f64().expect("known");
            assert!(of(0, "transfer_ms") >= 0.0);
            ranks["rows"][0]["rank"] == 1
                && of(0, "late_ms") > 4.0
                && of(1, "late_ms") < of(0, "late_ms")
                && of(1, "wait_ms") > of(0, "wait_ms")
        });
        let (status, refused) = control(r#"{"command":"set","cycle_ms":1}"#);
        assert_eq!(status, 403, "the controls are off: {refused}");
        drop(context);
        // Sent by now, and read soon.
        let end = page.wait_for_count("end", 1);
        assert_eq!(end.len(), 1);
        assert_eq!(end[0]["failed"], false, "{end:?}");
        // Another context of the process uses the same page.
        train(&Context::from_env().expect("the next job starts"), 3);
        page.wait("jobs", |jobs| *jobs == 2);
        assert_eq!(page.wait_for_count("end", 2).len(), 2);
        assert!(!page.thread.is_finished(), "it is still connected");
    });
    if outcomes.is_empty() {
        return; // skipped
    }
    let url = format!("http://127.0.0.1:{address}/");
    let shown = |outcome: &Outcome| outcome.output.matches(&url).count();
    assert_eq!(outcomes.iter().map(shown).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn controls_stop_tuning_change_settings_and_record_timelines() {
    const TEST: &str = "live_page::controls_stop_tuning_change_settings_and_record_timelines";
    let folder = Folder::new();
    let (address, token) = (free_port().to_string(), token_file(&folder, TOKEN, 0o600));
    let timeline = folder.file("timeline.json");
    let env = [
        ("RONDE_DASH", &address[..]),
        ("RONDE_DASH_TOKEN_FILE", &token[..]),
        ("RONDE_DASH_CONTROL", "1"),
        ("HOROVOD_AUTOTUNE", "1"),
        ("TEST_FOLDER", folder.file("").to_str().expect("text")),
    ]
    .map(|(name, value)| (name, value.to_owned()));
    let env = env.each_ref().map(|(name, value)| (*name, &value[..]));
    let outcomes = job_separately(TEST, 2, &env, || {
        let folder = std::env::var("TEST_FOLDER").expect("set by the test");
        std::env::set_current_dir(folder).expect("it exists");
        let context = Context::from_env().expect("the job starts");
        let is_over = |is_over: bool| {
            let over = vec![f32::from(u8::from(is_over))];
            let sum = context.allreduce("over", over, ReduceOp::Sum);
            sum.expect("in").wait().expect("out")[0] > 0.0
        };
        if context.rank() != 0 {
            while !is_over(false) {
                train(&context, 5);
            }
            assert_eq!(context.settings().cycle_time_ns, 3_000_000);
            return;
        }
        let page = Page::open();
        std::thread::scope(|scope| {
            let user = scope.spawn(|| use_controls(&page));
            while !is_over(user.is_finished()) {
                train(&context, 5);
            }
            user.join().expect("it succeeds");
        });
        let settings = context.settings();
        assert_eq!(settings.fusion_threshold_bytes, 16 << 20);
        assert_eq!(settings.cycle_time_ns, 3_000_000);
    });
    if outcomes.is_empty() {
        return; // skipped
    }
    let text = std::fs::read_to_string(timeline).expect("it was recorded");
    assert!(text.contains("ALLREDUCE"), "{text}");
}

fn use_controls(page: &Page) {
    page.wait("tuner", |_| true);
    let surface = page.wait("surface", |surface| surface["is_model"] == true);
    let count = |name: &str| surface[name].as_array().unwrap().len();
    assert_eq!(count("cells"), count("fusion_mb") * count("cycle_ms"));
    assert!(count("cells") > 100 && count("tried") > 0, "{surface}");
    let set = r#"{"command":"set","fusion_mb":16,"cycle_ms":3}"#;
    let (status, why) = control(set);
    assert_eq!(
        (status, &why[..]),
        (409, "the tuner sets them (HOROVOD_AUTOTUNE=1)")
    );
    assert_eq!(control(r#"{"command":"stop_tuning"}"#).0, 200);
    page.log("tuner", "stopped on request");
    let tuner = page.wait("tuner", |tuner| tuner["is_over"] == true);
    assert_eq!(tuner["phase"], "stopped");
    assert_eq!(control(r#"{"command":"stop_tuning"}"#).0, 409);
    let (status, _) = control(set);
    assert_eq!(status, 200);
    let is_page = |change: &Value| change["why"] == "the page";
    let change = page.wait("changes", is_page);
    assert_eq!(change["settings"]["cycle_time_ns"], 3_000_000);
    let (status, why) = control(r#"{"command":"set","hierarchical_allreduce":true}"#);
    assert_eq!(status, 409);
    assert!(why.contains("all ranks are on one host"), "{why}");
    assert_eq!(control(r#"{"command":"stop_timeline"}"#).0, 409);
    let start = r#"{"command":"start_timeline","path":"timeline.json"}"#;
    assert_eq!(control(start).0, 200);
    page.log("timeline", "timeline started: timeline.json");
    assert_eq!(control(start).0, 409, "the file exists");
    let last =
        |row: &Value| row[0].as_u64().expect("a number") + row[1].as_u64().expect("a number");
    let before = page.all("steps").iter().map(last).max();
    page.wait("steps", |row| {
        before.is_none_or(|before| last(row) > before + 5)
    });
    assert_eq!(control(r#"{"command":"stop_timeline"}"#).0, 200);
    page.log("timeline", "timeline stopped");
    page.log("control", "start a timeline in timeline.json");
}

#[test]
fn a_lost_rank_ends_the_job_on_the_page() {
    const TEST: &str = "live_page::a_lost_rank_ends_the_job_on_the_page";
    let folder = Folder::new();
    let (address, token) = (free_port().to_string(), token_file(&folder, TOKEN, 0o600));
    let env = [
        ("RONDE_DASH", &address[..]),
        ("RONDE_DASH_TOKEN_FILE", &token[..]),
    ];
    let job = start_separately(TEST, 2, &env, || {
        let context = Context::from_env().expect("the job starts");
        let page = (context.rank() == 0).then(Page::open);
        train(&context, 3);
        let Some(page) = page else {
            std::process::abort();
        };
        lose_a_rank(context);
        let end = page.wait_for_count("end", 1);
        assert_eq!(end[0]["failed"], true, "{end:?}");
        page.log("lost_rank", "rank 1");
    });
    let Some(job) = job else { return };
    let outcomes = job.finish();
    assert!(outcomes[0].status.success(), "{}", outcomes[0].output);
}

#[test]
fn invalid_settings_are_errors_that_name_the_variable() {
    const TEST: &str = "live_page::invalid_settings_are_errors_that_name_the_variable";
    invalid_settings_are_refused(
        TEST,
        "RONDE_DASH",
        "RONDE_DASH_TOKEN_FILE",
        ("RONDE_DASH_TOKEN_FILE", "/no/such"),
    );
}
