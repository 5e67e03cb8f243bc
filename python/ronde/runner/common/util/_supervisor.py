"""Runs a shell command, and ends it with all its descendants when its owner closes a pipe or ends.

    python _supervisor.py DESCRIPTOR

A separate script that needs only the standard library, so that it runs with the environment of
any command. A line of JSON from the descriptor describes the command; the end of the file ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

#: Seconds between SIGTERM and SIGKILL.
GRACE_SECONDS = 5.0


def main(descriptor: int) -> int:
    """Returns the command's exit code; 128 + n if signal n ended it."""
    owner = os.getppid()
    # Orphaned descendants become children of this process, which can then find them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its owner closes the pipe
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        line = _line(pipe)
        if not line:
            return 128 + signal.SIGTERM
        order = json.loads(line)
        shell = subprocess.Popen(
            order["command"], shell=True, env=order["env"], preexec_fn=_default_signals
        )
        ended, writer = os.pipe()
        threading.Thread(target=_wait, args=(shell, writer), daemon=True).start()
        while os.getppid() == owner:
            # Another child of the owner may hold the pipe open, so the parent process is checked
            # too.
            ready, _, _ = select.select([pipe, ended], [], [], 1.0)
            if ended in ready:
                return _code(shell.wait())
            if pipe in ready:
                break
    _end(shell)
    return _code(shell.wait())


def _wait(shell: "subprocess.Popen[bytes]", writer: int) -> None:
    shell.wait()
    os.close(writer)


def _line(pipe) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = pipe.read(1 << 16)
        if not part:
            return b""
        data += part
    return data


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _code(returned: int) -> int:
    return returned if returned >= 0 else 128 - returned


def _end(shell: "subprocess.Popen[bytes]") -> None:
    """Sends SIGTERM to all descendants, and SIGKILL to those that remain after the grace period."""
    _signal_all(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while _descendants() and time.monotonic() < deadline:
        _reap(shell)
        time.sleep(0.02)
    while _descendants():  # repeated for processes being started
        _signal_all(signal.SIGKILL)
        _reap(shell)
        time.sleep(0.02)


def _signal_all(number: int) -> None:
    for pid in _descendants():
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _reap(shell: "subprocess.Popen[bytes]") -> None:
    """Reaps children that have ended; the shell's exit code is kept."""
    shell.poll()
    for pid in _children(os.getpid()):
        if pid != shell.pid:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def _descendants() -> list[int]:
    """Processes below this one, each before its children. Zombies that another process must reap
    are not included.
    """
    found = []
    seen = [os.getpid()]
    while seen:
        for pid in _children(seen.pop()):
            found.append(pid)
            seen.append(pid)
    return [pid for pid in found if not _is_zombie(pid)]


def _children(pid: int) -> list[int]:
    children = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children.extend(map(int, file.read().split()))
    except (OSError, ValueError):  # the process has ended
        pass
    return children


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except (OSError, IndexError):
        return True


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
