"""The fault campaign of elastic jobs (scripts/bench-elastic), short, and whether its judge notices
what must not happen."""

import json
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")

FOLDER = pathlib.Path(__file__).parents[3] / "benches" / "elastic"
sys.path.insert(0, str(FOLDER))
import judge  # noqa: E402
import training  # noqa: E402
from logs import Logs  # noqa: E402


def test_jobs_with_faults_end_with_the_weights_of_one_process(tmp_path):
    command = [sys.executable, "-B", FOLDER / "campaign.py", "--jobs", "2", "--faults", "3"]
    command += ["--seed", "2", "--ranks", "3", "--pairs", "0", "--out", tmp_path / "out"]
    faults = "kill,kill rank 0,kill in a commit,commit fails,callback raises,add slots"
    command += ["--only", faults + ",script prints nonsense"]
    done = subprocess.run(
        [*command, "--folder", tmp_path / "jobs"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = json.loads((tmp_path / "out" / "elastic.json").read_text())["jobs"]
    assert [job["end"] for job in jobs] == ["finished"] * 2
    assert sum(job["resets"] for job in jobs) > 1, "faults took effect"


def one_rank(folder, batches, trained, epoch_of=lambda step: 0):
    """Log of a rank that reports `batches`, and has the weights after `trained`."""
    events = [{"event": "begin", "step": 0, "generation": "a", "rank": 0, "size": 1}]
    events[0]["weights"] = training.repeat([])[-1]
    for step, samples in enumerate(batches, 1):
        record = {"step": step, "epoch": epoch_of(step), "samples": samples}
        events.append({"event": "try", "generation": "a", "rank": 0, "size": 1, **record})
    weights = training.repeat([[samples] for samples in trained])[-1]
    events.append({"event": "end", "step": len(batches), "weights": weights})
    lines = (json.dumps({"t": time, **event}) + "\n" for time, event in enumerate(events))
    (folder / "1.jsonl").write_text("".join(lines))
    logs = Logs(folder)
    logs.update()
    logs.close()
    return judge.judge(logs)


def test_the_judge_notices_lost_samples_repeated_samples_and_other_weights(tmp_path):
    all_samples = list(range(training.SAMPLES))
    batches = [all_samples[start : start + 4] for start in range(0, training.SAMPLES, 4)]
    assert one_rank(tmp_path, batches, batches) == []
    [problem] = one_rank(tmp_path, batches, batches[:-1])
    assert "the weights after step 60 differ from one process's" in problem
    assert one_rank(tmp_path, batches[1:], batches[1:]) == [
        "epoch 0: 4 samples were lost, such as 0"
    ]
    again = [*batches, batches[0]]
    assert one_rank(tmp_path, again, again) == ["epoch 0: 4 samples were used twice"]
