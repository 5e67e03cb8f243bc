//! Functions of TensorFlow's C interface (`tensorflow/c/{ops,kernels,tf_tensor,tf_status}.h`),
//! found in the library that the process has loaded, and wrappers that own what they return.
//!
//! Nothing here is compiled against TensorFlow. Lengths and numbers from it are checked where they
//! become sizes or indices.

#![allow(unsafe_code)] // the C interface of TensorFlow

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use smallvec::SmallVec;

use crate::collective::{Code, Failure};

/// `RTLD_NOLOAD` of glibc and musl: only a library that the process has loaded.
const RTLD_NOLOAD: c_int = 4;

/// Names of the library with the C interface, newest first.
const NAMES: [&str; 2] = ["libtensorflow_framework.so.2", "libtensorflow_cc.so.2"];

/// Most dimensions of a tensor in TensorFlow (`TensorShape::MaxDimensions`).
const DIMENSIONS_MAX: c_int = 254;

/// Types of C that are only passed on.
#[repr(C)]
pub(super) struct Opaque {
    _private: [u8; 0],
}

pub(super) type Create = unsafe extern "C" fn(*mut Opaque) -> *mut c_void;
pub(super) type Compute = unsafe extern "C" fn(*mut c_void, *mut Opaque);
pub(super) type Delete = unsafe extern "C" fn(*mut c_void);
pub(super) type InferShape = unsafe extern "C" fn(*mut Opaque, *mut Opaque);
type Deallocate = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

macro_rules! table {
    ($($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Addresses of the functions.
        pub(super) struct Table {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Table {
            /// Finds all functions, or returns the name of the first one that is missing.
            fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is that of the function in TensorFlow's headers.
                        let found = unsafe { library.get(concat!($name, "\0").as_bytes()) };
                        *found.map_err(|_| $name)?
                    },)*
                })
            }
        }
    };
}

table! {
    new_status = "TF_NewStatus": fn() -> *mut Opaque;
    delete_status = "TF_DeleteStatus": fn(*mut Opaque);
    set_status = "TF_SetStatus": fn(*mut Opaque, c_int, *const c_char);
    get_code = "TF_GetCode": fn(*const Opaque) -> c_int;
    message = "TF_Message": fn(*const Opaque) -> *const c_char;

    new_op = "TF_NewOpDefinitionBuilder": fn(*const c_char) -> *mut Opaque;
    op_attribute = "TF_OpDefinitionBuilderAddAttr": fn(*mut Opaque, *const c_char);
    op_input = "TF_OpDefinitionBuilderAddInput": fn(*mut Opaque, *const c_char);
    op_output = "TF_OpDefinitionBuilderAddOutput": fn(*mut Opaque, *const c_char);
    op_is_stateful = "TF_OpDefinitionBuilderSetIsStateful": fn(*mut Opaque, bool);
    op_shapes = "TF_OpDefinitionBuilderSetShapeInferenceFunction": fn(*mut Opaque, InferShape);
    register_op = "TF_RegisterOpDefinition": fn(*mut Opaque, *mut Opaque);
    unknown_shapes = "TF_ShapeInferenceContextSetUnknownShape": fn(*mut Opaque, *mut Opaque);

    new_kernel = "TF_NewKernelBuilder":
        fn(*const c_char, *const c_char, Create, Compute, Delete) -> *mut Opaque;
    host_memory = "TF_KernelBuilder_HostMemory": fn(*mut Opaque, *const c_char);
    register_kernel = "TF_RegisterKernelBuilder": fn(*const c_char, *mut Opaque, *mut Opaque);

    attribute_size = "TF_OpKernelConstruction_GetAttrSize":
        fn(*mut Opaque, *const c_char, *mut i32, *mut i32, *mut Opaque);
    attribute_integer = "TF_OpKernelConstruction_GetAttrInt64":
        fn(*mut Opaque, *const c_char, *mut i64, *mut Opaque);
    attribute_strings = "TF_OpKernelConstruction_GetAttrStringList":
        fn(*mut Opaque, *const c_char, *mut *mut c_char, *mut usize, c_int, *mut c_void, usize,
           *mut Opaque);
    construction_failure = "TF_OpKernelConstruction_Failure": fn(*mut Opaque, *mut Opaque);

    num_inputs = "TF_NumInputs": fn(*mut Opaque) -> c_int;
    num_outputs = "TF_NumOutputs": fn(*mut Opaque) -> c_int;
    get_input = "TF_GetInput": fn(*mut Opaque, c_int, *mut *mut Opaque, *mut Opaque);
    expected_type = "TF_ExpectedOutputDataType": fn(*mut Opaque, c_int) -> c_int;
    forward_or_allocate = "TF_ForwardInputOrAllocateOutput":
        fn(*mut Opaque, *const c_int, c_int, c_int, *const i64, c_int, *mut c_int, *mut Opaque)
            -> *mut Opaque;
    set_output = "TF_SetOutput": fn(*mut Opaque, c_int, *const Opaque, *mut Opaque);
    kernel_failure = "TF_OpKernelContext_Failure": fn(*mut Opaque, *mut Opaque);

    new_tensor = "TF_NewTensor":
        fn(c_int, *const i64, c_int, *mut c_void, usize, Deallocate, *mut c_void) -> *mut Opaque;
    allocate_tensor = "TF_AllocateTensor": fn(c_int, *const i64, c_int, usize) -> *mut Opaque;
    delete_tensor = "TF_DeleteTensor": fn(*mut Opaque);
    tensor_type = "TF_TensorType": fn(*const Opaque) -> c_int;
    num_dims = "TF_NumDims": fn(*const Opaque) -> c_int;
    dim = "TF_Dim": fn(*const Opaque, c_int) -> i64;
    byte_size = "TF_TensorByteSize": fn(*const Opaque) -> usize;
    data = "TF_TensorData": fn(*const Opaque) -> *mut c_void;
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// Finds the functions in the loaded TensorFlow.
///
/// # Errors
/// The name of the missing library or function.
pub(super) fn load() -> Result<&'static Table, String> {
    if let Some(table) = TABLE.get() {
        return Ok(table);
    }
    let mut missing = None;
    for name in NAMES {
        // SAFETY: RTLD_NOLOAD runs no initializers, as the library is loaded already.
        let opened = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) };
        let Ok(library) = opened else { continue };
        match Table::find(&library) {
            Ok(table) => {
                // The addresses are valid as long as the library is loaded: never closed.
                std::mem::forget(library);
                return Ok(TABLE.get_or_init(|| table));
            }
            Err(function) => missing = Some((name, function)),
        }
    }
    Err(match missing {
        Some((library, function)) => format!(
            "{library} has no function {function}: its C interface for kernels is incomplete"
        ),
        None => format!("{} is not loaded in this process", NAMES.join(", or ")),
    })
}

/// The functions, in a kernel or shape function, which exists only after [`load`].
pub(super) fn table() -> &'static Table {
    match TABLE.get() {
        Some(table) => table,
        None => unreachable!("kernels are registered with the functions of the table"),
    }
}

/// A status, for calls that return one.
pub(super) struct Status(*mut Opaque);

impl Status {
    pub(super) fn new() -> Self {
        // SAFETY: no preconditions.
        Self(unsafe { (table().new_status)() })
    }

    /// Status of a failed kernel.
    pub(super) fn failed(failure: &Failure) -> Self {
        let status = Self::new();
        let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the status is ours, and the message ends with a null byte and is copied.
        unsafe { (table().set_status)(status.0, failure.code as c_int, message.as_ptr()) };
        status
    }

    pub(super) fn as_ptr(&self) -> *mut Opaque {
        self.0
    }

    /// The outcome of the last call that got the status, which each call sets anew.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        // SAFETY: the status is ours; its message lives until the status changes.
        unsafe {
            match (table().get_code)(self.0) {
                0 => Ok(()),
                code => {
                    let message = CStr::from_ptr((table().message)(self.0)).to_string_lossy();
                    Err(Failure {
                        code: match code {
                            1 => Code::Cancelled,
                            3 => Code::InvalidArgument,
                            9 => Code::FailedPrecondition,
                            13 => Code::Internal,
                            _ => Code::Unknown,
                        },
                        message: message.into_owned(),
                    })
                }
            }
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        // SAFETY: the status is ours and not used again.
        unsafe { (table().delete_status)(self.0) };
    }
}

/// A reference to a tensor in host memory.
pub(super) struct Tensor(NonNull<Opaque>);

// SAFETY: a TF_Tensor is a reference with an atomic count to a buffer; TensorFlow itself moves it
// between threads.
unsafe impl Send for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and not used again.
        unsafe { (table().delete_tensor)(self.0.as_ptr()) };
    }
}

impl Tensor {
    /// Takes over a reference that a function has returned.
    fn owned(pointer: *mut Opaque, status: &Status) -> Result<Self, Failure> {
        let tensor = NonNull::new(pointer).map(Self);
        status.outcome()?;
        tensor.ok_or_else(|| Failure::internal("TensorFlow returned no tensor"))
    }

    /// Tensor in memory that `keeper` owns; it is dropped with the last reference.
    ///
    /// # Safety
    /// `address` has `bytes` bytes as long as `keeper` lives.
    pub(super) unsafe fn around<K: Send>(
        dtype: c_int,
        dims: &[i64],
        address: *mut u8,
        bytes: usize,
        keeper: K,
    ) -> Result<Self, Failure> {
        unsafe extern "C" fn free<K>(_: *mut c_void, _: usize, keeper: *mut c_void) {
            // SAFETY: the box from below, which TensorFlow gives back once.
            drop(unsafe { Box::from_raw(keeper.cast::<K>()) });
        }
        let status = Status::new();
        let count = dims.len() as c_int;
        if bytes == 0 {
            // SAFETY: `dims` has `count` numbers.
            let made = unsafe { (table().allocate_tensor)(dtype, dims.as_ptr(), count, 0) };
            return Self::owned(made, &status);
        }
        let keeper = Box::into_raw(Box::new(keeper));
        // SAFETY: the memory lives until `free` is called, which the caller promises; TensorFlow
        // copies it if its alignment is too small, and then frees it at once.
        let made = unsafe {
            (table().new_tensor)(
                dtype,
                dims.as_ptr(),
                count,
                address.cast(),
                bytes,
                free::<K>,
                keeper.cast(),
            )
        };
        Self::owned(made, &status)
    }

    pub(super) fn dtype(&self) -> c_int {
        // SAFETY: the tensor is valid as long as the reference.
        unsafe { (table().tensor_type)(self.0.as_ptr()) }
    }

    /// The dimensions.
    ///
    /// # Errors
    /// Numbers that are no dimensions.
    pub(super) fn shape(&self) -> Result<SmallVec<[usize; 4]>, Failure> {
        // SAFETY: as above.
        let count = unsafe { (table().num_dims)(self.0.as_ptr()) };
        if !(0..=DIMENSIONS_MAX).contains(&count) {
            return Err(Failure::internal(format!("a tensor of {count} dimensions")));
        }
        let dimension = |index| {
            // SAFETY: as above, and the index is one of a dimension.
            let size = unsafe { (table().dim)(self.0.as_ptr(), index) };
            usize::try_from(size)
                .map_err(|_| Failure::internal(format!("a tensor with a dimension of {size}")))
        };
        (0..count).map(dimension).collect()
    }

    /// Address and length in bytes.
    pub(super) fn memory(&self) -> (*mut u8, usize) {
        // SAFETY: as above.
        unsafe {
            let bytes = (table().byte_size)(self.0.as_ptr());
            let address: *mut u8 = (table().data)(self.0.as_ptr()).cast();
            // An empty tensor may have no memory, but the runtime expects an address.
            let nowhere = std::ptr::without_provenance_mut(64);
            (if bytes == 0 { nowhere } else { address }, bytes)
        }
    }

    /// The elements of a vector of integers.
    pub(super) fn integers(&self) -> Result<Vec<i64>, Failure> {
        let (address, bytes) = self.memory();
        let count: usize = self.shape()?.iter().product();
        // SAFETY: the memory has `bytes` bytes, which the length is checked against; read without
        // alignment.
        unsafe {
            match self.dtype() {
                super::types::INT32 if bytes == 4 * count => Ok((0..count)
                    .map(|index| i64::from(address.cast::<i32>().add(index).read_unaligned()))
                    .collect()),
                super::types::INT64 if bytes == 8 * count => Ok((0..count)
                    .map(|index| address.cast::<i64>().add(index).read_unaligned())
                    .collect()),
                dtype => Err(Failure::invalid(format!(
                    "expected 32-bit or 64-bit integers, not a tensor of TensorFlow's type {dtype}"
                ))),
            }
        }
    }

    /// Writes the only element of a tensor of one number.
    pub(super) fn set_number<T: Copy>(&self, number: T) -> Result<(), Failure> {
        let (address, bytes) = self.memory();
        if bytes != size_of::<T>() {
            return Err(Failure::internal(format!(
                "a number of {} bytes in a tensor of {bytes}",
                size_of::<T>()
            )));
        }
        // SAFETY: the memory has the number's length; written without alignment.
        unsafe { address.cast::<T>().write_unaligned(number) };
        Ok(())
    }
}

/// A kernel's construction, with its attributes.
pub(super) struct Construction<'a>(*mut Opaque, PhantomData<&'a ()>);

impl Construction<'_> {
    /// # Safety
    /// `context` is the argument of a create function, used during its call.
    pub(super) unsafe fn new(context: *mut Opaque) -> Self {
        Self(context, PhantomData)
    }

    pub(super) fn integer(&self, name: &CStr) -> Result<i64, Failure> {
        let (mut value, status) = (0, Status::new());
        // SAFETY: the construction is in progress, and all pointers are valid during the call.
        unsafe {
            (table().attribute_integer)(self.0, name.as_ptr(), &raw mut value, status.as_ptr())
        };
        status.outcome().map(|()| value)
    }

    /// The strings of a list.
    pub(super) fn strings(&self, name: &CStr) -> Result<Vec<String>, Failure> {
        let (mut count, mut bytes, status) = (0, 0, Status::new());
        // SAFETY: as above.
        unsafe {
            (table().attribute_size)(
                self.0,
                name.as_ptr(),
                &raw mut count,
                &raw mut bytes,
                status.as_ptr(),
            );
        }
        status.outcome()?;
        // An empty list has the length -1.
        let (Ok(length), Ok(size)) = (usize::try_from(count), usize::try_from(bytes)) else {
            return Ok(Vec::new());
        };
        let mut starts = vec![std::ptr::null_mut(); length];
        let mut lengths = vec![0usize; length];
        let mut storage = vec![0u8; size];
        // SAFETY: as above; the lists have as many entries and bytes as stated.
        unsafe {
            (table().attribute_strings)(
                self.0,
                name.as_ptr(),
                starts.as_mut_ptr(),
                lengths.as_mut_ptr(),
                count,
                storage.as_mut_ptr().cast(),
                size,
                status.as_ptr(),
            );
        }
        status.outcome()?;
        // They follow one another in the storage.
        let mut rest = storage.as_slice();
        let mut strings = Vec::with_capacity(length);
        for length in lengths {
            let Some((text, others)) = rest.split_at_checked(length) else {
                return Err(Failure::internal(
                    "strings that are longer than their storage",
                ));
            };
            strings.push(String::from_utf8_lossy(text).into_owned());
            rest = others;
        }
        Ok(strings)
    }

    pub(super) fn fail(&self, failure: &Failure) {
        let status = Status::failed(failure);
        // SAFETY: as above; the status is copied.
        unsafe { (table().construction_failure)(self.0, status.as_ptr()) };
    }
}

/// A kernel's execution, with its inputs and outputs.
pub(super) struct Execution<'a> {
    context: *mut Opaque,
    /// Of all calls: creating one takes as long as most of them.
    status: Status,
    lifetime: PhantomData<&'a ()>,
}

impl Execution<'_> {
    /// # Safety
    /// `context` is the argument of a compute function, used during its call.
    pub(super) unsafe fn new(context: *mut Opaque) -> Self {
        Self {
            context,
            status: Status::new(),
            lifetime: PhantomData,
        }
    }

    /// Number of inputs.
    pub(super) fn inputs(&self) -> c_int {
        // SAFETY: the execution is in progress.
        unsafe { (table().num_inputs)(self.context) }
    }

    /// Number of outputs.
    pub(super) fn outputs(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (table().num_outputs)(self.context) }
    }

    pub(super) fn input(&self, index: c_int) -> Result<Tensor, Failure> {
        let (mut tensor, status) = (std::ptr::null_mut(), self.status.as_ptr());
        // SAFETY: as above; TensorFlow checks the index.
        unsafe { (table().get_input)(self.context, index, &raw mut tensor, status) };
        Tensor::owned(tensor, &self.status)
    }

    /// Element type of an output.
    pub(super) fn expected_type(&self, output: c_int) -> Result<c_int, Failure> {
        if !(0..self.outputs()).contains(&output) {
            return Err(Failure::internal(format!("there is no output {output}")));
        }
        // SAFETY: as above, with the index of an output.
        Ok(unsafe { (table().expected_type)(self.context, output) })
    }

    /// Memory for an output: that of `input` if nothing else uses it, or new memory.
    pub(super) fn allocate(
        &self,
        output: c_int,
        input: Option<c_int>,
        dims: &[i64],
    ) -> Result<Tensor, Failure> {
        self.expected_type(output)?;
        let candidates: &[c_int] = input.as_slice();
        let mut forwarded = -1;
        // SAFETY: as above; the lists have as many entries as stated, and the output exists.
        let tensor = unsafe {
            (table().forward_or_allocate)(
                self.context,
                candidates.as_ptr(),
                candidates.len() as c_int,
                output,
                dims.as_ptr(),
                dims.len() as c_int,
                &raw mut forwarded,
                self.status.as_ptr(),
            )
        };
        Tensor::owned(tensor, &self.status)
    }

    pub(super) fn set_output(&self, output: c_int, tensor: &Tensor) -> Result<(), Failure> {
        let expected = self.expected_type(output)?;
        if expected != tensor.dtype() {
            return Err(Failure::internal(format!(
                "output {output} is of TensorFlow's type {}, not {expected}",
                tensor.dtype()
            )));
        }
        let (tensor, status) = (tensor.0.as_ptr(), self.status.as_ptr());
        // SAFETY: as above, with an output of the tensor's type.
        unsafe { (table().set_output)(self.context, output, tensor, status) };
        self.status.outcome()
    }

    pub(super) fn fail(&self, failure: &Failure) {
        let status = Status::failed(failure);
        // SAFETY: as above; the status is copied.
        unsafe { (table().kernel_failure)(self.context, status.as_ptr()) };
    }
}
