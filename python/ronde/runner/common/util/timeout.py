"""Time limits for a sequence of activities."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """A time limit has passed; ``message`` names the activity."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Timeout:
    """A limit of ``timeout`` seconds from now on; ``message`` may contain ``{activity}``."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._message = message
        self._end = time.monotonic() + timeout

    def remaining(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def timed_out(self) -> bool:
        """Whether the limit has passed."""
        return time.monotonic() > self._end

    def check_time_out_for(self, activity: str) -> None:
        """Raises :class:`TimeoutException` if the limit has passed."""
        if self.timed_out():
            message = self._message.format(activity=activity).rstrip().rstrip(".")
            raise TimeoutException(f"{message}. Timeout after {self._timeout} seconds.")

    # A monotonic clock has a different origin in another process.
    def __getstate__(self) -> dict[str, object]:
        return {"timeout": self._timeout, "message": self._message, "remaining": self.remaining()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self._timeout, self._message = state["timeout"], state["message"]
        self._end = time.monotonic() + state["remaining"]
