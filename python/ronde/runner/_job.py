"""A job as a child process: starts the launcher, forwards its output, waits, and collects
results."""

from __future__ import annotations

import codecs
import os
import pickle
import re
import selectors
import site
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, TextIO

from ._folder import JobFolder, Outcome, Raised, Returned

# Time for the launcher to end its ranks; it waits 5 s after SIGTERM.
_END_SECONDS = 15

# The launcher's message about the rank that failed first, with its host if there are several:
# ronde run: node2: rank 1 exited with code 3; ending …
_CAUSE = re.compile(r"^ronde run: ((?:\S+: )?rank (\d+) .*?)(;|$)")


class JobError(RuntimeError):
    """A failed job: the launcher's exit code, and if known the rank at fault and its traceback."""

    def __init__(
        self, message: str, exit_code: int, rank: Optional[int] = None, traceback: Optional[str] = None
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.rank = rank
        self.traceback = traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.args[0], self.exit_code, self.rank, self.traceback))


def call(
    flags: Sequence[str],
    ranks: Optional[int],
    function: Callable[[], Any],
    executable: Optional[str],
    launcher: str,
) -> list[Any]:
    """Calls `function` on every rank, and returns the results by rank. `ranks`: their number; None
    for an elastic job, whose results are those of the ranks at its end.

    Raises `JobError` if a rank fails; the message names `launcher`, in Horovod's words. TypeError
    if the function cannot be pickled.
    """
    with tempfile.TemporaryDirectory(prefix="ronde-run-") as path:
        folder = JobFolder(path)
        python = executable or sys.executable
        # Another Python has other modules.
        folder.write_function(function, with_path=python == sys.executable)
        code, cause = execute(flags, [python, "-m", "ronde.runner._task", path])
        # After a failure there can be fewer ranks: the launcher may have refused their number.
        outcomes = folder.final_outcomes() if ranks is None else folder.outcomes(None if code else ranks)
    if code != 0 or not all(isinstance(outcome, Returned) for outcome in outcomes):
        raise _failure(code, cause, outcomes, launcher)
    return [_value(rank, outcome, code) for rank, outcome in enumerate(outcomes)]


def execute(flags: Sequence[str], command: Sequence[str]) -> tuple[int, Optional[str]]:
    """Runs `command` on every rank, and forwards the output of the ranks.

    Returns the launcher's exit code and its message about the rank that failed first. An exception,
    such as an interrupt, ends all ranks first.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "ronde.runner._launcher", str(os.getpid()), *flags, "--", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,  # Ctrl-C goes to this process only, which then ends the launcher
    )
    try:
        cause = _pass_on(process)
        return process.wait(), cause
    except BaseException:
        _end(process)
        raise
    finally:
        _close(process)


def failed(code: int, launcher: str) -> str:
    """Message of a failure, in the words that scripts and test suites search for."""
    if launcher == "mpirun":
        return f"mpirun failed with exit code {code}"
    return "Horovod detected that one or more processes exited with non-zero status"


def _environment() -> dict[str, str]:
    """This process's environment, extended so that the ranks find this package."""
    root = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    installed = {os.path.realpath(path) for path in (*site.getsitepackages(), site.getusersitepackages())}
    # Installed packages are found anyway, and their folder would precede the standard library.
    if root not in installed and root not in map(os.path.realpath, paths):
        environment["PYTHONPATH"] = os.pathsep.join([root, *paths])
    return environment


def _pass_on(process: "subprocess.Popen[bytes]") -> Optional[str]:
    """Copies the launcher's output to `sys.stdout` and `sys.stderr`, which in a notebook are not
    files.

    Returns its message about the rank that failed first.
    """
    said = ""  # the end of its standard error
    with selectors.DefaultSelector() as selector:
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            selector.register(pipe, selectors.EVENT_READ, (name, decoder))
        while selector.get_map():
            for key, _ in selector.select():
                name, decoder = key.data
                data = os.read(key.fd, 1 << 16)
                text = decoder.decode(data, final=not data)
                if not data:
                    selector.unregister(key.fileobj)
                _write(getattr(sys, name), text)  # looked up every time: capturing output replaces it
                if name == "stderr":
                    said = (said + text)[-(1 << 16) :]
    return next((line for line in said.splitlines() if _CAUSE.match(line)), None)


def _write(stream: Optional[TextIO], text: str) -> None:
    if stream is None:
        return
    # Characters that cannot be printed must not end the job.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def _end(process: "subprocess.Popen[bytes]") -> None:
    _close(process)  # or the launcher would block on unread output
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except BaseException:  # timeout, or a second interrupt
        process.kill()  # its guard then kills the ranks
        process.wait()


def _close(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def _failure(
    code: int, cause: Optional[str], outcomes: Sequence[Optional[Outcome]], launcher: str
) -> JobError:
    """The error that names the rank at fault; a rank that only lost a peer is not, if there is
    another."""
    raised = [(rank, outcome) for rank, outcome in enumerate(outcomes) if isinstance(outcome, Raised)]
    raised.sort(key=lambda item: (item[1].blames_peers, item[1].time))
    match = _CAUSE.match(cause) if cause else None
    without_a_word = match is not None and not _has_raised(outcomes, int(match[2]))
    if raised and not (raised[0][1].blames_peers and without_a_word):
        rank, outcome = raised[0]
        summary = f"{failed(code, launcher)}: rank {rank} raised {outcome.summary}"
        return JobError(f"{summary}\n\nRank {rank}: {outcome.traceback}", code, rank, outcome.traceback)
    if match is not None:
        return JobError(f"{failed(code, launcher)}: {match[1]}", code, int(match[2]))
    if code != 0:
        return JobError(f"{failed(code, launcher)}: exit code {code}; what was printed above says more", code)
    rank = next((rank for rank, outcome in enumerate(outcomes) if outcome is None), 0)
    return JobError(f"rank {rank} ended without a result", code, rank)


def _has_raised(outcomes: Sequence[Optional[Outcome]], rank: int) -> bool:
    return rank < len(outcomes) and isinstance(outcomes[rank], Raised)


def _value(rank: int, outcome: Optional[Outcome], code: int) -> Any:
    assert isinstance(outcome, Returned)
    try:
        return pickle.loads(outcome.value)
    except Exception as error:
        raise JobError(f"the result of rank {rank} cannot be read: {error}", code, rank) from error
