//! Tests of the conversion kernels `ronde_<from>_<to>`.

#![allow(unsafe_code)] // calls the compiled kernels

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::compiled::{ENTRIES, Entry, chunk, launch, names};
use crate::element::{Element, agrees, converted};
use crate::memory::Memory;

/// Conversion kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    name: &'static str,
    pub(crate) from: Element,
    pub(crate) to: Element,
}

impl Conversion {
    fn all() -> impl Iterator<Item = Self> {
        names().filter_map(|name| {
            let (from, to) = name.strip_prefix("ronde_")?.split_once('_')?;
            Some(Self {
                name,
                from: Element::named(from),
                to: Element::named(to),
            })
        })
    }

    pub(crate) fn named(name: &'static str) -> Self {
        Self::all()
            .find(|conversion| conversion.name == name)
            .unwrap()
    }

    fn chunk(self) -> u32 {
        chunk(self.from.size().max(self.to.size()) as u32)
    }

    /// Converts `sources` in one launch, between addresses that are these numbers of elements
    /// beyond multiples of 64 bytes.
    pub(crate) fn run(
        self,
        sources: &[Vec<u8>],
        scaling: (f64, u32),
        offsets: impl Fn(usize) -> (usize, usize),
    ) -> Vec<Vec<u8>> {
        let mut pairs: Vec<(Memory, Memory)> = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            let (from, to) = offsets(index);
            let target = vec![0; source.len() / self.from.size() * self.to.size()];
            pairs.push((
                Memory::holding(source, from * self.from.size()),
                Memory::holding(&target, to * self.to.size()),
            ));
        }
        let entries: Vec<Entry> = pairs
            .iter_mut()
            .map(|(source, target)| Entry {
                elements: (source.bytes().len() / self.from.size()) as u32,
                from: source.address(),
                to: target.address(),
            })
            .collect();
        // SAFETY: every entry has memory of its size, aligned to its elements.
        unsafe { launch(self.name, &entries, scaling, self.chunk(), 7) };
        pairs
            .iter()
            .map(|(_, target)| target.bytes().to_vec())
            .collect()
    }

    /// Asserts that the kernel's output `target` is correct for a source.
    pub(crate) fn assert_right(self, source: &[u8], target: &[u8], (factor, divisor): (f64, u32)) {
        let found = target.chunks(self.to.size());
        for (index, (source, found)) in source.chunks(self.from.size()).zip(found).enumerate() {
            let expected = converted(source, self.from, self.to, factor, divisor);
            assert!(
                agrees(found, &expected, self.to),
                "{}, element {index}, {source:02x?} * {factor} / {divisor}: {found:02x?}, not {expected:02x?}",
                self.name
            );
        }
    }

    /// Converts the sources and asserts that the outputs are correct.
    fn check(
        self,
        sources: &[Vec<u8>],
        scaling: (f64, u32),
        offsets: impl Fn(usize) -> (usize, usize),
    ) {
        let targets = self.run(sources, scaling, offsets);
        for (source, target) in sources.iter().zip(&targets) {
            self.assert_right(source, target, scaling);
        }
    }

    /// Returns elements of arbitrary bits, some of them small numbers, powers of two and limits.
    fn sample(self, elements: usize, random: &mut StdRng) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..elements {
            let small = random.random_range(-300.0..300.0_f64);
            let element = match (random.random_range(0..4), self.from) {
                (0, Element::F64) => small.to_le_bytes().to_vec(),
                (0, Element::F32) => (small as f32).to_le_bytes().to_vec(),
                // Around the range of half precision.
                (1, Element::F64) => (random.random::<f64>()
                    * 2.0_f64.powi(random.random_range(-150..140)))
                .to_le_bytes()
                .to_vec(),
                (1, Element::F32) => (random.random::<f32>()
                    * 2.0_f32.powi(random.random_range(-30..20)))
                .to_le_bytes()
                .to_vec(),
                // Halfway between two values of half precision, or close to that.
                (2, Element::F64) => (random.random::<u64>() & !0x3ff_ffff_ffff
                    | random.random_range(0..2) << 41)
                    .wrapping_add_signed(random.random_range(-1..2))
                    .to_le_bytes()
                    .to_vec(),
                (2, Element::F32) => (random.random::<u32>() & !0x1fff
                    | random.random_range(0..2) << 12)
                    .wrapping_add_signed(random.random_range(-1..2))
                    .to_le_bytes()
                    .to_vec(),
                (0, _) => i128::from(small as i64).to_le_bytes().to_vec(),
                (1, _) => (1_i128 << (8 * self.from.size() - 1))
                    .to_le_bytes()
                    .to_vec(),
                (2, _) => ((1_i128 << random.random_range(0..8 * self.from.size())) - 1)
                    .to_le_bytes()
                    .to_vec(),
                _ => random.random::<u128>().to_le_bytes().to_vec(),
            };
            bytes.extend_from_slice(&element[..self.from.size()]);
        }
        bytes
    }
}

fn aligned(_: usize) -> (usize, usize) {
    (0, 0)
}

#[test]
fn all_of_them_are_there() {
    let expected = "u8_u8 i8_i8 i16_i16 i32_i32 i64_i64 f16_f16 bf16_bf16 f32_f32 f64_f64 \
        f32_f16 f16_f32 f32_bf16 bf16_f32 f64_f16 f16_f64 f64_bf16 bf16_f64 \
        i16_i32 i32_i16 u8_i32 i32_u8 i8_i32 i32_i8 i32_i64 i64_i32";
    let mut expected: Vec<String> = expected
        .split_whitespace()
        .map(|name| format!("ronde_{name}"))
        .collect();
    expected.sort();
    assert_eq!(
        Conversion::all()
            .map(|conversion| conversion.name)
            .collect::<Vec<_>>(),
        expected
    );
    assert_eq!(names().count(), expected.len() + 2);
}

#[test]
fn factors_and_divisors() {
    let mut random = StdRng::seed_from_u64(11);
    let factors = [
        1.0,
        0.5,
        1.0 / 3.0,
        -1.0,
        3.7,
        0.0,
        -0.0,
        1e-40,
        1e30,
        1e300,
        f64::INFINITY,
        f64::NAN,
        1.0 + f64::EPSILON,
    ];
    for conversion in Conversion::all() {
        for factor in factors {
            for divisor in [
                1,
                2,
                3,
                7,
                1000,
                65535,
                0x8000_0000,
                u32::MAX,
                random.random_range(1..=u32::MAX),
            ] {
                let source = conversion.sample(517, &mut random);
                conversion.check(&[source], (factor, divisor), aligned);
            }
        }
    }
}

#[test]
fn all_alignments() {
    let mut random = StdRng::seed_from_u64(12);
    for conversion in Conversion::all() {
        let places = |size: usize| 0..(16 / size + 1);
        for from in places(conversion.from.size()) {
            for to in places(conversion.to.size()) {
                let source = conversion.sample(300 + from, &mut random);
                conversion.check(&[source], (0.5, 2), |_| (from, to));
            }
        }
    }
}

#[test]
fn many_entries_of_all_lengths() {
    let mut random = StdRng::seed_from_u64(13);
    for conversion in Conversion::all() {
        for count in [1, 2, 3, 64, ENTRIES - 1, ENTRIES] {
            let sources: Vec<Vec<u8>> = (0..count)
                .map(|_| {
                    let elements = random.random_range(1..100);
                    conversion.sample(elements, &mut random)
                })
                .collect();
            for scaling in [(1.0, 1), (1.0, 5), (-0.5, 3)] {
                conversion.check(&sources, scaling, |index| (index % 3, index % 5));
            }
        }
    }
}

#[test]
fn entries_larger_than_a_chunk() {
    let mut random = StdRng::seed_from_u64(14);
    for conversion in Conversion::all() {
        let chunk = conversion.chunk() as usize;
        for elements in [chunk - 1, chunk, chunk + 1, 2 * chunk + 5] {
            let sources = [
                conversion.sample(3, &mut random),
                conversion.sample(elements, &mut random),
                conversion.sample(7, &mut random),
            ];
            let scaling = [(1.0, 1), (1.0, 3), (0.25, 1)][random.random_range(0..3)];
            conversion.check(&sources, scaling, |_| (0, 0));
            conversion.check(&sources, scaling, |index| (index, 0));
        }
    }
}

#[test]
fn in_place() {
    let mut random = StdRng::seed_from_u64(15);
    for conversion in
        Conversion::all().filter(|conversion| conversion.from.size() == conversion.to.size())
    {
        for offset in [0, 1] {
            let source = conversion.sample(conversion.chunk() as usize + 77, &mut random);
            let mut memory = Memory::holding(&source, offset * conversion.from.size());
            let entry = Entry {
                from: memory.address(),
                to: memory.address(),
                elements: (source.len() / conversion.from.size()) as u32,
            };
            for (pass, scaling) in [(1.0, 1), (0.5, 2), (1.0, 3)].into_iter().enumerate() {
                let before = memory.bytes().to_vec();
                // SAFETY: the memory has this size.
                unsafe {
                    launch(
                        conversion.name,
                        &[entry],
                        scaling,
                        conversion.chunk(),
                        pass as u64,
                    )
                };
                conversion.assert_right(&before, memory.bytes(), scaling);
            }
        }
    }
}

#[test]
fn a_factor_of_one_keeps_all_bits() {
    let mut random = StdRng::seed_from_u64(16);
    for conversion in Conversion::all().filter(|conversion| conversion.from == conversion.to) {
        let mut source = vec![0; 4096];
        random.fill_bytes(&mut source);
        assert_eq!(
            conversion.run(&[source.clone()], (1.0, 1), aligned),
            [source.clone()]
        );
        if conversion.from.is_float() {
            assert_eq!(
                conversion.run(&[source.clone()], (1.0, 8), aligned),
                [source],
                "floats know no divisor"
            );
        }
    }
}

/// Returns integers as bytes.
macro_rules! bytes {
    ($($number:expr),*) => { [$($number.to_le_bytes().to_vec()),*].concat() };
}

#[test]
fn integers_saturate_when_scaled_and_wrap_when_not() {
    let i32_u8 = Conversion::named("ronde_i32_u8");
    let source = [bytes![
        -1_i32,
        255_i32,
        256_i32,
        1000_i32,
        i32::MIN,
        i32::MAX
    ]];
    assert_eq!(
        i32_u8.run(&source, (2.0, 1), aligned),
        [[255, 255, 0, 255, 0, 255]], // of 255, 255, 0, 232, 0 and 255, to which the sums have wrapped
    );
    assert_eq!(
        i32_u8.run(&source, (2.0, 4), aligned),
        [[0, 127, 128, 255, 0, 255]], // averages do not wrap
    );
    let u8_i32 = Conversion::named("ronde_u8_i32");
    assert_eq!(
        u8_i32.run(&[vec![3, 200]], (-2.0, 1), aligned),
        [bytes![0_i32, 0_i32]]
    );
    assert_eq!(
        u8_i32.run(&[vec![3, 200]], (2.0, 1), aligned),
        [bytes![6_i32, 255_i32]]
    );
    assert_eq!(
        i32_u8.run(&source, (1.0, 1), aligned),
        [[255, 255, 0, 232, 0, 255]]
    );
    assert_eq!(i32_u8.run(&source, (f64::NAN, 1), aligned), [[0; 6]]);

    let i64_i64 = Conversion::named("ronde_i64_i64");
    let source = [bytes![i64::MAX, i64::MIN, 1_i64]];
    assert_eq!(
        i64_i64.run(&source, (-2.0, 1), aligned),
        [bytes![i64::MIN, i64::MAX, -2_i64]]
    );
}

#[test]
fn averages_drop_the_fraction() {
    let i32_i16 = Conversion::named("ronde_i32_i16");
    let source = [bytes![7_i32, -7_i32, 98301_i32, -98304_i32]];
    assert_eq!(
        i32_i16.run(&source, (1.0, 3), aligned),
        [bytes![2_i16, -2_i16, 32767_i16, i16::MIN]]
    );
    assert_eq!(
        i32_i16.run(&source, (0.5, 3), aligned),
        [bytes![1_i16, -1_i16, 16383_i16, -16384_i16]]
    );
}
