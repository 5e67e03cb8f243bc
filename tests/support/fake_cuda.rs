//! Libraries that emulate CUDA and NCCL on the CPU.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Returns their folder; they are built once.
pub(crate) fn libraries() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = format!("{}/fake_cuda", env!("CARGO_TARGET_TMPDIR"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fake_cuda/build");
        let built = Command::new(script)
            .arg(&folder)
            .status()
            .expect("a shell and a C compiler");
        assert!(built.success(), "the fake libraries compile");
        folder
    })
}
