"""Init, shutdown, and queries such as rank and size: `HorovodBasics`, and its methods as
functions."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from os import PathLike
from typing import Any, Optional, Union

from .. import _ronde
from . import process_sets as sets
from . import seat
from .process_sets import ProcessSet


class HorovodBasics:
    """A job, with the interface of Horovod's class of this name.

    The arguments, the location of Horovod's extension, are ignored: Ronde has one extension.
    """

    #: Number of jobs that this process has joined.
    jobs = 0
    _is_left_at_exit = False
    #: Process sets of the last :meth:`init`, and whether others may be added, for a reset.
    _last: tuple[list[ProcessSet], bool] = ([], False)

    def __init__(self, pkg_path: Optional[str] = None, *args: str) -> None:
        pass

    def init(
        self,
        comm: Union[Sequence[int], Any, None] = None,
        process_sets: Union[Sequence[Union[ProcessSet, Sequence[int]]], str, None] = None,
    ) -> None:
        """Joins the job that the environment describes; without a launcher, a job of one rank.

        ``comm``: a list of ranks that form the job, in this order, or an mpi4py communicator.
        ``process_sets``: sets to register besides that of all ranks, equal on all ranks; or
        ``"dynamic"``: sets can be added later. A second call only looks up process sets. After a
        reset of an elastic job, the default is that of the call before it, and sets with ranks that
        no longer exist are left out.
        Raises ValueError with the reason if it fails.
        """
        wanted: list[ProcessSet] = []
        if not isinstance(process_sets, str):
            for entry in process_sets or ():
                wanted.append(entry if isinstance(entry, ProcessSet) else ProcessSet(entry))
        elif process_sets != "dynamic":
            raise ValueError(f'process_sets={process_sets!r}: expected "dynamic", or process sets')
        communicator = comm if sets.is_communicator(comm) else None
        members = sets.communicator_ranks(comm) if communicator is not None else comm
        # No members means all ranks.
        ranks = None if members is None else [int(rank) for rank in members] or None
        asked, dynamic = wanted, process_sets == "dynamic"
        is_new = not _ronde.is_initialized()

        def join() -> None:
            nonlocal wanted, dynamic
            wanted = asked
            if is_new:
                if seat.resets and process_sets is None:
                    wanted, dynamic = HorovodBasics._last
                HorovodBasics._last = (wanted, dynamic)
                if seat.resets:
                    wanted = sets.remaining(wanted)
            _ronde.init(ranks, sets.agree(wanted, communicator), dynamic, seat.resets)

        if is_new and seat.is_elastic():
            seat.join(join)
        else:
            join()
        HorovodBasics.jobs += is_new
        if not HorovodBasics._is_left_at_exit:
            HorovodBasics._is_left_at_exit = True
            atexit.register(self.shutdown)
        sets.bind(wanted, communicator)

    def shutdown(self) -> None:
        """Leaves the job; no effect outside of a job. Operations in flight fail."""
        _ronde.shutdown()
        sets.unbind()

    def is_initialized(self) -> bool:
        """Whether this process is in a job."""
        return _ronde.is_initialized()

    def start_timeline(self, file_path: Union[str, PathLike[str]], mark_cycles: bool = False) -> None:
        """Starts a timeline in ``file_path``, on rank 0. No effect while one is being recorded.

        Raises ValueError before ``init``, and unless ``HOROVOD_TIMELINE`` is set (to ``DYNAMIC`` or
        a file).
        """
        _ronde.start_timeline(file_path, mark_cycles)

    def stop_timeline(self) -> None:
        """Stops the timeline and writes its last events. No effect if none is being recorded."""
        _ronde.stop_timeline()

    def size(self) -> int:
        """Number of ranks. ValueError before ``init``."""
        return _ronde.size()

    def local_size(self) -> int:
        """Number of ranks on this host. ValueError before ``init``."""
        return _ronde.local_size()

    def cross_size(self) -> int:
        """Number of hosts with this local rank. ValueError before ``init``."""
        return _ronde.cross_size()

    def rank(self) -> int:
        """This process's rank, from 0. ValueError before ``init``."""
        return _ronde.rank()

    def local_rank(self) -> int:
        """This process's rank among the ranks of its host. ValueError before ``init``."""
        return _ronde.local_rank()

    def cross_rank(self) -> int:
        """Index of this host among the hosts with this local rank. ValueError before ``init``."""
        return _ronde.cross_rank()

    def is_homogeneous(self) -> bool:
        """Whether all hosts have the same number of ranks. ValueError before ``init``."""
        return _ronde.is_homogeneous()

    def mpi_threads_supported(self) -> bool:
        """Whether the program may call MPI from any thread: always true in a job over MPI.

        Raises ValueError in a job without MPI.
        """
        if not self.mpi_enabled():
            raise ValueError(
                "this job does not use MPI, so mpi_threads_supported() has no answer: ranks of one host use "
                "shared memory; set RONDE_BACKEND=mpi to use MPI, as beside mpi4py"
            )
        return True

    def mpi_enabled(self) -> bool:
        """Whether the job uses MPI; false before ``init``."""
        return _ronde.is_initialized() and _ronde.backend() == "mpi"

    def mpi_built(self) -> bool:
        """Whether the package has a plug-in for MPI, which ranks on several hosts may use."""
        return _ronde.mpi_built()

    def gloo_enabled(self) -> bool:
        """Whether the job runs without MPI, where Horovod uses Gloo; false before ``init``."""
        return _ronde.is_initialized() and _ronde.backend() != "mpi"

    def gloo_built(self) -> bool:
        """Whether jobs can run without MPI: always, in shared memory."""
        return True

    def nccl_built(self) -> int:
        """Version of the NCCL library that can be loaded, such as 22105 for 2.21.5; 0 if there is
        none."""
        return _ronde.nccl_version()

    def ddl_built(self) -> bool:
        """Whether IBM's DDL is built in: never."""
        return False

    def ccl_built(self) -> bool:
        """Whether oneCCL is built in: never."""
        return False

    def cuda_built(self) -> bool:
        """Whether tensors on CUDA devices can be reduced: if NCCL can be loaded."""
        return self.nccl_built() > 0

    def rocm_built(self) -> bool:
        """Whether ROCm is built in: never."""
        return False

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """Ranks of the process sets by number; test suites use this name."""
        return sets.get_process_set_ids_and_ranks()


_basics = HorovodBasics()

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

__all__ = [
    "HorovodBasics",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
