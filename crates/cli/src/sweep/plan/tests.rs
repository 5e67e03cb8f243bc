//! Tests of plans: from arguments, written and read, and compared with other arguments.

use clap::Parser;

use super::given::CYCLE_MS_DEFAULT;
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

#[test]
fn a_bare_sweep_has_a_grid() {
    let design = plan("").design;
    assert_eq!((design.np, design.repeats, design.confirm), (vec![2], 3, 6));
    assert_eq!(design.fusion_threshold_bytes.len(), 6);
    assert_eq!(design.cycle_time_ms, CYCLE_MS_DEFAULT);
    assert_eq!(design.cache, [true]);
}

#[test]
fn settings_that_are_not_swept_keep_the_default() {
    let design = plan("--fusion-mb 0,0.5 --repeats 1").design;
    assert_eq!(design.fusion_threshold_bytes, [0, 1 << 19]);
    assert_eq!(design.cycle_time_ms, [1.0]);
    assert_eq!(design.confirm, 0, "one repeat is for a quick look");
    let plan = plan("--cache on,off --num-proc 4,2,4");
    assert_eq!(plan.design.np, [2, 4]);
    assert_eq!(plan.design.cache, [true, false]);
    // For each number of ranks: the default, and the default without the cache.
    assert_eq!(plan.points.len(), 4);
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
    for (from, to, what) in [
        ("\"ronde_sweep\":1", "\"ronde_sweep\":2", "version is 2"),
        ("\"np\":[2]", "\"np\":[]", "lists must have values"),
        ("\"repeats\":3", "\"repeats\":0", "counts must be above 0"),
        (
            "\"cycle_time_ms\":[1.0]",
            "\"cycle_time_ms\":[-1.0]",
            "its design is invalid",
        ),
        (
            "\"cycle_time_ms\":[1.0]",
            "\"cycle_time_ms\":[2.0]",
            "points do not follow",
        ),
        ("\"np\":[2]", "\"np\":[99999]", "out of range"),
        ("\"seed\"", "\"sed\"", "seed"),
    ] {
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text, "{from}");
        let message = Plan::read(&edited).unwrap_err().to_string();
        assert!(message.contains(what), "{to}: {message}");
    }
    assert!(Plan::read("").is_err());
}

#[test]
fn arguments_that_differ_are_named() {
    let plan = plan("--model vgg16 -n 2 --fusion-mb 1,4 --compute-ms 40 --link 1000,2.5 --seed 3");
    let differences = |text| plan.differences(&args(text)).unwrap();
    assert!(differences("--resume").is_empty());
    assert!(
        differences("--model vgg16 -n 2 --fusion-mb 4,1 --link 1000,2.5 --repeats 3 --resume")
            .is_empty()
    );
    let given = "--model resnet50 -n 2,4 --fusion-mb 1 --cycle-ms 5 --compute-ms 20 --link 10,1 --steps 9 --seed 4 --verify 2 --replay t";
    let expected = [
        "--verify is not given there and 2 here",
        "--model is vgg16 there and resnet50 here",
        "--compute-ms is 40 there and 20 here",
        "-np is 2 there and 2,4 here",
        "--fusion-mb is 1,4 there and 1 here",
        "--cycle-ms is 1 there and 5 here",
        "--steps is 20 there and 9 here",
        "--seed is 3 there and 4 here",
        "RONDE_LINK is 1000,2.5 there and 10,1 here",
    ];
    let found = differences(given);
    assert!(
        found[0].starts_with("--replay is not given there and /"),
        "{found:?}"
    );
    assert_eq!(found[1..], expected);
}

#[test]
fn invalid_sweeps_are_refused() {
    let workload = models::workload("many-small").unwrap();
    let refused = |text| Plan::new(&args(text), &workload).unwrap_err();
    assert!(matches!(refused("--autotune"), Error::Autotune));
    assert!(matches!(refused("--slow-rank 2,5"), Error::Load(_)));
    let many = refused("--fusion-mb 0.001..1000:64 --cycle-ms 0.001..1000:64 -n 1,2,4");
    assert!(
        many.to_string().contains("12288 points are too many"),
        "{many}"
    );
}

#[test]
fn hierarchical_operations_take_several_hosts() {
    let workload = models::workload("many-small").unwrap();
    let plan = |text: &str| Plan::new(&args(text), &workload);
    for here in ["", "-n 2 -H localhost:2"] {
        let flat = plan(&format!("{here} --hierarchical-allreduce on,off")).unwrap_err();
        assert_eq!(
            flat.to_string(),
            "--hierarchical-allreduce on: all ranks are on one host, so no operation can be hierarchical; name several hosts, as in \
             -np 4 -H node1:2,node2:2, or omit it"
        );
        assert_eq!(
            plan(&format!("{here} --hierarchical-allreduce off"))
                .unwrap()
                .design
                .hierarchical_allreduce,
            [false]
        );
    }
    let several = plan("-n 4 -H node1:2,node2:2 --hierarchical-allreduce on,off").unwrap();
    // The default fusion threshold and cycle time: the default point, and the hierarchical one.
    assert_eq!(several.points.len(), 2);
    assert!(several.points[1].hierarchical_allreduce && several.points[0].is_default());
    assert!(
        several.job().contains("on node1:2,node2:2"),
        "{}",
        several.job()
    );
    let crowded = plan("-n 5 -H node1:2,node2:2").unwrap_err().to_string();
    assert!(
        crowded.contains("(5)") && crowded.contains("(4)"),
        "{crowded}"
    );
}

#[test]
fn arguments_without_effect_are_noted_once() {
    assert!(notes(&args("--fusion-mb 1,2")).is_empty());
    let notes = notes(&args(
        "--fusion-mb 1,2,1,1 --cycle-ms 5,5 -n 2,2 --cache on,on --hierarchical-allreduce off,off",
    ));
    assert_eq!(notes.len(), 5, "{notes:?}");
    assert!(
        notes[0].starts_with("--fusion-mb has 1 more than once"),
        "{notes:?}"
    );
    assert!(
        notes[4].starts_with("--hierarchical-allreduce has off more than once"),
        "{notes:?}"
    );
}
