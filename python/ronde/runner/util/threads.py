"""Runs functions in threads."""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Optional, Sequence

_LOG = logging.getLogger(__name__)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> Optional[dict[int, Any]]:
    """Calls `fn(*args)` for each of `args_list`, in up to `max_concurrent_executions` threads.

    Returns the results by index in the list; None, at once, unless `block_until_all_done`. An
    exception of a call is raised after all have ended; RuntimeError if not every call has a result.
    """
    left = iter(enumerate([tuple(args) for args in args_list]))
    lock = threading.Lock()
    results: dict[int, Any] = {}
    failures: list[Exception] = []

    def work() -> None:
        while True:
            with lock:
                index, args = next(left, (None, ()))
            if index is None:
                return
            try:
                results[index] = fn(*args)
            except Exception as error:
                failures.append(error)
                if not block_until_all_done:
                    raise

    count = min(max_concurrent_executions, len(args_list))
    threads = [in_thread(work, daemon=not block_until_all_done) for _ in range(count)]
    if not block_until_all_done:
        return None
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    if len(results) != len(args_list):
        raise RuntimeError(f"only {len(results)} of {len(args_list)} calls of {fn!r} have ended")
    return results


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls `target(*args)` in a thread, and returns the thread. Exceptions are logged, unless
    `silent`.

    Raises ValueError if `args` is not a tuple.
    """
    _check_args(args)

    def call() -> None:
        try:
            target(*args)
        except Exception:
            if not silent:
                _LOG.exception("%r failed in a thread", target)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: Optional[threading.Event] = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Calls `func(*args)` in a thread once `event` is set, and returns the thread.

    The thread also ends when `stop` is set, which is checked every `check_stop_interval_s` seconds.
    Exceptions of `func` are logged, unless `silent`. Raises ValueError if there is no event, if
    `args` is not a tuple, or if the thread is not a daemon and has no `stop` event.
    """
    if event is None:
        raise ValueError("Event must not be None")
    _check_args(args)
    if stop is None and not daemon:
        raise ValueError("Stop event must be given for non-daemon event thread")

    def wait() -> None:
        if stop is None:
            event.wait()
        else:
            while not event.wait(timeout=check_stop_interval_s):
                if stop.is_set():
                    return
            if stop.is_set():
                return
        func(*args)

    return in_thread(wait, daemon=daemon, silent=silent)


def _check_args(args: Any) -> None:
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")
