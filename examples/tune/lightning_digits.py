"""Trains on handwritten digits with Lightning, which tunes the bucket size of DDP meanwhile.

    python examples/tune/lightning_digits.py --devices 2

Needs Lightning, and scikit-learn, which bundles the digits.
"""

import argparse
import sys

import torch
from ronde.tune.lightning import RondeTuner
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

try:
    from lightning.pytorch import LightningModule, Trainer, seed_everything
except ImportError:  # the older name of the package
    from pytorch_lightning import LightningModule, Trainer, seed_everything

TRAINING_IMAGES = 1500  # of 1,797; the others are test images


class Digits(LightningModule):
    def __init__(self):
        super().__init__()
        layers = [torch.nn.Linear(64, 512), torch.nn.ReLU()]
        for _ in range(4):
            layers += [torch.nn.Linear(512, 512), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers, torch.nn.Linear(512, 10))

    def training_step(self, batch, index):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch, index):
        images, labels = batch
        correct = (self.layers(images).argmax(1) == labels).float().mean()
        self.log("accuracy", correct, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--state", help="file of measurements, from which the next job begins")
    parser.add_argument("--min-accuracy", type=float, default=0.0, help="fail below this accuracy")
    options = parser.parse_args()

    seed_everything(0)
    data = load_digits()
    images = torch.tensor(data.data / 16, dtype=torch.float32)
    pairs = TensorDataset(images, torch.tensor(data.target))
    train, test = random_split(pairs, [TRAINING_IMAGES, len(pairs) - TRAINING_IMAGES])

    tuner = RondeTuner(low=0.25, state=options.state)
    trainer = Trainer(
        accelerator="cpu",
        devices=options.devices,
        strategy="ddp",
        max_epochs=options.epochs,
        callbacks=[tuner],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), DataLoader(train, 32, shuffle=True), DataLoader(test, 64))
    accuracy = float(trainer.callback_metrics["accuracy"])
    if trainer.is_global_zero:
        print(f"accuracy {accuracy:.3f} with bucket_cap_mb={tuner.settings['bucket_cap_mb']:g}")
        print(tuner.verdict["reason"] if tuner.verdict else "the search has not ended")
    if accuracy < options.min_accuracy:
        sys.exit(f"accuracy {accuracy:.3f} is below {options.min_accuracy}")


if __name__ == "__main__":
    main()
