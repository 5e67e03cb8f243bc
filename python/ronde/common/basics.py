"""Joining and leaving a job, and what a rank knows of it."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from os import PathLike
from typing import Any, Optional, Union

from .. import _ronde
from . import process_sets as sets
from .process_sets import ProcessSet


class HorovodBasics:
    """The job, as Horovod's class of this name shows it.

    Its arguments, which say where Horovod's extension lies, are taken and ignored: there is one extension.
    """

    _is_left_at_exit = False

    def __init__(self, pkg_path: Optional[str] = None, *args: str) -> None:
        pass

    def init(
        self,
        comm: Union[Sequence[int], Any, None] = None,
        process_sets: Union[Sequence[Union[ProcessSet, Sequence[int]]], str, None] = None,
    ) -> None:
        """Joins the job that the environment describes; without a launcher, one of a single rank.

        ``comm``: only these ranks of it, numbered in this order, or those of an mpi4py communicator.
        ``process_sets``: sets to register besides that of all ranks, the same on all of them; or
        ``"dynamic"``: such as are added later. Called again it changes nothing, but looks up process sets.
        ValueError if that fails; the message says why.
        """
        wanted: list[ProcessSet] = []
        if not isinstance(process_sets, str):
            for entry in process_sets or ():
                wanted.append(entry if isinstance(entry, ProcessSet) else ProcessSet(entry))
        elif process_sets != "dynamic":
            raise ValueError(f'process_sets={process_sets!r}: expected "dynamic", or process sets')
        communicator = comm if sets.is_communicator(comm) else None
        members = sets.communicator_ranks(comm) if communicator is not None else comm
        # None of them stands for all.
        ranks = None if members is None else [int(rank) for rank in members] or None
        _ronde.init(ranks, sets.agree(wanted, communicator), process_sets == "dynamic")
        if not HorovodBasics._is_left_at_exit:
            HorovodBasics._is_left_at_exit = True
            atexit.register(self.shutdown)
        sets.bind(wanted, communicator)

    def shutdown(self) -> None:
        """Leaves the job; without effect outside of one. Operations in flight fail."""
        _ronde.shutdown()
        sets.unbind()

    def is_initialized(self) -> bool:
        """Whether this process is in a job."""
        return _ronde.is_initialized()

    def start_timeline(self, file_path: Union[str, PathLike[str]], mark_cycles: bool = False) -> None:
        """Records a timeline to ``file_path`` from here on, on rank 0. Without effect if that is being done.

        ValueError before ``init``, and unless ``HOROVOD_TIMELINE`` is set (to ``DYNAMIC``, or to a file).
        """
        _ronde.start_timeline(file_path, mark_cycles)

    def stop_timeline(self) -> None:
        """Ends the timeline and writes what is left of it. Without effect if there is none."""
        _ronde.stop_timeline()

    def size(self) -> int:
        """Number of ranks. ValueError before ``init``."""
        return _ronde.size()

    def local_size(self) -> int:
        """Number of ranks on this host. ValueError before ``init``."""
        return _ronde.local_size()

    def cross_size(self) -> int:
        """Number of hosts that have this local rank. ValueError before ``init``."""
        return _ronde.cross_size()

    def rank(self) -> int:
        """This process's rank, from 0. ValueError before ``init``."""
        return _ronde.rank()

    def local_rank(self) -> int:
        """This process's rank among those of its host. ValueError before ``init``."""
        return _ronde.local_rank()

    def cross_rank(self) -> int:
        """Index of this host among those that have this local rank. ValueError before ``init``."""
        return _ronde.cross_rank()

    def is_homogeneous(self) -> bool:
        """Whether all hosts have as many ranks. ValueError before ``init``."""
        return _ronde.is_homogeneous()

    def mpi_threads_supported(self) -> bool:
        """Whether MPI may be used beside Ronde, from any thread: always, where the ranks meet over MPI.

        ValueError where they do not.
        """
        if not self.mpi_enabled():
            raise ValueError("MPI is not enabled in this job: mpi_threads_supported() has no answer")
        return True

    def mpi_enabled(self) -> bool:
        """Whether the job's ranks meet over MPI; false before ``init``."""
        return _ronde.is_initialized() and _ronde.backend() == "mpi"

    def mpi_built(self) -> bool:
        """Whether MPI is built in, so that ranks may be on several hosts."""
        return _ronde.mpi_built()

    def gloo_enabled(self) -> bool:
        """Whether the job's ranks meet without MPI, which Horovod has Gloo for; false before ``init``."""
        return _ronde.is_initialized() and _ronde.backend() != "mpi"

    def gloo_built(self) -> bool:
        """Whether ranks can meet without MPI: always, in shared memory."""
        return True

    def nccl_built(self) -> int:
        """The version of the NCCL that can be loaded, as a number such as 22105 for 2.21.5; 0 if there is none."""
        return _ronde.nccl_version()

    def ddl_built(self) -> bool:
        """Whether IBM's DDL is built in: no."""
        return False

    def ccl_built(self) -> bool:
        """Whether oneCCL is built in: no."""
        return False

    def cuda_built(self) -> bool:
        """Whether tensors on CUDA devices can be reduced: where NCCL can be loaded."""
        return self.nccl_built() > 0

    def rocm_built(self) -> bool:
        """Whether ROCm is built in: no."""
        return False

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """The job's process sets by number; the name is one that test suites use."""
        return sets.get_process_set_ids_and_ranks()
