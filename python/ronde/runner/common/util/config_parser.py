"""Conversion of a job's settings: from horovodrun's configuration file to arguments, and from
arguments to environment variables.

``args`` is any object with horovodrun's names as attributes, such as a result of
:func:`horovod.runner.launch.parse_args`; a setting whose attribute is None or missing is not
given.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Mapping, MutableMapping, Optional

HOROVOD_FUSION_THRESHOLD = "HOROVOD_FUSION_THRESHOLD"
HOROVOD_CYCLE_TIME = "HOROVOD_CYCLE_TIME"
HOROVOD_CACHE_CAPACITY = "HOROVOD_CACHE_CAPACITY"
HOROVOD_HIERARCHICAL_ALLREDUCE = "HOROVOD_HIERARCHICAL_ALLREDUCE"
HOROVOD_HIERARCHICAL_ALLGATHER = "HOROVOD_HIERARCHICAL_ALLGATHER"
HOROVOD_TORUS_ALLREDUCE = "HOROVOD_TORUS_ALLREDUCE"
HOROVOD_AUTOTUNE = "HOROVOD_AUTOTUNE"
HOROVOD_AUTOTUNE_LOG = "HOROVOD_AUTOTUNE_LOG"
HOROVOD_AUTOTUNE_WARMUP_SAMPLES = "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"
HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE = "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"
HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"
HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE = "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE"
HOROVOD_TIMELINE = "HOROVOD_TIMELINE"
HOROVOD_TIMELINE_MARK_CYCLES = "HOROVOD_TIMELINE_MARK_CYCLES"
HOROVOD_STALL_CHECK_DISABLE = "HOROVOD_STALL_CHECK_DISABLE"
HOROVOD_STALL_CHECK_TIME_SECONDS = "HOROVOD_STALL_CHECK_TIME_SECONDS"
HOROVOD_STALL_SHUTDOWN_TIME_SECONDS = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"
HOROVOD_MPI_THREADS_DISABLE = "HOROVOD_MPI_THREADS_DISABLE"
HOROVOD_NUM_NCCL_STREAMS = "HOROVOD_NUM_NCCL_STREAMS"
NCCL_IB_DISABLE = "NCCL_IB_DISABLE"
HOROVOD_THREAD_AFFINITY = "HOROVOD_THREAD_AFFINITY"
HOROVOD_GLOO_TIMEOUT_SECONDS = "HOROVOD_GLOO_TIMEOUT_SECONDS"
HOROVOD_LOG_LEVEL = "HOROVOD_LOG_LEVEL"
HOROVOD_LOG_HIDE_TIME = "HOROVOD_LOG_HIDE_TIME"
LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]

# For each section of the configuration file: the attribute of `args` by key.
_SECTIONS: dict[str, dict[str, str]] = {
    "params": {
        name: name
        for name in (
            "fusion_threshold_mb",
            "cycle_time_ms",
            "cache_capacity",
            "hierarchical_allreduce",
            "hierarchical_allgather",
            "torus_allreduce",
        )
    },
    "autotune": {
        "enabled": "autotune",
        "log_file": "autotune_log_file",
        "warmup_samples": "autotune_warmup_samples",
        "steps_per_sample": "autotune_steps_per_sample",
        "bayes_opt_max_samples": "autotune_bayes_opt_max_samples",
        "gaussian_process_noise": "autotune_gaussian_process_noise",
    },
    "timeline": {"filename": "timeline_filename", "mark_cycles": "timeline_mark_cycles"},
    "stall_check": {
        "enabled": "no_stall_check",
        "warning_time_seconds": "stall_check_warning_time_seconds",
        "shutdown_time_seconds": "stall_check_shutdown_time_seconds",
    },
    "library_options": {
        name: name
        for name in (
            "mpi_threads_disable",
            "num_nccl_streams",
            "thread_affinity",
            "gloo_timeout_seconds",
        )
    },
    "logging": {"level": "log_level", "with_timestamp": "log_with_timestamp"},
}

_NOT_NEGATIVE = (
    "fusion_threshold_mb",
    "cycle_time_ms",
    "cache_capacity",
    "autotune_warmup_samples",
    "autotune_steps_per_sample",
    "autotune_bayes_opt_max_samples",
    "stall_check_warning_time_seconds",
    "stall_check_shutdown_time_seconds",
    "num_nccl_streams",
    "thread_affinity",
    "gloo_timeout_seconds",
)


def set_args_from_config(
    args: Any, config: Mapping[str, Any], override_args: Collection[str]
) -> None:
    """Sets the attributes of ``args`` from a configuration file, except those in ``override_args``.

    ``config``: the file's contents, as PyYAML returns them. Raises ValueError for a controller
    other than gloo and mpi, and for a section that is not a table.
    """
    controller = config.get("controller")
    if controller and not getattr(args, "use_gloo", None) and not getattr(args, "use_mpi", None):
        if str(controller).lower() not in ("gloo", "mpi"):
            raise ValueError(f"No such controller supported: {controller}; use gloo or mpi")
        setattr(args, f"use_{str(controller).lower()}", True)
    for section, attributes in _SECTIONS.items():
        given = config.get(section) or {}
        if not isinstance(given, Mapping):
            raise ValueError(
                f"{section} of the configuration file is {given!r}; expected keys and values"
            )
        for key, attribute in attributes.items():
            value = given.get(key)
            if value is None or attribute in override_args:
                continue
            setattr(args, attribute, not value if attribute == "no_stall_check" else value)


def validate_config_args(args: Any) -> None:
    """Raises ValueError for a setting out of range, with its name."""
    for name in _NOT_NEGATIVE:
        value = getattr(args, name, None)
        if value is not None and value < 0:
            raise ValueError(f"{name}={value} must be >= 0")
    noise = getattr(args, "autotune_gaussian_process_noise", None)
    if noise is not None and not 0 <= noise <= 1:
        raise ValueError(f"autotune_gaussian_process_noise={noise} must be in [0, 1]")


def set_env_from_args(env: MutableMapping[str, str], args: Any) -> MutableMapping[str, str]:
    """Writes the given settings into ``env``, as the variables that ranks read; returns ``env``.

    Details of autotune and of the timeline are written only if these are on.
    """

    def write(variable: str, name: str, convert: Optional[Callable[[Any], Any]] = None) -> None:
        value = getattr(args, name, None)
        if value is not None:
            env[variable] = str(value if convert is None else convert(value))

    def flag(value: Any) -> int:
        return int(bool(value))

    write(HOROVOD_FUSION_THRESHOLD, "fusion_threshold_mb", lambda megabytes: megabytes * (1 << 20))
    write(HOROVOD_CYCLE_TIME, "cycle_time_ms")
    write(HOROVOD_CACHE_CAPACITY, "cache_capacity")
    write(HOROVOD_HIERARCHICAL_ALLREDUCE, "hierarchical_allreduce", flag)
    write(HOROVOD_HIERARCHICAL_ALLGATHER, "hierarchical_allgather", flag)
    write(HOROVOD_TORUS_ALLREDUCE, "torus_allreduce", flag)
    if getattr(args, "autotune", None):
        write(HOROVOD_AUTOTUNE, "autotune", flag)
        write(HOROVOD_AUTOTUNE_LOG, "autotune_log_file")
        write(HOROVOD_AUTOTUNE_WARMUP_SAMPLES, "autotune_warmup_samples")
        write(HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE, "autotune_steps_per_sample")
        write(HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES, "autotune_bayes_opt_max_samples")
        write(HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE, "autotune_gaussian_process_noise")
    if getattr(args, "timeline_filename", None):
        write(HOROVOD_TIMELINE, "timeline_filename")
        write(HOROVOD_TIMELINE_MARK_CYCLES, "timeline_mark_cycles", flag)
    write(HOROVOD_STALL_CHECK_DISABLE, "no_stall_check", flag)
    write(HOROVOD_STALL_CHECK_TIME_SECONDS, "stall_check_warning_time_seconds")
    write(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, "stall_check_shutdown_time_seconds")
    write(HOROVOD_MPI_THREADS_DISABLE, "mpi_threads_disable", flag)
    write(HOROVOD_NUM_NCCL_STREAMS, "num_nccl_streams")
    if getattr(args, "tcp_flag", None):
        env[NCCL_IB_DISABLE] = "1"
    write(HOROVOD_THREAD_AFFINITY, "thread_affinity")
    write(HOROVOD_GLOO_TIMEOUT_SECONDS, "gloo_timeout_seconds")
    write(HOROVOD_LOG_LEVEL, "log_level")
    write(HOROVOD_LOG_HIDE_TIME, "log_with_timestamp", lambda value: flag(not value))
    return env
