//! Grouped operations of a process set: their tensors are submitted, fused and returned together.

#![allow(unsafe_code)] // the contract of submitted memory: it outlives the operation

use std::sync::Arc;

use super::Reduce;
use super::gathered::{Gathered, Returned};
use super::handle::{GroupHandle, Handle, RawHandle};
use super::operation::{Operation, RawTensor, shape_of};
use super::process_set::{ProcessSet, ResultTarget};
use crate::buffer::{Buffer, Failed};
use crate::cycle::engine::Engine;
use crate::error::Error;
use crate::negotiation::Group;
use crate::queue::{Entry, Ticket};
use crate::tensor::Shape;

/// Returns a handle for each ticket.
fn handles((engine, tickets): (&Arc<Engine>, Vec<Arc<Ticket>>)) -> Vec<RawHandle> {
    let handle = |ticket| RawHandle {
        engine: Arc::clone(engine),
        ticket,
    };
    tickets.into_iter().map(handle).collect()
}

impl ProcessSet {
    /// Allreduces several tensors as one group: all of them run in the same cycle, and they are
    /// fused whatever the fusion threshold. Their names are `<name>_<i>of<n>`, i from 1.
    ///
    /// ```
    /// # use ronde::{Context, ReduceOp};
    /// # let context = Context::builder().alone().build()?;
    /// let layer = vec![vec![1.0f32; 4], vec![2.0f32; 2]];
    /// let layer = context.grouped_allreduce("layer", layer, ReduceOp::Average)?.wait()?;
    /// assert_eq!(layer, [vec![1.0; 4], vec![2.0; 2]]);
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce); then no tensor is submitted. A shape in the options
    /// must fit all tensors.
    pub fn grouped_allreduce<B: Buffer>(
        &self,
        name: &str,
        buffers: Vec<B>,
        options: impl Into<Reduce>,
    ) -> Result<GroupHandle<B>, Failed<Vec<B>>> {
        let (operation, shape) = options.into().allreduce();
        let parts = buffers
            .iter()
            .map(|_| (shape.as_deref(), operation))
            .collect();
        self.start_group(name, buffers, parts, ResultTarget::Same)
    }

    /// Broadcasts several tensors as one group, as [`grouped_allreduce`](Self::grouped_allreduce)
    /// does.
    ///
    /// ```
    /// # use ronde::Context;
    /// # let context = Context::builder().alone().build()?;
    /// let model = vec![vec![0.5f32; 4], vec![0.0f32; 2]];
    /// let model = context.grouped_broadcast("model", model, 0)?.wait()?;
    /// assert_eq!(model[1], [0.0; 2]);
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast); then no tensor is submitted.
    pub fn grouped_broadcast<B: Buffer>(
        &self,
        name: &str,
        buffers: Vec<B>,
        root: usize,
    ) -> Result<GroupHandle<B>, Failed<Vec<B>>> {
        let parts = buffers
            .iter()
            .map(|_| (None, Operation::Broadcast { root }))
            .collect();
        self.start_group(name, buffers, parts, ResultTarget::Same)
    }

    /// Allgathers several tensors as one group, as [`grouped_allreduce`](Self::grouped_allreduce)
    /// does. Each tensor has its own shape.
    ///
    /// ```
    /// # use ronde::Context;
    /// # let context = Context::builder().alone().build()?;
    /// let sparse: Vec<(_, &[usize])> =
    ///     vec![(vec![3i64, 7], &[2]), (vec![1i64, 1, 2, 2], &[2, 2])];
    /// let rows = context.grouped_allgather("sparse", sparse)?.wait()?;
    /// assert_eq!(rows[1].shape, [2 * context.size(), 2]);
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`allgather`](Self::allgather); then no tensor is submitted.
    pub fn grouped_allgather<B: Buffer>(
        &self,
        name: &str,
        tensors: Vec<(B, &[usize])>,
    ) -> Result<GroupHandle<B, Gathered<B>>, Failed<Vec<B>>> {
        let (buffers, shapes): (Vec<B>, Vec<&[usize]>) = tensors.into_iter().unzip();
        let parts = shapes
            .into_iter()
            .map(|shape| (Some(shape), Operation::Allgather));
        self.start_group(name, buffers, parts.collect(), ResultTarget::New)
    }

    /// Sends rows of several tensors as one group, as
    /// [`grouped_allreduce`](Self::grouped_allreduce) does. Each tensor has its own shape and
    /// splits.
    ///
    /// ```
    /// # use ronde::Context;
    /// # let context = Context::builder().alone().build()?;
    /// let tokens: Vec<(_, &[usize], &[usize])> =
    ///     vec![(vec![1.0f32; 6], &[6], &[]), (vec![2.0f32; 6], &[6], &[])];
    /// let got = context.grouped_alltoall("tokens", tokens)?.wait()?;
    /// assert_eq!(got[0].tensor, [1.0; 6]); // in a job of six ranks: one row of each rank
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`alltoall`](Self::alltoall); then no tensor is submitted.
    pub fn grouped_alltoall<B: Buffer>(
        &self,
        name: &str,
        tensors: Vec<(B, &[usize], &[usize])>,
    ) -> Result<GroupHandle<B, Gathered<B>>, Failed<Vec<B>>> {
        let mut buffers = Vec::with_capacity(tensors.len());
        let mut parts = Vec::with_capacity(tensors.len());
        for (buffer, shape, splits) in tensors {
            buffers.push(buffer);
            parts.push((Some(shape), Operation::Alltoall { splits }));
        }
        self.start_group(name, buffers, parts, ResultTarget::New)
    }

    /// Reducescatters several tensors as one group, as
    /// [`grouped_allreduce`](Self::grouped_allreduce) does. Each tensor has its own shape; one of
    /// the options is not used.
    ///
    /// ```
    /// # use ronde::{Context, ReduceOp};
    /// # let context = Context::builder().alone().build()?;
    /// let layer: Vec<(_, &[usize])> = vec![(vec![1.0f32; 8], &[4, 2]), (vec![2.0f32; 4], &[4])];
    /// let shares = context.grouped_reducescatter("layer", layer, ReduceOp::Average)?.wait()?;
    /// assert_eq!(shares[0].shape, [4, 2]); // two ranks: [2, 2] each
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`reducescatter`](Self::reducescatter); then no tensor is submitted.
    pub fn grouped_reducescatter<B: Buffer>(
        &self,
        name: &str,
        tensors: Vec<(B, &[usize])>,
        options: impl Into<Reduce>,
    ) -> Result<GroupHandle<B, Gathered<B>>, Failed<Vec<B>>> {
        let (operation, _) = options.into().reducescatter();
        let (buffers, shapes): (Vec<B>, Vec<&[usize]>) = tensors.into_iter().unzip();
        let parts = shapes.into_iter().map(|shape| (Some(shape), operation));
        self.start_group(name, buffers, parts.collect(), ResultTarget::New)
    }

    /// Submits the tensors of the group `name`, all or none of them. For front ends that manage
    /// memory themselves.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    ///
    /// # Safety
    /// As for [`submit`](Self::submit), for each tensor.
    pub unsafe fn submit_group(
        &self,
        name: &str,
        parts: &[(Operation<'_>, RawTensor<'_>)],
    ) -> Result<Vec<RawHandle>, Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.submit_group_for(name, parts, true) }
    }

    /// Submits several tensors at once, all or none of them, each as [`submit`](Self::submit) does.
    /// They are not a group: they do not wait for one another. For many small tensors this is
    /// faster than single calls. For front ends that manage memory themselves.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), for the first tensor with an error.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit), for each tensor.
    pub unsafe fn submit_batch(
        &self,
        parts: &[(Operation<'_>, RawTensor<'_>)],
    ) -> Result<Vec<RawHandle>, Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.submit_all(parts, None, true) }.map(handles)
    }

    /// Submits a group as [`submit_group`](Self::submit_group) does. `can_follow`: the caller can
    /// make a stream wait for the results.
    ///
    /// # Safety
    /// As for [`submit_group`](Self::submit_group).
    unsafe fn submit_group_for(
        &self,
        name: &str,
        parts: &[(Operation<'_>, RawTensor<'_>)],
        can_follow: bool,
    ) -> Result<Vec<RawHandle>, Error> {
        let group = Group {
            tag: tag(name, parts.iter().map(|(_, tensor)| tensor.name)),
            size: parts.len() as u32,
        };
        // SAFETY: the caller keeps the same contract.
        unsafe { self.submit_all(parts, Some(group), can_follow) }.map(handles)
    }

    /// Submits tensors at once, as a group or not. Returns their tickets, and the engine that
    /// completes them.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit), for each tensor.
    pub(super) unsafe fn submit_all(
        &self,
        parts: &[(Operation<'_>, RawTensor<'_>)],
        group: Option<Group>,
        can_follow: bool,
    ) -> Result<(&Arc<Engine>, Vec<Arc<Ticket>>), Error> {
        let engine = self.engine()?;
        let entries = parts.iter().map(|(operation, tensor)| {
            // SAFETY: the caller keeps the same contract.
            let mut entry = unsafe { operation.entry(self, tensor, can_follow) }?;
            entry.params.set_group(group);
            Ok(entry)
        });
        let entries = entries.collect::<Result<Vec<Entry<'_>>, Error>>()?;
        Ok((engine, engine.queue.submit_group(entries)?))
    }

    fn start_group<B: Buffer, R: Returned<B>>(
        &self,
        name: &str,
        mut buffers: Vec<B>,
        parts: Vec<(Option<&[usize]>, Operation<'_>)>,
        target: ResultTarget,
    ) -> Result<GroupHandle<B, R>, Failed<Vec<B>>> {
        let count = buffers.len();
        let names: Vec<String> = (1..=count)
            .map(|i| format!("{name}_{i}of{count}"))
            .collect();
        let shapes: Result<Vec<Shape>, Error> = buffers
            .iter()
            .zip(&names)
            .zip(&parts)
            .map(|((buffer, name), (shape, _))| shape_of(name, *shape, buffer.elements()))
            .collect();
        let submitted = shapes.and_then(|shapes| {
            let tensors: Vec<_> = parts
                .iter()
                .zip(&names)
                .zip(&shapes)
                .zip(&mut buffers)
                .map(|(((part, name), shape), buffer)| (part.1, target.raw(name, buffer, shape)))
                .collect();
            // SAFETY: as in `start`, for each buffer.
            unsafe { self.submit_group_for(name, &tensors, false) }
        });
        match submitted {
            Ok(raw) => {
                let handles = buffers.into_iter().zip(raw);
                let handles = handles.map(|(buffer, raw)| Handle::new(buffer, raw));
                Ok(GroupHandle::new(handles.collect()))
            }
            Err(error) => Err(Failed {
                error,
                buffer: buffers,
            }),
        }
    }
}

/// Number of a group, the same on all ranks whatever the order of its members: the sum of the
/// FNV-1a hashes (Fowler, Noll, Vo) of its name and theirs. Two groups in flight with the same name
/// differ, unless their members are the same.
fn tag<'a>(name: &'a str, members: impl Iterator<Item = &'a str>) -> u64 {
    let fnv1a = |text: &str| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3u64)
        })
    };
    members.fold(fnv1a(name), |sum, member| sum.wrapping_add(fnv1a(member)))
}
