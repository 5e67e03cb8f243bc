"""Resets of elastic jobs: what a rank keeps, restarts by torchrun, what many resets leave behind."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import SECONDS

pytest.importorskip("torch")

RUN = [sys.executable, "-m", "ronde", "run"]
# Three ranks; rank 2 dies, and then rank 0. Process sets are those of ranks 0 and 1, and 1 and 2.
PROGRAM = """
import os, signal, sys, time
import torch
import ronde.torch as hvd
from ronde import _ronde

first, second = hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])
hvd.init(process_sets=[first, second])
state = hvd.elastic.TorchState(torch.nn.Linear(2, 1), None, step=0)

def of_set(process_set):
    try:
        if not process_set.included():
            return "outside"
        name = f"of set {process_set.ranks}"
        return hvd.allreduce(torch.ones(1), op=hvd.Sum, name=name, process_set=process_set).item()
    except ValueError as error:
        return str(error)

@hvd.elastic.run
def train(state):
    size = hvd.size()
    print("ranks", size, "of sets", of_set(first), "and", of_set(second), flush=True)
    while True:
        handles = [hvd.allreduce_async(torch.ones(256), name=f"x{i}") for i in range(3)]
        for handle in handles:
            hvd.synchronize(handle)
        state.step += 1
        if state.step % 10 == 0:
            state.commit()
        if size == 3 and state.step == 400 and hvd.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if size == 2 and state.step == 600 and hvd.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if size == 1 and state.step == 700:
            print("revision", _ronde.tuner_revision(), "of", size, flush=True)
            return

train(state)
"""


def test_a_rank_keeps_its_sets_timeline_and_tuner(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    timeline, log = tmp_path / "t.json", tmp_path / "a.csv"
    settings = {"HOROVOD_TIMELINE": timeline, "HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": log}
    ended = subprocess.run(
        [*RUN, "-np", "3", "--min-np", "1", "--", sys.executable, program],
        env={**os.environ, **{name: str(value) for name, value in settings.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    output = ended.stdout
    assert ended.returncode == 0, output
    # With two ranks the first set is that of all ranks; with one rank both are lost.
    assert output.count("ranks 3 of sets 2.0 and outside") == 1, output
    assert output.count("ranks 3 of sets 2.0 and 2.0") == 1, output
    assert output.count("ranks 2 of sets 2.0 and ") == 2, output
    removed = "reset 1 of the elastic job has removed it, as the job has only 2 ranks now"
    assert removed in output, output
    assert "the process set of ranks [1, 2] is lost: the job has only 1 rank now" in output, output
    # Rank 0 has continued its file; the process after it has one of its own.
    events = json.loads(timeline.read_text())
    marks = [event["args"] for event in events if event.get("name") == "RESET"]
    assert marks == [{"reset": 1, "size": 2}], marks
    assert json.loads((tmp_path / "t.reset2.json").read_text())
    read = subprocess.run(
        [sys.executable, "-m", "ronde", "timeline", str(timeline)], capture_output=True, text=True
    )
    assert read.returncode == 0, read.stderr
    rows = [line.split(",")[7:9] for line in log.read_text().splitlines()]
    assert [number for phase, number in rows if phase == "reset"] == ["1", "2"], rows
    # What rank 0 had learned before it died is known to the process that is rank 0 now.
    assert int(re.search(r"revision (\d+) of 1", output)[1]) > 1, output


def test_a_job_that_is_restarted_by_torchrun(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(RESTARTED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes", "1:1"]
    # Without -r and -t, torch 1.13 fails under Python 3.11 or later.
    torchrun += ["--nproc_per_node", "2", "--max_restarts", "3", "-r", "1", "-t", "1"]
    ended = subprocess.run(
        [*torchrun, "--log_dir", str(tmp_path / "logs"), str(program), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("ends after 6 steps, started at 3") == 2, ended.stdout


RESTARTED = """
import os, sys
import torch
import ronde.torch as hvd

hvd.init()
path = os.path.join(sys.argv[1], "checkpoint")
began = torch.load(path)["step"] if os.path.exists(path) else 0
for step in range(began, 6):
    total = hvd.allreduce(torch.ones(1), op=hvd.Sum, name="x").item()
    assert total == hvd.size() == 2
    if hvd.rank() == 0:
        torch.save({"step": step + 1}, path + ".part")
        os.replace(path + ".part", path)
    hvd.barrier()
    if step == 2 and began == 0 and hvd.rank() == 1:
        os._exit(1)
print("ends after 6 steps, started at", began, flush=True)
"""


def test_resets_leave_nothing_behind():
    program = Path(__file__).resolve().with_name("resets.py")
    ended = subprocess.run(
        [*RUN, "-np", "2", "--min-np", "2", "--", sys.executable, program, "80"],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("no growth in 80 resets") == 2, ended.stdout
