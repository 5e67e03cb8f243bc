//! The runtime as a program sees it: a [`Context`] for the rank, and a [`Handle`] for each tensor in flight.

use std::sync::Arc;
use std::thread::JoinHandle;

mod buffer;
mod builder;
pub(crate) mod fork;
mod handle;
mod scope;

pub use buffer::{Buffer, Failed};
pub use builder::Builder;
pub use handle::{Handle, RawHandle};
pub use scope::{Scope, ScopedHandle};

use crate::autotune::{AutotuneReport, Progress};
use crate::drive::Engine;
use crate::error::Error;
use crate::identity::Identity;
use crate::negotiation::{OpKind, Params};
use crate::settings::Settings;
use crate::tensor::{Dtype, ReduceOp, Shape, Span};

/// How an allreduce combines tensors. Most calls pass just a [`ReduceOp`].
///
/// ```
/// use ronde::{Allreduce, ReduceOp};
/// let halved = Allreduce::from(ReduceOp::Sum).postscale(0.5).shape(&[2, 3]);
/// # let _ = halved;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Allreduce {
    op: ReduceOp,
    prescale: f64,
    postscale: f64,
    shape: Option<Shape>,
}

impl From<ReduceOp> for Allreduce {
    fn from(op: ReduceOp) -> Self {
        Self {
            op,
            prescale: 1.0,
            postscale: 1.0,
            shape: None,
        }
    }
}

impl Allreduce {
    /// Multiplies every contribution by `factor` first.
    #[must_use]
    pub fn prescale(self, factor: f64) -> Self {
        Self {
            prescale: factor,
            ..self
        }
    }

    /// Multiplies the result by `factor`.
    #[must_use]
    pub fn postscale(self, factor: f64) -> Self {
        Self {
            postscale: factor,
            ..self
        }
    }

    /// Gives the tensor's dimensions, which must agree among ranks; one dimension otherwise.
    #[must_use]
    pub fn shape(self, dimensions: &[usize]) -> Self {
        Self {
            shape: Some(dimensions.into()),
            ..self
        }
    }
}

/// A rank's membership in a job: from [`init`](Self::from_env) to drop.
///
/// All ranks submit the same tensors, each in an order of its own; the runtime agrees on what is ready
/// everywhere, fuses it and combines it. A context may be shared among threads.
///
/// ```
/// use ronde::{Context, ReduceOp};
/// let context = Context::builder().alone().build()?; // a job of one rank; `Context::from_env()` in a real one
/// let handle = context.allreduce("gradient", vec![1.0f32, 2.0, 3.0], ReduceOp::Average)?;
/// // … compute on …
/// let gradient: Vec<f32> = handle.wait()?;
/// assert_eq!(gradient, [1.0, 2.0, 3.0]);
/// # Ok::<(), ronde::Error>(())
/// ```
pub struct Context {
    engine: Arc<Engine>,
    identity: Identity,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl Context {
    /// Joins the job that the environment describes: rank and size from the launcher's variables
    /// ([`crate::identity`]), settings from `HOROVOD_*` and `RONDE_*` ([`crate::knobs`]). Without a launcher it is
    /// a job of one rank.
    ///
    /// # Errors
    /// Contradicting or invalid variables, ranks that do not arrive in time or are of another version, files that
    /// cannot be written, too little memory.
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// A context with some things set by the program instead of the environment.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// This process's rank, `0..size`.
    pub fn rank(&self) -> usize {
        self.identity.rank
    }

    /// Number of ranks in the job.
    pub fn size(&self) -> usize {
        self.identity.size
    }

    /// This process's rank among those of its host.
    pub fn local_rank(&self) -> usize {
        self.identity.local_rank
    }

    /// Number of ranks on this host.
    pub fn local_size(&self) -> usize {
        self.identity.local_size
    }

    /// Index of this host among those that have this local rank.
    pub fn cross_rank(&self) -> usize {
        self.identity.cross_rank
    }

    /// Number of hosts that have this local rank.
    pub fn cross_size(&self) -> usize {
        self.identity.cross_size
    }

    /// Combines `buffer` element by element with the tensors that the other ranks submit under `name`, in place.
    ///
    /// # Errors
    /// At once: a name already in flight here, a shape that does not fit the buffer, a lost peer, a context that
    /// has been shut down. From the handle: what differs among ranks, and peers lost meanwhile.
    pub fn allreduce<B: Buffer>(
        &self,
        name: &str,
        mut buffer: B,
        options: impl Into<Allreduce>,
    ) -> Result<Handle<B>, Failed<B>> {
        let (address, elements) = (buffer.address(), buffer.elements());
        // SAFETY: the handle owns the buffer until the operation is over, or leaves it to the ticket.
        let raw =
            unsafe { self.submit_allreduce(name, B::DTYPE, address, address, elements, options.into()) };
        Handle::over(buffer, raw)
    }

    /// Replaces `buffer`, in place, by the one that rank `root` submits under `name`.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce), and a root that is not a rank.
    pub fn broadcast<B: Buffer>(
        &self,
        name: &str,
        mut buffer: B,
        root: usize,
    ) -> Result<Handle<B>, Failed<B>> {
        let (address, elements) = (buffer.address(), buffer.elements());
        // SAFETY: as for `allreduce`.
        let raw = unsafe { self.submit_broadcast(name, B::DTYPE, address, address, elements, root, None) };
        Handle::over(buffer, raw)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// A lost peer, or a context that has been shut down.
    pub fn barrier(&self) -> Result<(), Error> {
        let params = params(
            OpKind::Barrier,
            Dtype::F32,
            Shape::new(),
            Allreduce::from(ReduceOp::Sum),
            0,
        );
        self.submit("barrier", params, None)?.wait()
    }

    /// Lends slices to the runtime: all operations submitted in `body` are over when `scope` returns.
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
    pub fn scope<'env, R>(&self, body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
        scope::run(self, body)
    }

    /// Says that a training step ends here. Not needed, as steps are recognized by what repeats; a program that
    /// says it makes step metrics and tuning exact from the first step on.
    pub fn mark_step(&self) {
        self.engine.front.mark_step();
    }

    /// The settings in force on this rank.
    pub fn settings(&self) -> Settings {
        self.progress.settings()
    }

    /// What the tuner is doing or has done: on rank 0, if `HOROVOD_AUTOTUNE` is on.
    pub fn autotune_report(&self) -> Option<AutotuneReport> {
        self.progress.autotune()
    }

    /// Leaves the job: pending tensors fail with [`Error::ShutDown`] here, and with [`Error::PeerLeft`] on ranks
    /// that still wait for this one. Dropping the context does the same.
    pub fn shutdown(mut self) {
        self.leave();
    }

    /// For front ends that manage memory themselves: [`allreduce`](Self::allreduce) from `input` to `output`,
    /// which may be the same.
    ///
    /// # Errors
    /// As for [`allreduce`](Self::allreduce).
    ///
    /// # Safety
    /// Until the handle says that the operation is over, both addresses must be valid for `elements` elements,
    /// aligned, equal or disjoint, nobody may write the input and nobody may touch the output.
    pub unsafe fn submit_allreduce(
        &self,
        name: &str,
        dtype: Dtype,
        input: *const u8,
        output: *mut u8,
        elements: usize,
        mut options: Allreduce,
    ) -> Result<RawHandle, Error> {
        let shape = shape_of(name, options.shape.take(), elements)?;
        let params = params(OpKind::Allreduce, dtype, shape, options, 0);
        // SAFETY: the caller's promise is the same.
        let span = unsafe { Span::new(input, output, elements * dtype.size_bytes()) };
        self.submit(name, params, Some(span))
    }

    /// For front ends that manage memory themselves: [`broadcast`](Self::broadcast).
    ///
    /// # Errors
    /// As for [`broadcast`](Self::broadcast).
    ///
    /// # Safety
    /// As for [`submit_allreduce`](Self::submit_allreduce).
    #[allow(clippy::too_many_arguments)] // one tensor, described as a C front end has it
    pub unsafe fn submit_broadcast(
        &self,
        name: &str,
        dtype: Dtype,
        input: *const u8,
        output: *mut u8,
        elements: usize,
        root: usize,
        shape: Option<Shape>,
    ) -> Result<RawHandle, Error> {
        let size = self.size();
        if root >= size {
            return Err(Error::InvalidRoot {
                tensor: name.to_owned(),
                root,
                size,
            });
        }
        let shape = shape_of(name, shape, elements)?;
        let params = params(
            OpKind::Broadcast,
            dtype,
            shape,
            Allreduce::from(ReduceOp::Sum),
            root as u32,
        );
        // SAFETY: the caller's promise is the same.
        let span = unsafe { Span::new(input, output, elements * dtype.size_bytes()) };
        self.submit(name, params, Some(span))
    }

    fn submit(&self, name: &str, params: Params, span: Option<Span>) -> Result<RawHandle, Error> {
        if fork::forked() {
            return Err(Error::Forked);
        }
        let ticket = self.engine.front.submit(name, params, None, span)?;
        Ok(RawHandle {
            engine: Arc::clone(&self.engine),
            ticket,
        })
    }

    fn leave(&mut self) {
        if fork::forked() {
            // The thread, the lock's owner and the mappings are the parent's: leave all as it is.
            std::mem::forget(self.thread.take());
            std::mem::forget(Arc::clone(&self.engine));
            return;
        }
        let Some(thread) = self.thread.take() else { return };
        if self.engine.shut_down() {
            // It has caught its own panics: joining can only succeed.
            let _ = thread.join();
        } else {
            tracing::error!(
                "this rank leaves while its cycle still waits for a silent rank; \
                 set HOROVOD_STALL_SHUTDOWN_TIME_SECONDS to have such a wait end with an error"
            );
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.leave();
    }
}

fn params(kind: OpKind, dtype: Dtype, shape: Shape, options: Allreduce, root: u32) -> Params {
    let Allreduce {
        op,
        prescale,
        postscale,
        ..
    } = options;
    Params {
        kind,
        dtype,
        shape,
        op,
        prescale,
        postscale,
        root,
        device: None,
    }
}

fn shape_of(name: &str, shape: Option<Shape>, elements: usize) -> Result<Shape, Error> {
    let Some(shape) = shape else {
        return Ok([elements].into_iter().collect());
    };
    match shape
        .iter()
        .try_fold(1usize, |product, &dimension| product.checked_mul(dimension))
    {
        Some(product) if product == elements => Ok(shape),
        product => Err(Error::ShapeMismatch {
            tensor: name.to_owned(),
            shape: shape.to_vec(),
            expected: product.unwrap_or(usize::MAX),
            found: elements,
        }),
    }
}
