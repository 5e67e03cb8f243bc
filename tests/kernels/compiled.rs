//! GPU kernels, compiled by the C compiler that Rust links with, and loaded as a library.

#![allow(unsafe_code)] // loads and calls the compiled kernels

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Entries of a table, as in `table.h`.
pub(crate) const ENTRIES: usize = 170;
const THREADS: u32 = 256;
const CHUNK_BYTES: u32 = 32768;

/// `struct ronde_table`.
#[repr(C)]
struct Table {
    factor: f64,
    divisor: u32,
    count: u32,
    from: [u64; ENTRIES],
    to: [u64; ENTRIES],
    elements: [u32; ENTRIES],
    first_block: [u32; ENTRIES],
}

const _: () = assert!(size_of::<Table>() == 4096);

/// `struct ronde_kernel`.
#[repr(C)]
pub(crate) struct Kernel {
    name: *const c_char,
    run: *const (),
}

// SAFETY: constants of a library that is never unloaded.
unsafe impl Sync for Kernel {}

/// Type of `ronde_run`: the kernel, its table, a block and a thread.
type Run = unsafe extern "C" fn(*const Kernel, *const Table, u32, u32);

struct Kernels {
    by_name: BTreeMap<String, &'static Kernel>,
    run: Run,
}

fn compile() -> Library {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/collective/nccl/kernels/copy.cu");
    let library =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{}.so", std::process::id()));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(&compiler)
        .args([
            "-x",
            "c",
            "-std=c11",
            "-O2",
            "-DRONDE_ON_CPU",
            "-shared",
            "-fPIC",
        ])
        .arg(&source)
        .arg("-o")
        .arg(&library)
        .status()
        .unwrap_or_else(|error| panic!("{}: {error}", compiler.display()));
    assert!(status.success(), "{}: {status}", compiler.display());
    // SAFETY: it has no initializers.
    let loaded = unsafe { Library::new(&library) }.unwrap();
    std::fs::remove_file(&library).unwrap();
    loaded
}

fn kernels() -> &'static Kernels {
    static KERNELS: OnceLock<Kernels> = OnceLock::new();
    KERNELS.get_or_init(|| {
        let library: &'static Library = Box::leak(Box::new(compile()));
        let mut by_name = BTreeMap::new();
        // SAFETY: both have these types in `run_on_cpu.h`, and the last name is null.
        unsafe {
            let mut kernel = *library.get::<*const Kernel>("ronde_kernels").unwrap();
            while !(*kernel).name.is_null() {
                let name = CStr::from_ptr((*kernel).name).to_str().unwrap();
                assert!(
                    by_name.insert(name.to_owned(), &*kernel).is_none(),
                    "{name}"
                );
                kernel = kernel.add(1);
            }
            let run = *library.get::<Run>("ronde_run").unwrap();
            Kernels { by_name, run }
        }
    })
}

/// Returns the names of all kernels.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    kernels().by_name.keys().map(String::as_str)
}

/// Row of a table: addresses, or for `ronde_fill` a pattern and an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) elements: u32,
}

/// Returns the number of elements that one block processes, where `size` is the larger element's
/// size.
pub(crate) fn chunk(size: u32) -> u32 {
    CHUNK_BYTES / size
}

/// Launches a kernel: all threads of all blocks, in an order drawn from `seed`.
///
/// # Safety
/// The entries' addresses must be valid for their numbers of elements of the kernel's types, and
/// aligned to them.
pub(crate) unsafe fn launch(
    name: &str,
    entries: &[Entry],
    (factor, divisor): (f64, u32),
    chunk: u32,
    seed: u64,
) {
    let mut table = Table {
        factor,
        divisor,
        count: entries.len() as u32,
        // Unused entries must not be accessed.
        from: [1; ENTRIES],
        to: [1; ENTRIES],
        elements: [u32::MAX; ENTRIES],
        first_block: [0; ENTRIES],
    };
    let mut blocks = 0;
    for (index, entry) in entries.iter().enumerate() {
        table.from[index] = entry.from;
        table.to[index] = entry.to;
        table.elements[index] = entry.elements;
        table.first_block[index] = blocks;
        blocks += entry.elements.div_ceil(chunk);
    }
    let mut places: Vec<(u32, u32)> = (0..blocks)
        .flat_map(|block| (0..THREADS).map(move |thread| (block, thread)))
        .collect();
    places.shuffle(&mut StdRng::seed_from_u64(seed));
    let kernels = kernels();
    let kernel = kernels.by_name[name];
    for (block, thread) in places {
        // SAFETY: guaranteed by the caller.
        unsafe { (kernels.run)(kernel, &table, block, thread) };
    }
}
