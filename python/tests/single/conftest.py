"""What tests that start processes of their own share."""

import signal


def pytest_configure():
    """Lets SIGINT interrupt what the tests start, also where a shell has it ignored in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
