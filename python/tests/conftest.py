"""Configuration of all tests, and fixtures of those that run in ranks.

Start: ``ronde run -np N -- python -m pytest python/tests --ignore python/tests/single``, without the
folders of other frameworks, each of which is started in the same way. Every rank runs the same tests
in the same order.
"""

import importlib
import os
import signal
import tempfile

import pytest

# A test that leaves ranks in different operations ends with an error instead of a hang.
_SETTINGS = {
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "20",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60",
    "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
    "HOROVOD_TIMELINE": "DYNAMIC",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def pytest_configure(config):
    """Sets a temporary folder per rank: pytest removes old folders in a shared one. Enables SIGINT,
    also in child processes and where a shell ignores it for background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "HOROVOD_RANK" in os.environ and config.option.basetemp is None:
        folder = tempfile.TemporaryDirectory(prefix="ronde-tests-")
        config.add_cleanup(folder.cleanup)
        config.option.basetemp = os.path.join(folder.name, "rank")


@pytest.fixture(scope="session")
def settings():
    """Settings of the job, in the environment."""
    for variable, value in _SETTINGS.items():
        os.environ.setdefault(variable, value)


@pytest.fixture(scope="session")
def join(settings):
    """Imports a front end, with which this process joins the job; it leaves it at the end."""
    joined = []

    def join(name):
        hvd = importlib.import_module(name)
        hvd.init()
        joined.append(hvd)
        return hvd

    yield join
    for hvd in joined:
        hvd.shutdown()


@pytest.fixture(scope="session")
def hvd(join):
    """``ronde.torch``, in a job."""
    return join("ronde.torch")


@pytest.fixture
def several(hvd):
    """``ronde.torch``, in a job of two ranks or more."""
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    return hvd


class _Stubborn:
    def __reduce__(self):
        raise TypeError("not to be pickled")


@pytest.fixture
def check_pickling_errors(hvd):
    """Function that exchanges objects, some of which cannot be pickled."""

    def check():
        is_root = hvd.rank() == 0
        expected = TypeError if is_root else hvd.HorovodInternalError
        with pytest.raises(expected, match="not to be" if is_root else "rank 0 could not"):
            hvd.broadcast_object(_Stubborn() if is_root else None, root_rank=0)
        with pytest.raises(expected, match="not to be" if is_root else "rank 0 .*could not"):
            hvd.allgather_object(_Stubborn() if is_root else 1)
        assert hvd.allgather_object(1) == [1] * hvd.size()
        # Other types on other ranks.
        assert hvd.broadcast_object("text" if is_root else None, root_rank=0) == "text"
        assert hvd.allgather_object(1 if is_root else "one") == [1] + ["one"] * (hvd.size() - 1)

    return check
