//! CUDA devices: calls of the CUDA driver by cudarc, and NCCL ([`nccl`]).
//!
//! Every call is made in the device's primary context, the one that PyTorch and the CUDA runtime
//! use. A caller that runs a cycle while it waits may have another context current on its thread:
//! it is restored.

#![allow(unsafe_code)] // calls to libcuda

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_flags, CUfunction, CUmodule, CUresult,
    CUstream, CUstream_flags, CUstreamCaptureStatus,
};

use super::{Call, Communicator, Event, Gpu, GpuError, Kernel, Stream, Table, UniqueId};
use crate::sync::lock;

mod nccl;

use nccl::Nccl;

/// The kernels as PTX, for every device since Volta: the driver compiles them when they are loaded.
const KERNELS: &str = include_str!("../../collective/nccl/kernels/generated/copy.ptx");

/// Oldest driver, by the CUDA version that it supports: the first one that can load the kernels.
const OLDEST_DRIVER: c_int = 11_080;

/// Threads of a block; the kernels depend on this number.
const THREADS: u32 = 256;

/// Opens device `ordinal`.
pub(super) fn open(ordinal: u32) -> Result<Arc<dyn Gpu>, GpuError> {
    let count = count()?;
    if ordinal >= count {
        return Err(GpuError::NoDevice { ordinal, count });
    }
    let nccl = nccl::load()?;
    let mut device: CUdevice = 0;
    // SAFETY: the driver is initialized, and the device exists.
    check("cuDeviceGet", unsafe {
        sys::cuDeviceGet(&raw mut device, ordinal as c_int)
    })?;
    let mut context: CUcontext = ptr::null_mut();
    // SAFETY: the handle is a device.
    check("cuDevicePrimaryCtxRetain", unsafe {
        sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
    })?;
    let mut cuda = Cuda {
        ordinal,
        device,
        context,
        module: ptr::null_mut(),
        functions: Mutex::default(),
        nccl,
    };
    let image = CString::new(KERNELS).expect("a text without zeros");
    let mut module: CUmodule = ptr::null_mut();
    {
        let _entered = cuda.enter()?;
        // SAFETY: the image is PTX that ends with a zero.
        check("cuModuleLoadData", unsafe {
            sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast())
        })?;
    }
    cuda.module = module;
    Ok(Arc::new(cuda))
}

/// Number of devices.
pub(super) fn count() -> Result<u32, GpuError> {
    driver()?;
    let mut count = 0;
    // SAFETY: the driver is initialized.
    check("cuDeviceGetCount", unsafe {
        sys::cuDeviceGetCount(&raw mut count)
    })?;
    Ok(count as u32)
}

/// Version of the installed NCCL.
pub(super) fn nccl_version() -> Option<u32> {
    Some(nccl::load().ok()?.version)
}

/// Whether the driver's library can be loaded. Where cudarc links it, it has no such function.
fn has_driver() -> bool {
    ["libcuda.so", "libcuda.so.1"].iter().any(|name| {
        // SAFETY: loading libcuda runs its initializers, which are designed for that.
        unsafe { libloading::Library::new(*name) }.is_ok()
    })
}

/// Loads and initializes the driver.
fn driver() -> Result<(), GpuError> {
    if !has_driver() {
        return Err(GpuError::NoLibrary {
            library: "libcuda, which comes with NVIDIA's driver,",
            looked_for: "libcuda.so and libcuda.so.1, in LD_LIBRARY_PATH and the system's folders"
                .to_owned(),
            advice: "on a machine with an NVIDIA GPU install the driver (in a container, start it with --gpus all); where there \
                     is none, keep tensors in host memory",
        });
    }
    // SAFETY: the library is loaded, and these are its oldest functions.
    check("cuInit", unsafe { sys::cuInit(0) })?;
    let mut version = 0;
    // SAFETY: as above.
    check("cuDriverGetVersion", unsafe {
        sys::cuDriverGetVersion(&raw mut version)
    })?;
    if version < OLDEST_DRIVER {
        return Err(GpuError::TooOld {
            library: "the CUDA that NVIDIA's driver supports".to_owned(),
            found: format!("{}.{}", version / 1000, version % 1000 / 10),
            needed: "11.8 (driver 520)",
            advice: "install a newer driver",
        });
    }
    Ok(())
}

/// A CUDA device.
struct Cuda {
    ordinal: u32,
    device: CUdevice,
    context: CUcontext,
    module: CUmodule,
    functions: Mutex<HashMap<Kernel, Function>>,
    nccl: &'static Nccl,
}

#[derive(Clone, Copy)]
struct Function(CUfunction);

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

/// Guard: the device's context is current on this thread at least until it is dropped.
struct Entered {
    /// Another context was current before.
    is_pushed: bool,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.is_pushed {
            return;
        }
        let mut popped: CUcontext = ptr::null_mut();
        // SAFETY: pushed by `enter` on this thread.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
    }
}

impl Cuda {
    fn enter(&self) -> Result<Entered, GpuError> {
        let mut current: CUcontext = ptr::null_mut();
        // The usual case on PyTorch's threads.
        // SAFETY: writes a handle.
        check("cuCtxGetCurrent", unsafe {
            sys::cuCtxGetCurrent(&raw mut current)
        })?;
        if current == self.context {
            return Ok(Entered { is_pushed: false });
        }
        if current.is_null() {
            // A thread without a context keeps this one, as with the CUDA runtime: the next call
            // finds it.
            // SAFETY: the context is retained as long as `self`.
            check("cuCtxSetCurrent", unsafe {
                sys::cuCtxSetCurrent(self.context)
            })?;
            return Ok(Entered { is_pushed: false });
        }
        // SAFETY: the context is retained as long as `self`.
        check("cuCtxPushCurrent", unsafe {
            sys::cuCtxPushCurrent_v2(self.context)
        })?;
        Ok(Entered { is_pushed: true })
    }

    /// Returns a function of the module; each is looked up once.
    fn function(&self, kernel: Kernel) -> Result<CUfunction, GpuError> {
        if let Some(Function(known)) = lock(&self.functions).get(&kernel) {
            return Ok(*known);
        }
        let name = CString::new(kernel.name()).expect("a name without zeros");
        let mut function: CUfunction = ptr::null_mut();
        // SAFETY: the module is loaded, and the name a C string.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&raw mut function, self.module, name.as_ptr())
        })?;
        lock(&self.functions).insert(kernel, Function(function));
        Ok(function)
    }

    fn allocated(
        &self,
        call: &'static str,
        result: CUresult,
        bytes: usize,
    ) -> Result<(), GpuError> {
        match result {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(GpuError::OutOfMemory {
                ordinal: self.ordinal,
                bytes,
            }),
            other => check(call, other),
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: its functions are not launched any more.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
        // SAFETY: retained in `open`.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

fn stream_of(stream: Stream) -> CUstream {
    ptr::with_exposed_provenance_mut(stream.0 as usize)
}

fn event_of(event: Event) -> CUevent {
    ptr::with_exposed_provenance_mut(event.0 as usize)
}

/// Converts a result of the driver to an error, if it is one.
fn check(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    let Err(error) = result.result() else {
        return Ok(());
    };
    let text = |text: Result<&std::ffi::CStr, _>| {
        text.map_or_else(
            |_| format!("{result:?}"),
            |text| text.to_string_lossy().into_owned(),
        )
    };
    let (name, text) = (text(error.error_name()), text(error.error_string()));
    let advice = GpuError::advice(&name, &text);
    Err(GpuError::Call {
        call,
        name,
        text,
        advice,
    })
}

// All SAFETY comments below rely on this: handles and addresses are those that this process got
// from the driver and has not released, as the interface's callers promise. The driver checks
// handles, and a wrong address is an error of the device.
impl Gpu for Cuda {
    fn make_stream(&self) -> Result<Stream, GpuError> {
        let _entered = self.enter()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two numbers.
        check("cuCtxGetStreamPriorityRange", unsafe {
            sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)
        })?;
        let mut stream: CUstream = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // Other ranks wait for this work, so it has priority over the computation that it overlaps
        // with.
        // SAFETY: writes a handle.
        check("cuStreamCreateWithPriority", unsafe {
            sys::cuStreamCreateWithPriority(&raw mut stream, flags, greatest)
        })?;
        Ok(Stream(stream.expose_provenance() as u64))
    }

    fn destroy_stream(&self, stream: Stream) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: see above.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream_of(stream)) };
        }
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, GpuError> {
        let _entered = self.enter()?;
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: see above.
        check("cuStreamIsCapturing", unsafe {
            sys::cuStreamIsCapturing(stream_of(stream), &raw mut status)
        })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    fn make_event(&self, is_timed: bool) -> Result<Event, GpuError> {
        let _entered = self.enter()?;
        let mut event: CUevent = ptr::null_mut();
        // Waits sleep instead of spinning.
        let mut flags = CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        if !is_timed {
            flags |= CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        }
        // SAFETY: writes a handle.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&raw mut event, flags)
        })?;
        Ok(Event(event.expose_provenance() as u64))
    }

    fn destroy_event(&self, event: Event) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: see above.
            let _ = unsafe { sys::cuEventDestroy_v2(event_of(event)) };
        }
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: see above.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(event_of(event), stream_of(stream))
        })
    }

    fn follow(&self, stream: Stream, event: Event) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: see above.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(stream_of(stream), event_of(event), 0)
        })
    }

    fn has_come(&self, event: Event) -> Result<bool, GpuError> {
        let _entered = self.enter()?;
        // SAFETY: see above.
        match unsafe { sys::cuEventQuery(event_of(event)) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("cuEventQuery", other).map(|()| true),
        }
    }

    fn wait(&self, event: Event) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: see above.
        check("cuEventSynchronize", unsafe {
            sys::cuEventSynchronize(event_of(event))
        })
    }

    fn elapsed_ns(&self, from: Event, to: Event) -> Result<i64, GpuError> {
        let _entered = self.enter()?;
        let mut ms = 0.0f32;
        // SAFETY: see above.
        check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime(&raw mut ms, event_of(from), event_of(to))
        })?;
        Ok((f64::from(ms) * 1e6) as i64)
    }

    fn allocate(&self, bytes: usize) -> Result<u64, GpuError> {
        let _entered = self.enter()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes an address.
        let result = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) };
        self.allocated("cuMemAlloc", result, bytes)?;
        Ok(address)
    }

    fn free(&self, address: u64) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: see above.
            let _ = unsafe { sys::cuMemFree_v2(address) };
        }
    }

    fn allocate_on(&self, bytes: usize, stream: Stream) -> Result<u64, GpuError> {
        let _entered = self.enter()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: writes an address.
        let result = unsafe { sys::cuMemAllocAsync(&raw mut address, bytes, stream_of(stream)) };
        self.allocated("cuMemAllocAsync", result, bytes)?;
        Ok(address)
    }

    fn free_on(&self, address: u64, stream: Stream) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: see above.
            let _ = unsafe { sys::cuMemFreeAsync(address, stream_of(stream)) };
        }
    }

    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: readable, by the caller's promise.
        check("cuMemcpyHtoD", unsafe {
            sys::cuMemcpyHtoD_v2(to, from.cast(), bytes)
        })?;
        // The driver has read all pageable memory by then, but may not have written it to the
        // device; other streams do not wait for that.
        // SAFETY: the legacy default stream, in which the copy runs.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(ptr::null_mut())
        })
    }

    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: writable, by the caller's promise.
        check("cuMemcpyDtoH", unsafe {
            sys::cuMemcpyDtoH_v2(to.cast(), from, bytes)
        })
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8, GpuError> {
        let _entered = self.enter()?;
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: writes an address.
        check("cuMemHostAlloc", unsafe {
            sys::cuMemHostAlloc(&raw mut address, bytes, 0)
        })?;
        Ok(address.cast())
    }

    fn free_host(&self, address: *mut u8) {
        if let Ok(_entered) = self.enter() {
            // SAFETY: see above.
            let _ = unsafe { sys::cuMemFreeHost(address.cast()) };
        }
    }

    unsafe fn upload_on(
        &self,
        to: u64,
        from: *const u8,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: readable until the copy has ended, by the caller's promise.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream_of(stream))
        })
    }

    unsafe fn download_on(
        &self,
        to: *mut u8,
        from: u64,
        bytes: usize,
        stream: Stream,
    ) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: writable until the copy has ended, by the caller's promise.
        check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream_of(stream))
        })
    }

    fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        // SAFETY: see above.
        check("cuMemcpyDtoDAsync", unsafe {
            sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream_of(stream))
        })
    }

    fn launch(&self, kernel: Kernel, table: &Table, stream: Stream) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        let function = self.function(kernel)?;
        // The driver copies the parameter before it returns, and does not write to it.
        let mut parameters = [ptr::from_ref(table).cast_mut().cast::<c_void>()];
        // SAFETY: the kernels take one table; addresses are the caller's.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                function,
                table.blocks(kernel),
                1,
                1,
                THREADS,
                1,
                1,
                0,
                stream_of(stream),
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    fn unique_id(&self) -> Result<UniqueId, GpuError> {
        self.nccl.unique_id()
    }

    fn join(&self, id: &UniqueId, rank: usize, size: usize) -> Result<Communicator, GpuError> {
        let _entered = self.enter()?;
        self.nccl.join(id, rank, size)
    }

    fn is_ready(&self, communicator: Communicator) -> Result<bool, GpuError> {
        let _entered = self.enter()?;
        self.nccl.is_ready(communicator)
    }

    fn call(
        &self,
        communicator: Communicator,
        calls: &[Call],
        stream: Stream,
    ) -> Result<(), GpuError> {
        let _entered = self.enter()?;
        self.nccl
            .call(communicator, calls, stream_of(stream).cast())
    }

    fn leave(&self, communicator: Communicator) {
        if let Ok(_entered) = self.enter() {
            self.nccl.leave(communicator);
        }
    }

    fn abort(&self, communicator: Communicator) {
        if let Ok(_entered) = self.enter() {
            self.nccl.abort(communicator);
        }
    }

    /// All at once: NCCL frees device memory when it aborts a communicator, which waits for the
    /// kernels of the others, and these end only when theirs is aborted.
    fn abort_all(&self, communicators: &[Communicator]) {
        let Some((&first, others)) = communicators.split_first() else {
            return;
        };
        std::thread::scope(|scope| {
            for &communicator in others {
                let abort = move || self.abort(communicator);
                let thread = std::thread::Builder::new().name("ronde-abort".into());
                if let Err(error) = thread.spawn_scoped(scope, abort) {
                    tracing::error!("a communicator of NCCL is not aborted: {error}");
                }
            }
            self.abort(first);
        });
    }
}
