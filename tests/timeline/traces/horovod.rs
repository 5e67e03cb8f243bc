//! Test of Horovod's timeline of 4 ranks, truncated as real recordings are.

use super::*;

/// Result of a simple reader of the file.
struct Plain {
    events: u64,
    cycles: u64,
    tensors: u64,
    bars: BTreeMap<String, Bars>,
    /// Last rank of each negotiation of a tensor.
    last: HashMap<String, u64>,
    /// Ends of the training steps, microseconds: the latest end of the k-th allreduce of any
    /// tensor.
    step_ends_us: Vec<f64>,
}

fn plain(path: &Path) -> Plain {
    let text = std::fs::read_to_string(path).unwrap();
    let text = format!("{}]", text.trim_end().trim_end_matches(','));
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let mut plain = Plain {
        events: events.len() as u64,
        cycles: 0,
        tensors: 0,
        bars: BTreeMap::new(),
        last: HashMap::new(),
        step_ends_us: Vec::new(),
    };
    let mut open: HashMap<u64, Vec<(String, f64)>> = HashMap::new();
    let mut ticks: HashMap<u64, (f64, String)> = HashMap::new();
    let mut times: HashMap<u64, usize> = HashMap::new();
    for event in &events {
        let name = event["name"].as_str().unwrap_or_default();
        let (pid, at) = (event["pid"].as_u64(), event["ts"].as_f64());
        match event["ph"].as_str().unwrap() {
            "i" => plain.cycles += 1,
            "M" => plain.tensors += u64::from(name == "process_name"),
            "B" => open
                .entry(pid.unwrap())
                .or_default()
                .push((name.to_owned(), at.unwrap())),
            "X" => {
                ticks.insert(pid.unwrap(), (at.unwrap(), name.to_owned())); // in order of time: the last one is kept
            }
            "E" => {
                let (pid, at) = (pid.unwrap(), at.unwrap());
                let (name, began) = open.get_mut(&pid).unwrap().pop().unwrap();
                let bars = plain.bars.entry(name.clone()).or_default();
                bars.count += 1;
                bars.total_ms += (at - began) / 1e3;
                if let Some((_, rank)) = ticks.remove(&pid) {
                    *plain.last.entry(rank).or_default() += 1;
                }
                if name == "ALLREDUCE" {
                    let time = times.entry(pid).or_default();
                    if *time == plain.step_ends_us.len() {
                        plain.step_ends_us.push(at);
                    }
                    let end = &mut plain.step_ends_us[*time];
                    *end = end.max(at);
                    *time += 1;
                }
            }
            other => panic!("{other}"),
        }
    }
    plain
}

#[test]
fn counts_durations_steps_and_who_was_last() {
    let path = fixture("horovod-timeline.4-ranks.json");
    let (plain, report) = (plain(&path), report(&[&path]));
    let source = &report["sources"][0];
    assert_eq!(source["format"], "horovod");
    assert_eq!(source["events"], plain.events);
    assert_eq!(source["cycles"], plain.cycles);
    assert_eq!(source["tensors"], plain.tensors);
    assert_eq!(
        source["operations"],
        plain.bars["ALLREDUCE"].count + plain.bars["BROADCAST"].count
    );
    assert_activities(&report, &plain.bars);

    assert_eq!(report["ranks"], 4);
    let lengths: Vec<f64> = plain
        .step_ends_us
        .windows(2)
        .map(|ends| (ends[1] - ends[0]) / 1e3)
        .collect();
    let steps = report["steps"].as_array().unwrap();
    let reported: Vec<f64> = steps.iter().map(|step| number(&step["ms"])).collect();
    // The first training step begins with the file or with the broadcasts; all others last from end
    // to end.
    let tail = &reported[reported.len() - lengths.len()..];
    for (found, expected) in tail.iter().zip(&lengths) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    let steady = &report["steady"];
    let (first, count) = (
        steady["first_step"].as_u64().unwrap() as usize,
        steady["steps"].as_u64().unwrap() as usize,
    );
    let whole =
        |step: &&Value| step["partial"] == false && step["index"].as_u64().unwrap() >= first as u64;
    let mut steady_ms: Vec<f64> = steps
        .iter()
        .filter(whole)
        .map(|step| number(&step["ms"]))
        .collect();
    assert_eq!(steady_ms.len(), count);
    assert!((number(&steady["step_ms"]["p50"]) - median(&mut steady_ms)).abs() < 1e-6);

    // One rank was last for every tensor of the file.
    assert_eq!(plain.last.len(), 1);
    let slowest = plain.last.keys().next().unwrap();
    let stragglers = &report["stragglers"];
    assert_eq!(stragglers["slowest"].to_string(), *slowest);
    let rank = &stragglers["ranks"][slowest.parse::<usize>().unwrap()];
    assert_eq!(rank["last"], stragglers["operations"]);
    assert_eq!(rank["last_share"], 1.0);
}
