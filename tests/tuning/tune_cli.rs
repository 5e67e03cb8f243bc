//! Tests of `ronde tune` as another program uses it: lines of JSON in, lines of JSON out.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};

/// Running service.
struct Tune {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ronde"));
    command.env_clear().arg("tune").args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Tune {
    fn start(arguments: &[&str]) -> Self {
        let mut child = command(arguments).spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn say_text(&mut self, line: &str) -> Value {
        writeln!(self.input, "{line}").unwrap();
        self.next().expect("an answer to each line")
    }

    fn say(&mut self, line: Value) -> Value {
        self.say_text(&line.to_string())
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Closes the input and returns the last answer and the output of the process.
    fn end(self) -> (Option<Value>, Output) {
        let Self {
            child,
            input,
            mut output,
        } = self;
        drop(input);
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let last = (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap());
        let mut rest = String::new();
        assert_eq!(
            output.read_line(&mut rest).unwrap(),
            0,
            "one last line: {rest}"
        );
        (last, child.wait_with_output().unwrap())
    }
}

/// Runs the service with this input.
fn run(input: &str, arguments: &[&str]) -> (Vec<Value>, Output) {
    let mut child = command(arguments).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
        output,
    )
}

fn space() -> Value {
    json!({
        "parameters": [
            {"name": "bucket_cap_mb", "scale": "log", "low": 1, "high": 256, "levels": 9},
            {"name": "view", "scale": "boolean"},
        ],
        "start": {"bucket_cap_mb": 25, "view": false},
    })
}

/// Step time in ms: shortest at 4 MiB with views; the noise is a fixed pattern of about 2 %.
fn step_ms(setting: &Value, step: u64) -> f64 {
    let distance = (setting["bucket_cap_mb"].as_f64().unwrap() / 4.0).ln();
    let view = if setting["view"].as_bool().unwrap() {
        0.0
    } else {
        4.0
    };
    let noise = ((step * 7919) % 101) as f64 / 101.0 - 0.5;
    (40.0 + 3.0 * distance * distance + view) * (1.0 + 0.04 * noise)
}

/// Reports steps until the search is over; returns the verdict and the number of steps.
fn train(tune: &mut Tune, mut setting: Value) -> (Value, u64) {
    for step in 0..1000 {
        let answer = tune.say(json!({"step_ms": step_ms(&setting, step)}));
        match answer["action"].as_str() {
            Some("keep") => {}
            Some("switch") => setting = answer["setting"].clone(),
            Some("finished") => return (answer["verdict"].clone(), step + 1),
            _ => panic!("{answer}"),
        }
    }
    panic!("no verdict after 1000 steps");
}

#[test]
fn steps_are_answered_until_the_winner_is_confirmed() {
    let mut tune = Tune::start(&[]);
    let ready = tune.say(space());
    assert_eq!(ready["ready"]["settings"], 20, "{ready}");
    assert_eq!(
        ready["ready"]["setting"],
        json!({"bucket_cap_mb": 25.0, "view": false})
    );
    let (verdict, steps) = train(&mut tune, ready["ready"]["setting"].clone());
    let cap = verdict["setting"]["bucket_cap_mb"].as_f64().unwrap();
    assert!(
        (1.9..8.1).contains(&cap) && verdict["setting"]["view"] == true,
        "{verdict}"
    );
    assert!(verdict["kept_default"] == false && verdict["gain_pct"][0].as_f64().unwrap() > 10.0);
    assert_eq!(verdict["steps_active"], steps);
    assert_eq!(
        tune.say(json!({"step_ms": 40.0})),
        json!({"action": "keep"}),
        "after the verdict"
    );
    let (last, output) = tune.end();
    assert_eq!(last.unwrap()["verdict"], verdict);
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn settings_are_asked_for_and_told_of() {
    let mut tune = Tune::start(&[]);
    tune.say(space());
    let mut best = None;
    for step in 0..60 {
        let answer = tune.say(json!({"ask": {}}));
        if let Some(stop) = answer.get("stop") {
            best = Some(stop.clone());
            break;
        }
        let setting = answer["sample"]["setting"].clone();
        let value = step_ms(&setting, step);
        if let Some(predicted) = answer["sample"]["predicted"].as_array() {
            let [center, low, high] = [0, 1, 2].map(|i| predicted[i].as_f64().unwrap());
            assert!(low <= center && center <= high, "{answer}");
        }
        let told = tune.say(json!({"tell": {"setting": setting, "value": value, "spread": 1.0}}));
        assert!(told["told"]["settings"].as_u64().unwrap() > 0, "{told}");
    }
    let best = best.expect("a stop within 60 samples");
    assert!(
        (1.9..8.1).contains(&best["setting"]["bucket_cap_mb"].as_f64().unwrap()),
        "{best}"
    );
    assert_eq!(best["setting"]["view"], true);
    let report = tune.say(json!({"report": {}}));
    assert_eq!(
        report["report"], best,
        "a report is what a stop says, and changes nothing"
    );
    let (last, output) = tune.end();
    assert_eq!(last.unwrap(), report);
    assert!(output.status.success());
}

#[test]
fn a_bad_line_is_answered_and_changes_nothing() {
    let mut tune = Tune::start(&[]);
    let error = |answer: Value, line: u64, message: &str, hint: &str| {
        let error = &answer["error"];
        assert_eq!(error["line"], line, "{answer}");
        assert!(
            error["message"].as_str().unwrap().contains(message),
            "{answer}"
        );
        assert!(error["try"].as_str().unwrap().contains(hint), "{answer}");
    };
    error(
        tune.say(json!({"step_ms": 3})),
        1,
        "unknown field `step_ms`",
        "docs/TUNE.md",
    );
    let reversed = json!({"parameters": [{"name": "x", "scale": "log", "low": 9, "high": 1}], "start": {"x": 3}});
    error(tune.say(reversed), 2, "9..1 are reversed", "swap them");
    assert!(
        tune.say(space())["ready"].is_object(),
        "the first line can be sent again"
    );
    error(
        tune.say(json!({"report": {}})),
        4,
        "not been measured yet",
        "ask, and tell",
    );
    error(
        tune.say_text("{"),
        5,
        "EOF while parsing",
        "one JSON object on a line",
    );
    error(
        tune.say(json!({"step_ms": 0})),
        6,
        "step_ms cannot be 0",
        "leave out",
    );
    error(
        tune.say_text(r#"{"step_ms": NaN}"#),
        7,
        "expected value",
        "one JSON object",
    );
    error(
        tune.say(json!({"tel": {}})),
        8,
        "unknown variant `tel`, expected one of `step_ms`",
        "docs/TUNE.md",
    );
    error(
        tune.say(space()),
        9,
        "a request has one name",
        "write one of",
    );
    let unknown = json!({"tell": {"setting": {"bucket": 3, "view": true}, "value": 3}});
    error(
        tune.say(unknown),
        10,
        "no parameter \"bucket\"",
        "bucket_cap_mb, view",
    );
    for (line, value) in [(11, json!(0)), (12, json!(-2.5))] {
        let tell =
            json!({"tell": {"setting": {"bucket_cap_mb": 25, "view": false}, "value": value}});
        error(tune.say(tell), line, "value = ", "");
    }
    // Two equal measurements: constant values are valid.
    for _ in 0..2 {
        let tell =
            json!({"tell": {"setting": {"bucket_cap_mb": 25, "view": false}, "value": 41.0}});
        assert_eq!(tune.say(tell), json!({"told": {"settings": 1}}));
    }
    let report = tune.say(json!({"report": {}}));
    assert_eq!(report["report"]["gain_pct"], json!([0.0, 0.0]), "{report}");
    // Valid requests have decided the form.
    error(
        tune.say(json!({"step_ms": 3})),
        16,
        "uses ask and tell",
        "another ronde tune",
    );
    let (_, output) = tune.end();
    assert!(output.status.success());
}

/// A measurement outside of the bounds must not become the best setting.
#[test]
fn settings_outside_of_the_bounds_are_never_reported() {
    let within = |answer: &Value| {
        let cap = answer["setting"]["bucket_cap_mb"].as_f64().unwrap();
        assert!((1.0..=256.0).contains(&cap), "{answer}");
    };
    let tell = |cap: f64, value: f64| json!({"tell": {"setting": {"bucket_cap_mb": cap, "view": false}, "value": value}});
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let state = state.to_str().unwrap();

    // With wider bounds, 512 is measured as the fastest.
    let mut wider = space();
    wider["parameters"][0]["high"] = json!(1024);
    let mut tune = Tune::start(&["--state", state]);
    tune.say(wider);
    for (cap, value) in [(25.0, 40.0), (512.0, 5.0), (64.0, 30.0)] {
        assert!(tune.say(tell(cap, value))["told"].is_object());
    }
    assert_eq!(
        tune.say(json!({"report": {}}))["report"]["setting"]["bucket_cap_mb"],
        512.0
    );
    assert!(tune.end().1.status.success());

    let mut tune = Tune::start(&["--state", state]);
    let ready = tune.say(space());
    let warnings = ready["ready"]["warnings"].to_string();
    assert!(
        warnings.contains("1 of 3 measurements are outside of the bounds"),
        "{ready}"
    );
    within(&ready["ready"]);
    within(&tune.say(json!({"report": {}}))["report"]);
    let refused = tune.say(tell(512.0, 5.0));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("cannot be 512: its bounds are 1 to 256"),
        "{refused}"
    );
    assert!(tune.say(tell(64.0, 30.0))["told"].is_object());
    let (last, output) = tune.end();
    within(&last.unwrap()["report"]);
    assert!(output.status.success());

    let mut outside = space();
    outside["start"]["bucket_cap_mb"] = json!(0.5);
    let mut tune = Tune::start(&[]);
    let refused = tune.say(outside);
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("0.5"),
        "{refused}"
    );
}

#[test]
fn with_every_parameter_fixed_there_is_nothing_to_ask_for() {
    let fixed = json!({
        "parameters": [{"name": "x", "scale": "integer", "low": 3, "high": 3}, {"name": "b", "scale": "boolean", "fixed": true}],
        "start": {},
    });
    let input = format!(
        "{fixed}\n\n{}\n{}\n",
        json!({"tell": {"setting": {}, "value": 5}}),
        json!({"ask": {}})
    );
    let (answers, output) = run(&input, &[]);
    assert_eq!(
        answers[0]["ready"],
        json!({"settings": 1, "setting": {"x": 3, "b": true}})
    );
    assert_eq!(answers[2]["stop"]["setting"], json!({"x": 3, "b": true}));
    assert!(output.status.success());
}

#[test]
fn equal_input_gives_equal_output_and_the_space_may_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("space.json");
    std::fs::write(&file, serde_json::to_string_pretty(&space()).unwrap()).unwrap();
    let arguments = ["--space", file.to_str().unwrap()];
    let steps: String = (0..40)
        .map(|i| format!("{{\"step_ms\":{}}}\n", 40 + i % 3))
        .collect();
    let (answers, _) = run(&steps, &arguments);
    assert_eq!(answers.len(), 41, "each line and a verdict at the end");
    assert_eq!(run(&steps, &arguments).0, answers);
    let with_line = run(&format!("{}\n{steps}", space()), &[]).0;
    assert_eq!(with_line[1..], answers);
}

#[test]
fn a_second_run_begins_where_the_first_one_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let arguments = ["--state", file.to_str().unwrap()];
    let keyed = |model: &str, ranks: &str| {
        let mut space = space();
        space["key"] = json!({"model": model, "ranks": ranks});
        space
    };
    let begin = |line: Value| {
        let mut tune = Tune::start(&arguments);
        let ready = tune.say(line)["ready"].clone();
        (tune, ready)
    };
    let (mut first, ready) = begin(keyed("m", "2"));
    let (verdict, steps) = train(&mut first, ready["setting"].clone());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("\"ranks\": \"2\"") && text.contains("gain_pct"),
        "written with the verdict: {text}"
    );
    first.end();

    let (mut second, ready) = begin(keyed("m", "2"));
    assert_eq!(ready["setting"], verdict["setting"], "{ready}");
    let (again, confirmed) = train(&mut second, ready["setting"].clone());
    assert_eq!(again["setting"], verdict["setting"]);
    assert!(confirmed <= 75 && confirmed < steps, "{confirmed} {steps}");
    second.end();

    // A space in a file has no answer that names the setting: that to the first step does.
    let space = folder.path().join("space.json");
    std::fs::write(&space, keyed("m", "2").to_string()).unwrap();
    let with_file = [&arguments[..], &["--space", space.to_str().unwrap()]].concat();
    let mut told = Tune::start(&with_file);
    let answer = told.say(json!({"step_ms": 50}));
    assert_eq!(
        answer,
        json!({"action": "switch", "setting": verdict["setting"]})
    );
    let (again, confirmed) = train(&mut told, answer["setting"].clone());
    assert_eq!(again["setting"], verdict["setting"]);
    assert!(confirmed <= 75 && confirmed < steps, "{confirmed} {steps}");
    told.end();

    let before = std::fs::read_to_string(&file).unwrap();
    let (mut other, ready) = begin(keyed("another", "2"));
    assert!(
        ready["warnings"][0]
            .as_str()
            .unwrap()
            .contains("of another job"),
        "{ready}"
    );
    train(&mut other, ready["setting"].clone());
    other.end();
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        before,
        "another job's state is left alone"
    );
}

#[test]
fn what_was_told_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.json");
    let arguments = ["--state", file.to_str().unwrap()];
    let tell = |cap: u32, value: f64| json!({"tell": {"setting": {"bucket_cap_mb": cap, "view": false}, "value": value, "spread": 0.5, "steps": 4}});
    let input = format!("{}\n{}\n{}\n", space(), tell(25, 40.0), tell(4, 36.0));
    let (answers, output) = run(&input, &arguments);
    assert!(output.status.success(), "{output:?}");
    let (again, _) = run(
        &format!(
            "{}\n{}\n{}\n",
            space(),
            tell(8, 50.0),
            json!({"report": {}})
        ),
        &arguments,
    );
    assert_eq!(again[1], json!({"told": {"settings": 3}}));
    assert_eq!(
        again[2]["report"]["setting"],
        answers[3]["report"]["setting"]
    );
    assert_eq!(again[2]["report"]["setting"]["bucket_cap_mb"], 4.0);

    // A file that is not a state file is not overwritten.
    std::fs::write(&file, "my thesis").unwrap();
    let (answers, output) = run(&input, &arguments);
    assert!(
        answers[0]["ready"]["warnings"][0]
            .as_str()
            .unwrap()
            .contains("neither used nor written"),
        "{answers:?}"
    );
    assert!(output.status.success());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "my thesis");
}

#[test]
fn a_change_of_the_step_time_is_noticed_and_tuned_for() {
    let mut tune = Tune::start(&[]);
    let ready = tune.say(space());
    let (verdict, steps) = train(&mut tune, ready["ready"]["setting"].clone());
    let mut setting = verdict["setting"].clone();
    let mut drifted = None;
    for step in steps..2000 {
        let factor = if step > steps + 100 { 1.6 } else { 1.0 };
        let answer = tune.say(json!({"step_ms": factor * step_ms(&setting, step)}));
        match answer["action"].as_str() {
            Some("drifted") => {
                assert!(
                    answer["after_ms"].as_f64() > answer["before_ms"].as_f64(),
                    "{answer}"
                );
                drifted = Some(step);
            }
            Some("switch") => setting = answer["setting"].clone(),
            Some("finished") => break,
            _ => {}
        }
    }
    let drifted = drifted.expect("a change of 60 % is noticed");
    assert!(
        (steps + 101..steps + 140).contains(&drifted),
        "{drifted} {steps}"
    );
    assert!(tune.end().0.unwrap()["verdict"].is_object());
}

#[test]
fn failures_have_a_code_and_a_message() {
    let fails = |input: &str, arguments: &[&str], part: &str| {
        let (_, output) = run(input, arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.starts_with("ronde: tune: ") && text.contains(part),
            "{text}"
        );
    };
    fails("", &[], "before a line gave the parameters");
    fails("nonsense\n", &[], "before a line gave the parameters");
    fails(
        "",
        &["--space", "/nonexistent/space.json"],
        "cannot read /nonexistent/space.json: No such file",
    );
    let state = ["--state", "/nonexistent/state.json"];
    let tell = json!({"tell": {"setting": {"bucket_cap_mb": 25, "view": false}, "value": 3}});
    fails(
        &format!("{}\n{tell}\n", space()),
        &state,
        "/nonexistent/state.json: No such file",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("space.json");
    std::fs::write(&file, "{\n \"parameters\": 3}").unwrap();
    fails("", &["--space", file.to_str().unwrap()], "line 2");
}

/// The first conversation in the documentation, up to its first dots, matches the real answers.
#[test]
fn the_documentation_shows_what_happens() {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TUNE.md"))
            .unwrap();
    let blocks = text.split("```");
    let block = { blocks }.find(|block| block.starts_with("\n> ")).unwrap();
    let mut tune = Tune::start(&[]);
    let mut answer = Value::Null;
    for line in block.lines().take_while(|line| !line.contains('…')) {
        if let Some(request) = line.strip_prefix("> ") {
            answer = tune.say_text(request);
        } else if let Some(expected) = line.strip_prefix("< ") {
            assert_eq!(answer, serde_json::from_str::<Value>(expected).unwrap());
        }
    }
    assert_eq!(answer, json!({"action": "keep"}));
}
