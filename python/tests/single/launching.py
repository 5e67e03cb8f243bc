"""What tests of processes share."""

import time

SECONDS = 60  # a deadline with slack: starting Python on a busy machine takes a while


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_alive(pid):
    """Whether the process runs. One that has ended and that nobody has reaped does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_written(paths):
    """Whether all files are there, and not empty."""
    return all(path.exists() and path.read_text() for path in paths)


def none_alive(paths):
    """Whether none of the processes runs whose numbers stand in the files."""
    return not any(is_alive(int(path.read_text())) for path in paths)
