"""Elastic jobs: `ronde run --min-np`, with ranks that are killed and stopped while it runs."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import namespaces
import pytest
from launching import SECONDS, is_alive, wait_until
from ronde.common import elastic, seat

pytest.importorskip("torch")

PROGRAM = """
import os, sys, time
import torch
import ronde.torch as hvd

hvd.init()
model = torch.nn.Linear(2, 1)
torch.nn.init.zeros_(model.weight)
torch.nn.init.zeros_(model.bias)
state = hvd.elastic.TorchState(model, None, step=0, sums=0.0)

@hvd.elastic.run
def train(state):
    while True:
        # The mean over the ranks does not depend on their number.
        is_end = os.path.exists(sys.argv[1])
        mine = torch.tensor([float(state.step), float(is_end)])
        got = hvd.allreduce(mine, name="x", op=hvd.Average)
        if got[1] > 0:
            return
        state.sums += got[0].item()
        state.step += 1
        print("step", state.step, "of", hvd.size(), "pid", os.getpid(), flush=True)
        time.sleep(0.05)
        if state.step % 5 == 0:
            state.commit()

train(state)
print("ends after", state.step, "steps:", state.sums == sum(range(state.step)), flush=True)
"""


class Job:
    """A job whose output is read while it runs. It ends when :meth:`end` is called. The launcher is
    on the first of ``hosts``, if there are any."""

    def __init__(self, tmp_path, *flags, hosts=None):
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        self._end = tmp_path / "end"
        enter = hosts.enter(0) if hosts else []
        launcher = [*enter, sys.executable, "-m", "ronde", "run", *flags, "--"]
        self.process = subprocess.Popen(
            [*launcher, sys.executable, str(program), str(self._end)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=hosts.variables() if hosts else None,
            text=True,
            bufsize=1,
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def steps(self, rank):
        """Steps that the rank has printed, with the number of ranks and the process."""
        pattern = re.compile(rf"\[{rank}\]<stdout>:step (\d+) of (\d+) pid (\d+)")
        found = (pattern.match(line) for line in list(self.lines))
        return [tuple(map(int, match.groups())) for match in found if match]

    def wait_for_size(self, size):
        wait_until(lambda: self.steps(0) and self.steps(0)[-1][1] == size)

    def end(self):
        self._end.touch()
        return self.ended()

    def ended(self):
        """Exit code and output, after an end that the job finds itself."""
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code, "".join(self.lines)


def test_a_rank_that_is_killed_is_replaced_and_nothing_is_counted_twice(tmp_path):
    job = Job(tmp_path, "-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "1", "60")
    wait_until(lambda: len(job.steps(1)) >= 7)
    os.kill(job.steps(1)[-1][2], signal.SIGKILL)
    job.wait_for_size(1)
    job.wait_for_size(2)
    code, output = job.end()
    assert code == 0, output
    assert "rank 1 on host localhost was killed by signal 9 (SIGKILL)" in output
    assert "reset 1: 1 rank on 1 host" in output
    assert "reset 2: 2 ranks on 1 host" in output
    # Steps after the last commit are repeated, and count once.
    for rank in range(2):
        assert re.search(rf"\[{rank}\]<stdout>:ends after \d+ steps: True", output), output


def test_a_rank_that_stops_is_killed_and_the_others_continue(tmp_path):
    job = Job(tmp_path, "-np", "2", "--min-np", "1")
    wait_until(lambda: len(job.steps(0)) >= 3)
    os.kill(job.steps(0)[-1][2], signal.SIGSTOP)
    job.wait_for_size(1)
    code, output = job.end()
    assert code == 0, output
    assert "rank 0 on host localhost does not answer and is killed" in output
    assert "reset 1: 1 rank on 1 host" in output
    assert re.search(r"\[0\]<stdout>:ends after \d+ steps: True", output), output


def test_slots_that_are_added_and_removed_are_used_at_the_next_commit(tmp_path):
    script = tmp_path / "hosts.sh"
    hosts = tmp_path / "hosts"

    def offer(text):
        # The script reads a whole list at any time.
        (tmp_path / "hosts.next").write_text(text)
        (tmp_path / "hosts.next").rename(hosts)

    offer("localhost:1\n")
    script.write_text(f"#!/bin/sh\ncat {hosts}\n")
    script.chmod(0o755)
    job = Job(tmp_path, "-np", "1", "--min-np", "1", "--host-discovery-script", str(script))
    job.wait_for_size(1)
    offer("localhost:2\n")
    job.wait_for_size(2)
    offer("localhost:1\n")
    job.wait_for_size(1)
    offer("nonsense here\n")
    wait_until(lambda: any("printed, in line 1" in line for line in list(job.lines)))
    code, output = job.end()
    assert code == 0, output
    assert "does not answer" not in output and "restoring" not in output, output
    steps = [step for step, _, _ in job.steps(0)]
    assert steps == list(range(1, len(steps) + 1)), "no step is lost or done twice"


def test_a_job_that_cannot_continue_says_what_is_missing(tmp_path):
    job = Job(tmp_path, "-np", "2", "--min-np", "2")
    wait_until(lambda: len(job.steps(1)) >= 3)
    os.kill(job.steps(1)[-1][2], signal.SIGKILL)
    code, output = job.ended()
    assert code == 128 + signal.SIGKILL
    assert (
        "ronde run: 1 of 2 slots are available (--min-np 2); hosts: localhost:2 (failed, barred); "
        "rank 1 on host localhost was killed by signal 9 (SIGKILL)"
    ) in output


@pytest.fixture
def two_hosts():
    if not namespaces.are_possible():
        pytest.skip("network namespaces need root and iproute2")
    with tempfile.TemporaryDirectory(dir=namespaces.folder()) as folder:
        try:
            hosts = namespaces.Namespaces("elastic", 2, Path(folder))
        except namespaces.NotOnHostsError as error:
            pytest.skip(str(error))
        try:
            yield hosts
        finally:
            hosts.down()


def test_a_job_on_two_hosts_survives_a_killed_rank_and_a_cut_link(two_hosts):
    other = two_hosts.addresses[1]
    flags = ["-np", "2", "--min-np", "1", "-H", f"localhost:1,{other}:1"]
    cooldown = ["--blacklist-cooldown-range", "1", "60"]
    job = Job(two_hosts.folder, *flags, *cooldown, hosts=two_hosts)
    wait_until(lambda: len(job.steps(1)) >= 7)
    os.kill(job.steps(1)[-1][2], signal.SIGKILL)
    job.wait_for_size(1)
    job.wait_for_size(2)
    wait_until(lambda: is_alive(job.steps(1)[-1][2]))
    there = job.steps(1)[-1][2]
    two_hosts.cut(1)
    job.wait_for_size(1)
    wait_until(lambda: not is_alive(there))  # it ends without the launcher
    code, output = job.end()
    assert code == 0, output
    assert f"rank 1 on host {other} was killed by signal 9 (SIGKILL)" in output
    assert "reset 2: 2 ranks on 2 hosts" in output
    assert f"{other} has not answered for 6 s" in output
    assert re.search(r"\[0\]<stdout>:ends after \d+ steps: True", output), output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_all_ranks_end_with_their_launcher(tmp_path, number):
    job = Job(tmp_path, "-np", "2", "--min-np", "1")
    wait_until(lambda: job.steps(0) and job.steps(1))
    ranks = [job.steps(rank)[-1][2] for rank in range(2)]
    job.process.send_signal(number)
    job.process.wait(SECONDS)
    wait_until(lambda: not any(map(is_alive, ranks)))


def test_a_new_process_takes_another_place_if_other_ranks_have_ended(monkeypatch):
    asked = []

    class Runtime:
        @staticmethod
        def elastic_seat(why, has_state):
            asked.append(why)
            return [("HOROVOD_RANK", 0)], len(asked), None

        @staticmethod
        def elastic_join_failed():
            return is_of_others

    def init():
        if len(asked) < needed:
            raise ValueError("rank 1 has not come")

    monkeypatch.setenv("HOROVOD_RANK", "0")
    monkeypatch.setattr(seat, "_ronde", Runtime)
    monkeypatch.setattr(seat, "resets", 0)
    for is_of_others, needed, expected in [
        (True, 3, ["started", "failed", "failed"]),
        (True, 4, ["started", "failed", "failed"]),
        (False, 2, ["started"]),
    ]:
        asked.clear()
        monkeypatch.setattr(seat, "why", "started")
        if needed == len(expected):
            seat.join(init)
        else:
            with pytest.raises(ValueError, match="has not come"):
                seat.join(init)
        assert asked == expected


def test_a_process_joins_again_unless_the_error_is_its_own(monkeypatch):
    attempts = []

    class Runtime:
        @staticmethod
        def elastic_join_failed():
            return is_of_others

    def reset():
        attempts.append(seat.why)
        if len(attempts) < 3:
            raise ValueError("the job cannot be joined")

    monkeypatch.setenv("RONDE_ELASTIC_SOCKET", "/nowhere")
    monkeypatch.setattr(elastic, "_ronde", Runtime)
    monkeypatch.setattr(seat, "resets", 0)
    monkeypatch.setattr(seat, "why", "interrupted")
    is_of_others = True
    assert not elastic._join_again(reset)
    assert attempts == ["interrupted", "failed", "failed"]
    attempts.clear()
    is_of_others = False
    with pytest.raises(ValueError, match="cannot be joined"):
        elastic._join_again(reset)
    assert len(attempts) == 1


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--min-np", "3", "--max-np", "2"], "--min-np 3 is above --max-np 2"),
        (["--min-np", "3"], "-np 2 is not between --min-np 3 and --max-np"),
        (["--reset-limit", "1"], "--reset-limit is for elastic jobs"),
        (["--min-np", "1", "--mpi"], "ranks that mpirun starts are fixed"),
        (
            ["--min-np", "1", "--blacklist-cooldown-range", "9", "5"],
            "ends at 5 s, before it begins at 9 s",
        ),
        (["--host-discovery-script", "/nowhere"], "--host-discovery-script /nowhere: No such file"),
    ],
)
def test_flags_that_do_not_fit_are_refused(tmp_path, flags, text):
    job = Job(tmp_path, "-np", "2", *flags)
    code, output = job.ended()
    assert code == 2 and text in output, output
