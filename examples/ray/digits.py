"""Trains a small network on handwritten digits with Ray Train, and continues after a failure.

    python examples/ray/digits.py --workers 2 --fail-epoch 3

Ray's TorchTrainer gives its workers the variables that `hvd.init()` reads: RANK, WORLD_SIZE,
MASTER_ADDR and others. If a worker fails, Ray starts all workers again (`FailureConfig`), and they
continue from the last checkpoint. With --fail-epoch, the last worker ends itself once.

A step uses the same images, whatever the number of workers: the accuracy does not depend on it
if the number divides 32.

Needs `ray[train]`, torch and scikit-learn, which bundles the digits, so that nothing is downloaded
(E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
1998, CC BY 4.0).
"""

import argparse
import os
import pathlib
import tempfile

import ray
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

TRAINING_IMAGES = 1500  # of 1,797; the others are test images
BATCH = 32  # images of one step, of all workers together


def train(config):
    import torch
    from sklearn.datasets import load_digits
    from torch.nn import functional

    import ronde.torch as hvd

    hvd.init()
    data = load_digits()
    images = torch.tensor(data.images / 16.0).flatten(1)
    labels = torch.tensor(data.target)
    torch.manual_seed(7)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    model = torch.nn.Sequential(*layers).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    first = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = torch.load(pathlib.Path(folder, "state.pt"))
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]
    for epoch in range(first, config["epochs"]):
        is_last = hvd.rank() == hvd.size() - 1
        if epoch == config["fail_epoch"] and is_last and first == 0:
            os._exit(1)  # once: after the restart, `first` is this epoch
        order = torch.randperm(TRAINING_IMAGES, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(BATCH)[: TRAINING_IMAGES // BATCH]:
            mine = batch[hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
        with torch.no_grad():
            answers = model(images[TRAINING_IMAGES:]).argmax(1)
        accuracy = (answers == labels[TRAINING_IMAGES:]).double().mean().item()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if hvd.rank() == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state | {"epoch": epoch + 1}, pathlib.Path(folder, "state.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            metrics = {"epoch": epoch + 1, "accuracy": accuracy, "first": first}
            ray.train.report(metrics, checkpoint=checkpoint)
    hvd.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--fail-epoch", type=int, default=-1, help="epochs before the failure")
    options = parser.parse_args()
    if options.fail_epoch == 0:
        parser.error("--fail-epoch 0: before the first epoch there is no checkpoint to continue from")
    ray.init(num_cpus=options.workers, include_dashboard=False)
    with tempfile.TemporaryDirectory() as storage:
        trainer = TorchTrainer(
            train,
            train_loop_config={"epochs": options.epochs, "fail_epoch": options.fail_epoch},
            scaling_config=ScalingConfig(num_workers=options.workers),
            run_config=RunConfig(
                storage_path=storage, failure_config=FailureConfig(max_failures=1)
            ),
        )
        metrics = trainer.fit().metrics
    print(
        f"{options.workers} workers: accuracy {metrics['accuracy']:.4f} after epoch "
        f"{metrics['epoch']}, the last start after epoch {metrics['first']}"
    )


if __name__ == "__main__":
    main()
