//! Tests of the metrics of a job: over HTTP in both formats, in a file, and invalid settings.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use ronde::{Context, ReduceOp};

use crate::support::program::until;
use crate::support::{Folder, free_port, job_separately, start_separately};
use crate::watched::{invalid_settings_are_refused, lose_a_rank, token_file};

/// Returns the answer to a request for `/metrics` on `port` of this host.
fn scrape(port: u16, headers: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: here\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    without_file(&answer)
}

/// The text without the label that names the file.
fn without_file(text: &str) -> String {
    let Some((_, rest)) = text.split_once("{file=\"") else {
        return text.to_owned();
    };
    let label = format!("file=\"{}\"", rest.split('"').next().unwrap_or_default());
    let text = text.replace(&format!("{{{label}}}"), "");
    text.replace(&format!("{label},"), "")
}

/// Returns the value of a series.
fn value(text: &str, series: &str) -> f64 {
    let lines = text.lines();
    let found = lines.filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let values: Vec<f64> = found
        .map(|value| value.parse().expect("a number"))
        .collect();
    assert_eq!(values.len(), 1, "{series} in {text}");
    values[0]
}

/// Returns the answer once it has the bytes of `steps` steps: the last ones are counted soon after
/// their results.
fn scrape_after(steps: usize) -> String {
    let wanted = (steps * 4000) as f64;
    until(|| {
        let text = scrape(port(), "Accept: */*\r\n");
        let bytes = value(&text, "ronde_bytes_total");
        assert!(bytes <= wanted, "{text}");
        (bytes == wanted).then_some(text)
    })
}

/// Time by which rank 1 is late, longer than a thread waits for a core.
const LATE: Duration = Duration::from_millis(50);

/// Trains for some steps of one tensor, with a slow rank 1; the caller marks steps if `marks`.
fn train(context: &Context, steps: usize, marks: bool) {
    for _ in 0..steps {
        if context.rank() == 1 {
            std::thread::sleep(LATE);
        }
        let handle = context.allreduce("gradients", vec![1.0f32; 1000], ReduceOp::Sum);
        handle.expect("in").wait().expect("out");
        if marks {
            context.mark_step();
        }
    }
}

fn port() -> u16 {
    let address = std::env::var("RONDE_METRICS_ADDR").expect("set by the test");
    address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .expect("a port")
}

#[test]
fn a_job_shows_its_steps_traffic_settings_and_the_slow_rank() {
    const TEST: &str = "metrics::a_job_shows_its_steps_traffic_settings_and_the_slow_rank";
    const STEPS: usize = 30;
    let folder = Folder::new();
    let file = folder.file("metrics.prom");
    let address = free_port().to_string();
    let env = [
        ("RONDE_METRICS_ADDR", &address[..]),
        ("RONDE_METRICS_FILE", file.to_str().expect("text")),
        ("HOROVOD_CYCLE_TIME", "2.5"),
    ];
    let outcomes = job_separately(TEST, 2, &env, || {
        let context = Context::from_env().expect("the job starts");
        train(&context, STEPS, true);
        if context.rank() == 0 {
            let text = scrape_after(STEPS);
            assert!(
                text.contains("Content-Type: text/plain; version=0.0.4"),
                "{text}"
            );
            // The first mark ends a step of unknown length; the last may not be reported yet.
            let steps = value(&text, "ronde_step_seconds_count");
            assert!((STEPS - 3..STEPS).contains(&(steps as usize)), "{text}");
            let mean = value(&text, "ronde_step_seconds_sum") / steps;
            let late_s = LATE.as_secs_f64();
            assert!((0.75 * late_s..2.0).contains(&mean), "{text}");
            assert_eq!(value(&text, "ronde_messages_total"), STEPS as f64);
            assert_eq!(value(&text, "ronde_cycle_time_seconds"), 0.0025);
            assert_eq!(
                value(&text, "ronde_fusion_threshold_bytes"),
                (128 << 20) as f64
            );
            assert_eq!(
                value(&text, "ronde_gpu_fusion_threshold_bytes"),
                (32 << 20) as f64
            );
            // Rank 0 waits for rank 1 in nearly the whole step, and is blocked meanwhile.
            let exposed = value(&text, "ronde_communication_exposed_seconds_total");
            assert!(exposed > 0.75 * late_s * STEPS as f64, "{text}");
            let slow = value(&text, "ronde_rank_wait_seconds_total{rank=\"1\"}");
            let fast = value(&text, "ronde_rank_wait_seconds_total{rank=\"0\"}");
            assert!(
                fast > 0.5 * late_s * STEPS as f64 && fast > 2.0 * slow,
                "{text}"
            );
            assert_eq!(value(&text, "ronde_tuner_state{state=\"off\"}"), 1.0);
            assert_eq!(value(&text, "ronde_peers_lost_total"), 0.0);
            assert_eq!(value(&text, "ronde_job_running"), 1.0);
            let age = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .expect("after 1970")
                .as_secs_f64()
                - value(&text, "ronde_last_step_timestamp_seconds");
            assert!((0.0..30.0).contains(&age), "{text}");
            let backend = "ronde_build_info{version=\"";
            assert!(
                text.contains(backend) && text.contains("ranks=\"2\"} 1"),
                "{text}"
            );

            let open = scrape(
                port(),
                "Accept: application/openmetrics-text;q=0.9,*/*;q=0.1\r\n",
            );
            assert!(
                open.contains("application/openmetrics-text; version=1.0.0"),
                "{open}"
            );
            assert!(
                open.ends_with("# EOF\n") && open.contains("# UNIT ronde_step_seconds seconds")
            );
        }
        context.barrier().expect("all are there");
        // Another context of the process continues the counters.
        drop(context);
        let context = Context::from_env().expect("the next job starts");
        train(&context, 2, true);
        if context.rank() == 0 {
            let text = scrape_after(STEPS + 2);
            assert_eq!(value(&text, "ronde_messages_total"), (STEPS + 2) as f64);
        }
        context.barrier().expect("all are there");
    });
    if outcomes.is_empty() {
        return; // skipped
    }
    let text = std::fs::read_to_string(&file).expect("written at the end");
    let series = format!("ronde_job_running{{file=\"{}\"}} 0", file.display());
    assert!(text.contains(&series), "{text}");
    let text = without_file(&text);
    assert_eq!(value(&text, "ronde_messages_total"), (STEPS + 2) as f64);
    assert_eq!(value(&text, "ronde_job_running"), 0.0);
    let others = std::fs::read_dir(file.parent().expect("a folder")).expect("it is there");
    assert_eq!(others.count(), 1, "no temporary file is left");
}

#[test]
fn steps_that_nobody_marks_are_found() {
    const TEST: &str = "metrics::steps_that_nobody_marks_are_found";
    let address = free_port().to_string();
    job_separately(TEST, 2, &[("RONDE_METRICS_ADDR", &address)], || {
        let context = Context::from_env().expect("the job starts");
        train(&context, 40, false);
        if context.rank() == 0 {
            let text = scrape(port(), "");
            assert!(value(&text, "ronde_step_seconds_count") > 20.0, "{text}");
        }
        context.barrier().expect("all are there");
    });
}

#[test]
fn a_lost_rank_is_counted_and_the_listener_outlives_the_job() {
    const TEST: &str = "metrics::a_lost_rank_is_counted_and_the_listener_outlives_the_job";
    let address = free_port().to_string();
    let job = start_separately(TEST, 2, &[("RONDE_METRICS_ADDR", &address)], || {
        let context = Context::from_env().expect("the job starts");
        train(&context, 3, false);
        if context.rank() == 1 {
            std::process::abort();
        }
        lose_a_rank(context);
        assert_eq!(value(&scrape(port(), ""), "ronde_peers_lost_total"), 1.0);
    });
    let Some(job) = job else { return };
    let outcomes = job.finish();
    assert!(outcomes[0].status.success(), "{}", outcomes[0].output);
}

#[test]
fn with_a_token_only_its_owner_reads() {
    const TEST: &str = "metrics::with_a_token_only_its_owner_reads";
    let folder = Folder::new();
    let token = token_file(&folder, "0123456789abcdef\n", 0o600);
    let address = free_port().to_string();
    let env = [
        ("RONDE_METRICS_ADDR", &address[..]),
        ("RONDE_METRICS_TOKEN_FILE", &token[..]),
    ];
    job_separately(TEST, 1, &env, || {
        let _context = Context::from_env().expect("the job starts");
        for header in ["", "Authorization: Bearer 0123456789abcdeX\r\n"] {
            let refused = scrape(port(), header);
            assert!(
                refused.starts_with("HTTP/1.1 401 Unauthorized"),
                "{refused}"
            );
            assert!(!refused.contains("ronde_"), "{refused}");
        }
        let read = scrape(port(), "Authorization: Bearer 0123456789abcdef\r\n");
        assert!(read.starts_with("HTTP/1.1 200 OK"), "{read}");
    });
}

#[test]
fn invalid_settings_are_errors_that_name_the_variable() {
    const TEST: &str = "metrics::invalid_settings_are_errors_that_name_the_variable";
    invalid_settings_are_refused(
        TEST,
        "RONDE_METRICS_ADDR",
        "RONDE_METRICS_TOKEN_FILE",
        ("RONDE_METRICS_FILE", "/no/such/folder/metrics.prom"),
    );
}

#[test]
fn after_a_reset_a_job_goes_on_without_what_it_cannot_open() {
    const TEST: &str = "metrics::after_a_reset_a_job_goes_on_without_what_it_cannot_open";
    for (variable, value) in [
        ("RONDE_METRICS_FILE", "/no/such/folder/metrics.prom"),
        ("RONDE_METRICS_ADDR", "192.0.2.1:9400"), // of no interface
        ("RONDE_DASH", "192.0.2.1:9400"),
        ("HOROVOD_TIMELINE", "/no/such/folder/timeline.json"),
        ("HOROVOD_AUTOTUNE_LOG", "/no/such/folder/autotune.csv"),
    ] {
        let env = [(variable, value), ("HOROVOD_AUTOTUNE", "1")];
        job_separately(TEST, 1, &env, || {
            Context::from_env().map(drop).expect_err("the first start");
            let context = Context::builder().resets(1).build().expect("a later one");
            context.barrier().expect("it runs");
        });
    }
}
