"""horovodrun's flags as an argparse parser, for programs that parse them themselves."""

from __future__ import annotations

import argparse
import warnings
from typing import Any, Optional, Sequence

from ._arguments import _ELASTIC, _FLAGS, _NAMED_SWITCHES, _SWITCHES, _VALUES
from .common.util.config_parser import LOG_LEVELS, set_args_from_config, validate_config_args

# Types of values that are not text.
_TYPES: dict[str, type] = {
    "start_timeout": int,
    "ssh_port": int,
    "fusion_threshold_mb": int,
    "cycle_time_ms": float,
    "cache_capacity": int,
    "autotune_warmup_samples": int,
    "autotune_steps_per_sample": int,
    "autotune_bayes_opt_max_samples": int,
    "autotune_gaussian_process_noise": float,
    "stall_check_warning_time_seconds": int,
    "stall_check_shutdown_time_seconds": int,
    "num_nccl_streams": int,
    "thread_affinity": int,
    "gloo_timeout_seconds": int,
    "min_num_proc": int,
    "max_num_proc": int,
    "slots": int,
    "reset_limit": int,
    "cooldown_range": int,
    "elastic_timeout": int,
}

# Flags that are not the attribute's name with dashes.
_SPELLED: dict[str, tuple[str, ...]] = {
    "hosts": ("-H", "--hosts"),
    "hostfile": ("-hostfile", "--hostfile"),
    "ssh_port": ("-p", "--ssh-port"),
    "ssh_identity_file": ("-i", "--ssh-identity-file"),
    "min_num_proc": ("--min-np", "--min-num-proc"),
    "max_num_proc": ("--max-np", "--max-num-proc"),
    "slots": ("--slots-per-host",),
    "cooldown_range": ("--blacklist-cooldown-range",),
    "use_gloo": ("--gloo",),
    "use_mpi": ("--mpi",),
    "tcp_flag": ("--tcp",),
    "prefix_output_with_timestamp": ("-prefix-timestamp", "--prefix-output-with-timestamp"),
}

# Older names of flags.
_OLDER = {
    "--log-with-timestamp": ("--no-log-hide-timestamp",),
    "--log-without-timestamp": ("--log-hide-timestamp",),
}

# Groups of flags of which only one may be given.
_EXCLUSIVE = (
    ("hosts", "hostfile", "host_discovery_script"),
    ("use_gloo", "use_mpi", "use_jsrun"),
)


def parse(argv: Sequence[str], version: str) -> argparse.Namespace:
    """Implements :func:`ronde.runner.launch.parse_args`."""
    given: set[str] = set()
    parser = _parser(given, version)
    args = parser.parse_args(list(argv))
    if args.num_proc is None and not args.check_build:
        parser.error("the following arguments are required: -np/--num-proc")
    if args.config_file:
        try:
            config = _read_config(args.config_file)
            set_args_from_config(args, config, given)
        except (ImportError, OSError, ValueError) as error:
            parser.error(f"--config-file {args.config_file}: {error}")
    validate_config_args(args)
    args.run_func = None
    args.executable = None
    return args


def _parser(given: set[str], version: str) -> argparse.ArgumentParser:
    """The parser, which adds the attributes that a flag has set to ``given``."""
    # No abbreviations: a prefix of a flag may be a flag of another launcher.
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        description="Starts a command on several ranks; `ronde run --help` explains the flags.",
        allow_abbrev=False,
    )
    parser.add_argument("-v", "--version", action="version", version=version)
    parser.add_argument("-np", "--num-proc", dest="num_proc", type=int, help="number of ranks")
    parser.add_argument(
        "-cb", "--check-build", action="store_true", help="print what this build can do"
    )
    parser.add_argument(
        "--network-interfaces", dest="nics", action=_Interfaces, help="names, separated by commas"
    )
    parser.add_argument(
        "--network-interface", dest="nics", action=_Interface, help=argparse.SUPPRESS
    )
    exclusive = {
        name: group
        for group, names in ((parser.add_mutually_exclusive_group(), names) for names in _EXCLUSIVE)
        for name in names
    }
    for name in (*_VALUES, *_ELASTIC):
        flags = _SPELLED.get(name, (f"--{name.replace('_', '-')}",))
        exclusive.get(name, parser).add_argument(
            *flags,
            dest=name,
            type=_TYPES.get(name, str),
            nargs=2 if name == "cooldown_range" else None,
            choices=LOG_LEVELS if name == "log_level" else None,
            action=_recording(given),
        )
    for name in (*_FLAGS, "use_jsrun"):
        flags = _SPELLED.get(
            name, ("--jsrun",) if name == "use_jsrun" else (f"--{name.replace('_', '-')}",)
        )
        exclusive.get(name, parser).add_argument(*flags, dest=name, action="store_true")
    for name in _SWITCHES:
        flag = name.replace("_", "-")
        _add_switch(parser, given, name, [f"--{flag}"], [f"--no-{flag}"])
    for name, (on, off) in _NAMED_SWITCHES.items():
        _add_switch(parser, given, name, [on, *_OLDER.get(on, ())], [off, *_OLDER.get(off, ())])
    parser.add_argument("command", nargs=argparse.REMAINDER, help="command of each rank")
    return parser


def _add_switch(
    parser: argparse.ArgumentParser, given: set[str], name: str, on: list[str], off: list[str]
) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(*on, dest=name, nargs=0, const=True, action=_recording(given))
    group.add_argument(*off, dest=name, nargs=0, const=False, action=_recording(given))


def _recording(given: set[str]) -> type[argparse.Action]:
    """An action that also records that the attribute was set."""

    class Store(argparse.Action):
        def __call__(
            self,
            parser: argparse.ArgumentParser,
            namespace: argparse.Namespace,
            values: Any,
            option_string: Optional[str] = None,
        ) -> None:
            given.add(self.dest)
            setattr(namespace, self.dest, self.const if self.nargs == 0 else values)

    return Store


class _Interfaces(argparse.Action):
    """Adds comma-separated names to a set."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> None:
        names = getattr(namespace, self.dest) or set()
        setattr(namespace, self.dest, names | set(values.split(",")))


class _Interface(_Interfaces):
    """Sets a network interface; accepts several for compatibility."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> None:
        if "," in values:
            warnings.warn(
                "several interfaces in --network-interface are deprecated; use --network-interfaces",
                DeprecationWarning,
                stacklevel=2,
            )
        super().__call__(parser, namespace, values, option_string)


def _read_config(path: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise ImportError("PyYAML is needed to read it in Python: pip install pyyaml") from error
    with open(path) as file:
        try:
            config = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError(error) from error
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ValueError(f"expected sections with settings, not {type(config).__name__}")
    return config
