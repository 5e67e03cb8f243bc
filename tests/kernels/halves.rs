//! Tests of 16-bit floats: all values, and the values between them.

use half::{bf16, f16};

use crate::conversions::Conversion;

/// Returns all bit patterns.
fn patterns() -> Vec<u8> {
    (0..=u16::MAX).flat_map(u16::to_le_bytes).collect()
}

fn run(name: &'static str, source: &[u8], factor: f64) -> Vec<u8> {
    let conversion = Conversion::named(name);
    let [target] = &conversion.run(&[source.to_vec()], (factor, 1), |_| (0, 0))[..] else {
        panic!("one source, one target");
    };
    conversion.assert_right(source, target, (factor, 1));
    target.clone()
}

/// Returns the bits of floats.
fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes
        .chunks(2)
        .map(|word| u16::from_le_bytes(word.try_into().unwrap()))
}

#[test]
fn every_one_widens_and_comes_back() {
    for (there, back, is_nan) in [
        (
            "ronde_f16_f32",
            "ronde_f32_f16",
            (|bits| f16::from_bits(bits).is_nan()) as fn(u16) -> bool,
        ),
        ("ronde_f16_f64", "ronde_f64_f16", |bits| {
            f16::from_bits(bits).is_nan()
        }),
        ("ronde_bf16_f32", "ronde_f32_bf16", |bits| {
            bf16::from_bits(bits).is_nan()
        }),
        ("ronde_bf16_f64", "ronde_f64_bf16", |bits| {
            bf16::from_bits(bits).is_nan()
        }),
    ] {
        let wide = run(there, &patterns(), 1.0);
        let narrow = run(back, &wide, 1.0);
        for (bits, found) in (0..=u16::MAX).zip(words(&narrow)) {
            assert!(
                found == bits || (is_nan(bits) && is_nan(found)),
                "{back}: {found:04x}, not {bits:04x}"
            );
        }
    }
}

#[test]
fn every_one_is_scaled() {
    for factor in [0.5, 3.0, -1.0 / 3.0, 1e-6, 70000.0] {
        for name in [
            "ronde_f16_f16",
            "ronde_bf16_bf16",
            "ronde_f16_f32",
            "ronde_bf16_f64",
        ] {
            run(name, &patterns(), factor);
        }
    }
}

/// Every value, every midpoint of two values, and their neighbours in the wider type.
#[test]
fn values_between_are_rounded_once() {
    for (wide, narrow) in [
        ("ronde_f16_f32", "ronde_f32_f16"),
        ("ronde_bf16_f32", "ronde_f32_bf16"),
    ] {
        let values = run(wide, &patterns(), 1.0);
        let values: Vec<f32> = values
            .chunks(4)
            .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let source: Vec<u8> = values
            .windows(2)
            .flat_map(|pair| [pair[0], pair[0] / 2.0 + pair[1] / 2.0])
            .flat_map(|x| [x.next_down(), x, x.next_up()])
            .flat_map(f32::to_le_bytes)
            .collect();
        run(narrow, &source, 1.0);
    }
    for (wide, narrow) in [
        ("ronde_f16_f64", "ronde_f64_f16"),
        ("ronde_bf16_f64", "ronde_f64_bf16"),
    ] {
        let values = run(wide, &patterns(), 1.0);
        let values: Vec<f64> = values
            .chunks(8)
            .map(|word| f64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        let source: Vec<u8> = values
            .windows(2)
            .flat_map(|pair| [pair[0], pair[0] / 2.0 + pair[1] / 2.0])
            .flat_map(|x| [x.next_down(), x, x.next_up()])
            .flat_map(f64::to_le_bytes)
            .collect();
        run(narrow, &source, 1.0);
    }
}
