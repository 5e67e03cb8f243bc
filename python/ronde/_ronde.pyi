"""
Functions and classes of the extension module.
"""

from _typeshed import SupportsGetItem
from os import PathLike
from types import CapsuleType
from typing import Any, SupportsFloat, SupportsIndex, final

__all__ = ["AllreduceName", "TunerService", "add_process_set", "allgather", "allreduce", "allreduce_batch", "alltoall", "autotune_report", "backend", "barrier", "broadcast", "cli", "cross_rank", "cross_size", "elastic_changes", "elastic_join_failed", "elastic_seat", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "jax_handler", "join", "learn_tuner_memory", "local_rank", "local_size", "mark_epoch", "mark_step", "mpi_built", "nccl_version", "poll", "process_set_rank", "process_sets", "raise_interrupt", "rank", "reducescatter", "register_tensorflow", "remove_process_set", "setup_torch", "shutdown", "size", "start_timeline", "stop_timeline", "synchronize", "tuner_memory", "tuner_revision", "version"]

@final
class AllreduceName:
    """
    Name of a tensor that is allreduced in every step, converted once to the runtime's form.
    """
    def __new__(cls, name: str, /) -> AllreduceName: ...

@final
class TunerService:
    """
    Tuner that answers lines of JSON, as `ronde tune` does. It computes proposals during the next
    step.
    """
    def __new__(cls, state: str | PathLike[str] | None = None, /) -> TunerService:
        """
        Creates a tuner; `state` is the path of its state file.
        """
    def measures(self, /) -> bool:
        """
        Whether the next step is measured: during the search, and in a check after its verdict.
        """
    def reply(self, line: str, /) -> str:
        """
        Returns the answer to a line of the protocol in docs/TUNE.md.
        """
    def save(self, /) -> None:
        """
        Writes the state file, if there is one and something was measured.
        """
    def steps(self, steps_ms: SupportsGetItem[int, SupportsFloat | SupportsIndex], /) -> str | None:
        """
        Reports steps as lines with `step_ms` do, up to the first one whose answer is not to keep
        the setting; returns that answer, or None.
        """

def add_process_set(ranks: SupportsGetItem[int, SupportsIndex], /) -> int:
    """
    Creates the process set of `ranks`, called by all ranks; returns its number.
    """

def allgather(tensor: Any, name: str | None, set_id: SupportsIndex, /) -> int:
    """
    Concatenates the rows of all ranks.
    """

def allreduce(tensor: Any, output: Any, name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, wire_dtype: Any | None = None, /) -> int:
    """
    Reduces a tensor over the ranks into `output`, which may be the tensor itself. `wire_dtype`: the
    torch.dtype in which its elements are sent, on a GPU.
    """

def allreduce_batch(tensors: SupportsGetItem[int, Any], names: SupportsGetItem[int, AllreduceName], op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, /) -> int:
    """
    Reduces tensors over the ranks, each in place and under its own name, as `allreduce` does;
    submits all or none of them. Unlike the tensors of a group they do not wait for one another.
    Returns one handle for all.
    """

def alltoall(tensor: Any, splits: SupportsGetItem[int, SupportsIndex] | None, name: str | None, set_id: SupportsIndex, /) -> int:
    """
    Sends `splits[r]` rows to the set's r-th rank; without splits, the same number to each.
    """

def autotune_report() -> Any | None:
    """
    State and results of the tuner, on rank 0 if autotuning is on.
    """

def backend() -> str:
    """
    Transport between ranks: `local`, `mpi` or `tcp`.
    """

def barrier(set_id: SupportsIndex, /) -> None:
    """
    Waits until every rank of the set has called it.
    """

def broadcast(tensor: Any, output: Any, root: SupportsIndex, name: str | None, set_id: SupportsIndex, /) -> int:
    """
    Copies the tensor of rank `root` of the job into `output`, which may be the tensor itself.
    """

def cli(argv: SupportsGetItem[int, str], program: SupportsGetItem[int, str], /) -> int:
    """
    Runs the program and returns its exit code. `argv` has no program name; `program` is the command
    that starts it again.
    """

def cross_rank() -> int:
    """
    Index of this host among the hosts with this local rank.
    """

def cross_size() -> int:
    """
    Number of hosts with this local rank.
    """

def elastic_changes() -> tuple[bool, bool]:
    """
    Returns whether processes were added, and whether hosts were removed, since the last call.
    """

def elastic_join_failed() -> bool:
    """
    Whether this process could not join its generation because of other ranks.
    """

def elastic_seat(why: str, has_state: bool, /) -> tuple[list[tuple[str, int]], int, str | None] | None:
    """
    Asks the launcher of an elastic job for this process's place in the next generation, and waits
    for it. `why`: "started", "interrupted" or "failed". Returns the variables of the rank's
    identity with their values, the number of the generation, and the address of rank 0 (None if all
    ranks share memory); None if the process is no longer needed.
    """

def grouped_allgather(tensors: SupportsGetItem[int, Any], name: str | None, set_id: SupportsIndex, /) -> int:
    """
    Gathers a group of tensors.
    """

def grouped_allreduce(tensors: SupportsGetItem[int, Any], outputs: SupportsGetItem[int, Any], name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, wire_dtypes: SupportsGetItem[int, Any | None] | None = None, /) -> int:
    """
    Reduces a group of tensors; `wire_dtypes` has a torch.dtype or None for each.
    """

def grouped_reducescatter(tensors: SupportsGetItem[int, Any], name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, /) -> int:
    """
    Reduces and scatters a group of tensors.
    """

def init(ranks: SupportsGetItem[int, SupportsIndex] | None, process_sets: SupportsGetItem[int, SupportsGetItem[int, SupportsIndex]], dynamic: bool, resets: SupportsIndex, /) -> None:
    """
    Joins the job that the environment describes: all of it, or the part with these ranks, in this
    order. `resets`: how often the ranks of an elastic job have changed. No effect if the process
    has joined already.
    """

def is_homogeneous() -> bool:
    """
    Whether all hosts have the same number of ranks.
    """

def is_initialized() -> bool:
    """
    Whether this process is in a job.
    """

def jax_handler(major: SupportsIndex, minor: SupportsIndex, /) -> CapsuleType:
    """
    Returns the handler for `jax.ffi.register_ffi_target`. `major`, `minor`: the version of XLA's
    interface in the loaded jaxlib.
    """

def join() -> int:
    """
    Declares that this rank has no more data, and waits until all ranks have. Returns the rank that
    joined last.
    """

def learn_tuner_memory(text: str, /) -> None:
    """
    Replaces what this process has learned by the text of another rank, if that is later.
    """

def local_rank() -> int:
    """
    This process's rank on its host.
    """

def local_size() -> int:
    """
    Number of ranks on this host.
    """

def mark_epoch() -> None:
    """
    Marks the end of an epoch.
    """

def mark_step() -> None:
    """
    Marks the end of a training step.
    """

def mpi_built() -> bool:
    """
    Whether the package contains a plug-in for MPI.
    """

def nccl_version() -> int:
    """
    Version of the NCCL library that can be loaded: major · 10000 + minor · 100 + patch; 0 if there
    is none.
    """

def poll(handle: SupportsIndex) -> bool:
    """
    Whether the operation of this handle has completed.
    """

def process_set_rank(id: SupportsIndex, /) -> int | None:
    """
    This process's rank within a set; None if it is not a member.
    """

def process_sets() -> dict[int, list[int]]:
    """
    The process sets with their ranks.
    """

def raise_interrupt() -> None:
    """
    Raises the exception of the signal handler that has ended the last wait, such as
    KeyboardInterrupt.
    """

def rank() -> int:
    """
    This process's rank.
    """

def reducescatter(tensor: Any, name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, /) -> int:
    """
    Reduces a tensor over the ranks; returns this rank's share of the rows.
    """

def register_tensorflow() -> None:
    """
    Registers the ops and kernels with the TensorFlow that this process has loaded, once.
    """

def remove_process_set(id: SupportsIndex, /) -> bool:
    """
    Removes a process set, called by all ranks. False for an unknown number and for the set of all
    ranks.
    """

def setup_torch(dtypes: dict, from_dlpack: Any, stream_of: Any, /) -> None:
    """
    Registers torch, once: `dtypes` maps its element types to their names, `from_dlpack` creates a
    tensor from a DLPack capsule, `stream_of` returns the current stream of a CUDA device by number.
    """

def shutdown() -> None:
    """
    Leaves the job. No effect outside of a job.
    """

def size() -> int:
    """
    Number of ranks in the job.
    """

def start_timeline(path: str | PathLike[str], mark_cycles: bool, /) -> None:
    """
    Starts a timeline; rank 0 decides for all ranks.
    """

def stop_timeline() -> None:
    """
    Stops the timeline.
    """

def synchronize(handle: SupportsIndex) -> Any | None:
    """
    Waits for the operation of this handle without using the processor, and returns its result. The
    handle becomes invalid.

    The result is a tensor; for a group, a list of tensors; for alltoall, a pair of the tensor and
    the number of rows from each rank (int32). None for an unknown or used handle. Raises
    HorovodInternalError if the operation failed. After KeyboardInterrupt the handle is still valid.
    """

def tuner_memory(revision: SupportsIndex, /) -> str | None:
    """
    Text of the tuner's results, if they have changed since that revision; otherwise None.
    """

def tuner_revision() -> int:
    """
    Number of changes so far of what tuners of this process, or of an earlier rank 0, have learned.
    """

def version() -> str:
    """
    Version of the package and of the runtime in it.
    """
