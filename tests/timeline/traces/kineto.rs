//! Test of a trace of PyTorch's profiler of one rank of 128: collectives are NCCL kernels among
//! others.

use std::io::Read;

use super::*;

#[test]
fn collectives_are_told_from_computation() {
    let path = fixture("kineto-ddp.rank0.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let mut collectives: BTreeMap<String, Bars> = BTreeMap::new();
    let mut spans: Vec<(f64, f64)> = Vec::new();
    let mut moving: Vec<(f64, f64)> = Vec::new();
    for event in events {
        let device = ["kernel", "gpu_memcpy", "gpu_memset"];
        if !event["cat"]
            .as_str()
            .is_some_and(|cat| device.contains(&cat))
        {
            continue;
        }
        let (name, began, us) = (
            event["name"].as_str().unwrap(),
            number(&event["ts"]),
            number(&event["dur"]),
        );
        if name.starts_with("nccl") {
            let bars = collectives.entry(name.to_owned()).or_default();
            bars.count += 1;
            bars.total_ms += us / 1e3;
            moving.push((began, began + us));
        } else if event["cat"] == "kernel" {
            // Copies are other work of the GPU, not computation.
            spans.push((began, began + us));
        }
    }
    let count: u64 = collectives.values().map(|bars| bars.count).sum();
    let total_ms: f64 = collectives.values().map(|bars| bars.total_ms).sum();
    assert!(count > 0 && hidden_us(&mut spans, &mut moving) > 0.0);

    let report = report(&[&path]);
    let source = &report["sources"][0];
    assert_eq!(source["format"], "kineto");
    assert_eq!(source["rank"], trace["distributedInfo"]["rank"]);
    assert_eq!(report["ranks"], trace["distributedInfo"]["world_size"]);
    assert_eq!(source["operations"], count);
    let rows = source["activities"].as_array().unwrap();
    let rows = rows
        .iter()
        .filter(|row| row["name"].as_str().unwrap().starts_with("nccl"));
    let reported: f64 = rows.map(|row| number(&row["total_ms"])).sum();
    assert!((reported - total_ms).abs() < 1e-3, "{reported} {total_ms}");
    // The sum of the hidden times of all steps equals the overlap of the spans.
    let part = |step: &Value, which: &str| -> f64 { number(&step[which][COLLECTIVE]) };
    let steps = report["steps"].as_array().unwrap();
    let hidden_ms: f64 = steps
        .iter()
        .map(|step| part(step, "total_ms") - part(step, "exposed_ms"))
        .sum();
    let expected_ms = hidden_us(&mut spans, &mut moving) / 1e3;
    assert!(
        (hidden_ms - expected_ms).abs() < 1e-3,
        "{hidden_ms} {expected_ms}"
    );
}

/// Position of the collective among a step's parts.
const COLLECTIVE: usize = 5;

/// Returns the time that is inside some span of both lists.
fn hidden_us(compute: &mut [(f64, f64)], moving: &mut [(f64, f64)]) -> f64 {
    let union = |spans: &mut [(f64, f64)]| {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut union: Vec<(f64, f64)> = Vec::new();
        for &(began, ended) in spans.iter() {
            match union.last_mut() {
                Some(last) if began <= last.1 => last.1 = last.1.max(ended),
                _ => union.push((began, ended)),
            }
        }
        union
    };
    let (compute, moving) = (union(compute), union(moving));
    let overlap = |a: (f64, f64), b: (f64, f64)| (a.1.min(b.1) - a.0.max(b.0)).max(0.0);
    let with_all = |a: &(f64, f64)| compute.iter().map(|&b| overlap(*a, b)).sum::<f64>();
    moving.iter().map(with_all).sum()
}
