"""Rank of a job of the fault campaign: trains, commits, and logs each step before and after it.

    rank.py FOLDER [--step-ms 10] [--steps N]

Each process appends to `FOLDER/logs/PID.jsonl`. The job ends after the epoch in which the file
`FOLDER/end` appears, or after N steps. `FOLDER/order` is a JSON object with an act that a rank, or
all ranks (`"rank": null`), do to themselves at a moment:

- `die`: the process is killed.
- `raise`: an exception of the program, which ends the process.
- `fail`: HorovodInternalError, as if an operation had failed.
- `differ`: the process changes its weights, its step and its last commit, then fails.
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
from ronde.torch import HorovodInternalError  # noqa: E402
from ronde.torch.elastic import state as elastic_state  # noqa: E402

PLANTED = "planted by the campaign"


class Log:
    """Appends events. What was written is kept when the process is killed."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.file = os.open(folder / f"{os.getpid()}.jsonl", flags)

    def write(self, event, **fields):
        line = json.dumps({"event": event, "t": time.monotonic(), **fields}) + "\n"
        os.write(self.file, line.encode())


class Half:
    """Part of the state that is saved after the sampler and before the model."""


class HalfHandler(elastic_state.StateHandler):
    def save(self):
        obey("within a commit")

    def restore(self):
        pass

    def sync(self):
        pass


class State(hvd.elastic.TorchState):
    """A state that logs its commits, and obeys orders."""

    def check_host_updates(self):
        LOG.write("saved", step=self.step)
        obey("before the agreement")
        super().check_host_updates()

    def commit(self):
        obey("before a commit")
        super().commit()
        LOG.write("committed", step=self.step)
        obey("after a commit", self)


def obey(moment, state=None):
    """Does what `FOLDER/order` says, if it is for this rank and moment."""
    path = FOLDER / "order"
    try:
        order = json.loads(path.read_text())
        if order["moment"] != moment or order["rank"] not in (None, hvd.rank()):
            return
        if order["rank"] is not None:
            path.unlink()
    except FileNotFoundError:  # there is none, or another rank has just obeyed it
        return
    LOG.write("obeys")
    if order["act"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif order["act"] == "raise":
        raise RuntimeError(PLANTED)
    elif order["act"] == "differ":
        with torch.no_grad():
            for weight in state.model.parameters():
                weight += 1
        state.step += 1000
        hvd.elastic.TorchState.save(state)
    raise HorovodInternalError(PLANTED)


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
    handlers = elastic_state.get_handler_registry()
    elastic_state.set_handler_registry([(Half, HalfHandler), *handlers])
    state = State(network, descent, sampler=sampler, half=Half(), epoch=0, step=0)
    state.register_reset_callbacks([lambda: obey("in a callback")])
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
