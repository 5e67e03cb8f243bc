"""`ronde.run`: a function called on several ranks."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import ronde
from launching import SECONDS, all_written, none_alive, wait_until
from ronde.runner import JobError, _HorovodArgs
from ronde.runner._arguments import launcher_flags
from ronde.runner._folder import Raised, Returned
from ronde.runner._job import _failure
from ronde.runner.common.util.env import get_env_rank_and_size
from ronde.runner.launch import _run


def python(word, **options):
    return subprocess.run([sys.executable, word], capture_output=True, text=True, timeout=SECONDS, **options)


def place():
    return get_env_rank_and_size()


def test_results_come_by_rank():
    assert ronde.run(place, num_proc=3) == [(0, 3), (1, 3), (2, 3)]
    assert ronde.run(place) == [(0, 1)]


def test_there_is_a_place_outside_a_job(monkeypatch):
    for name in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("PMI_SIZE", "4")
    assert get_env_rank_and_size() == (3, 4)


def test_arguments_and_closures_travel():
    factor = 3
    assert ronde.run(lambda a, b: factor * a + b, args=(2,), kwargs={"b": 1}, num_proc=2) == [7, 7]


def test_ranks_can_use_the_runtime():
    def sums():
        import torch

        import ronde.torch as hvd

        hvd.init()
        return hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum).tolist()

    pytest.importorskip("torch")
    assert ronde.run(sums, num_proc=2) == [[3.0], [3.0]]


def test_output_appears_where_this_process_prints(capsys):
    def say():
        print("héllo")
        print("hm", file=sys.stderr)

    ronde.run(say, num_proc=2)
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == ["[0]<stdout>:héllo", "[1]<stdout>:héllo"]
    assert "[1]<stderr>:hm" in printed.err


def test_output_goes_into_files(tmp_path):
    ronde.run(lambda: print("kept"), num_proc=2, output_filename=str(tmp_path))
    assert (tmp_path / "rank.1" / "stdout").read_text().endswith("kept\n")


def test_ranks_share_the_cores(monkeypatch, capsys):
    def threads():
        return os.environ.get("OMP_NUM_THREADS")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    first, second = ronde.run(threads, num_proc=2)
    assert first == second
    assert 1 <= int(first) <= max(1, len(os.sched_getaffinity(0)) // 2)  # fewer where there is a quota
    told = capsys.readouterr().err
    assert told.count("OMP_NUM_THREADS") == 1 and "--no-thread-limit" in told
    assert ronde.run(threads, num_proc=2, no_thread_limit=True) == [None, None]
    assert "OMP_NUM_THREADS" not in capsys.readouterr().err
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ronde.run(threads, num_proc=2) == ["3", "3"]
    assert "OMP_NUM_THREADS" not in capsys.readouterr().err


def test_an_exception_names_the_rank_and_has_its_traceback(capsys):
    def fail_on_1():
        if place()[0] == 1:
            raise KeyError("planted")
        time.sleep(600)

    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="Horovod detected that one or more processes exited") as caught:
        ronde.run(fail_on_1, num_proc=2)
    assert time.monotonic() - begin < SECONDS
    error = caught.value
    assert isinstance(error, JobError)
    assert error.rank == 1 and error.exit_code == 1
    assert "rank 1 raised KeyError: 'planted'" in str(error)
    assert "in fail_on_1" in error.traceback
    assert "KeyError: 'planted'" in capsys.readouterr().err


def test_a_rank_that_lost_a_peer_is_not_blamed():
    def raised(summary, time, blames_peers):
        return Raised(summary, f"Traceback of {summary}", time, blames_peers)

    lost = raised("HorovodInternalError: rank 1 is gone", 1.0, True)
    late, later = raised("ValueError: late", 2.0, False), raised("ValueError: later", 3.0, False)
    died = "ronde run: rank 1 was killed by signal 9 (SIGKILL); ending the other rank"
    table = [
        ([lost, late, later], None, 1, "rank 1 raised ValueError: late"),
        ([lost, None, later], died, 2, "rank 2 raised ValueError: later"),
        ([lost, None], died, 1, "rank 1 was killed by signal 9"),
        ([lost, Returned(b"")], died, 1, "rank 1 was killed by signal 9"),
        ([lost, Returned(b"")], None, 0, "rank 0 raised HorovodInternalError"),
        ([None, None], died, 1, "rank 1 was killed by signal 9"),
    ]
    for outcomes, cause, rank, text in table:
        error = _failure(1, cause, outcomes, "horovodrun")
        assert error.rank == rank and text in str(error), text


def test_a_rank_that_is_killed_is_named():
    def die():
        if place()[0] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    with pytest.raises(JobError, match="rank 1 was killed by signal 9") as caught:
        ronde.run(die, num_proc=2)
    assert caught.value.rank == 1 and caught.value.exit_code == 128 + 9


def test_a_rank_on_another_host_is_named_too():
    from ronde.runner._job import _CAUSE

    said = "ronde run: node2: rank 3 was killed by signal 9 (SIGKILL); ending the other ranks"
    cause = _CAUSE.match(said)
    assert cause[1] == "node2: rank 3 was killed by signal 9 (SIGKILL)" and cause[2] == "3"


def test_a_rank_that_ends_without_a_word_is_named():
    with pytest.raises(JobError, match="rank 0 ended without a result"):
        ronde.run(lambda: os._exit(0))


def test_what_cannot_be_pickled_is_said():
    with pytest.raises(TypeError, match="cannot be pickled"):
        ronde.run(lambda lock: None, args=(threading.Lock(),))
    with pytest.raises(JobError, match="rank 0 raised TypeError.*pickle"):
        ronde.run(threading.Lock)


def test_leaving_by_sys_exit_is_success_or_failure():
    assert ronde.run(lambda: sys.exit(0), num_proc=2) == [None, None]
    with pytest.raises(JobError, match="rank 0 raised SystemExit: 3"):
        ronde.run(lambda: sys.exit(3))


def test_old_names_work_and_warn():
    with pytest.warns(DeprecationWarning, match="np is deprecated, use num_proc"):
        assert ronde.run(place, np=2) == [(0, 2), (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ronde.run(place, num_proc=1) == [(0, 1)]


def test_elastic_parameters_become_flags():
    job = _HorovodArgs()
    job.num_proc, job.min_np, job.max_np, job.slots = 2, 1, 4, 3
    job.reset_limit, job.elastic_timeout = 5, 60
    job.host_discovery_script = "hosts.sh"
    job.cooldown_range = (1, 20)
    assert launcher_flags(job) == [
        "--num-proc=2",
        "--min-num-proc=1",
        "--max-num-proc=4",
        "--slots-per-host=3",
        "--reset-limit=5",
        "--host-discovery-script=hosts.sh",
        "--elastic-timeout=60",
        "--blacklist-cooldown-range",
        "1",
        "20",
    ]
    job.cooldown_range = (1,)
    with pytest.raises(ValueError, match="cooldown_range"):
        launcher_flags(job)
    with pytest.raises(RuntimeError, match="exit code 2"):
        ronde.run(place, num_proc=1, max_num_proc=2)  # not an elastic job


def test_an_elastic_job_returns_the_results_of_its_last_ranks(tmp_path):
    def die_once(mark):
        import os
        import ronde.torch as hvd
        import torch

        hvd.init()
        state = hvd.elastic.TorchState(torch.nn.Linear(1, 1), None, step=0)

        @hvd.elastic.run
        def train(state):
            while state.step < 5:
                state.step += 1
                if hvd.rank() == 1 and state.step == 3 and not os.path.exists(mark):
                    open(mark, "w").close()
                    os._exit(1)
                hvd.allreduce(torch.ones(1), name="x")
                state.commit()

        train(state)
        return hvd.rank(), hvd.size(), state.step

    pytest.importorskip("torch")
    results = ronde.run(die_once, args=(str(tmp_path / "mark"),), num_proc=2, min_num_proc=1)
    assert results == [(0, 1, 5)]


def host_and_place():
    import os

    import ronde.torch as hvd

    hvd.init()
    return (os.environ["HOROVOD_HOSTNAME"], hvd.local_size(), *place())


def test_an_elastic_job_takes_names_of_this_machine_for_hosts():
    pytest.importorskip("torch")
    both = {"num_proc": 2, "min_num_proc": 2, "hosts": "localhost:1,127.0.0.1:1"}
    assert ronde.run(host_and_place, **both) == [("localhost", 1, 0, 2), ("127.0.0.1", 1, 1, 2)]


def test_a_number_of_ranks_that_the_launcher_refuses():
    ended = python("-", input="import ronde\nronde.run(print, num_proc=2**40)\n")
    assert ended.returncode == 1 and "exit code" in ended.stderr.splitlines()[-1], ended.stderr


def test_numbers_and_launchers_that_cannot_be_are_refused():
    for bad in (0, -1, "2"):
        with pytest.raises(ValueError, match="num_proc"):
            ronde.run(place, num_proc=bad)
    with pytest.raises(ValueError, match="use_gloo and use_mpi"):
        ronde.run(place, use_gloo=True, use_mpi=True)
    with pytest.raises(ValueError, match="nothing to start"):
        _run(_HorovodArgs())


def test_attributes_become_flags():
    job = _HorovodArgs()
    job.np = 4
    job.hosts = "a:2,b:2"
    job.verbose = 2
    job.use_gloo = False
    job.nics = ["eth0", "eth1"]
    job.mpi_args = "--mca btl tcp"
    job.autotune = True
    job.hierarchical_allreduce = False
    job.use_jsrun = None
    assert job.num_proc == job.np == 4
    assert launcher_flags(job) == [
        "--num-proc=4",
        "--hosts=a:2,b:2",
        "--mpi-args=--mca btl tcp",
        "--no-hierarchical-allreduce",
        "--autotune",
        "--verbose",
        "--network-interfaces=eth0,eth1",
    ]
    with pytest.raises(AttributeError, match="use_jsrun"):
        job.use_jsrun = True


def test_commands_run_too():
    job = _HorovodArgs()
    job.num_proc = 2
    job.command = ["true"]
    assert _run(job) is None
    job.command = ["false"]
    with pytest.raises(RuntimeError, match="one or more processes exited with non-zero status"):
        _run(job)


def test_a_function_of_a_program_read_from_standard_input():
    # As in a notebook, there is no file that a rank could import it from.
    program = """
import ronde
class Answer:
    def __init__(self, rank): self.rank = rank
def answer():
    from ronde.runner.common.util.env import get_env_rank_and_size
    return Answer(get_env_rank_and_size()[0])
print([answer.rank for answer in ronde.run(answer, num_proc=2)])
"""
    ended = python("-", input=program)
    assert ended.stdout == "[0, 1]\n", ended.stderr


def test_modules_beside_the_script_are_found(tmp_path):
    (tmp_path / "beside_the_script.py").write_text("def answer(): return 42\n")
    script = tmp_path / "script.py"
    script.write_text("import beside_the_script, ronde\nprint(ronde.run(beside_the_script.answer))\n")
    ended = python(str(script))
    assert ended.stdout == "[42]\n", ended.stderr


def test_works_in_a_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(ronde.run(place, num_proc=2)))
    thread.start()
    thread.join(SECONDS)
    assert results == [[(0, 2), (1, 2)]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ranks_end_with_the_program(number, tmp_path):
    program = """
import os, sys, time, ronde
def wait(folder):
    from ronde.runner.common.util.env import get_env_rank_and_size
    with open(f"{folder}/{get_env_rank_and_size()[0]}", "w") as file: file.write(str(os.getpid()))
    time.sleep(600)
ronde.run(wait, args=(sys.argv[1],), num_proc=2)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    paths = [tmp_path / "0", tmp_path / "1"]
    wait_until(lambda: all_written(paths))
    process.send_signal(number)
    process.wait(SECONDS)
    wait_until(lambda: none_alive(paths))
