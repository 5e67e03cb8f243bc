"""The package name `horovod`: the same modules under another name, and its `horovodrun`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ronde
from launching import SECONDS

SHIM = Path(__file__).resolve().parents[2] / "shim"


def python(*words, folders=()):
    """Runs Python with the shim in its search path, after `folders`."""
    paths = [*map(str, folders), str(SHIM), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=SECONDS, env=environment
    )


def check(code, **options):
    ended = python("-c", code, **options)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def horovodrun(*words):
    # As the console script does.
    code = "import sys; from horovod.runner.launch import run_commandline; sys.exit(run_commandline())"
    return python("-c", code, *words)


def test_modules_are_the_same_objects():
    pytest.importorskip("torch")
    check(
        """
import horovod.torch as hvd, ronde.torch, horovod, sys
assert hvd is ronde.torch and horovod.torch is ronde.torch and sys.modules["horovod.torch"] is ronde.torch
assert ronde.torch.__name__ == "ronde.torch" == ronde.torch.__spec__.name
import horovod.torch.elastic.state, ronde.torch.elastic.state
assert horovod.torch.elastic.state is ronde.torch.elastic.state
from horovod.torch.mpi_ops import allreduce
assert allreduce is ronde.torch.allreduce
import horovod.common.util, horovod.common.process_sets, horovod.common.elastic, horovod.common.basics
from horovod.common.exceptions import HorovodInternalError
assert HorovodInternalError is ronde.torch.HorovodInternalError
import horovod.runner.launch, horovod.runner.util.threads, ronde.runner.launch
assert horovod.runner.launch is ronde.runner.launch
assert horovod.run is ronde.run is ronde.runner.run is horovod.runner.run
"""
    )


def test_the_launcher_is_a_program_under_either_name():
    for name in ("ronde.runner.launch", "horovod.runner.launch"):
        ended = python("-m", name, "--version")
        # Python warns that the package has imported the module already.
        assert ended.returncode == 0 and "+ronde." in ended.stdout, ended


def test_either_name_may_come_first():
    for first, second in (("ronde", "horovod"), ("horovod", "ronde")):
        check(
            f"""
import {first}.runner.util.threads as one, {second}.runner.util.threads as other
assert one is other and one.__spec__.name == "ronde.runner.util.threads"
"""
        )


def test_what_a_test_replaces_is_replaced_under_both_names():
    check(
        """
from unittest import mock
import ronde.runner.launch
with mock.patch("horovod.runner.launch.gloo_built", return_value="replaced"):
    assert ronde.runner.launch.gloo_built() == "replaced"
"""
    )


def test_modules_are_found_without_being_imported():
    check(
        """
import importlib.util, sys
assert importlib.util.find_spec("horovod.torch") is not None
assert importlib.util.find_spec("horovod.common.util") is not None
assert importlib.util.find_spec("horovod.torch_of_another_kind") is None
assert "torch" not in sys.modules
"""
    )


def test_the_package_alone_has_its_modules_as_attributes():
    pytest.importorskip("torch")
    check(
        """
import horovod, sys
assert "torch" not in sys.modules
assert hasattr(horovod, "torch") and horovod.torch is sys.modules["ronde.torch"]
assert not hasattr(horovod, "mxnet")
"""
    )


def test_what_ignite_tries_first_is_an_import_error():
    check(
        """
try:
    from horovod.run.runner import run
except ImportError:
    from horovod import run
assert callable(run)
"""
    )


def test_other_front_ends_are_refused_with_what_there_is():
    for name in ("mxnet", "spark", "ray"):
        ended = python("-c", f"import horovod.{name}")
        assert ended.returncode == 1
        assert "ModuleNotFoundError" in ended.stderr and "horovod.torch" in ended.stderr, name
    assert "No module named 'horovod.nonsense'" in python("-c", "import horovod.nonsense").stderr


def test_version_tells_the_interface_and_ours():
    assert check("import horovod; print(horovod.__version__)") == f"0.28.1+ronde.{ronde.__version__}\n"


def test_horovod_itself_beside_it_is_refused(tmp_path):
    folder = tmp_path / "horovod-0.28.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    ended = python("-c", "import horovod.torch", folders=[tmp_path])
    assert ended.returncode == 1
    assert "ImportError: horovod 0.28.1 and ronde-horovod are both installed" in ended.stderr
    assert "pip uninstall -y horovod" in ended.stderr


def test_horovodrun_starts_ranks_with_its_flags():
    code = "import os; print(*(os.environ[f'HOROVOD_{name}'] for name in ('RANK', 'AUTOTUNE', 'CYCLE_TIME')))"
    flags = ["-np", "2", "-H", "localhost:2", "--autotune", "--cycle-time-ms", "2.5", "--gloo", "--verbose"]
    ended = horovodrun(*flags, sys.executable, "-c", code)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["[0]<stdout>:0 1 2.5", "[1]<stdout>:1 1 2.5"]


def test_horovodrun_leaves_the_commands_own_flags_alone():
    command = [sys.executable, "-c", "import sys; print(sys.argv[1:])", "-np", "--version", "-cb"]
    ended = horovodrun("-np", "1", *command)
    assert ended.stdout == "[0]<stdout>:['-np', '--version', '-cb']\n", ended.stderr


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_horovodrun_prints_its_version(flag):
    assert horovodrun(flag).stdout == f"0.28.1+ronde.{ronde.__version__}\n"


@pytest.mark.parametrize("flag", ["-cb", "--check-build"])
def test_horovodrun_prints_what_it_can_do(flag):
    ended = horovodrun(flag)
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    for line in ("Available Frameworks:", "    [ ] MXNet", "Available Controllers:", "    [X] Gloo"):
        assert line in lines


def test_horovodrun_helps():
    ended = horovodrun("-h")
    assert ended.returncode == 0 and "-np" in ended.stdout


def test_horovodrun_starts_elastic_jobs(tmp_path):
    script = tmp_path / "hosts.sh"
    script.write_text("#!/bin/sh\necho localhost\n")
    script.chmod(0o755)
    flags = [
        *("--min-np", "1"),
        *("--max-np", "4"),
        *("--host-discovery-script", str(script)),
        *("--slots", "2"),
        *("--elastic-timeout", "60"),
        *("--reset-limit", "3"),
        *("--blacklist-cooldown-range", "1", "2"),
    ]
    ended = horovodrun("-np", "2", *flags, "echo", "here")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines().count("[1]<stdout>:here") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--max-num-proc", "2"],
        ["--slots-per-host", "1"],
        ["--elastic-timeout", "60"],
        ["--reset-limit", "3"],
        ["--blacklist-cooldown-range", "1", "2"],
    ],
)
def test_horovodrun_refuses_flags_of_elastic_jobs_for_others(flags):
    ended = horovodrun("-np", "2", *flags, "true")
    assert ended.returncode == 2
    assert "is for elastic jobs" in ended.stderr
