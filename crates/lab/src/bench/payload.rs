//! Buffers of a workload, one per tensor with its element type, and the runtime that reduces them.

use half::{bf16, f16};

use super::buffer::{self, Buffer};
use super::memcpy::CopyMethod;
use super::verify::{TensorInstance, Verifier, VerifyError};
use ronde::MpiTraffic;
use ronde::context::{self, Context, Handle, ProcessSet};
use ronde::error::Error;
use ronde::internal::gpu::{self, GpuError, Shuttle, Stopwatch, Stream};
use ronde::tensor::{Dtype, ReduceOp};

/// Runtime that the benchmark uses: [`ronde::Context`], or a simulated one in tests.
pub trait Runtime {
    /// Submission in flight; waiting for it returns the buffer.
    type Pending<B: context::Buffer>;

    /// Returns this process's rank.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Returns the CUDA device on which to allocate the workload's tensors; `None` for host memory.
    ///
    /// # Errors
    /// The device does not exist.
    fn ordinal(&self) -> Result<Option<u32>, GpuError> {
        Ok(None)
    }

    /// Submits an in-place allreduce of `data` over all ranks.
    ///
    /// # Errors
    /// Errors that the runtime detects immediately.
    fn allreduce<B: context::Buffer>(
        &self,
        name: &str,
        data: B,
        op: ReduceOp,
    ) -> Result<Self::Pending<B>, Error>;

    /// Waits for a submission.
    ///
    /// # Errors
    /// Errors since the submission.
    fn wait<B: context::Buffer>(&self, pending: Self::Pending<B>) -> Result<B, Error>;

    /// Marks the end of a step.
    fn mark_step(&self);

    /// Returns the traffic that this rank has sent over MPI; `None` on every rank if the ranks do
    /// not use MPI.
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
        on_gpu
            .then(|| gpu::ordinal_of(self.local_rank()))
            .transpose()
    }

    fn allreduce<B: context::Buffer>(
        &self,
        name: &str,
        data: B,
        op: ReduceOp,
    ) -> Result<Handle<B>, Error> {
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
        /// Buffer of one tensor.
        pub(super) enum Payload {
            $($variant(Buffer<$type>),)*
        }

        /// Tensor in flight.
        pub(super) enum Flight<R: Runtime> {
            $($variant(buffer::Flight<R, $type>),)*
        }

        impl Payload {
            /// Allocates a buffer of `elements` zeros, on CUDA device `ordinal` if it is given.
            pub(super) fn zeros(dtype: Dtype, elements: usize, ordinal: Option<u32>) -> Result<Self, GpuError> {
                Ok(match dtype {
                    $(Dtype::$variant => Self::$variant(Buffer::zeros(ordinal, elements)?),)*
                    other => unreachable!("{other} is none of `PATTERN_DTYPES`, and profiles refuse it"),
                })
            }

            /// Calls [`Buffer::target`].
            pub(super) fn target(&self, stopwatch: Option<&Stopwatch>) -> Result<Self, GpuError> {
                Ok(match self {
                    $(Self::$variant(data) => Self::$variant(data.target(stopwatch)?),)*
                })
            }

            /// Calls [`Buffer::write`].
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

            /// Calls [`Buffer::fetch`].
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

            /// Calls [`Buffer::unload`].
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

            /// Checks the fetched averages, either all elements or the sentinels.
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

            /// Copies this buffer to `target`, which has the same type and length, in host memory.
            pub(super) fn copy_to(&self, target: &mut Self, method: CopyMethod) {
                match (self, target) {
                    $((Self::$variant(source), Self::$variant(target)) => source.copy_to(target, method),)*
                    _ => unreachable!("the copies of a payload were allocated with its types"),
                }
            }

            /// Enqueues the copy to `target` on `stream`, on a GPU.
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
            /// Waits for the submission and returns the buffer.
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

/// Elements of a tensor that are written and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All elements.
    Full,
    /// The sentinels: see [`super::verify`].
    Sentinels,
}
