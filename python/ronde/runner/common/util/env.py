"""Environment variables: a process's rank as set by a launcher, and those to pass to other
hosts."""

from __future__ import annotations

import os
import re

from . import secret

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]

#: Variables that are specific to a host or process, as regular expressions for the start of a
#: name.
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", secret.HOROVOD_SECRET_KEY}

KUBEFLOW_MPI_EXEC = "/etc/mpi/kubexec.sh"

_VARIABLES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """Rank and size from the environment of `ronde run`, Open MPI or PMI; (0, 1) outside a job."""
    for rank, size in _VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def is_exportable(v: str) -> bool:
    """Whether a variable of this name is passed to processes on other hosts."""
    return not any(re.match(pattern, v) for pattern in IGNORE_REGEXES)


def is_kubeflow_mpi() -> bool:
    """Whether this process runs under Kubeflow's MPI operator."""
    return os.environ.get("OMPI_MCA_plm_rsh_agent") == KUBEFLOW_MPI_EXEC
