//! Benchmark of the timeline reader: its speed and its memory.
//!
//! Writes a synthetic Horovod timeline of `--mb N` MB (1000) into a temporary file: the steps of
//! 161 tensors (`--tensors N`) on 4 ranks with their ticks, copies and cycle markers, some 60 bytes
//! an event. Reads it with a visitor that counts, `--runs N` times (3), and prints the best wall
//! time and CPU time; the latter is more reliable on a busy machine. The file is in the page cache,
//! so the reader is measured and not the disk. `--gz` compresses the file, `--small` limits it to a
//! megabyte (used by tests). The last line prints the contents of the file.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use ronde_trace::{Mark, NameId, Operation, Visitor};

type Failure = Box<dyn std::error::Error>;

/// Options of the command line.
#[derive(Clone, Copy, Debug)]
struct Options {
    mb: u64,
    runs: usize,
    tensors: usize,
    gz: bool,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        mb: 1000,
        runs: 3,
        tensors: 161,
        gz: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match &*argument {
            "--small" => (options.mb, options.runs) = (1, 1),
            "--mb" => options.mb = value()?.parse()?,
            "--runs" => options.runs = value()?.parse()?,
            "--tensors" => options.tensors = value()?.parse()?,
            "--gz" => options.gz = true,
            // Cargo passes this to every benchmark.
            "--bench" => {}
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// Visitor that counts what the reader reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    names: u64,
    operations: u64,
    marks: u64,
    /// Total time of all executions, so that times are read too.
    execution_ns: u64,
}

impl Visitor for Count {
    fn name(&mut self, _: NameId, _: &str) {
        self.names += 1;
    }

    fn operation(&mut self, operation: &Operation) {
        self.operations += 1;
        self.execution_ns += operation.execution.map_or(0, |span| span.ns());
    }

    fn mark(&mut self, _: Mark) {
        self.marks += 1;
    }
}

/// Writes steps until the file has `bytes` bytes of text; returns the counts of its contents.
fn write(out: &mut impl Write, bytes: u64, tensors: usize) -> std::io::Result<Count> {
    let mut count = Count::default();
    let mut written = 0;
    let mut text = String::new();
    use std::fmt::Write as _;
    text.push_str("[\n");
    for pid in 1..=tensors {
        let name = format!("DistributedOptimizer_Allreduce/layer{pid}.weight");
        // Writes to a `String` cannot fail.
        let _ = writeln!(
            text,
            "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {pid}, \"args\": {{\"name\": \"{name}\"}}}},\n\
             {{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": {pid}, \"args\": {{\"sort_index\": {pid}}}}},"
        );
    }
    let mut us = 1_000_000_u64;
    loop {
        for pid in 1..=tensors {
            if pid % 40 == 1 {
                let _ = writeln!(
                    text,
                    "{{\"ph\": \"i\", \"name\": \"CYCLE_START\", \"ts\": {us}, \"s\": \"g\"}},"
                );
                count.marks += 1;
            }
            let _ = writeln!(
                text,
                "{{\"ph\": \"B\", \"name\": \"NEGOTIATE_ALLREDUCE\", \"ts\": {us}, \"pid\": {pid}}},"
            );
            for rank in 0..4 {
                let at = us + rank + 1;
                let _ = writeln!(
                    text,
                    "{{\"ph\": \"X\", \"name\": \"{rank}\", \"ts\": {at}, \"pid\": {pid}, \"dur\": 0}},"
                );
            }
            let _ = writeln!(
                text,
                "{{\"ph\": \"E\", \"ts\": {}, \"pid\": {pid}}},",
                us + 5
            );
            let began = us + 6;
            let _ = writeln!(
                text,
                "{{\"ph\": \"B\", \"name\": \"ALLREDUCE\", \"ts\": {began}, \"pid\": {pid}}},"
            );
            for (position, name) in [
                "MEMCPY_IN_FUSION_BUFFER",
                "MPI_ALLREDUCE",
                "MEMCPY_OUT_FUSION_BUFFER",
            ]
            .into_iter()
            .enumerate()
            {
                let (from, to) = (
                    began + 10 * position as u64,
                    began + 10 * position as u64 + 9,
                );
                let _ = writeln!(
                    text,
                    "{{\"ph\": \"B\", \"name\": \"{name}\", \"ts\": {from}, \"pid\": {pid}}},\n\
                     {{\"ph\": \"E\", \"ts\": {to}, \"pid\": {pid}}},"
                );
            }
            let ended = began + 30;
            let _ = writeln!(
                text,
                "{{\"ph\": \"E\", \"ts\": {ended}, \"pid\": {pid}, \"args\": {{\"dtype\": \"float32\", \"shape\": \
                 \"[256, 64, 3, 3]\"}}}},"
            );
            count.operations += 1;
            count.execution_ns += 30_000;
            us += 7;
        }
        us += 20_000;
        out.write_all(text.as_bytes())?;
        written += text.len() as u64;
        text.clear();
        if written >= bytes {
            break;
        }
    }
    // Names of the tensors, and of the three activities.
    count.names = tensors as u64 + 3;
    out.flush()?;
    Ok(count)
}

/// Returns the peak memory of this process, in MiB.
fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}

/// Returns the CPU time of this thread so far, seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Returns the contents of a file, and the wall time and CPU time of reading it, seconds.
fn read(path: &Path) -> Result<(Count, u64, u64, [f64; 2]), Failure> {
    let mut count = Count::default();
    let (began, cpu_before) = (Instant::now(), cpu());
    let source = ronde_trace::read(path, &mut count, &mut |_| {})?;
    let seconds = [began.elapsed().as_secs_f64(), cpu() - cpu_before];
    if !source.warnings.is_empty() {
        return Err(source.warnings.join("; ").into());
    }
    Ok((count, source.bytes, source.events, seconds))
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("timeline.json");
    let file = std::fs::File::create(&path)?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let expected = if options.gz {
        let mut compressed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        let expected = write(&mut compressed, options.mb * 1_000_000, options.tensors)?;
        compressed.finish()?.flush()?;
        expected
    } else {
        write(&mut file, options.mb * 1_000_000, options.tensors)?
    };
    let before = peak_mib();
    let mut best = [f64::INFINITY; 2];
    let (mut bytes, mut events) = (0, 0);
    for _ in 0..options.runs.max(1) {
        let (count, read_bytes, read_events, seconds) = read(&path)?;
        if count != expected {
            return Err(format!("read {count:?}, written {expected:?}").into());
        }
        (bytes, events) = (read_bytes, read_events);
        best = std::array::from_fn(|clock| best[clock].min(seconds[clock]));
    }
    for (clock, seconds) in ["wall", "CPU"].into_iter().zip(best) {
        println!(
            "reading: {:.0} MB/s, {:.1} ns an event, {seconds:.3} s ({clock} time, best of {})",
            bytes as f64 / seconds / 1e6,
            seconds * 1e9 / events as f64,
            options.runs
        );
    }
    if let (Some(before), Some(after)) = (before, peak_mib()) {
        println!("memory: {after:.1} MiB at most, {before:.1} before reading");
    }
    println!(
        "file: {bytes} bytes of text, {} on disk, {events} events, {} operations, {} marks",
        std::fs::metadata(&path)?.len(),
        expected.operations,
        expected.marks
    );
    Ok(())
}
