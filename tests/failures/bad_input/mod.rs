//! Bad input: refusals, their errors on each rank, and jobs that continue afterwards.

mod alone;
mod endings;
mod mismatch;
mod process_sets;

use crate::support::{job, job_with};
use ronde::{
    Context, Dtype, Error, Operation, ProcessSet, RawHandle, RawOutput, RawTensor, ReduceOp,
};

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

fn dynamic() -> Context {
    let builder = Context::builder().dynamic_process_sets();
    builder.build().expect("the job starts")
}

const SUM: Operation<'static> = reduce(ReduceOp::Sum, 1.0, 1.0);

const fn reduce(op: ReduceOp, prescale: f64, postscale: f64) -> Operation<'static> {
    Operation::Allreduce {
        op,
        prescale,
        postscale,
    }
}

const fn scatter(op: ReduceOp, prescale: f64, postscale: f64) -> Operation<'static> {
    Operation::Reducescatter {
        op,
        prescale,
        postscale,
    }
}

/// Submission, as one rank makes it.
#[derive(Clone, Copy)]
struct Ask<'a> {
    operation: Operation<'a>,
    dtype: Dtype,
    shape: &'a [usize],
}

/// Zeros used as the input of any tensor.
static ZEROS: [u64; 128] = [0; 128];

impl Ask<'_> {
    fn raw<'a>(&'a self, name: &'a str) -> RawTensor<'a> {
        let bytes = self.shape.iter().product::<usize>() * self.dtype.size_bytes();
        assert!(bytes <= size_of_val(&ZEROS));
        RawTensor {
            name,
            dtype: self.dtype,
            wire_dtype: None,
            shape: self.shape,
            device: ronde::Device::Cpu,
            input: ZEROS.as_ptr().cast(),
            output: RawOutput::Allocate,
        }
    }

    #[allow(unsafe_code)] // submits the test's own buffers
    fn submit(&self, set: &ProcessSet, name: &str) -> Result<RawHandle, Error> {
        // SAFETY: the input is static, never written, and long enough (`raw`); the output is new.
        unsafe { set.submit(&self.operation, &self.raw(name)) }
    }
}

#[allow(unsafe_code)] // submits the test's own buffers
fn submit_group(
    set: &ProcessSet,
    name: &str,
    parts: &[(&str, Ask<'_>)],
) -> Result<Vec<RawHandle>, Error> {
    let parts: Vec<_> = parts
        .iter()
        .map(|(name, ask)| (ask.operation, ask.raw(name)))
        .collect();
    // SAFETY: as in `Ask::submit`.
    unsafe { set.submit_group(name, &parts) }
}

/// Sums one tensor over all ranks of a set, to check that the set still works.
fn goes_on(set: &ProcessSet) {
    let handle = set.allreduce("goes on", vec![1i32, 2], ReduceOp::Sum);
    let ranks = set.size() as i32;
    let sum = handle.expect("submitted").wait().expect("the set goes on");
    assert_eq!(sum, [ranks, 2 * ranks]);
}

/// Checks that every rank of the set has the same error.
fn alike(set: &ProcessSet, error: &Error) {
    let text = error.to_string().into_bytes();
    let rows = [text.len()];
    let all = set
        .allgather("errors", text.clone(), &rows)
        .expect("submitted");
    let all = all.wait().expect("the set goes on").tensor;
    assert_eq!(
        String::from_utf8_lossy(&all),
        String::from_utf8_lossy(&text.repeat(set.size()))
    );
}

/// Checks the text of an error.
fn says(error: &Error, text: &str) {
    assert_eq!(error.to_string(), text);
}

#[test]
fn ranks_that_differ() {
    job("bad_input::ranks_that_differ", 3, || {
        let context = context();
        mismatch::parameters(&context);
        mismatch::operations(&context);
        mismatch::groups(&context);
        mismatch::one_of_a_group(&context);
        mismatch::rows_may_differ(&context);
    });
}

#[test]
fn input_that_one_rank_refuses_alone() {
    job("bad_input::input_that_one_rank_refuses_alone", 2, || {
        let context = context();
        alone::dtypes(&context);
        alone::scalars(&context);
        alone::shapes(&context);
        alone::splits(&context);
        alone::roots(&context);
        alone::fixed_sets(&context);
        goes_on(&context);
        alone::twice(&context);
        alone::twice_in_a_group(&context);
        alone::outputs(&context);
        alone::nothing_at_all(&context);
    });
}

#[test]
fn handles() {
    job("bad_input::handles", 2, || {
        let context = context();
        endings::waits_again(&context);
        endings::dropped(&context);
        goes_on(&context);
    });
}

#[test]
fn sets() {
    job("bad_input::sets", 3, || {
        let context = dynamic();
        process_sets::not_sets(&context);
        process_sets::differ(&context);
        process_sets::non_members(&context);
        process_sets::busy(&context);
        process_sets::removed(&context);
        goes_on(&context);
    });
}

#[test]
fn static_sets_that_differ() {
    job(
        "bad_input::static_sets_that_differ",
        2,
        process_sets::differ_at_start,
    );
}

#[test]
fn joined() {
    job("bad_input::joined", 3, || endings::joined(&context()));
}

#[test]
fn names() {
    job("bad_input::names", 3, || {
        endings::names_of_its_own(&context())
    });
}

#[test]
fn shut_down() {
    job_with(
        "bad_input::shut_down",
        2,
        &[("HOROVOD_DYNAMIC_PROCESS_SETS", "1")],
        || {
            endings::shut_down(context());
        },
    );
}
