"""One rank of scripts/bench-tune: time that the callbacks of ronde.tune take in each step.

    callback_job.py --framework lightning --width 512 --out FILE     # with torchrun's variables

Rank 0 writes for each step whether there is a verdict, its time in ms, that of the callback's two
calls in µs, and of these the time in which the setting was changed.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time

import torch
from ronde.tune._model import ModelTuner

LAYERS = 8
BATCH = 128


class Clock:
    """Adds up the time that a callback's methods take in each step."""

    def __init__(self, callback, first, last):
        self.steps = []
        self._spent = self._changing = 0.0
        self._begin = None
        ModelTuner._change = self._timed(ModelTuner._change, self._on_change)
        setattr(callback, first, self._timed(getattr(callback, first), self._on_first))
        setattr(callback, last, self._timed(getattr(callback, last), self._on_last))
        self._callback = callback

    def _timed(self, method, note):
        def timed(*arguments, **options):
            begin = time.perf_counter()
            result = method(*arguments, **options)
            note(time.perf_counter() - begin, begin)
            return result

        return timed

    def _on_first(self, seconds, begin):
        self._spent, self._changing, self._begin = seconds, 0.0, begin

    def _on_change(self, seconds, begin):
        self._changing = seconds

    def _on_last(self, seconds, begin):
        if self._begin is not None:
            spent = self._spent + seconds
            has_verdict, step_ms = self._callback.verdict is not None, 1e3 * (begin - self._begin)
            self.steps.append([has_verdict, step_ms, 1e6 * spent, 1e6 * self._changing])


def network(width):
    layers = [torch.nn.Linear(width, width) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers)


def lightning(steps, width):
    from ronde.tune.lightning import LightningModule, RondeTuner, Trainer

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = network(width)

        def training_step(self, batch, index):
            return (self.layers(batch) - batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    callback = RondeTuner(steps=steps)
    clock = Clock(callback, "on_train_batch_start", "on_train_batch_end")
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=steps, callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(torch.randn(2 * BATCH * 16, width), batch_size=BATCH)
    trainer.fit(Net(), loader)
    return clock.steps


def huggingface(steps, width):
    from ronde.tune.huggingface import RondeTunerCallback
    from transformers import Trainer, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = network(width)

        def forward(self, inputs):
            return {"loss": (self.layers(inputs) - inputs).pow(2).mean()}

    callback = RondeTunerCallback(steps=steps)
    clock = Clock(callback, "on_step_begin", "on_step_end")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, use_cpu=True, max_steps=steps, per_device_train_batch_size=BATCH, report_to=[],
            save_strategy="no", disable_tqdm=True, logging_steps=100000, label_names=[],
        )
        data = [{"inputs": row} for row in torch.randn(2 * BATCH * 16, width)]
        Trainer(Net(), arguments, train_dataset=data, callbacks=[callback]).train()
    return clock.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--framework", choices=["lightning", "huggingface"], required=True)
    parser.add_argument("--steps", type=int, default=400)
    help_width = "of the model's eight layers (%(default)s)"
    parser.add_argument("--width", type=int, default=512, help=help_width)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    run = {"lightning": lightning, "huggingface": huggingface}[options.framework]
    steps = run(options.steps, options.width)
    if torch.distributed.get_rank() == 0:
        names = {
            "lightning": ("lightning", "pytorch_lightning"),
            "huggingface": ("transformers",),
        }[options.framework]
        package = next(sys.modules[name] for name in names if name in sys.modules)
        versions = {"version": package.__version__, "torch": torch.__version__}
        result = {"framework": options.framework, **versions, "steps": steps}
        options.out.write_text(json.dumps(result))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
