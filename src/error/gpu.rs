//! What can go wrong with a GPU, in the words of the library that says so, and what to do about it.

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// This build knows no GPUs.
    #[error(
        "this build of ronde was made without the feature `nccl`, which tensors on GPUs need; build it with \
         `--features nccl`, which needs no CUDA, or move the tensor to host memory"
    )]
    NotBuilt,
    /// A library is not there.
    #[error("{library} was not found (looked for {looked_for}); {advice}")]
    NoLibrary {
        /// What it is.
        library: &'static str,
        /// Names and folders tried.
        looked_for: String,
        /// What to install or set.
        advice: &'static str,
    },
    /// A library is there and too old.
    #[error("{library} is version {found}, and ronde needs {needed} or newer; {advice}")]
    TooOld {
        /// What it is, and where.
        library: String,
        /// Its version.
        found: String,
        /// The oldest that will do.
        needed: &'static str,
        /// What to install.
        advice: &'static str,
    },
    /// No device has that number.
    #[error(
        "there is no CUDA device {ordinal}: this process sees {count} (CUDA_VISIBLE_DEVICES decides which)"
    )]
    NoDevice {
        /// The number asked for.
        ordinal: u32,
        /// Devices there are.
        count: u32,
    },
    /// A call failed.
    #[error("{call}: {name}: {text}{}{advice}", if advice.is_empty() { "" } else { "; " })]
    Call {
        /// The function.
        call: &'static str,
        /// The error's name in that library.
        name: String,
        /// What the library says of it.
        text: String,
        /// What to try, if something is known.
        advice: &'static str,
    },
    /// A device has too little memory.
    #[error(
        "CUDA device {ordinal} has no {bytes} bytes left; lower HOROVOD_FUSION_THRESHOLD, or what else lies on the device"
    )]
    OutOfMemory {
        /// The device.
        ordinal: u32,
        /// Bytes asked for.
        bytes: usize,
    },
    /// The caller's stream records a graph.
    #[error(
        "the tensor's stream is being captured into a CUDA graph, which cannot hold what ranks agree on anew each time; submit \
         the tensor outside of the capture"
    )]
    Capturing,
    /// A set's ranks have one device each, for as long as the set lives.
    #[error(
        "this rank's communicator is on CUDA device {bound}, and the tensor on device {found}; a rank of a process set keeps to \
         one device: move the tensor there, or call torch.cuda.set_device(…) before the first operation"
    )]
    OtherDevice {
        /// The device of the set's communicator on this rank.
        bound: u32,
        /// The tensor's.
        found: u32,
    },
    /// Another rank could not take part in making the communicator.
    #[error("rank {rank} cannot reduce on its GPU: {reason}")]
    Peer {
        /// The rank, in the job.
        rank: usize,
        /// What it said.
        reason: String,
    },
}

impl GpuError {
    /// What there is to be done about an error of NCCL or CUDA, by what it says.
    #[cfg_attr(
        not(any(test, feature = "nccl")),
        expect(dead_code, reason = "nothing is called")
    )]
    pub(crate) fn advice(name: &str, text: &str) -> &'static str {
        if text.contains("Duplicate GPU") {
            "give each rank a GPU of its own (torch.cuda.set_device(hvd.local_rank())), or, to try things out on one GPU, give \
             each rank another NCCL_HOSTID, and NCCL_SOCKET_IFNAME=lo, NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1"
        } else if name.contains("ILLEGAL_ADDRESS") {
            "a tensor was freed, or is not where it was said to be; the device cannot be used by this process any more"
        } else if matches!(
            name,
            "ncclRemoteError" | "ncclSystemError" | "ncclUnhandledCudaError"
        ) {
            "NCCL_DEBUG=INFO tells more"
        } else if matches!(
            name,
            "CUDA_ERROR_INVALID_HANDLE" | "CUDA_ERROR_CONTEXT_IS_DESTROYED"
        ) {
            "was the tensor's stream destroyed while it was in flight?"
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
