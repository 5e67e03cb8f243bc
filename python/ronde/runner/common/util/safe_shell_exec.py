"""Runs shell commands that end with the program that runs them.

::

    output = io.StringIO()
    assert execute("echo hello", stdout=output) == 0 and output.getvalue() == "hello\\n"

All descendants of a command are ended when an event is set, when this process is interrupted, and
when it ends in any way, including SIGKILL: they get SIGTERM first, and SIGKILL after 5 seconds.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any, Iterable, Mapping, Optional, Sequence, TextIO, Union

from ...util.threads import in_thread, on_event
from ._supervisor import GRACE_SECONDS

GRACEFUL_TERMINATION_TIME_S = GRACE_SECONDS

_SUPERVISOR = str(Path(__file__).with_name("_supervisor.py"))

_LINE_END = re.compile("(?<=[\r\n])")


def execute(
    command: Union[str, Sequence[str]],
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[TextIO] = None,
    stderr: Optional[TextIO] = None,
    index: Optional[int] = None,
    events: Optional[Iterable[Any]] = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Runs a shell command and returns its exit code: 128 + n if signal n ended it.

    Its output goes line by line to the text streams ``stdout`` and ``stderr``, by default those of
    this process. If ``index`` is given, ``[<index>]<stdout>:`` precedes each line, and the time as
    well if ``prefix_output_with_timestamp``. The command is ended when one of ``events`` is set.
    ``env``: its environment, instead of this process's. A sequence of words is a command without
    shell syntax.
    """
    text = command if isinstance(command, str) else shlex.join(command)
    order = {"command": text, "env": None if env is None else dict(env)}
    reader, writer = os.pipe()
    try:
        supervisor = subprocess.Popen(
            # Without the user's site packages and start-up files, which the supervisor does not
            # need.
            [sys.executable, "-I", "-S", _SUPERVISOR, str(reader)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[reader],
            start_new_session=True,  # Ctrl-C goes to this process only, which then ends the command
        )
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)
    lifeline = _Lifeline(writer)
    stop = threading.Event()
    try:
        lifeline.send(json.dumps(order).encode() + b"\n")
        for event in events or ():
            on_event(event, lifeline.cut, stop=stop, check_stop_interval_s=0.1, silent=True)
        copied = [
            in_thread(
                prefix_connection, (source, target, name, index, prefix_output_with_timestamp)
            )
            for source, target, name in (
                (supervisor.stdout, stdout or sys.stdout, "stdout"),
                (supervisor.stderr, stderr or sys.stderr, "stderr"),
            )
        ]
        code = supervisor.wait()
        for thread in copied:
            thread.join()
        return code
    finally:
        stop.set()
        lifeline.cut()
        supervisor.wait()


class _Lifeline:
    """A pipe; closing it makes the supervisor end the command."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Optional[int] = descriptor
        self._lock = threading.Lock()

    def send(self, data: bytes) -> None:
        """Writes all of it; data that a supervisor did not read before it ended is dropped."""
        assert self._descriptor is not None
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except BrokenPipeError:
            pass  # its exit code has the reason

    def cut(self) -> None:
        """Closes the pipe, once."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def prefix_connection(
    src_connection: IO[bytes],
    dst_stream: TextIO,
    prefix: Optional[str],
    index: Optional[int],
    prefix_output_with_timestamp: bool,
) -> None:
    """Copies lines from a pipe to a text stream until the pipe ends.

    If ``index`` and ``prefix`` are given, ``[<index>]<<prefix>>:`` precedes each line.

    Lines end with ``\\n`` or ``\\r``, so that progress bars are updated.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    is_open = True

    def write(line: str) -> None:
        nonlocal is_open
        if index is not None and prefix is not None:
            now = time.asctime() if prefix_output_with_timestamp else ""
            line = f"{now}[{index}]<{prefix}>:{line}"
        try:
            if is_open:
                dst_stream.write(line)
                dst_stream.flush()
        except (OSError, ValueError):  # closed: go on reading, or the command would block
            is_open = False

    rest = ""
    with src_connection:
        while True:
            data = os.read(src_connection.fileno(), 1 << 16)
            *lines, rest = _LINE_END.split(rest + decoder.decode(data, final=not data))
            for line in lines:
                write(line)
            if not data:
                break
    if rest:
        write(rest)
