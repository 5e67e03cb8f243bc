"""One rank of the test of `ronde.tune.huggingface` with DeepSpeed: the Trainer makes the engine.

    huggingface_deepspeed_rank.py FOLDER        # with torchrun's variables
"""

import os
import sys

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from ronde.tune.huggingface import RondeTunerCallback
from transformers import Trainer, TrainingArguments

STEPS = 60
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 100_000, "overlap_comm": False},
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_allow_untested_optimizer": True,
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(8)))

    def forward(self, inputs):
        inputs = inputs.to(self.layers[0].weight.dtype)
        return {"loss": (self.layers(inputs) - inputs).float().pow(2).mean()}


class Noting(RondeTunerCallback):
    """Notes the tuner's setting, and the size in the engine, in each step."""

    def __init__(self, **options):
        super().__init__(**options)
        self.sizes = []
        self.trainer = None

    def on_step_begin(self, args, state, control, **others):
        super().on_step_begin(args, state, control, **others)
        engine = self.trainer.model_wrapped
        size = engine.optimizer.reduce_bucket_size
        self.sizes.append((self.settings["reduce_bucket_size"], size))


def main(folder):
    callback = Noting(low=1000)
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        bf16=True,
        deepspeed=CONFIG,
        learning_rate=0.01,
        optim="adamw_torch",
        max_steps=STEPS,
        per_device_train_batch_size=4,
        label_names=[],
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    data = [{"inputs": row} for row in torch.randn(512, 128)]
    callback.trainer = Trainer(Net(), arguments, train_dataset=data, callbacks=[callback])
    callback.trainer.train()
    assert len(callback.sizes) == STEPS
    assert len(set(callback.sizes)) > 1, callback.sizes
    assert all(int(setting) == size for setting, size in callback.sizes), callback.sizes
    every = [None, None]
    torch.distributed.all_gather_object(every, callback.sizes)
    assert every[0] == every[1]


if __name__ == "__main__":
    # DeepSpeed would compile an allreduce of its own for minutes.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    main(sys.argv[1])
