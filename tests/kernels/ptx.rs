//! Tests of the PTX in this repository.

use std::collections::BTreeSet;

use crate::compiled::names;

const PTX: &str = include_str!("../../src/collective/nccl/kernels/generated/copy.ptx");

/// Returns the names and parameter lists of the entries.
fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    PTX.split(".visible .entry ").skip(1).map(|entry| {
        let (name, rest) = entry.split_once('(').unwrap();
        let (parameters, _) = rest.split_once(')').unwrap();
        (name, parameters.trim())
    })
}

#[test]
fn has_every_kernel_and_no_other() {
    let found: BTreeSet<&str> = entries().map(|(name, _)| name).collect();
    assert_eq!(found, names().collect());
}

#[test]
fn kernels_take_one_table() {
    for (name, parameters) in entries() {
        assert_eq!(
            parameters,
            format!(".param .align 8 .b8 {name}_param_0[4096]")
        );
    }
}

#[test]
fn the_table_stays_in_constant_memory() {
    // A copy of the table would be 4096 bytes of local memory for every thread.
    assert!(!PTX.contains(".local"));
}

#[test]
fn moves_vectors() {
    assert!(PTX.contains("ld.global.v4.u32") && PTX.contains("st.global.v4.u32"));
}

#[test]
fn says_how_it_was_made() {
    let first = PTX.lines().next().unwrap();
    assert!(
        first.contains("scripts/build-kernels") && first.contains("NVRTC"),
        "{first}"
    );
}
