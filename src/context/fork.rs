//! Fork detection: tells, without a system call where the kernel clears pages in children, whether
//! this process was forked after the runtime was first used.
//!
//! The kernel clears one page of memory in a forked child, and a byte in it differs from the
//! parent's. In a child the shared mappings are missing and the cycle thread does not exist. So
//! every call must return an error, and every drop must leave the resources alone.

#![allow(unsafe_code)] // maps a page that the kernel clears in a child

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Pid, getpid};

/// Value that a forked child finds changed.
enum Mark {
    /// A byte of the page that the kernel clears.
    Page(&'static AtomicU8),
    /// The process id, where the kernel or a sandbox refuses to clear a page. Each check costs a
    /// system call.
    Pid(Pid),
}

static MARK: OnceLock<Mark> = OnceLock::new();

/// Sets the mark for the life of the process; called when a context is made.
pub(crate) fn arm() {
    MARK.get_or_init(|| make_page().map_or_else(|_| Mark::Pid(getpid()), Mark::Page));
}

/// Whether this process is a forked child of the one that called [`arm`].
pub(crate) fn forked() -> bool {
    match MARK.get() {
        None => false,
        Some(Mark::Page(mark)) => mark.load(Ordering::Relaxed) == 0,
        Some(Mark::Pid(pid)) => *pid != getpid(),
    }
}

fn make_page() -> Result<&'static AtomicU8, Errno> {
    let (bytes, protection) = (
        rustix::param::page_size(),
        ProtFlags::READ | ProtFlags::WRITE,
    );
    // SAFETY: a fresh anonymous mapping aliases nothing, and it is never unmapped.
    let page = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)?
    };
    // SAFETY: the range is the mapping just made.
    unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork)? };
    // SAFETY: the page stays mapped, is zeroed (a valid `AtomicU8`), and is reached only through
    // this reference.
    let mark: &'static AtomicU8 = unsafe { &*page.cast::<AtomicU8>() };
    mark.store(1, Ordering::Relaxed);
    Ok(mark)
}
