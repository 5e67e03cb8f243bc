"""Helpers for tests of processes."""

import time

SECONDS = 180  # a generous deadline: starting Python on a busy machine takes a while


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_written(paths):
    """Whether all files exist and are not empty."""
    return all(path.exists() and path.read_text() for path in paths)


def none_alive(paths):
    """Whether no process runs whose number is in one of the files."""
    return not any(is_alive(int(path.read_text())) for path in paths)
