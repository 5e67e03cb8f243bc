//! Tests of plans: from arguments, written and read, and compared with other arguments.

use clap::Parser;

use super::*;
use ronde_lab::bench::models;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn args(text: &str) -> Args {
    let words = ["sweep"].into_iter().chain(text.split_whitespace());
    Command::try_parse_from(words).unwrap().args
}

fn plan(text: &str) -> Plan {
    let args = args(text);
    let workload = models::workload(args.load.model.as_deref().unwrap_or("many-small")).unwrap();
    Plan::new(&args, &workload).unwrap()
}

/// Plan of a sweep with these arguments, or the error, and notes.
fn answer(text: &str) -> String {
    let args = args(text);
    let workload = models::workload("many-small").unwrap();
    let planned = match Plan::new(&args, &workload) {
        Err(error) => error.to_string(),
        Ok(plan) => {
            let mut design = serde_json::to_value(&plan.design).unwrap();
            design.as_object_mut().unwrap().remove("seed");
            format!("{}: {} points\n{design}", plan.job(), plan.points.len())
        }
    };
    let notes = notes(&args);
    let notes = notes.iter().map(|note| format!("\nnote: {note}"));
    planned + &notes.collect::<String>()
}

#[test]
fn arguments_give_a_plan_or_a_remedy() {
    ronde_cases::check("sweep_plans.txt", answer);
    assert!(matches!(
        Plan::new(&args("--autotune"), &models::workload("vgg16").unwrap()),
        Err(Error::Autotune)
    ));
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let plan = plan(
        "--model vgg16 --compute-ms 40 --link 1000,2.5 --slow-rank 1,5 --budget 10m --seed 18446744073709551615",
    );
    let text = serde_json::to_string_pretty(&plan).unwrap();
    assert_eq!(Plan::read(&text).unwrap(), plan);
    assert_eq!(plan.settings["RONDE_LINK"], "1000,2.5");
    assert_eq!(
        plan.job(),
        "vgg16, 40 ms of compute (sleep), rank 1 slower by 5 ms, link shaped to 1000 µs and 2.5 GB/s"
    );
}

#[test]
fn a_plan_that_was_edited_is_refused() {
    let text = serde_json::to_string(&plan("--fusion-mb 1 --cycle-ms 1")).unwrap();
    ronde_cases::check("sweep_edits.txt", |edit| {
        let (from, to) = edit.split_once(" => ").unwrap();
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text, "{from}");
        // Without the place, which depends on the length of the machine's name.
        let message = Plan::read(&edited).unwrap_err().to_string();
        message
            .split(" at line")
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    assert!(Plan::read("").is_err());
}

#[test]
fn arguments_that_differ_are_named() {
    let plan = plan("--model vgg16 -n 2 --fusion-mb 1,4 --compute-ms 40 --link 1000,2.5 --seed 3");
    let here = std::env::current_dir().unwrap().display().to_string();
    ronde_cases::check("sweep_differences.txt", |arguments| {
        let differences = plan.differences(&args(arguments)).unwrap();
        differences.join("\n").replace(&here, "HERE")
    });
}
