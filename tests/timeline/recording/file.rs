//! Reader of timelines that checks them against the trace-event format.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// Bar of a tensor.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Names (ranks) and times of the ticks in the bar.
    pub(crate) ticks: Vec<(String, u64)>,
    /// Names of the bars inside the bar.
    pub(crate) inner: Vec<String>,
    pub(crate) args: Value,
}

/// File, checked against the trace-event format while it is read.
pub(crate) struct Timeline {
    pub(crate) ronde: Value,
    /// Bars of each tensor, in order.
    pub(crate) tensors: BTreeMap<String, Vec<Bar>>,
    pub(crate) instants: Vec<String>,
}

impl Timeline {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Self {
        let events: Vec<Value> = serde_json::from_str(text).expect("JSON");
        let (mut names, mut open) = (BTreeMap::new(), BTreeMap::<u64, Vec<Bar>>::new());
        let mut timeline = Self {
            ronde: Value::Null,
            tensors: BTreeMap::new(),
            instants: Vec::new(),
        };
        for event in events {
            let number = |member: &str| {
                let value = event[member].as_u64();
                value.unwrap_or_else(|| panic!("{member} of {event}"))
            };
            let name = || {
                event["name"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{event}"))
                    .to_owned()
            };
            let phase = event["ph"].as_str().unwrap_or_else(|| panic!("{event}"));
            if phase == "i" {
                number("ts");
                assert_eq!(event["s"], "g", "{event}");
                timeline.instants.push(name());
                continue;
            }
            let pid = number("pid");
            if phase == "M" {
                let args = &event["args"];
                if name() == "process_name" && pid > 0 {
                    let fresh =
                        names.insert(pid, args["name"].as_str().expect("a name").to_owned());
                    assert_eq!(fresh, None, "pid {pid} twice");
                }
                if args["ronde"].is_object() {
                    timeline.ronde = args["ronde"].clone();
                }
                continue;
            }
            let tensor = names
                .get(&pid)
                .unwrap_or_else(|| panic!("{event} before its metadata"));
            let bars = open.entry(pid).or_default();
            let at = number("ts");
            match phase {
                "B" => {
                    if let Some(outer) = bars.last_mut() {
                        assert!(at >= outer.began, "{event}");
                        outer.inner.push(name());
                    }
                    bars.push(Bar {
                        name: name(),
                        began: at,
                        ended: 0,
                        ticks: Vec::new(),
                        inner: Vec::new(),
                        args: Value::Null,
                    });
                }
                "X" => {
                    assert_eq!(number("dur"), 0);
                    let bar = bars.last_mut().unwrap_or_else(|| panic!("{event} outside"));
                    bar.ticks.push((name(), at));
                }
                "E" => {
                    let mut bar = bars.pop().unwrap_or_else(|| panic!("{event} without B"));
                    assert!(
                        at >= bar.began && bar.ticks.iter().all(|tick| tick.1 <= at),
                        "{event}"
                    );
                    bar.ended = at;
                    bar.args = event["args"].clone();
                    if bars.is_empty() {
                        let before: &mut Vec<Bar> =
                            timeline.tensors.entry(tensor.clone()).or_default();
                        assert!(
                            before.last().is_none_or(|last| last.ended <= bar.began),
                            "{event}"
                        );
                        before.push(bar);
                    }
                }
                other => panic!("{other} in {event}"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "B without E: {open:?}");
        timeline
    }

    pub(crate) fn bars<'a>(&'a self, tensor: &str, name: &'a str) -> impl Iterator<Item = &'a Bar> {
        let bars = self
            .tensors
            .get(tensor)
            .unwrap_or_else(|| panic!("no {tensor}"));
        bars.iter().filter(move |bar| bar.name == name)
    }

    pub(crate) fn zero_us(&self) -> i64 {
        self.ronde["zero_ns"].as_i64().expect("a clock") / 1_000
    }
}
