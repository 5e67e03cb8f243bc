//! Tests of reviews of whole logs.

use ronde_tuner::read_log;

use super::*;
use crate::review::trial::tests::{HOROVOD, RONDE};

/// Returns the review of a log that has one search.
pub(super) fn reviewed(header: &str, rows: &str) -> Review {
    let log = read_log(&format!("{header}{rows}")).unwrap();
    let mut reviews = review(&log, "a.csv", &Known::default());
    assert_eq!(reviews.len(), 1);
    reviews.remove(0)
}

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
