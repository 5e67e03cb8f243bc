//! Tests of reviews of whole logs.

use ronde_tuner::read_log;

use super::*;

const RONDE: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,\
                     cycle_time_ms,tensor_fusion_threshold,score,phase,sample,steps,step_ms_p50,\
                     step_ms_ci95,predicted_step_ms,negotiate_share\n";
const HOROVOD: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,\
                       cache_enabled,cycle_time_ms,tensor_fusion_threshold,score\n";

/// Rows of a line of the file of cases.
fn expanded(line: &str) -> String {
    let Some((range, row)) = line.split_once(" * ") else {
        return format!("{line}\n");
    };
    let (from, to) = range.split_once("..").unwrap();
    let indices = from.parse::<u32>().unwrap()..to.parse().unwrap();
    let rows = indices.map(|index| row.replace("##", &format!("{index:02}")) + "\n");
    rows.collect()
}

/// Fields of the reviews of a log; the first line names them, and the writer of the log.
fn answer(input: &str) -> String {
    let (head, rows) = input.split_once('\n').unwrap_or((input, ""));
    let (writer, fields) = head.split_once(": ").unwrap();
    let number = |name| writer.split(name).nth(1)?.split(' ').next()?.parse().ok();
    let known = Known {
        max_samples: number("M="),
        steps_per_sample: number("S="),
    };
    let header = match writer {
        "ronde" => RONDE,
        _ => HOROVOD,
    };
    let rows: String = rows.lines().map(expanded).collect();
    let log = read_log(&format!("{header}{rows}")).unwrap();
    let reviews: Vec<serde_json::Value> = match fields {
        // Without the surface, whose fit takes long.
        "ending" => {
            let endings = searches(&log).into_iter();
            let ending = |search| serde_json::json!({"ending": Ending::of(&search, &known)});
            endings.map(ending).collect()
        }
        _ => {
            let fields = |review: &Review| {
                let mut fields = serde_json::to_value(review).unwrap();
                fields["decisive"] = serde_json::to_value(review.decisive_contest()).unwrap();
                fields
            };
            review(&log, "a.csv", &known).iter().map(fields).collect()
        }
    };
    let mut answer = String::new();
    for review in reviews.iter().map(ronde_cases::rounded) {
        for field in fields.split(' ') {
            let value = review.pointer(&format!("/{}", field.trim_end_matches('#')));
            let value = value.unwrap_or(&serde_json::Value::Null);
            answer += &match value.as_array().filter(|_| field.ends_with('#')) {
                Some(list) => format!("{field} {}\n", list.len()),
                None => format!("{field} {value}\n"),
            };
        }
    }
    answer
}

#[test]
fn reviews_of_logs() {
    ronde_cases::check("reviews.txt", answer);
}

/// Comparison of two logs, between which there is an empty line.
fn compared(input: &str) -> String {
    let (a, b) = input.split_once("\n\n").unwrap();
    let [a, b] = [a, b].map(|rows| {
        let rows = rows.trim_start_matches("no trials");
        let log = read_log(&format!("{HOROVOD}{rows}\n")).unwrap();
        review(&log, "a.csv", &Known::default()).remove(0)
    });
    let found = compare(&a, &b);
    let overlap = ronde_cases::rounded(&found.overlap);
    format!("{overlap}\n{}", ronde_cases::rounded(&found.preference))
}

#[test]
fn comparisons_of_logs() {
    ronde_cases::check("review_comparisons.txt", compared);
}

#[test]
fn a_hundred_thousand_trials_are_grouped_at_once() {
    let row = |i: u32| format!("0,0,0, 1,{},{},{}\n", 1 + i % 100, 1 + i / 1000, 1 + i);
    let rows: String = (0..100_000).map(row).collect();
    let log = read_log(&format!("{HOROVOD}{rows}")).unwrap();
    let groups = noise::groups(&searches(&log)[0].trials);
    assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), 100_000);
    assert!((5_001..=10_000).contains(&groups.len()), "{}", groups.len());
}
