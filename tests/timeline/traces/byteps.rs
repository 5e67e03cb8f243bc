//! Test of BytePS's trace of a GPU that is not the root of its machine: one tensor in 4 partitions,
//! 6 steps.

use super::*;

#[test]
fn stages_partitions_and_whole_synchronizations() {
    let path = fixture("byteps-comm.non-root.json");
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let rows = trace["traceEvents"].as_array().unwrap();
    let mut bars: BTreeMap<String, Bars> = BTreeMap::new();
    let mut totals: Vec<(f64, f64)> = Vec::new();
    // Starts of the stages that move data.
    let mut moves: Vec<f64> = Vec::new();
    for row in rows {
        let (began, ms) = (number(&row["ts"]), number(&row["dur"]) / 1e3);
        let (tensor, name) = (row["pid"].as_str().unwrap(), row["name"].as_str().unwrap());
        match name.strip_prefix(tensor).unwrap() {
            "" => totals.push((began, ms)),
            stage => {
                let bars = bars.entry(stage[1..].to_owned()).or_default();
                bars.count += 1;
                bars.total_ms += ms;
                if !stage.starts_with(".COORDINATE_") {
                    moves.push(began);
                }
            }
        }
    }
    totals.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A synchronization negotiates until its first stage that moves data; the rest is execution.
    for &(began, ms) in &totals {
        let first = moves.iter().copied().filter(|&at| at >= began);
        let negotiated_ms = (first.fold(f64::INFINITY, f64::min) - began) / 1e3;
        let executed_ms = ms - negotiated_ms;
        for (name, ms) in [
            ("NEGOTIATE_ALLREDUCE", negotiated_ms),
            ("total", executed_ms),
        ] {
            let bars = bars.entry(name.to_owned()).or_default();
            bars.count += 1;
            bars.total_ms += ms;
        }
    }

    let report = report(&[&path]);
    let source = &report["sources"][0];
    assert_eq!(source["format"], "byteps");
    assert_eq!(source["events"], rows.len() as u64);
    assert_eq!(source["operations"], totals.len() as u64);
    assert_eq!(source["tensors"], 1);
    assert_activities(&report, &bars);
    assert!(
        report["warnings"].to_string().contains("has no PUSH stage"),
        "it is no root"
    );

    let ends: Vec<f64> = totals.iter().map(|(began, ms)| began / 1e3 + ms).collect();
    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), totals.len());
    for (step, ends) in steps[1..].iter().zip(ends.windows(2)) {
        assert!(
            (number(&step["ms"]) - (ends[1] - ends[0])).abs() < 1e-3,
            "{step} {ends:?}"
        );
    }
}
