"""Rank of a job of the fault campaign: trains, commits, and logs each step before and after it.

    rank.py FOLDER [--step-ms 10] [--steps N]

Each process appends to `FOLDER/logs/PID.jsonl`. The job ends after the epoch in which the file
`FOLDER/end` appears, or after N steps. If `FOLDER/die` exists, the rank whose number and moment it
contains (`0 before` or `0 after`) kills itself in its next commit.
"""

import time

STARTED = time.monotonic()

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import pathlib  # noqa: E402
import signal  # noqa: E402

import torch  # noqa: E402
import training  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import ronde.torch as hvd  # noqa: E402


class Log:
    """Appends events. What was written is kept when the process is killed."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.file = os.open(folder / f"{os.getpid()}.jsonl", flags)

    def write(self, event, **fields):
        line = json.dumps({"event": event, "t": time.monotonic(), **fields}) + "\n"
        os.write(self.file, line.encode())


class State(hvd.elastic.TorchState):
    """A state that logs its commits, and dies in one if it is told to."""

    def save(self):
        self.die("before")
        super().save()
        LOG.write("saved", step=self.step)
        self.die("after")

    def commit(self):
        super().commit()
        LOG.write("committed", step=self.step)

    @staticmethod
    def die(moment):
        order = FOLDER / "die"
        try:
            text = order.read_text()
        except FileNotFoundError:  # there is none, or another rank has just obeyed it
            return
        if text == f"{hvd.rank()} {moment}":
            order.unlink()
            LOG.write("dies")
            os.kill(os.getpid(), signal.SIGKILL)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--steps", type=int, default=0)
    return parser.parse_args()


def main():
    options = arguments()
    inputs, targets = training.data()
    data = TensorDataset(inputs, targets, torch.arange(len(inputs)))
    hvd.init()
    network = training.model()
    descent = hvd.DistributedOptimizer(training.optimizer(network), network.named_parameters())
    sampler = hvd.elastic.ElasticSampler(data, seed=training.SAMPLER_SEED)
    state = State(network, descent, sampler=sampler, epoch=0, step=0)
    generations = 0

    @hvd.elastic.run
    def train(state):
        nonlocal generations
        generations += 1
        # A name that no other generation has: of rank 0's process.
        name = hvd.broadcast_object(f"{os.getpid()}.{generations}", name="generation")
        place = {"generation": name, "rank": hvd.rank(), "size": hvd.size()}
        LOG.write("begin", step=state.step, weights=training.weights(network), **place)
        while True:
            batches = DataLoader(data, batch_size=training.BATCH, sampler=sampler)
            for index, (batch, answers, samples) in enumerate(batches):
                step, samples = state.step + 1, samples.tolist()
                LOG.write("try", step=step, epoch=state.epoch, samples=samples, **place)
                descent.zero_grad()
                training.loss(network, batch, answers).backward()
                descent.step()
                sampler.record_batch(index, training.BATCH)
                state.step = step
                LOG.write("done", step=step)
                time.sleep(options.step_ms / 1e3)
                if step % training.COMMIT_STEPS == 0:
                    state.commit()
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            is_end = (FOLDER / "end").exists() or 0 < options.steps <= state.step
            if hvd.allreduce(torch.tensor(float(is_end)), name="end", op=hvd.Sum) > 0:
                return
            state.commit()

    train(state)
    LOG.write("end", step=state.step, weights=training.weights(network))


if __name__ == "__main__":
    FOLDER = arguments().folder
    LOG = Log(FOLDER / "logs")
    LOG.write("start", started=STARTED)
    main()
