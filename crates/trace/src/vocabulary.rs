//! Names in trace files: operations, activities and element types.

use super::model::{Kind, Phase};
use ronde_job::Dtype;

/// Kind of a Horovod operation by the name of its bar (without `NEGOTIATE_`).
pub(super) fn kind(name: &[u8]) -> Option<Kind> {
    Some(match name {
        b"ALLREDUCE" => Kind::Allreduce,
        b"ADASUM" => Kind::Adasum,
        b"ALLGATHER" => Kind::Allgather,
        b"BROADCAST" => Kind::Broadcast,
        b"ALLTOALL" => Kind::Alltoall,
        b"REDUCESCATTER" => Kind::Reducescatter,
        b"JOIN" => Kind::Join,
        b"BARRIER" => Kind::Barrier,
        _ => return None,
    })
}

/// Prefixes of activities that determine the phase; other activities of a backend are collectives.
const PHASES: [(&[u8], Phase); 7] = [
    (b"MEMCPY_IN_", Phase::CopyIn),
    (b"MEMCPY_OUT_", Phase::CopyOut),
    (b"COPY_ALLGATHER_OUTPUT", Phase::CopyOut),
    (b"WAIT_FOR_", Phase::WaitForData),
    (b"INIT_", Phase::Prepare),
    (b"ALLOCATE_", Phase::Prepare),
    // The data came with the negotiation; what is left is their combination.
    (b"ATTACHED_", Phase::CopyOut),
];

/// Prefixes of the backends' activities.
const BACKENDS: [&[u8]; 11] = [
    b"MPI_", b"NCCL_", b"GLOO_", b"CCL_", b"DDL_", b"SHM_", b"TCP_", b"MLSL_", b"RCCL_", b"HIER_",
    b"ADASUM_",
];

/// Phase of a Horovod activity; `None` for a name that is in no version of Horovod or Ronde.
pub(super) fn phase(name: &[u8]) -> Option<Phase> {
    if name == b"QUEUE" {
        return Some(Phase::Queue);
    }
    let known = PHASES.iter().find(|(prefix, _)| name.starts_with(prefix));
    let known = known.map(|&(_, phase)| phase);
    known.or_else(|| {
        let backend = BACKENDS.iter().any(|prefix| name.starts_with(prefix));
        backend.then_some(Phase::Collective)
    })
}

/// Phase of a BytePS stage.
pub(super) fn stage(name: &[u8]) -> Phase {
    match name {
        b"COPYD2H" | b"COMPRESS" => Phase::CopyIn,
        b"COPYH2D" | b"DECOMPRESS" => Phase::CopyOut,
        _ if name.starts_with(COORDINATE) => Phase::WaitForData,
        _ => phase(name).unwrap_or(Phase::Collective),
    }
}

/// Prefix of the stages in which BytePS's ranks on one machine wait for each other.
pub(super) const COORDINATE: &[u8] = b"COORDINATE_";

/// Element type by its name in Horovod, PyTorch or C++.
pub(super) fn dtype(name: &str) -> Option<Dtype> {
    let name = name.trim();
    let name = name.strip_prefix("torch.").unwrap_or(name);
    if let Some(dtype) = Dtype::ALL.into_iter().find(|dtype| dtype.name() == name) {
        return Some(dtype);
    }
    Some(match name {
        "Byte" | "byte" | "unsigned char" | "uint8_t" => Dtype::U8,
        "Char" | "char" | "signed char" | "int8_t" => Dtype::I8,
        "Short" | "short" | "short int" | "int16_t" => Dtype::I16,
        "Int" | "int" | "int32_t" => Dtype::I32,
        "Long" | "long" | "long int" | "long long" | "int64_t" => Dtype::I64,
        "Half" | "half" | "c10::Half" | "__half" => Dtype::F16,
        "BFloat16" | "c10::BFloat16" | "__nv_bfloat16" => Dtype::Bf16,
        "Float" | "float" => Dtype::F32,
        "Double" | "double" => Dtype::F64,
        "Bool" => Dtype::Bool,
        _ => return None,
    })
}

/// Size in bytes of an element type, including types that Ronde does not have (`uint16`,
/// `ComplexFloat`, `Float8_e4m3fn`).
pub(super) fn dtype_bytes(name: &str) -> Option<u64> {
    if let Some(dtype) = dtype(name) {
        return Some(dtype.size_bytes() as u64);
    }
    Some(match name.trim().trim_start_matches("torch.") {
        name if name.starts_with("Float8") || name.starts_with("float8") => 1,
        "uint16" | "UInt16" | "ushort" => 2,
        "uint32" | "UInt32" => 4,
        "uint64" | "UInt64" | "ComplexFloat" | "c10::complex<float>" => 8,
        "ComplexDouble" | "c10::complex<double>" => 16,
        _ => return None,
    })
}

/// Number of elements of a shape such as `[64, 3, 7, 7]`, or of the first shape in `[[64, 3], []]`;
/// 1 for a scalar.
pub(super) fn elements(shape: &str) -> Option<u64> {
    let inner = shape.trim().strip_prefix('[')?.strip_suffix(']')?;
    if inner.trim().is_empty() {
        return Some(1);
    }
    inner.split(',').try_fold(1_u64, |product, dimension| {
        product.checked_mul(dimension.trim().parse().ok()?)
    })
}

/// Kind of a collective by its name in PyTorch or NCCL: `all_reduce`, `_allgather_base`,
/// `AllReduce`, `broadcast_oop`.
pub(super) fn torch_kind(name: &str) -> Kind {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|character| character.to_ascii_lowercase())
        .collect();
    let kinds = [
        ("reducescatter", Kind::Reducescatter),
        ("allreduce", Kind::Allreduce),
        ("allgather", Kind::Allgather),
        ("alltoall", Kind::Alltoall),
        ("broadcast", Kind::Broadcast),
        ("barrier", Kind::Barrier),
        ("sendrecv", Kind::PointToPoint),
        ("send", Kind::PointToPoint),
        ("recv", Kind::PointToPoint),
        // Reduce (`ncclDevKernel_Reduce_Sum_…`), gather and scatter are of kind `Other`.
    ];
    let known = kinds.iter().find(|(word, _)| plain.contains(word));
    known.map_or(Kind::Other, |&(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_of_every_backend() {
        let cases = [
            ("QUEUE", Some(Phase::Queue)),
            ("WAIT_FOR_OTHER_TENSOR_DATA", Some(Phase::WaitForData)),
            ("INIT_NCCL", Some(Phase::Prepare)),
            ("ALLOCATE_SHARED_BUFFER", Some(Phase::Prepare)),
            ("MEMCPY_IN_HOST_BUFFER", Some(Phase::CopyIn)),
            ("MEMCPY_OUT_FUSION_BUFFER", Some(Phase::CopyOut)),
            ("NCCL_REDUCESCATTER", Some(Phase::Collective)),
            ("MPI_CROSS_ALLGATHER", Some(Phase::Collective)),
            ("TCP_ALLREDUCE", Some(Phase::Collective)),
            ("SHM_ALLREDUCE", Some(Phase::Collective)),
            (ronde_job::ATTACHED_ALLREDUCE, Some(Phase::CopyOut)),
            ("ALLREDUCE", None),
        ];
        for (name, expected) in cases {
            assert_eq!(phase(name.as_bytes()), expected, "{name}");
        }
        assert_eq!(stage(b"COORDINATE_PUSH"), Phase::WaitForData);
        assert_eq!(stage(b"PCIE_REDUCE"), Phase::Collective);
    }

    #[test]
    fn shapes_and_types() {
        assert_eq!(elements("[4096, 1001]"), Some(4_100_096));
        assert_eq!(elements("[]"), Some(1));
        assert_eq!(elements("[0, 7]"), Some(0));
        assert_eq!(elements("[4294967296, 4294967296]"), None, "would overflow");
        assert_eq!(elements("[-1]"), None);
        assert_eq!(dtype("float32"), Some(Dtype::F32));
        assert_eq!(dtype("BFloat16"), Some(Dtype::Bf16));
        assert_eq!(dtype("uint16"), None);
        assert_eq!(dtype_bytes("uint16"), Some(2));
    }

    #[test]
    fn collectives_of_torch_and_nccl() {
        let cases = [
            ("nccl:all_reduce", Kind::Allreduce),
            ("nccl:_all_gather_base", Kind::Allgather),
            ("_allgather_base", Kind::Allgather),
            ("reduce_scatter_tensor_coalesced", Kind::Reducescatter),
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                Kind::Allreduce,
            ),
            (
                "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
                Kind::PointToPoint,
            ),
            ("all_to_allv", Kind::Alltoall),
            ("nccl:reduce", Kind::Other),
        ];
        for (name, expected) in cases {
            assert_eq!(torch_kind(name), expected, "{name}");
        }
    }
}
