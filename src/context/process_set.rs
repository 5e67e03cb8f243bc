//! Process set: some ranks of a job, and the operations among them.

#![allow(unsafe_code)] // the contract of submitted memory: it outlives the operation

use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::gathered::{Gathered, Returned};
use super::handle::{Handle, RawHandle};
use super::operation::{Operation, RawOutput, RawTensor, shape_of};
use super::{Reduce, Scope, fork, scope};
use crate::buffer::{Buffer, Failed};
use crate::cycle::engine::Engine;
use crate::error::{ArgumentError, Error, ProcessSetError};
use crate::gpu::DeviceBinding;
use crate::negotiation::{JOIN, OpKind, Params};
use crate::queue::{Entry, Output};
use crate::sync::lock;
use crate::tensor::{Dtype, Shape};

/// Process set: some ranks of a job, and the operations among them. All ranks of a set submit the
/// same tensors to it, each rank in any order. Operations of other sets do not influence it. Ranks
/// are job ranks unless stated otherwise. Names that begin with `ronde.` are reserved for the
/// runtime.
///
/// The [`Context`](super::Context) is the set of all ranks.
/// [`Builder::process_sets`](super::Builder::process_sets) and
/// [`Context::add_process_set`](super::Context::add_process_set) make others. A clone refers to the
/// same set.
#[derive(Clone)]
pub struct ProcessSet {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) id: u32,
    pub(super) members: Arc<[usize]>,
    /// This process's rank in the job.
    pub(super) job_rank: usize,
    /// Whether only allreduces run without joined ranks.
    pub(super) strict_join: bool,
    /// The GPU of its tensors on this rank.
    pub(super) binding: Arc<DeviceBinding>,
    /// `None` if this rank is not a member.
    pub(super) running: Option<Running>,
}

/// Engine with its thread.
pub(super) struct Running {
    pub(super) engine: Arc<Engine>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for ProcessSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSet")
            .field("id", &self.id())
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl ProcessSet {
    /// Makes the set `id` around an engine that the simulator runs.
    #[cfg(test)]
    pub(crate) fn around(engine: Arc<Engine>, id: u32, members: &[usize]) -> Self {
        let job_rank = engine.rank;
        let thread = Mutex::new(None);
        Self {
            inner: Arc::new(Inner {
                id,
                members: members.into(),
                job_rank,
                strict_join: false,
                binding: Arc::new(DeviceBinding::new(
                    Arc::clone(crate::gpu::devices()),
                    job_rank,
                )),
                running: Some(Running { engine, thread }),
            }),
        }
    }

    /// Number of the set: 0 is the set of all ranks. The number of a removed set is used again.
    pub fn id(&self) -> u32 {
        self.inner.id
    }

    /// Job ranks of the set, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.inner.members
    }

    /// Number of ranks in the set.
    pub fn size(&self) -> usize {
        self.inner.members.len()
    }

    /// Set rank of this process; `None` if it is not a member.
    pub fn rank(&self) -> Option<usize> {
        self.inner.members.binary_search(&self.inner.job_rank).ok()
    }

    /// Whether this process is a member.
    pub fn included(&self) -> bool {
        self.inner.running.is_some()
    }

    /// Combines `buffer` in place, element by element, with the tensors that the other ranks submit
    /// as `name`.
    ///
    /// ```
    /// # use ronde::{Context, Reduce, ReduceOp};
    /// # let context = Context::builder().alone().build()?;
    /// let sum = context.allreduce("sum", vec![1.0f32, 2.0], ReduceOp::Sum)?;
    /// let maximum = Reduce::from(ReduceOp::Max).postscale(0.5);
    /// let scaled = context.allreduce("scaled", vec![1.0f32, 2.0], maximum)?;
    /// assert_eq!(sum.wait()?, [1.0, 2.0]); // on one rank
    /// assert_eq!(scaled.wait()?, [0.5, 1.0]);
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// From the call: a name that is already in flight here, a shape that does not fit the buffer,
    /// an operation that is not defined for the element type, a rank that is not a member, a lost
    /// peer, a context that has been shut down, a set that has been removed. From the handle:
    /// differences between ranks, and peers lost later.
    pub fn allreduce<B: Buffer>(
        &self,
        name: &str,
        buffer: B,
        options: impl Into<Reduce>,
    ) -> Result<Handle<B>, Failed<B>> {
        let (operation, shape) = options.into().allreduce();
        self.start(
            name,
            buffer,
            shape.as_deref(),
            &operation,
            ResultTarget::Same,
        )
    }

    /// Replaces `buffer`, in place, by the buffer that rank `root` submits as `name`.
    ///
    /// ```
    /// # use ronde::Context;
    /// # let context = Context::builder().alone().build()?;
    /// let weights = context.broadcast("weights", vec![0.5f32; 3], 0)?.wait()?;
    /// assert_eq!(weights, [0.5; 3]); // rank 0's, everywhere
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce), and a root that is not a member or has joined.
    pub fn broadcast<B: Buffer>(
        &self,
        name: &str,
        buffer: B,
        root: usize,
    ) -> Result<Handle<B>, Failed<B>> {
        self.start(
            name,
            buffer,
            None,
            &Operation::Broadcast { root },
            ResultTarget::Same,
        )
    }

    /// Concatenates the rows of all ranks, in rank order. Numbers of rows may differ between ranks;
    /// the other dimensions of `shape` must be equal.
    ///
    /// ```
    /// # use ronde::Context;
    /// # let context = Context::builder().alone().build()?;
    /// let rows = context.allgather("rows", vec![1i64, 2, 3, 4, 5, 6], &[2, 3])?.wait()?;
    /// assert_eq!(rows.shape, [2 * context.size(), 3]);
    /// assert_eq!(rows.tensor[..6], [1, 2, 3, 4, 5, 6]); // rank 0's
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce), and a shape without dimensions.
    pub fn allgather<B: Buffer>(
        &self,
        name: &str,
        buffer: B,
        shape: &[usize],
    ) -> Result<Handle<B, Gathered<B>>, Failed<B>> {
        self.start(
            name,
            buffer,
            Some(shape),
            &Operation::Allgather,
            ResultTarget::New,
        )
    }

    /// Sends `splits[r]` rows of `buffer` to set rank r, in rank order, and receives the rows that
    /// each rank sends to this one. Empty splits: the same number of rows for each rank.
    ///
    /// ```
    /// # use ronde::Context;
    /// # let context = Context::builder().alone().build()?;
    /// let splits = vec![2; context.size()]; // two rows of one element for each rank
    /// let mine = vec![7.0f32; 2 * context.size()];
    /// let shape = [mine.len()];
    /// let got = context.alltoall("tokens", mine, &shape, &splits)?.wait()?;
    /// assert_eq!((got.splits, got.shape), (splits, vec![2 * context.size()]));
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`allgather`](Self::allgather), and splits that are too few or too many, or whose sum
    /// is not the number of rows.
    pub fn alltoall<B: Buffer>(
        &self,
        name: &str,
        buffer: B,
        shape: &[usize],
        splits: &[usize],
    ) -> Result<Handle<B, Gathered<B>>, Failed<B>> {
        self.start(
            name,
            buffer,
            Some(shape),
            &Operation::Alltoall { splits },
            ResultTarget::New,
        )
    }

    /// Combines tensors as an allreduce does, with the same bits, and returns this rank's share of
    /// the rows. The shares differ by at most one row, and the first ranks have the larger ones.
    ///
    /// ```
    /// # use ronde::{Context, Reduce, ReduceOp};
    /// # let context = Context::builder().alone().build()?;
    /// let options = Reduce::from(ReduceOp::Sum).shape(&[4, 2]);
    /// let share = context.reducescatter("share", vec![1.0f32; 8], options)?.wait()?;
    /// assert_eq!(share.shape, [4, 2]); // two ranks: [2, 2] each
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce), and a shape without dimensions.
    pub fn reducescatter<B: Buffer>(
        &self,
        name: &str,
        buffer: B,
        options: impl Into<Reduce>,
    ) -> Result<Handle<B, Gathered<B>>, Failed<B>> {
        let (operation, shape) = options.into().reducescatter();
        self.start(
            name,
            buffer,
            shape.as_deref(),
            &operation,
            ResultTarget::New,
        )
    }

    /// Returns when every rank of the set has called it or has [joined](Self::join). Only one
    /// thread of a rank may call it at a time. It blocks the thread; async code awaits
    /// [`start_barrier`](Self::start_barrier).
    ///
    /// ```
    /// # let context = ronde::Context::builder().alone().build()?;
    /// context.barrier()?;
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// A lost peer, a rank that is not a member, a context that has been shut down.
    pub fn barrier(&self) -> Result<(), Error> {
        self.start_barrier()?.wait()
    }

    /// Starts a barrier, for front ends that wait in their own way and for async code: the handle
    /// completes when every rank has called it.
    ///
    /// # Errors
    /// As for [`barrier`](Self::barrier).
    pub fn start_barrier(&self) -> Result<RawHandle, Error> {
        self.submit_bare("ronde.barrier", OpKind::Barrier)
    }

    /// Declares that this rank has no more data. Returns the rank that joined last, when all ranks
    /// of the set have joined. Until then this rank takes part in the operations of the others
    /// without data of its own: reductions leave it out (an average still divides by the size of
    /// the set), it adds no rows to gathered tensors, and it keeps nothing that is sent or
    /// scattered to it. It blocks the thread; async code awaits [`start_join`](Self::start_join).
    ///
    /// ```
    /// # use ronde::{Context, ReduceOp};
    /// # let context = Context::builder().alone().build()?;
    /// for batch in 0..3 + context.rank() { // uneven
    ///     context.allreduce("gradient", vec![1.0f32; 4], ReduceOp::Average)?.wait()?;
    /// }
    /// let last = context.join()?; // the rank that had most
    /// assert_eq!(last, context.size() - 1);
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`barrier`](Self::barrier). Tensors that other threads submit meanwhile fail
    /// ([`ArgumentError::HasJoined`]).
    pub fn join(&self) -> Result<usize, Error> {
        let handle = self.start_join()?;
        handle.wait()?;
        let last = handle
            .take_delivery()
            .and_then(|delivery| delivery.last_joined);
        Ok(last.unwrap_or(self.inner.job_rank))
    }

    /// Starts a join, for front ends that wait in their own way and for async code: the handle
    /// completes when all ranks have joined, and returns the last of them
    /// ([`Delivery::last_joined`](crate::Delivery::last_joined)).
    ///
    /// # Errors
    /// As for [`join`](Self::join).
    pub fn start_join(&self) -> Result<RawHandle, Error> {
        self.submit_bare(JOIN, OpKind::Join)
    }

    /// Lends slices to the runtime: all operations submitted in `body` have completed when `scope`
    /// returns. Their errors come from their handles.
    ///
    /// ```
    /// use ronde::{Context, ReduceOp};
    /// let context = Context::builder().alone().build()?;
    /// let (mut a, mut b) = ([1.0f32, 2.0], [3i64]);
    /// context.scope(|s| {
    ///     let first = s.allreduce("a", &mut a, ReduceOp::Sum)?;
    ///     let second = s.allreduce("b", &mut b, ReduceOp::Max)?;
    ///     first.wait()?;
    ///     second.wait()
    /// })?;
    /// assert_eq!((a, b), ([1.0, 2.0], [3]));
    /// # Ok::<(), ronde::Error>(())
    /// ```
    pub fn scope<'env, R>(
        &self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        scope::run(self, body)
    }

    /// Submits `tensor` for `operation`. For front ends that manage memory themselves.
    ///
    /// # Errors
    /// As for the operation's own method, and an output whose size differs from the result's.
    ///
    /// # Safety
    /// Until the handle reports that the operation has completed: the input must be readable for
    /// the elements of the shape, and a given output writable for its bytes, both aligned for the
    /// element type. They may be equal for an allreduce and a broadcast, and must be disjoint
    /// otherwise. No thread may write the input, and no thread may access the output. Elements of
    /// type bool must be 0 or 1. On a device, the stream must exist.
    ///
    /// If the handle [is ahead](RawHandle::is_ahead), all this holds on the device until work that
    /// follows [`put_before`](RawHandle::put_before): the memory may be freed or used again only on
    /// a stream that was put behind the result.
    pub unsafe fn submit(
        &self,
        operation: &Operation<'_>,
        tensor: &RawTensor<'_>,
    ) -> Result<RawHandle, Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.submit_for(operation, tensor, true) }
    }

    /// Submits as [`submit`](Self::submit) does. `can_follow`: the caller can make a stream wait
    /// for the result.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    unsafe fn submit_for(
        &self,
        operation: &Operation<'_>,
        tensor: &RawTensor<'_>,
        can_follow: bool,
    ) -> Result<RawHandle, Error> {
        // SAFETY: the caller keeps the same contract.
        let entry = unsafe { operation.entry(self, tensor, can_follow) }?;
        self.submit_entry(entry)
    }

    fn start<B: Buffer, R: Returned<B>>(
        &self,
        name: &str,
        mut buffer: B,
        shape: Option<&[usize]>,
        operation: &Operation<'_>,
        target: ResultTarget,
    ) -> Result<Handle<B, R>, Failed<B>> {
        let submitted = shape_of(name, shape, buffer.elements()).and_then(|shape| {
            let tensor = target.raw(name, &mut buffer, &shape);
            // SAFETY: the handle owns the buffer until the operation has completed, or leaves it to
            // the ticket.
            unsafe { self.submit_for(operation, &tensor, false) }
        });
        Handle::over(buffer, submitted)
    }

    /// Submits an operation without a tensor.
    pub(crate) fn submit_bare(&self, name: &str, kind: OpKind) -> Result<RawHandle, Error> {
        self.submit_entry(Entry {
            name,
            params: Params::plain(kind, Dtype::U8, Shape::new()).into(),
            span: None,
            output: Output::Fixed,
            on: None,
        })
    }

    pub(super) fn submit_entry(&self, entry: Entry<'_>) -> Result<RawHandle, Error> {
        let engine = self.engine()?;
        Ok(RawHandle {
            ticket: engine.queue.submit(entry)?,
            engine: Arc::clone(engine),
        })
    }

    pub(super) fn engine(&self) -> Result<&Arc<Engine>, Error> {
        if fork::forked() {
            return Err(Error::Forked);
        }
        match &self.inner.running {
            Some(running) => Ok(&running.engine),
            None => Err(ProcessSetError::NotAMember {
                rank: self.inner.job_rank,
                set: self.inner.id,
                members: self.inner.members.to_vec(),
            }
            .into()),
        }
    }

    pub(super) fn check_root(&self, tensor: &str, root: usize) -> Result<(), Error> {
        let (set, members) = (self.inner.id, &self.inner.members);
        if members.binary_search(&root).is_ok() {
            return Ok(());
        }
        let tensor = tensor.to_owned();
        Err(if set == 0 {
            Error::Argument(ArgumentError::InvalidRoot {
                tensor,
                root,
                size: members.len(),
            })
        } else {
            Error::Argument(ArgumentError::RootNotAMember {
                tensor,
                root,
                set,
                members: members.to_vec(),
            })
        })
    }

    /// Returns the number of rows for each rank; equal numbers if none are given.
    pub(super) fn check_splits(
        &self,
        tensor: &str,
        rows: usize,
        splits: &[usize],
    ) -> Result<Box<[u64]>, Error> {
        let size = self.size();
        let tensor = || tensor.to_owned();
        if splits.is_empty() {
            if !rows.is_multiple_of(size) {
                return Err(ArgumentError::UnevenRows {
                    tensor: tensor(),
                    rows,
                    size,
                }
                .into());
            }
            return Ok(std::iter::repeat_n((rows / size) as u64, size).collect());
        }
        let sum = splits
            .iter()
            .try_fold(0usize, |sum, &split| sum.checked_add(split));
        if splits.len() != size || sum != Some(rows) {
            return Err(ArgumentError::InvalidSplits {
                tensor: tensor(),
                splits: splits.to_vec(),
                size,
                rows,
            }
            .into());
        }
        Ok(splits.iter().map(|&split| split as u64).collect())
    }
}

impl Running {
    /// Ends the engine with `why`. Returns false if its cycle waits for a silent rank; then the
    /// cycle is left running.
    pub(super) fn stop(&self, why: &Error) -> bool {
        let Some(thread) = lock(&self.thread).take() else {
            return true;
        };
        let ended = self.engine.shut_down(why);
        self.engine.engine_group.remove(&self.engine.queue);
        if ended {
            // The thread catches its own panics: joining cannot fail.
            let _ = thread.join();
        }
        ended
    }
}

/// Destination of a buffer's result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultTarget {
    /// The buffer itself.
    Same,
    /// New memory.
    New,
}

impl ResultTarget {
    pub(super) fn raw<'a, B: Buffer>(
        self,
        name: &'a str,
        buffer: &mut B,
        shape: &'a [usize],
    ) -> RawTensor<'a> {
        let address = buffer.address();
        let bytes = buffer.elements() * B::DTYPE.size_bytes();
        RawTensor {
            name,
            dtype: B::DTYPE,
            wire_dtype: None,
            shape,
            device: buffer.device(),
            input: address,
            output: match self {
                Self::Same => RawOutput::Into { address, bytes },
                Self::New => RawOutput::Allocate,
            },
        }
    }
}
