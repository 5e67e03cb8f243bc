//! Colour grades of a heat map: ten grades, from the best step time of a grid to three times the
//! best and more.

/// Lower limits of the second to the tenth grade, as a share above the best; the first grade begins
/// at the best.
const FROM: [f64; 9] = [0.01, 0.03, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0];

/// Grade of a step time `step_ms` if the best is `best_ms`.
pub(super) fn grade(step_ms: f64, best_ms: f64) -> usize {
    let above = step_ms / best_ms - 1.0;
    FROM.iter().filter(|&&from| above > from).count()
}

/// Explains the grades in one sentence.
pub(super) fn legend() -> String {
    let steps: Vec<String> = FROM
        .iter()
        .enumerate()
        .map(|(i, from)| format!("{} > {:.0} %", i + 1, from * 100.0))
        .collect();
    format!(
        "Above the best of the grid: 0 at most 1 %, {}",
        steps.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_go_from_the_best_to_three_times_it() {
        let grades = [40.0, 40.3, 41.0, 60.0, 85.0, 400.0].map(|ms| grade(ms, 40.0));
        assert_eq!(grades, [0, 0, 1, 6, 8, 9]);
        assert_eq!(grade(f64::NAN, 1.0), 0);
        assert!(legend().contains("9 > 200 %"), "{}", legend());
    }
}
