//! TensorFlow's element types, by their numbers in `tensorflow/c/tf_datatype.h`.

use std::ffi::c_int;

use ronde::Dtype;

pub(super) const INT32: c_int = 3;
pub(super) const INT64: c_int = 9;

/// The runtime's element type for a number of TensorFlow's; `only_moves`: the operation does no
/// arithmetic, so that any type of the same size will do.
pub(super) fn dtype(number: c_int, only_moves: bool) -> Option<Dtype> {
    Some(match number {
        1 => Dtype::F32,
        2 => Dtype::F64,
        INT32 => Dtype::I32,
        4 => Dtype::U8,
        5 => Dtype::I16,
        6 => Dtype::I8,
        INT64 => Dtype::I64,
        10 => Dtype::Bool,
        14 => Dtype::Bf16,
        19 => Dtype::F16,
        17 if only_moves => Dtype::I16,     // uint16
        22 if only_moves => Dtype::I32,     // uint32
        8 | 23 if only_moves => Dtype::I64, // complex64, uint64
        _ => return None,
    })
}
