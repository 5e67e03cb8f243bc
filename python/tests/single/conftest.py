"""Configuration of the tests that start processes."""

import signal


def pytest_configure():
    """Enables SIGINT in child processes, also where a shell ignores it for background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
