use super::*;
use crate::Plan;

/// Longer than anything here takes on a busy machine, and shorter than the commands that hang.
const PATIENCE: Duration = Duration::from_secs(120);

struct Unwatched;

impl Watch for Unwatched {
    fn group(&mut self, _: u32) {}
}

/// Runs a shell script once; `{x}` is 1.
fn run(script: &str, change: impl FnOnce(&mut Processes)) -> Result<Option<Outcome>, RunError> {
    run_within(&Limit::NONE, script, change)
}

fn run_within(
    limit: &Limit,
    script: &str,
    change: impl FnOnce(&mut Processes),
) -> Result<Option<Outcome>, RunError> {
    let template = Template {
        command: ["sh", "-c", script].map(Into::into).to_vec(),
        ..Template::default()
    };
    let parameters = vec!["x=1|2".parse().unwrap()];
    let folder = tempfile::tempdir().unwrap();
    let metric = Metric::Output(Pattern::new("--metric", r"ms=(\S+)").unwrap(), Use::Median);
    let start = Plan::new(parameters.clone(), 20).unwrap().start();
    let mut processes = Processes {
        template: &template,
        parameters: &parameters,
        metric: &metric,
        maximize: false,
        check: None,
        prepare: None,
        time_limit: None,
        show_output: false,
        logs: None,
        folder: folder.path(),
        is_interrupted: &|| false,
        watch: &|| Ok(Box::new(Unwatched)),
        number: 0,
        is_warmup: false,
        tail: VecDeque::new(),
    };
    change(&mut processes);
    processes.run(&start, limit)
}

/// A value for the rest of the tests.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Figure, or the reason why there is none.
fn figure(script: &str, change: impl FnOnce(&mut Processes)) -> String {
    match run(script, change) {
        Ok(Some(Outcome::Measured { value, check, .. })) => format!("{value:.3} {check:?}"),
        Ok(Some(Outcome::Failed { reason })) => reason,
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn figures_are_read_or_the_reason_says_why_not() {
    let plain = |script: &str| figure(script, |_| {});
    assert_eq!(plain("echo ms={x}; echo ms=9 >&2; echo ms=9"), "9.000 None");
    assert_eq!(
        plain("echo nothing"),
        r"its output has no match of the metric ms=(\S+)"
    );
    assert!(plain("echo ms=fast").contains(r#"matched "fast", which is not a number > 0"#));
    assert!(plain("echo ms=0").contains("not a number > 0"));
    assert_eq!(plain("echo ms=5; exit 3"), "it exited with code 3");
    assert_eq!(plain("kill -9 $$"), "signal 9 ended it");
    // A progress bar, and a line without an end.
    assert_eq!(plain(r"printf 'ms=1\rms=2\rms=3'"), "2.000 None");
    let check = kept(Pattern::new("--check", "loss=([0-9.]+)").unwrap());
    assert_eq!(
        figure("echo loss=1 ms=2; echo loss=0.5", |p| p.check = Some(check)),
        "2.000 Some(0.5)"
    );
    assert!(figure("echo ms=2", |p| p.check = Some(check)).contains("no number for the check"));
    assert_eq!(figure("echo ms=4", |p| p.maximize = true), "0.250 None");
    assert!(
        run("sleep 0.1", |p| p.metric = &Metric::Wall)
            .unwrap()
            .unwrap()
            .value()
            .unwrap()
            >= 0.1
    );
}

#[test]
fn figures_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    let metric = kept(Metric::File(path.clone(), "/a/0".to_owned()));
    let of = |text: &str| {
        figure(&format!("echo '{text}' > {}", path.display()), |p| {
            p.metric = metric
        })
    };
    assert_eq!(of(r#"{"a":[2.5]}"#), "2.500 None");
    assert!(of(r#"{"a":[]}"#).contains("has no /a/0"));
    assert!(of(r#"{"a":[-1]}"#).contains("not a number > 0"));
    assert!(of("{").contains("EOF"));
    // The file of the last run does not count, and stays.
    assert!(figure("true", |p| p.metric = metric).contains("it did not write"));
    std::fs::remove_file(&path).unwrap();
    assert!(figure("true", |p| p.metric = metric).contains("it wrote no"));
}

#[test]
fn a_hang_is_ended_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    // One process ignores SIGTERM's default in its group, one has a session of its own.
    let script = format!(
        "sleep 600 & echo $! >> {0}; setsid sleep 600 & echo $! >> {0}; wait",
        pids.display()
    );
    let began = Instant::now();
    // In which the script starts both, on a busy machine too.
    let outcome = figure(&script, |p| p.time_limit = Some(Duration::from_secs(10)));
    assert_eq!(outcome, "it ran longer than the time limit of 10 s");
    assert!(began.elapsed() < PATIENCE);
    let pids = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(pids.lines().count(), 2);
    for pid in pids.lines() {
        // A process that was killed ends when it gets some time.
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let has_ended = |stat: String| stat.is_empty() || stat.contains(") Z ");
        while !has_ended(stat()) {
            assert!(began.elapsed() < PATIENCE, "{}", stat());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_hang_ends_with_the_budget() {
    let began = Instant::now();
    let limit = Limit::NONE.within(Some(1.0));
    let reason = |script: &str, change: &dyn Fn(&mut Processes)| {
        let outcome = run_within(&limit, script, |p| change(p));
        let Ok(Some(Outcome::Failed { reason })) = outcome else {
            panic!("{outcome:?}");
        };
        reason
    };
    let of_run = reason("sleep 600", &|_| {});
    assert!(
        of_run.starts_with("it was ended after ") && of_run.ends_with("--budget was used up"),
        "{of_run}"
    );
    let of_preparation = reason("echo ms=1", &|p| p.prepare = Some("sleep 600"));
    assert!(
        of_preparation.starts_with("--prepare was ended after "),
        "{of_preparation}"
    );
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn what_the_command_leaves_does_not_delay_or_disturb() {
    let began = Instant::now();
    let time_s = || {
        let outcome = run("sleep 600 & sleep 0.1", |p| p.metric = &Metric::Wall);
        outcome.unwrap().unwrap().value().unwrap()
    };
    // The wait for its output, of a second, is no part. A busy machine may add as much, once.
    let times_s = [time_s(), time_s(), time_s()];
    assert!(
        times_s.iter().all(|&time_s| time_s >= 0.1) && times_s.iter().any(|&time_s| time_s < 1.0),
        "{times_s:?}"
    );
    assert_eq!(figure("sleep 600 & echo ms=1", |_| {}), "1.000 None");
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn a_user_interrupts_a_run() {
    let outcome = run("sleep 600", |p| p.is_interrupted = &|| true).unwrap();
    assert_eq!(outcome, None);
    let prepare = |p: &mut Processes| {
        p.prepare = Some("sleep 600");
        p.is_interrupted = &|| true;
    };
    let began = Instant::now();
    assert_eq!(run("echo ms=1", prepare).unwrap(), None);
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn a_preparation_leaves_a_process_for_the_runs() {
    let began = Instant::now();
    // The run ends the process, so it must be there.
    let figure = figure("kill $(cat $PIDS) && echo ms=1", |p| {
        let pids = p.folder.join("pids");
        p.prepare = Some(kept(format!("sleep 600 & echo $! > {}", pids.display())));
        p.template = kept(Template {
            variables: vec![("PIDS".to_owned(), pids.display().to_string())],
            ..p.template.clone()
        });
    });
    assert_eq!(figure, "1.000 None");
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn a_program_that_is_missing_and_a_preparation_that_fails_are_errors() {
    let missing = Template {
        command: vec!["/no/such/program".into()],
        ..Template::default()
    };
    let error =
        |change: &dyn Fn(&mut Processes)| run("echo ms=1", |p| change(p)).unwrap_err().to_string();
    assert!(run("", |p| p.prepare = Some("true")).is_ok());
    assert!(error(&|p| p.prepare = Some("echo why >&2; exit 2")).contains("exit status: 2) why"));
    let hang = error(&|p| {
        p.prepare = Some("sleep 600");
        p.time_limit = Some(Duration::from_secs(1));
    });
    assert_eq!(
        hang,
        "--prepare sleep 600: it ran longer than the time limit of 1 s"
    );
    let template = kept(missing);
    assert!(error(&|p| p.template = template).contains("cannot run /no/such/program"));
}
