"""`ronde.run`: calls a function on several ranks, from a script or a notebook.

```python
import ronde

def train(epochs):
    import ronde.torch as hvd
    hvd.init()
    ...
    return hvd.rank()

assert ronde.run(train, args=(3,), num_proc=2) == [0, 1]
```
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Optional, Sequence

from ._arguments import _HorovodArgs
from ._job import JobError
from .launch import _run

__all__ = ["JobError", "run"]


def run(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Optional[dict[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Sequence[int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[int] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[int] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interfaces: Optional[Sequence[str]] = None,
    executable: Optional[str] = None,
    *,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
    network_interface: Optional[str] = None,
    no_thread_limit: Optional[bool] = None,
) -> list[Any]:
    """Calls `func(*args, **kwargs)` on `num_proc` ranks, one process each. Returns the results by
    rank.

    The function is pickled with cloudpickle, so it may be defined in a notebook or a script; its
    arguments and results must be picklable. Output of the ranks is printed line by line after
    `[<rank>]<stdout>:`. An interrupt ends all ranks.

    - `hosts` (`"node1:4,node2:4"`) or `hostfile` (lines such as `node1 slots=4`): hosts of the
      ranks; this machine if neither is given. On other hosts, `mpirun` starts the ranks if there is
      an MPI, else `ssh`, with `ssh_port`, `ssh_identity_file` and `network_interfaces`; `use_mpi` and
      `mpi_args` (for its command line) choose `mpirun`, on this machine too, and `use_gloo` chooses
      `ssh`. The function is then passed through
      the folder for temporary files, which must be shared by all hosts: set TMPDIR to a shared
      folder.
    - `start_timeout`: seconds within which the ranks must find each other.
    - `output_filename`: a folder that also gets the output of the ranks; `verbose`: log what is
      started and how it ends.
    - `executable`: the Python of the ranks, instead of this one.
    - `no_thread_limit`: leave OMP_NUM_THREADS unset. By default it is set to each rank's share of
      its host's cores, unless it is already set.
    - `disable_cache` is accepted and ignored.
    - `np` and `network_interface` are old names of `num_proc` and `network_interfaces`.

    Raises `JobError`, a RuntimeError, if a rank fails: the message names it and has its traceback.

    With `min_num_proc` or `host_discovery_script` the job is elastic: ranks that are lost are
    replaced (docs/ELASTIC.md). `func` then uses `hvd.elastic.run`; the results are those of the
    ranks at the end. `max_num_proc`, `slots` (of hosts that the script prints without),
    `reset_limit` and `cooldown_range` (two numbers of seconds) are its other parameters.
    """
    job = _HorovodArgs()
    job.run_func = functools.partial(func, *args, **(kwargs or {}))
    job.num_proc = _renamed("np", np, "num_proc", num_proc)
    job.min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    job.max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    job.slots = slots
    job.reset_limit = reset_limit
    job.cooldown_range = cooldown_range
    job.hosts = hosts
    job.hostfile = hostfile
    job.host_discovery_script = host_discovery_script
    job.start_timeout = start_timeout
    job.ssh_port = ssh_port
    job.ssh_identity_file = ssh_identity_file
    job.disable_cache = disable_cache
    job.output_filename = output_filename
    job.verbose = verbose
    job.use_gloo = use_gloo
    job.use_mpi = use_mpi
    job.mpi_args = mpi_args
    names = None if network_interface is None else network_interface.split(",")
    job.nics = _renamed("network_interface", names, "network_interfaces", network_interfaces)
    job.executable = executable
    job.no_thread_limit = no_thread_limit
    results = _run(job)
    assert results is not None
    return results


def _renamed(old: str, old_value: Any, new: str, new_value: Any) -> Any:
    """Value of a parameter that may be given by its old name."""
    if old_value is None:
        return new_value
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=3)
    return old_value
