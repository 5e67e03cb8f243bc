"""One rank of the test of `ronde.tune.lightning`: a tiny model under Lightning's Trainer.

    lightning_rank.py tuned|alone|forked FOLDER
"""

import logging
import pathlib
import sys

import torch
from ronde.tune.lightning import LightningModule, RondeTuner, Trainer
from simulated import simulate_steps

SAMPLES = 16
BATCHES = 60


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
        self.sizes = []

    def training_step(self, batch, index):
        self.sizes.append(getattr(self.trainer.strategy.model, "bucket_bytes_cap", None))
        return (self.layers(batch) - batch).pow(2).mean()

    def validation_step(self, batch, index):
        self.layers(batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


def fit(folder, callback, accumulate=1, strategy="ddp", epochs=1, devices=2):
    torch.manual_seed(3)
    net = Net()
    data = torch.randn(2 * SAMPLES * BATCHES, 256, generator=torch.Generator().manual_seed(1))
    loader = torch.utils.data.DataLoader(data, batch_size=SAMPLES)
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        max_epochs=epochs,
        accumulate_grad_batches=accumulate,
        val_check_interval=20,
        limit_val_batches=1,
        callbacks=[callback] if callback is not None else [],
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    trainer.fit(net, loader, loader)
    return net, torch.cat([p.detach().flatten() for p in net.parameters()])


def main(folder):
    state = folder / "bucket.json"

    simulate_steps(best_mb=0.5)
    # The steps of the search change the buckets, not the result.
    _, fixed = fit(folder, None, epochs=4)
    tuner = RondeTuner(low=0.05, state=state)
    net, tuned = fit(folder, tuner, epochs=4)
    assert torch.equal(fixed, tuned), (fixed - tuned).abs().max()
    assert len(set(net.sizes)) > 3, set(net.sizes)
    # The start may be in force for a check of the verdict.
    assert 0.05 <= tuner.verdict["setting"]["bucket_cap_mb"] < 25
    every = [None, None]
    torch.distributed.all_gather_object(every, net.sizes)
    assert every[0] == every[1]
    assert state.exists()

    # A step is one of the optimizer.
    steps = []
    tuner = RondeTuner(low=0.05)
    tuner._tuner.step = lambda: steps.append(len(net.sizes))
    begins = []
    tuner._tuner.begin = lambda: begins.append(1)
    fit(folder, tuner, accumulate=4)
    assert len(steps) == len(begins) == BATCHES // 4, (len(steps), len(begins))


def forked(folder):
    """Ranks that are processes of multiprocessing say that the state file has the result."""
    simulate_steps(best_mb=0.5)
    state, log = folder / "bucket.json", folder / "log.txt"
    handler = logging.FileHandler(log)
    logging.getLogger("ronde.tune").addHandler(handler)
    tuner = RondeTuner(low=0.05, state=state)
    fit(folder, tuner, strategy="ddp_fork", epochs=2)
    assert tuner.verdict is None and tuner.settings == {}
    lines = [line for line in log.read_text().splitlines() if "main process" in line]
    assert len(lines) == 1 and str(state) in lines[0], lines
    assert state.exists()


def alone(folder):
    """Without DDP, nothing is tuned and training goes on."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("ronde.tune").addHandler(handler)
    tuner = RondeTuner()
    fit(folder, tuner, strategy="auto", devices=1)
    assert tuner.verdict is None and tuner.settings == {}
    assert len(lines) == 1 and "nothing is tuned" in lines[0], lines


if __name__ == "__main__":
    case, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    {"tuned": main, "alone": alone, "forked": forked}[case](folder)
