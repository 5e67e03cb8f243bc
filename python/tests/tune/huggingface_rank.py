"""One rank of the test of `ronde.tune.huggingface`: a tiny BERT under the Trainer of transformers.

    huggingface_rank.py tuned|alone FOLDER
"""

import logging
import pathlib
import sys

import torch
from ronde.tune.ddp import MIB
from ronde.tune.huggingface import RondeTunerCallback
from simulated import simulate_steps
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments

STEPS = 200


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 8 * STEPS

    def __getitem__(self, index):
        tokens = (torch.arange(16) * (1 + index % 5) + index) % 64
        return {"input_ids": tokens, "labels": tokens}


class Sizes(TrainerCallback):
    """Notes the bucket size of each step."""

    trainer = None

    def __init__(self):
        self.sizes = []

    def on_step_end(self, args, state, control, **others):
        self.sizes.append(getattr(self.trainer.model_wrapped, "bucket_bytes_cap", None))


def fit(folder, callback, steps=STEPS, accumulate=1, trainings=1):
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=64,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    sizes = Sizes()
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulate,
        max_steps=steps,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1000,
    )
    callbacks = [sizes] if callback is None else [sizes, callback]
    trainer = Trainer(model, arguments, train_dataset=Text(), callbacks=callbacks)
    sizes.trainer = trainer
    for _ in range(trainings):
        sizes.sizes.clear()
        trainer.train()
    return sizes.sizes, torch.cat([p.detach().flatten() for p in model.parameters()])


def tuned(folder):
    simulate_steps(best_mb=0.5)
    state = folder / "bucket.json"
    _, fixed = fit(folder, None)
    callback = RondeTunerCallback(low=0.05, state=state)
    sizes, weights = fit(folder, callback)
    assert torch.equal(fixed, weights), (fixed - weights).abs().max()
    assert len(set(sizes)) > 3, sizes
    # The start may be in force for a check of the verdict.
    assert 0.05 <= callback.verdict["setting"]["bucket_cap_mb"] < 25
    every = [None, None]
    torch.distributed.all_gather_object(every, sizes)
    assert every[0] == every[1]
    assert state.exists()

    # In a second training with the same model, its new wrapper is tuned.
    callback = RondeTunerCallback(low=0.05)
    sizes, _ = fit(folder, callback, steps=40, trainings=2)
    assert len(sizes) == 40 and len(set(sizes)) > 1, sizes
    # The last size is noted before the tuner's step.
    assert sizes[-1] in (int(callback.settings["bucket_cap_mb"] * MIB), sizes[-2])

    # A step is one of the optimizer.
    steps, begins = [], []
    callback = RondeTunerCallback(low=0.05)
    callback._tuner.step = lambda: steps.append(1)
    callback._tuner.begin = lambda: begins.append(1)
    fit(folder, callback, steps=10, accumulate=3)
    assert len(steps) == len(begins) == 10, (len(steps), len(begins))
    # Otherwise torch's threads of a rank may still run when its process ends.
    torch.distributed.destroy_process_group()


def alone(folder):
    """Without DDP, nothing is tuned and training goes on."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("ronde.tune").addHandler(handler)
    callback = RondeTunerCallback()
    fit(folder, callback, steps=3)
    assert callback.verdict is None and callback.settings == {}
    assert len(lines) == 1 and "nothing is tuned" in lines[0], lines


if __name__ == "__main__":
    {"tuned": tuned, "alone": alone}[sys.argv[1]](pathlib.Path(sys.argv[2]))
