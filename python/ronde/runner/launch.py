"""The launcher: `horovodrun`, and jobs started by a program.

`horovodrun` runs `ronde run`, which accepts its flags.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import Any, Optional, Sequence, Union

from .. import __version__, cli
from ..common.util import gloo_built, mpi_built, nccl_built
from . import _job
from ._arguments import _HorovodArgs, is_elastic, launcher_flags
from ._parser import parse

__all__ = [
    "check_build",
    "gloo_built",
    "horovod_version",
    "mpi_built",
    "nccl_built",
    "parse_args",
    "run_commandline",
]

# The Horovod release whose interface is implemented.
_INTERFACE = "0.28.1"


def horovod_version() -> str:
    """Value of `horovod.__version__`: the Horovod release whose interface is implemented, then
    Ronde's version."""
    return f"{_INTERFACE}+ronde.{__version__}"


def run_commandline(argv: Optional[Sequence[str]] = None) -> int:
    """Runs `horovodrun` with `argv`, by default the process's arguments, and returns its exit code.

    The code is 0, that of the rank that failed first, or 2 for wrong usage.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    for word in words:
        if not word.startswith("-"):
            break
        if word in ("-v", "--version"):
            print(horovod_version())
            return 0
        if word in ("-cb", "--check-build"):
            print(check_build())
            return 0
    return cli.main(["run", *words])


def parse_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parses horovodrun's flags in ``argv``, by default the process's arguments.

    The attributes have horovodrun's names (``num_proc``, ``hosts``, ``fusion_threshold_mb``,
    ``command`` …); None means not given. Settings in ``--config-file`` (needs PyYAML) are included
    unless a flag overrides them. Ends the process for ``--help``, ``--version`` and
    ``--check-build``, and with code 2 for wrong usage. Raises ValueError for settings out of range.
    """
    args = parse(sys.argv[1:] if argv is None else argv, horovod_version())
    if args.check_build:
        print(check_build())
        sys.exit(0)
    return args


def check_build() -> str:
    """Features of this build, in horovodrun's format."""
    mark = {True: "X", False: " "}
    tensorflow, torch = (mark[importlib.util.find_spec(name) is not None] for name in ("tensorflow", "torch"))
    mpi, gloo, nccl = (mark[bool(built())] for built in (mpi_built, gloo_built, nccl_built))
    return (
        f"Horovod v{horovod_version()}:\n\n"
        f"Available Frameworks:\n    [{tensorflow}] TensorFlow\n    [{torch}] PyTorch\n    [ ] MXNet\n\n"
        f"Available Controllers:\n    [{mpi}] MPI\n    [{gloo}] Gloo\n\n"
        "Available Tensor Operations:\n"
        f"    [{nccl}] NCCL\n    [ ] DDL\n    [ ] CCL\n    [{mpi}] MPI\n    [{gloo}] Gloo\n\n"
        "In Gloo's place is Ronde's own shared memory, for one host; several use MPI or TCP."
    )


def _run(args: Union[_HorovodArgs, argparse.Namespace]) -> Optional[list[Any]]:
    """Starts the job described by `args`, which :func:`parse_args` may have returned, and waits for
    it.

    Returns the results by rank for a function, None for a command. Raises `JobError`, a
    RuntimeError, if the job fails; ValueError if there is nothing to start.
    """
    flags = launcher_flags(args)
    launcher = "mpirun" if args.use_mpi else "horovodrun"
    if args.run_func is not None:
        ranks = None if is_elastic(args) else args.num_proc
        return _job.call(flags, ranks, args.run_func, args.executable, launcher)
    if not args.command:
        raise ValueError("nothing to start: set run_func or command")
    code, cause = _job.execute(flags, args.command)
    if code != 0:
        reason = f"exit code {code}" if cause is None else cause
        raise _job.JobError(f"{_job.failed(code, launcher)}: {reason}", code)
    return None


if __name__ == "__main__":
    sys.exit(run_commandline())
