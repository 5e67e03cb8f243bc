"""The `ronde` program as a Python process: exit codes, output, signals, and the end of the
ranks."""

import os
import signal
import subprocess
import sys

import pytest
import ronde
from launching import SECONDS, all_written, none_alive, wait_until

PROGRAM = [sys.executable, "-m", "ronde"]


def run(*words, **options):
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=SECONDS, **options)


def python(code):
    return ["--", sys.executable, "-c", code]


def test_version_is_the_packages():
    assert run("--version").stdout.split()[-1] == ronde.__version__


def test_ranks_are_started_and_their_output_passed_on(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # or the launcher prints a line about it
    code = "import os, sys; print('out', os.environ['HOROVOD_RANK']); print('err', file=sys.stderr)"
    ended = run("run", "-np", "2", *python(code))
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["[0]<stdout>:out 0", "[1]<stdout>:out 1"]
    assert sorted(ended.stderr.splitlines()) == ["[0]<stderr>:err", "[1]<stderr>:err"]


def test_exit_codes_are_the_ranks_and_2_for_wrong_usage():
    fails = "import os, sys; sys.exit(7 * (os.environ['HOROVOD_RANK'] == '1'))"
    assert run("run", "-np", "2", *python(fails)).returncode == 7
    killed = "import os; os.kill(os.getpid(), 9)"
    assert run("run", "-np", "1", *python(killed)).returncode == 128 + 9
    assert run("run", "-np", "0", "--", "true").returncode == 2
    assert run("run", "-np", "1", "--", "no-such-program").returncode == 127


def test_flags_reach_the_ranks_as_variables():
    code = "import os; print(os.environ['HOROVOD_FUSION_THRESHOLD'], os.environ['HOROVOD_AUTOTUNE'])"
    ended = run("run", "-np", "1", "--fusion-threshold-mb", "32", "--autotune", *python(code))
    assert ended.stdout == f"[0]<stdout>:{32 << 20} 1\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_ranks_and_is_told_by_the_exit_code(number, tmp_path):
    code = """
import os, sys, time
with open(sys.argv[1] + os.environ["HOROVOD_RANK"], "w") as file: file.write(str(os.getpid()))
time.sleep(600)
"""
    program = subprocess.Popen(
        [*PROGRAM, "run", "-np", "2", *python(code), f"{tmp_path}/pid"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    paths = [tmp_path / "pid0", tmp_path / "pid1"]
    wait_until(lambda: all_written(paths))
    program.send_signal(number)
    assert program.wait(SECONDS) == 128 + number
    assert none_alive(paths)


def test_a_killed_launcher_leaves_no_rank_behind(tmp_path):
    # The launcher does not know the rank's child; only the guard, a second process of the launcher,
    # can end it.
    code = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"])
with open(sys.argv[1], "w") as file: file.write(str(child.pid))
child.wait()
"""
    program = subprocess.Popen(
        [*PROGRAM, "run", "-np", "1", *python(code), f"{tmp_path}/pid"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    path = tmp_path / "pid"
    wait_until(lambda: all_written([path]))
    program.kill()
    program.wait()
    wait_until(lambda: none_alive([path]))


def test_an_ignored_interrupt_stays_ignored(tmp_path):
    # As with nohup: the job survives the signal.
    code = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(1)"
    program = subprocess.Popen(
        [*PROGRAM, "run", "-np", "1", *python(code), f"{tmp_path}/started"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    wait_until((tmp_path / "started").exists)
    program.send_signal(signal.SIGINT)
    assert program.wait(SECONDS) == 0


def test_importing_the_package_imports_no_torch():
    code = "import sys, ronde, ronde.runner; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=SECONDS).returncode == 0


def test_the_package_is_typed():
    assert os.path.exists(os.path.join(os.path.dirname(ronde.__file__), "py.typed"))
