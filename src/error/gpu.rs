//! Errors of GPUs, CUDA and NCCL: the library's own message, and advice.

/// Error of a GPU or of the libraries that use it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// This build has no support for GPUs.
    #[error(
        "this build of ronde was made without the feature `nccl`, which tensors on GPUs need; build it with \
         its default features, which need no CUDA, or move the tensor to host memory"
    )]
    NotBuilt,
    /// A library was not found.
    #[error("{library} was not found (looked for {looked_for}); {advice}")]
    NoLibrary {
        /// Name of the library.
        library: &'static str,
        /// Names and folders that were tried.
        looked_for: String,
        /// Package to install or variable to set.
        advice: &'static str,
    },
    /// A library is too old.
    #[error("{library} is version {found}, and ronde needs {needed} or newer; {advice}")]
    TooOld {
        /// Name and path of the library.
        library: String,
        /// Its version.
        found: String,
        /// Oldest version that works.
        needed: &'static str,
        /// Package to install.
        advice: &'static str,
    },
    /// No device has that number.
    #[error(
        "there is no CUDA device {ordinal}: this process sees {count} (CUDA_VISIBLE_DEVICES decides which)"
    )]
    NoDevice {
        /// Requested number.
        ordinal: u32,
        /// Number of devices.
        count: u32,
    },
    /// A call of the library failed.
    #[error("{call}: {name}: {text}{}{advice}", if advice.is_empty() { "" } else { "; " })]
    Call {
        /// Name of the function.
        call: &'static str,
        /// Name of the error in that library.
        name: String,
        /// The library's description of the error.
        text: String,
        /// Advice, if there is any.
        advice: &'static str,
    },
    /// A device has too little memory.
    #[error(
        "CUDA device {ordinal} has less than {bytes} bytes of free memory; lower RONDE_GPU_FUSION_THRESHOLD, or free memory on the device"
    )]
    OutOfMemory {
        /// Number of the device.
        ordinal: u32,
        /// Bytes requested.
        bytes: usize,
    },
    /// The caller's stream is capturing a CUDA graph.
    #[error(
        "the tensor's stream is being captured into a CUDA graph, which cannot contain the ranks' negotiation; submit \
         the tensor outside of the capture"
    )]
    Capturing,
    /// A tensor is on another device than the process set's communicator, which uses one device per
    /// rank.
    #[error(
        "this rank's communicator is on CUDA device {bound}, and the tensor on device {found}; a rank of a process set keeps to \
         one device: move the tensor there, or call torch.cuda.set_device(…) before the first operation"
    )]
    OtherDevice {
        /// Device of the set's communicator on this rank.
        bound: u32,
        /// Device of the tensor.
        found: u32,
    },
    /// Another rank could not take part in the creation of the communicator.
    #[error("rank {rank} cannot reduce on its GPU: {reason}")]
    Peer {
        /// Job rank of that rank.
        rank: usize,
        /// Reason that it gave.
        reason: String,
    },
}

impl GpuError {
    /// Returns advice for an error of NCCL or CUDA, by its text.
    #[cfg_attr(
        not(any(test, feature = "nccl")),
        expect(dead_code, reason = "nothing is called")
    )]
    pub(crate) fn advice(name: &str, text: &str) -> &'static str {
        if text.contains("Duplicate GPU") {
            "give each rank a GPU of its own (torch.cuda.set_device(hvd.local_rank())), or, to try things out on one GPU, give \
             each rank another NCCL_HOSTID, and NCCL_SOCKET_IFNAME=lo, NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1"
        } else if name.contains("ILLEGAL_ADDRESS") {
            "a tensor was freed, or its address is wrong; this process cannot use the device any more"
        } else if matches!(
            name,
            "ncclRemoteError" | "ncclSystemError" | "ncclUnhandledCudaError"
        ) {
            "NCCL_DEBUG=INFO tells more"
        } else if matches!(
            name,
            "CUDA_ERROR_INVALID_HANDLE" | "CUDA_ERROR_CONTEXT_IS_DESTROYED"
        ) {
            "the tensor's stream may have been destroyed during the operation"
        } else {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_ends_with_what_is_known_to_help() {
        let error = |name: &str, text: &str| {
            let error = GpuError::Call {
                call: "ncclCommInitRankConfig",
                name: name.to_owned(),
                text: text.to_owned(),
                advice: GpuError::advice(name, text),
            };
            error.to_string()
        };
        let duplicate = error(
            "ncclInvalidUsage",
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 40",
        );
        assert!(duplicate.contains("NCCL_HOSTID"), "{duplicate}");
        assert_eq!(
            error("ncclInternalError", "internal error"),
            "ncclCommInitRankConfig: ncclInternalError: internal error"
        );
    }
}
