//! Runs the fuzz targets on every file of their corpora. `scripts/fuzz` searches for new inputs.

#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// Returns the files of a target's corpus with their contents.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{target}: {error}"))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn every_target_holds_on_every_corpus() {
    for (of, _) in targets::ALL {
        let files = corpus(of);
        assert!(!files.is_empty(), "{of} has no corpus");
        for (name, bytes) in files {
            for (target, run) in targets::ALL {
                // The message of a panic has the details.
                eprintln!("{target}: {name}");
                run(&bytes);
            }
        }
    }
}

#[test]
fn every_beginning_of_every_file_holds() {
    for (name, bytes) in corpus("read") {
        eprintln!("{name}");
        for length in (0..bytes.len()).step_by(7) {
            targets::read(&bytes[..length]);
        }
    }
}
