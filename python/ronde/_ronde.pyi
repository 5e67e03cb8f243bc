"""
The module, as a table of contents.
"""

from _typeshed import SupportsGetItem
from os import PathLike
from typing import Any, SupportsFloat, SupportsIndex, final

__all__ = ["AllreduceName", "add_process_set", "allgather", "allreduce", "allreduce_batch", "alltoall", "autotune_report", "backend", "barrier", "broadcast", "cli", "cross_rank", "cross_size", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "join", "local_rank", "local_size", "mark_epoch", "mark_step", "mpi_built", "nccl_version", "poll", "process_set_rank", "process_sets", "rank", "reducescatter", "remove_process_set", "setup_torch", "shutdown", "size", "start_timeline", "stop_timeline", "synchronize", "version"]

@final
class AllreduceName:
    """
    The name of a tensor that is allreduced again and again, put into the form that the runtime gets to see once.
    """
    def __new__(cls, name: str, /) -> AllreduceName: ...

def add_process_set(ranks: SupportsGetItem[int, SupportsIndex], /) -> int:
    """
    Makes the process set of `ranks`, on all ranks at once; its number.
    """

def allgather(tensor: Any, name: str | None, set_id: SupportsIndex, /) -> int:
    """
    Puts the rows of all ranks one after another.
    """

def allreduce(tensor: Any, output: Any, name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, wire_dtype: Any | None = None, /) -> int:
    """
    Combines a tensor with the other ranks', into `output`, which may be the tensor itself. `wire_dtype`: the torch.dtype that its
    elements have on the way, on a GPU.
    """

def allreduce_batch(tensors: SupportsGetItem[int, Any], names: SupportsGetItem[int, AllreduceName], op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, /) -> int:
    """
    Combines tensors with the other ranks', each in place and under its own name, as `allreduce` does one; submits all or none
    of them. They do not wait for one another, as a group's do. One handle for all.
    """

def alltoall(tensor: Any, splits: SupportsGetItem[int, SupportsIndex] | None, name: str | None, set_id: SupportsIndex, /) -> int:
    """
    Sends `splits[r]` rows to the set's r-th rank; without splits the same number to each.
    """

def autotune_report() -> Any | None:
    """
    What the tuner is doing or has done: on rank 0, if it is on.
    """

def backend() -> str:
    """
    How the ranks reach one another: `local` or `mpi`.
    """

def barrier(set_id: SupportsIndex, /) -> None:
    """
    Returns when every rank of the set has called it.
    """

def broadcast(tensor: Any, output: Any, root: SupportsIndex, name: str | None, set_id: SupportsIndex, /) -> int:
    """
    Fills `output`, which may be the tensor itself, with the tensor of rank `root` of the job.
    """

def cli(argv: SupportsGetItem[int, str], program: SupportsGetItem[int, str], /) -> int:
    """
    Runs the program with `argv` (its name left out); `program` is how it is started again. Its exit code.
    """

def cross_rank() -> int:
    """
    Index of this host among those that have this local rank.
    """

def cross_size() -> int:
    """
    Hosts that have this local rank.
    """

def grouped_allgather(tensors: SupportsGetItem[int, Any], name: str | None, set_id: SupportsIndex, /) -> int:
    """
    The same for tensors that belong together.
    """

def grouped_allreduce(tensors: SupportsGetItem[int, Any], outputs: SupportsGetItem[int, Any], name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, wire_dtypes: SupportsGetItem[int, Any | None] | None = None, /) -> int:
    """
    The same for tensors that belong together; `wire_dtypes` has a torch.dtype or None for each.
    """

def grouped_reducescatter(tensors: SupportsGetItem[int, Any], name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, /) -> int:
    """
    The same for tensors that belong together.
    """

def init(ranks: SupportsGetItem[int, SupportsIndex] | None, process_sets: SupportsGetItem[int, SupportsGetItem[int, SupportsIndex]], dynamic: bool, /) -> None:
    """
    Joins the job that the environment describes: all of it, or the part of these ranks, numbered in this order. Without
    effect if that has been done.
    """

def is_homogeneous() -> bool:
    """
    Whether all hosts have as many ranks.
    """

def is_initialized() -> bool:
    """
    Whether this process is in a job.
    """

def join() -> int:
    """
    Says that this rank has no more data; returns, when none has, the rank that joined last.
    """

def local_rank() -> int:
    """
    This process's rank on its host.
    """

def local_size() -> int:
    """
    Ranks on this host.
    """

def mark_epoch() -> None:
    """
    An epoch ends here.
    """

def mark_step() -> None:
    """
    A training step ends here.
    """

def mpi_built() -> bool:
    """
    Whether MPI is built in.
    """

def nccl_version() -> int:
    """
    The version of the NCCL that can be loaded, as a number: major · 10000 + minor · 100 + patch; 0 if there is none.
    """

def poll(handle: SupportsIndex) -> bool:
    """
    Whether the operation of this handle is over.
    """

def process_set_rank(id: SupportsIndex, /) -> int | None:
    """
    This process's place in a set; none if it is not one of its ranks.
    """

def process_sets() -> dict[int, list[int]]:
    """
    The process sets there are, with their ranks.
    """

def rank() -> int:
    """
    This process's rank.
    """

def reducescatter(tensor: Any, name: str | None, op: SupportsIndex, prescale: SupportsFloat | SupportsIndex, postscale: SupportsFloat | SupportsIndex, set_id: SupportsIndex, /) -> int:
    """
    Combines a tensor with the other ranks' and keeps this rank's share of the rows.
    """

def remove_process_set(id: SupportsIndex, /) -> bool:
    """
    Removes a process set, on all ranks at once; false if there is none of this number, or it is that of all ranks.
    """

def setup_torch(dtypes: dict, from_dlpack: Any, stream_of: Any, /) -> None:
    """
    Tells of torch: `dtypes` from its element types to their names, what makes a tensor of a DLPack capsule, and what tells the
    stream that is current on the CUDA device with a number. Once.
    """

def shutdown() -> None:
    """
    Leaves the job. Without effect outside of one.
    """

def size() -> int:
    """
    Ranks in the job.
    """

def start_timeline(path: str | PathLike[str], mark_cycles: bool, /) -> None:
    """
    Begins to record a timeline, on rank 0's word.
    """

def stop_timeline() -> None:
    """
    Ends it.
    """

def synchronize(handle: SupportsIndex) -> Any | None:
    """
    Waits for the operation of this handle, asleep, and gives its result; the handle is used up.

    That is a tensor, a list of them for a group, and for alltoall a pair: the tensor, and the rows that came from each rank
    (int32). None for a handle that is not known, or no more. Raises what has gone wrong, as HorovodInternalError.
    KeyboardInterrupt leaves the handle as it is.
    """

def version() -> str:
    """
    The version of the package and of the runtime in it.
    """
