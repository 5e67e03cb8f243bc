//! The buffers of a workload, one per tensor, each of its own element type; and the runtime that reduces them.

use half::{bf16, f16};

use super::memcpy::{self, CopyMethod};
use super::verify::{PatternElement, Place, Verifier, VerifyError};
use crate::backend::MpiTraffic;
use crate::context::{Context, Handle, ProcessSet};
use crate::error::Error;
use crate::tensor::{Dtype, Element, ReduceOp};

/// What the benchmark needs of a runtime: [`crate::Context`], or a stand-in that tests drive.
pub trait Runtime {
    /// A submission under way; waiting gives the buffer back.
    type Pending<T: Element>;

    /// This process's rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Starts reducing `data` over all ranks, in place.
    ///
    /// # Errors
    /// What the runtime finds wrong at once.
    fn allreduce<T: Element>(
        &self,
        name: &str,
        data: Vec<T>,
        op: ReduceOp,
    ) -> Result<Self::Pending<T>, Error>;

    /// Waits for a submission.
    ///
    /// # Errors
    /// What went wrong since.
    fn wait<T: Element>(&self, pending: Self::Pending<T>) -> Result<Vec<T>, Error>;

    /// Marks the end of a step.
    fn mark_step(&self);

    /// What this rank has sent over MPI; `None` on every rank if that is not what the ranks use.
    fn mpi_traffic(&self) -> Option<MpiTraffic> {
        None
    }
}

impl Runtime for Context {
    type Pending<T: Element> = Handle<Vec<T>>;

    fn rank(&self) -> usize {
        self.rank()
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn allreduce<T: Element>(&self, name: &str, data: Vec<T>, op: ReduceOp) -> Result<Handle<Vec<T>>, Error> {
        Ok(ProcessSet::allreduce(self, name, data, op)?)
    }

    fn wait<T: Element>(&self, pending: Handle<Vec<T>>) -> Result<Vec<T>, Error> {
        Ok(pending.wait()?)
    }

    fn mark_step(&self) {
        self.mark_step();
    }

    fn mpi_traffic(&self) -> Option<MpiTraffic> {
        self.mpi_traffic()
    }
}

macro_rules! payload {
    ($($variant:ident($type:ty)),* $(,)?) => {
        /// One tensor's buffer.
        #[derive(Debug)]
        pub(super) enum Payload {
            $($variant(Vec<$type>),)*
        }

        /// One tensor under way.
        pub(super) enum Flight<R: Runtime> {
            $($variant(R::Pending<$type>),)*
        }

        impl Payload {
            /// A buffer of `elements` zeros.
            pub(super) fn zeros(dtype: Dtype, elements: usize) -> Self {
                match dtype {
                    $(Dtype::$variant => Self::$variant(vec![<$type>::from_small(0); elements]),)*
                    other => unreachable!("{other} is none of `PATTERN_DTYPES`, and profiles refuse it"),
                }
            }

            /// Writes this rank's inputs, everywhere or at the sentinels.
            pub(super) fn write(&mut self, verifier: &Verifier, place: Place<'_>, extent: Extent) {
                match (self, extent) {
                    $((Self::$variant(data), Extent::Full) => verifier.fill(place, data),
                    (Self::$variant(data), Extent::Sentinels) => verifier.write_sentinels(place, data),)*
                }
            }

            /// Checks the averages, everywhere or at the sentinels.
            pub(super) fn check(
                &self,
                verifier: &Verifier,
                place: Place<'_>,
                extent: Extent,
            ) -> Result<(), VerifyError> {
                match (self, extent) {
                    $((Self::$variant(data), Extent::Full) => verifier.check(place, data),
                    (Self::$variant(data), Extent::Sentinels) => verifier.check_sentinels(place, data),)*
                }
            }

            /// Copies this buffer over `target`, which has the same type and length.
            pub(super) fn copy_to(&self, target: &mut Self, method: CopyMethod) {
                match (self, target) {
                    $((Self::$variant(source), Self::$variant(target)) => {
                        memcpy::copy(source, target, method);
                    })*
                    _ => unreachable!("the copies of a payload were allocated with its types"),
                }
            }

            /// Submits the buffer.
            pub(super) fn submit<R: Runtime>(self, runtime: &R, name: &str) -> Result<Flight<R>, Error> {
                Ok(match self {
                    $(Self::$variant(data) => {
                        Flight::$variant(runtime.allreduce(name, data, ReduceOp::Average)?)
                    })*
                })
            }
        }

        impl<R: Runtime> Flight<R> {
            /// Waits for the buffer.
            pub(super) fn land(self, runtime: &R) -> Result<Payload, Error> {
                Ok(match self {
                    $(Self::$variant(pending) => Payload::$variant(runtime.wait(pending)?),)*
                })
            }
        }
    };
}

payload!(
    I16(i16),
    I32(i32),
    I64(i64),
    F16(f16),
    F32(f32),
    F64(f64),
    Bf16(bf16)
);

/// How much of a tensor is written and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Every element.
    Full,
    /// A few: see [`super::verify`].
    Sentinels,
}
