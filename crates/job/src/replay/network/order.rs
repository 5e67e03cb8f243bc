//! Order statistics: expected maximum of n normally distributed delays.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// Expected maximum of `count` independent standard normal numbers: 0 of one, 0.564 of two, 3.85 of
/// 10,000.
///
/// ∫ x · n φ(x) Φ(x)ⁿ⁻¹ dx by Simpson's rule.
pub fn expected_maximum(count: u32) -> f64 {
    if count <= 1 {
        return 0.0;
    }
    const FROM: f64 = -9.0;
    const TO: f64 = 9.0;
    const PARTS: u32 = 1800;
    let normal = Normal::standard();
    let n = f64::from(count);
    let density = |x: f64| x * n * normal.pdf(x) * normal.cdf(x).powf(n - 1.0);
    let width = (TO - FROM) / f64::from(PARTS);
    let sum: f64 = (0..=PARTS)
        .map(|i| {
            let weight = match i {
                0 | PARTS => 1.0,
                i if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            weight * density(FROM + width * f64::from(i))
        })
        .sum();
    sum * width / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_are_those_of_the_tables() {
        // 1/√π, 3/(2√π), and Tippett's 2.50759 of 100.
        let cases = [
            (1, 0.0),
            (2, 0.564_189_6),
            (3, 0.846_284_4),
            (100, 2.507_594),
            (1000, 3.241_436),
        ];
        for (count, expected) in cases {
            assert!(
                (expected_maximum(count) - expected).abs() < 1e-5,
                "{count}: {}",
                expected_maximum(count)
            );
        }
        assert!(expected_maximum(10_000) > 3.8 && expected_maximum(10_000) < 3.9);
        assert!(expected_maximum(u32::MAX).is_finite());
    }
}
