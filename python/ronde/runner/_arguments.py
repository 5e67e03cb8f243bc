"""Description of a job: attributes with horovodrun's names, and their conversion to flags of `ronde
run`."""

from __future__ import annotations

import argparse
from typing import Any, Callable, Optional, Sequence, Union

# Flags of elastic jobs; `cooldown_range` is a pair.
_ELASTIC = {
    "min_num_proc": "--min-num-proc",
    "max_num_proc": "--max-num-proc",
    "slots": "--slots-per-host",
    "reset_limit": "--reset-limit",
    "host_discovery_script": "--host-discovery-script",
    "elastic_timeout": "--elastic-timeout",
    "cooldown_range": "--blacklist-cooldown-range",
}

_VALUES = (
    "hosts",
    "hostfile",
    "start_timeout",
    "ssh_port",
    "ssh_identity_file",
    "output_filename",
    "mpi_args",
    "binding_args",
    "config_file",
    "fusion_threshold_mb",
    "cycle_time_ms",
    "cache_capacity",
    "autotune_log_file",
    "autotune_warmup_samples",
    "autotune_steps_per_sample",
    "autotune_bayes_opt_max_samples",
    "autotune_gaussian_process_noise",
    "timeline_filename",
    "stall_check_warning_time_seconds",
    "stall_check_shutdown_time_seconds",
    "num_nccl_streams",
    "thread_affinity",
    "gloo_timeout_seconds",
    "log_level",
)

# True writes the flag, False its opposite, None leaves the setting to the environment.
_SWITCHES = (
    "hierarchical_allreduce",
    "hierarchical_allgather",
    "torus_allreduce",
    "autotune",
    "timeline_mark_cycles",
    "mpi_threads_disable",
)

# Switches whose two flags have other names.
_NAMED_SWITCHES = {
    "no_stall_check": ("--no-stall-check", "--stall-check"),
    "log_with_timestamp": ("--log-with-timestamp", "--log-without-timestamp"),
}

# Flags without an opposite.
_FLAGS = {
    "disable_cache": "--disable-cache",
    "verbose": "--verbose",
    "use_gloo": "--gloo",
    "use_mpi": "--mpi",
    "tcp_flag": "--tcp",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
    "no_thread_limit": "--no-thread-limit",
}

_OLD_NAMES = {"np": "num_proc", "min_np": "min_num_proc", "max_np": "max_num_proc"}


class _HorovodArgs:
    """A job: set its attributes, then call `horovod.runner.launch._run`. None means not given.

    Required are `num_proc`, and `run_func` (called without arguments) or `command` (a list of
    words). `nics` is a list of network interfaces, `executable` the Python that calls `run_func`.
    The others are named like horovodrun's flags. An unknown attribute is an AttributeError, unless
    it is set to None or False.
    """

    def __init__(self) -> None:
        self.num_proc: int = 1
        self.run_func: Optional[Callable[[], Any]] = None
        self.command: Optional[Sequence[str]] = None
        self.nics: Optional[Sequence[str]] = None
        self.executable: Optional[str] = None
        for name in (*_ELASTIC, *_VALUES, *_SWITCHES, *_NAMED_SWITCHES, *_FLAGS):
            setattr(self, name, None)

    _OWN = ("num_proc", "run_func", "command", "nics", "executable")
    _KNOWN = {*_OWN, *_ELASTIC, *_VALUES, *_SWITCHES, *_NAMED_SWITCHES, *_FLAGS}

    def __getattr__(self, name: str) -> Any:
        if name in _OLD_NAMES:
            return getattr(self, _OLD_NAMES[name])
        raise AttributeError(f"a job has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        name = _OLD_NAMES.get(name, name)
        if value and name not in self._KNOWN:
            known = ", ".join(sorted(self._KNOWN))
            raise AttributeError(f"a job has no attribute {name!r}; it has {known}")
        super().__setattr__(name, value)


def is_elastic(job: Union[_HorovodArgs, argparse.Namespace]) -> bool:
    """Whether ranks are replaced while the job runs: as in Horovod, with a discovery script or a
    smallest number of ranks."""
    return job.host_discovery_script is not None or job.min_num_proc is not None


def launcher_flags(job: Union[_HorovodArgs, argparse.Namespace]) -> list[str]:
    """Flags of `ronde run` for `job`, which may be a result of `horovod.runner.launch.parse_args`.

    Raises ValueError for an invalid number of ranks, for two launchers at once, and for an invalid
    cooldown range; NotImplementedError for launchers that Ronde does not use.
    """
    if not isinstance(job.num_proc, int) or job.num_proc < 1:
        raise ValueError(f"num_proc is {job.num_proc!r}; expected a number of ranks, 1 or more")
    if job.use_gloo and job.use_mpi:
        raise ValueError("use_gloo and use_mpi are both given; choose one of them")
    if getattr(job, "use_jsrun", None):
        raise NotImplementedError(
            "use_jsrun: Ronde starts no jobs through jsrun; have jsrun start the program itself"
        )
    flags = [f"--num-proc={job.num_proc}"]
    for name in _VALUES:
        value = getattr(job, name)
        if value is not None:
            flags.append(f"--{name.replace('_', '-')}={value}")
    for name, flag in _ELASTIC.items():
        value = getattr(job, name)
        if name == "cooldown_range" and value is not None:
            if len(value) != 2:
                raise ValueError(f"cooldown_range is {value!r}; expected two numbers of seconds")
            flags.extend([flag, *(str(seconds) for seconds in value)])
        elif value is not None:
            flags.append(f"{flag}={value}")
    for name in _SWITCHES:
        value = getattr(job, name)
        if value is not None:
            flags.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
    for name, (on, off) in _NAMED_SWITCHES.items():
        value = getattr(job, name)
        if value is not None:
            flags.append(on if value else off)
    flags.extend(flag for name, flag in _FLAGS.items() if getattr(job, name))
    if job.nics:
        flags.append(f"--network-interfaces={','.join(sorted(job.nics))}")
    return flags
