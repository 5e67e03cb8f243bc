//! MPI that another library of the process has initialized, such as mpi4py: Ronde uses it if it
//! allows threads, and otherwise refuses it; Ronde never finalizes it.

#![allow(unsafe_code)] // stands in for the other library: calls to MPI

use std::ffi::{c_int, c_void};
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use ronde::{Context, ReduceOp};

use super::{PERMISSIONS, can_start_over_mpi, launcher, library};
use crate::support::{Job, Outcome, start_by};

/// Another library's MPI, with local symbols, as Python loads extension modules.
struct Elsewhere {
    mpi: Library,
    world: usize,
    int: usize,
    any_source: c_int,
    /// Position of the tag in a status.
    tag_at: usize,
}

const SERIALIZED: c_int = 2;
const MULTIPLE: c_int = 3;

impl Elsewhere {
    fn init(threads: c_int) -> Self {
        // SAFETY: opens the library of MPI; signatures and constants are those of its ABI, whose
        // handles are integers in MPICH and addresses in Open MPI.
        unsafe {
            let mpi = Library::open(Some(library()), RTLD_LAZY | RTLD_LOCAL).expect("loads");
            let address = |name: &str| {
                let symbol = mpi.get::<*const c_void>(name.as_bytes());
                symbol.ok().map(|symbol| symbol.as_raw_ptr() as usize)
            };
            let this = match address("ompi_mpi_comm_world") {
                Some(world) => Self {
                    world,
                    int: address("ompi_mpi_int").expect("exported"),
                    any_source: -1,
                    tag_at: 1,
                    mpi,
                },
                None => Self {
                    world: 0x4400_0000,
                    int: 0x4c00_0405,
                    any_source: -2,
                    tag_at: 3,
                    mpi,
                },
            };
            type Init = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
            let init = this.mpi.get::<Init>(b"MPI_Init_thread").expect("exported");
            let mut provided = 0;
            assert_eq!(
                init(
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    threads,
                    &mut provided
                ),
                0
            );
            assert_eq!(provided, threads);
            this
        }
    }

    /// Number that a function of the communicator gives.
    fn number(&self, name: &str) -> c_int {
        let mut number = 0;
        // SAFETY: `MPI_Comm_rank` or `MPI_Comm_size`.
        unsafe {
            type Number = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
            let function = self.mpi.get::<Number>(name.as_bytes()).expect("exported");
            assert_eq!(function(self.world, &mut number), 0);
        }
        number
    }

    fn send(&self, message: &[c_int], to: c_int, tag: c_int) {
        // SAFETY: as many integers as the message has.
        unsafe {
            type Send =
                unsafe extern "C" fn(*const c_int, c_int, usize, c_int, c_int, usize) -> c_int;
            let send = self.mpi.get::<Send>(b"MPI_Send").expect("exported");
            let count = message.len() as c_int;
            assert_eq!(
                send(message.as_ptr(), count, self.int, to, tag, self.world),
                0
            );
        }
    }

    /// Message from any rank with any tag, and the tag.
    fn receive(&self) -> ([c_int; 2], c_int) {
        let (mut message, mut status) = ([0; 2], [0 as c_int; 16]);
        // SAFETY: two integers; the status is larger than any MPI's.
        unsafe {
            type Receive = unsafe extern "C" fn(
                *mut c_int,
                c_int,
                usize,
                c_int,
                c_int,
                usize,
                *mut c_int,
            ) -> c_int;
            let receive = self.mpi.get::<Receive>(b"MPI_Recv").expect("exported");
            let code = receive(
                message.as_mut_ptr(),
                2,
                self.int,
                self.any_source,
                -1,
                self.world,
                status.as_mut_ptr(),
            );
            assert_eq!(code, 0);
        }
        (message, status[self.tag_at])
    }

    fn barrier(&self) {
        // SAFETY: a live communicator.
        unsafe {
            let barrier = self
                .mpi
                .get::<unsafe extern "C" fn(usize) -> c_int>(b"MPI_Barrier");
            assert_eq!(barrier.expect("exported")(self.world), 0);
        }
    }

    fn is_finalized(&self) -> bool {
        let mut flag = 0;
        // SAFETY: may be called at any time.
        unsafe {
            let finalized = self
                .mpi
                .get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"MPI_Finalized");
            assert_eq!(finalized.expect("exported")(&mut flag), 0);
        }
        flag != 0
    }

    fn finalize(&self) {
        // SAFETY: nothing of this library is pending.
        unsafe {
            let finalize = self
                .mpi
                .get::<unsafe extern "C" fn() -> c_int>(b"MPI_Finalize");
            assert_eq!(finalize.expect("exported")(), 0);
        }
    }
}

/// Runs the ranks of this test under `mpirun`; returns `None` in a rank.
fn ranks(test: &str, ranks: usize, body: impl FnOnce()) -> Option<Vec<Outcome>> {
    let mut env = PERMISSIONS.to_vec();
    env.push(("RONDE_BACKEND", "mpi"));
    env.push(("HOROVOD_START_TIMEOUT", "20"));
    if !can_start_over_mpi() {
        return None;
    }
    let job = start_by(Some(&launcher()), test, ranks, &env, body);
    job.map(Job::finish)
}

fn sum(context: &Context, value: i64) -> i64 {
    let handle = context.allreduce("sum", vec![value; 1000], ReduceOp::Sum);
    let sum = handle.expect("submitted").wait().expect("done");
    assert!(sum.iter().all(|element| *element == sum[0]));
    sum[0]
}

#[test]
fn for_many_threads_it_is_used_and_not_finalized() {
    let test = "mpirun::elsewhere::for_many_threads_it_is_used_and_not_finalized";
    let outcomes = ranks(test, 3, || {
        let mpi = Elsewhere::init(MULTIPLE);
        let (rank, size) = (mpi.number("MPI_Comm_rank"), mpi.number("MPI_Comm_size"));
        // Message of the other library, which is pending while Ronde works: a receive from any
        // rank, with any tag.
        mpi.send(&[7, rank], (rank + 1) % size, 3);
        for round in 0..2 {
            let context = Context::from_env().expect("the job starts");
            assert_eq!(
                (context.rank(), context.size()),
                (rank as usize, size as usize)
            );
            assert_eq!(context.backend(), "mpi");
            assert_eq!(sum(&context, i64::from(rank) + round), 3 + 3 * round);
            drop(context);
            assert!(!mpi.is_finalized());
            mpi.barrier();
        }
        let before = (rank + size - 1) % size;
        assert_eq!(mpi.receive(), ([7, before], 3));
        // The engine's thread has no operation in flight that this would interrupt.
        mpi.finalize();
        assert!(mpi.is_finalized());
        // MPI cannot be used from here on.
        let error = Context::from_env().expect_err("no MPI").to_string();
        println!("later: {error}");
        std::thread::sleep(Duration::from_millis(50));
    });
    let Some(outcomes) = outcomes else { return };
    let outcome = &outcomes[0];
    assert!(outcome.status.success(), "{}", outcome.output);
    assert_eq!(
        outcome.output.matches("later: ").count(),
        3,
        "{}",
        outcome.output
    );
    assert!(
        outcome
            .output
            .contains("MPI has been finalized in this process"),
        "{}",
        outcome.output
    );
}

#[test]
fn for_fewer_threads_it_is_refused_with_the_reason() {
    let test = "mpirun::elsewhere::for_fewer_threads_it_is_refused_with_the_reason";
    let outcomes = ranks(test, 2, || {
        let mpi = Elsewhere::init(SERIALIZED);
        let error = Context::from_env().expect_err("refused").to_string();
        println!("refused: {error}");
        // It still works for the library that initialized it.
        mpi.barrier();
        mpi.finalize();
    });
    let Some(outcomes) = outcomes else { return };
    let outcome = &outcomes[0];
    assert!(outcome.status.success(), "{}", outcome.output);
    let text = "refused: MPI was initialized by another library of this process with thread support MPI_THREAD_SERIALIZED";
    assert_eq!(
        outcome.output.matches(text).count(),
        2,
        "{}",
        outcome.output
    );
    assert!(
        outcome
            .output
            .contains("have that library ask for MPI_THREAD_MULTIPLE"),
        "{}",
        outcome.output
    );
}
