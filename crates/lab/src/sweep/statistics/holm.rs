//! Student's test for several differences: Bonferroni's intervals and Holm's step-down test.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Standard errors on each side of `count` differences, so that all their intervals hold
/// simultaneously with probability `level`.
pub(in crate::sweep) fn critical(count: usize, freedom: usize, level: f64) -> f64 {
    quantile(1.0 - (1.0 - level) / (2.0 * count.max(1) as f64), freedom)
}

/// For each difference, in standard errors, whether it is above 0. With probability `level`, no
/// difference that is 0 or below is selected.
pub(in crate::sweep) fn rejected(t: &[f64], freedom: usize, level: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..t.len()).collect();
    order.sort_by(|&a, &b| t[b].total_cmp(&t[a]));
    let mut rejected = vec![false; t.len()];
    for (rank, &index) in order.iter().enumerate() {
        let left = (t.len() - rank) as f64;
        if t[index] <= quantile(1.0 - (1.0 - level) / left, freedom) {
            break;
        }
        rejected[index] = true;
    }
    rejected
}

fn quantile(probability: f64, freedom: usize) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom.max(1) as f64);
    student.map_or(f64::INFINITY, |student| student.inverse_cdf(probability))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_students_table() {
        // t at 0.975 and 10 degrees of freedom; at 0.995 (five differences) and 20.
        assert!((critical(1, 10, 0.95) - 2.228).abs() < 0.001);
        assert!((critical(5, 20, 0.95) - 2.845).abs() < 0.001);
        assert!(critical(4000, 1, 0.95).is_finite());
    }

    #[test]
    fn each_rejection_makes_the_next_test_easier() {
        // One-sided quantiles of 60 degrees of freedom: 2.178 for three, 2.000 for two, 1.671 for
        // one.
        assert_eq!(rejected(&[1.8, 2.2, 2.1], 60, 0.95), [true, true, true]);
        assert_eq!(rejected(&[1.8, 2.1, 2.1], 60, 0.95), [false, false, false]);
        assert_eq!(rejected(&[1.8, 2.2, 1.9], 60, 0.95), [false, true, false]);
        assert_eq!(rejected(&[f64::INFINITY, -3.0], 1, 0.95), [true, false]);
        assert!(rejected(&[], 10, 0.95).is_empty());
    }
}
