"""`ronde.runner.util.threads`: functions in threads of their own."""

import logging
import threading

import pytest
from launching import SECONDS
from ronde.runner.util.threads import in_thread, on_event


def ended(thread):
    thread.join(SECONDS)
    return not thread.is_alive()


def test_a_function_is_called_with_its_arguments():
    calls = []
    assert ended(in_thread(lambda *args: calls.append(args), args=(1, 2)))
    assert calls == [(1, 2)]


@pytest.mark.parametrize("silent", [False, True])
def test_what_a_function_raises_is_logged_unless_silent(silent, caplog):
    def fail():
        raise ValueError("planted")

    with caplog.at_level(logging.ERROR):
        assert ended(in_thread(fail, silent=silent))
    assert ("planted" in caplog.text) is not silent


def test_a_function_waits_for_its_event():
    event, calls = threading.Event(), []
    thread = on_event(event, lambda *args: calls.append(args), args=("a",))
    assert calls == []
    event.set()
    assert ended(thread) and calls == [("a",)]


def test_a_wait_can_be_stopped():
    event, stop, calls = threading.Event(), threading.Event(), []
    thread = on_event(event, lambda: calls.append(()), stop=stop, check_stop_interval_s=0.01)
    stop.set()
    assert ended(thread)
    event.set()
    assert calls == []


def test_wrong_arguments_are_refused():
    with pytest.raises(
        ValueError, match=r"^args must be a tuple, not .*, for a single argument use \(arg,\)$"
    ):
        in_thread(print, args=1)
    with pytest.raises(ValueError, match="args must be a tuple"):
        on_event(threading.Event(), print, args=1)
    with pytest.raises(ValueError, match="^Event must not be None$"):
        on_event(None, print)
    with pytest.raises(ValueError, match="^Stop event must be given for non-daemon event thread$"):
        on_event(threading.Event(), print, daemon=False)
