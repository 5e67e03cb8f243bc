//! The buffers of a workload, one per tensor, each of its own element type; and the runtime that reduces them.

use half::{bf16, f16};

use super::buffer::{self, Buffer};
use super::memcpy::CopyMethod;
use super::verify::{TensorInstance, Verifier, VerifyError};
use ronde::MpiTraffic;
use ronde::context::{self, Context, Handle, ProcessSet};
use ronde::error::Error;
use ronde::internal::gpu::{self, GpuError, Shuttle, Stopwatch, Stream};
use ronde::tensor::{Dtype, ReduceOp};

/// What the benchmark needs of a runtime: [`ronde::Context`], or a stand-in that tests drive.
pub trait Runtime {
    /// A submission under way; waiting gives the buffer back.
    type Pending<B: context::Buffer>;

    /// This process's rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The CUDA device that the workload's tensors are to be on; none, if they are to be in host memory.
    ///
    /// # Errors
    /// There is no such device.
    fn ordinal(&self) -> Result<Option<u32>, GpuError> {
        Ok(None)
    }

    /// Starts reducing `data` over all ranks, in place.
    ///
    /// # Errors
    /// What the runtime finds wrong at once.
    fn allreduce<B: context::Buffer>(
        &self,
        name: &str,
        data: B,
        op: ReduceOp,
    ) -> Result<Self::Pending<B>, Error>;

    /// Waits for a submission.
    ///
    /// # Errors
    /// What went wrong since.
    fn wait<B: context::Buffer>(&self, pending: Self::Pending<B>) -> Result<B, Error>;

    /// Marks the end of a step.
    fn mark_step(&self);

    /// What this rank has sent over MPI; `None` on every rank if that is not what the ranks use.
    fn mpi_traffic(&self) -> Option<MpiTraffic> {
        None
    }
}

impl Runtime for Context {
    type Pending<B: context::Buffer> = Handle<B>;

    fn rank(&self) -> usize {
        self.rank()
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn ordinal(&self) -> Result<Option<u32>, GpuError> {
        let on_gpu = self.backend() == "nccl";
        on_gpu.then(|| gpu::ordinal_of(self.local_rank())).transpose()
    }

    fn allreduce<B: context::Buffer>(&self, name: &str, data: B, op: ReduceOp) -> Result<Handle<B>, Error> {
        Ok(ProcessSet::allreduce(self, name, data, op)?)
    }

    fn wait<B: context::Buffer>(&self, pending: Handle<B>) -> Result<B, Error> {
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
        pub(super) enum Payload {
            $($variant(Buffer<$type>),)*
        }

        /// One tensor under way.
        pub(super) enum Flight<R: Runtime> {
            $($variant(buffer::Flight<R, $type>),)*
        }

        impl Payload {
            /// A buffer of `elements` zeros, on CUDA device `ordinal` if there is one named.
            pub(super) fn zeros(dtype: Dtype, elements: usize, ordinal: Option<u32>) -> Result<Self, GpuError> {
                Ok(match dtype {
                    $(Dtype::$variant => Self::$variant(Buffer::zeros(ordinal, elements)?),)*
                    other => unreachable!("{other} is none of `PATTERN_DTYPES`, and profiles refuse it"),
                })
            }

            /// See [`Buffer::target`].
            pub(super) fn target(&self, stopwatch: Option<&Stopwatch>) -> Result<Self, GpuError> {
                Ok(match self {
                    $(Self::$variant(data) => Self::$variant(data.target(stopwatch)?),)*
                })
            }

            /// See [`Buffer::write`].
            pub(super) fn write(
                &mut self,
                verifier: &Verifier,
                place: TensorInstance<'_>,
                extent: Extent,
                shuttle: Option<&mut Shuttle>,
            ) -> Result<(), GpuError> {
                match self {
                    $(Self::$variant(data) => data.write(verifier, place, extent, shuttle),)*
                }
            }

            /// See [`Buffer::fetch`].
            pub(super) fn fetch(
                &mut self,
                verifier: &Verifier,
                place: TensorInstance<'_>,
                extent: Extent,
                shuttle: Option<&mut Shuttle>,
            ) -> Result<(), GpuError> {
                match self {
                    $(Self::$variant(data) => data.fetch(verifier, place, extent, shuttle),)*
                }
            }

            /// See [`Buffer::unload`].
            pub(super) fn unload(
                &mut self,
                verifier: &Verifier,
                place: TensorInstance<'_>,
                extent: Extent,
                shuttle: Option<&mut Shuttle>,
            ) {
                match self {
                    $(Self::$variant(data) => data.unload(verifier, place, extent, shuttle),)*
                }
            }

            /// Checks the averages that have been fetched, everywhere or at the sentinels.
            pub(super) fn check(
                &self,
                verifier: &Verifier,
                place: TensorInstance<'_>,
                extent: Extent,
            ) -> Result<(), VerifyError> {
                match (self, extent) {
                    $((Self::$variant(data), Extent::Full) => verifier.check(place, data.values()),
                    (Self::$variant(data), Extent::Sentinels) => verifier.check_sentinels(place, data.values()),)*
                }
            }

            /// Copies this buffer over `target`, which has the same type and length, in host memory.
            pub(super) fn copy_to(&self, target: &mut Self, method: CopyMethod) {
                match (self, target) {
                    $((Self::$variant(source), Self::$variant(target)) => source.copy_to(target, method),)*
                    _ => unreachable!("the copies of a payload were allocated with its types"),
                }
            }

            /// Puts the same onto `stream`, on a GPU.
            pub(super) fn copy_on(&self, target: &mut Self, stream: Stream) -> Result<(), GpuError> {
                match (self, target) {
                    $((Self::$variant(source), Self::$variant(target)) => source.copy_on(target, stream),)*
                    _ => unreachable!("the copies of a payload were allocated with its types"),
                }
            }

            /// Submits the buffer.
            pub(super) fn submit<R: Runtime>(self, runtime: &R, name: &str) -> Result<Flight<R>, Error> {
                Ok(match self {
                    $(Self::$variant(data) => Flight::$variant(data.submit(runtime, name)?),)*
                })
            }
        }

        impl<R: Runtime> Flight<R> {
            /// Waits for the buffer.
            pub(super) fn land(self, runtime: &R) -> Result<Payload, Error> {
                Ok(match self {
                    $(Self::$variant(pending) => Payload::$variant(pending.land(runtime)?),)*
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
