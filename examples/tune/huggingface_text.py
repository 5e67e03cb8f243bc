"""Trains a small BERT with Hugging Face's Trainer, which tunes the bucket size of DDP meanwhile.

    torchrun --nproc-per-node 2 examples/tune/huggingface_text.py

The model has random weights and the text is counted out, so nothing is downloaded. Needs
transformers and accelerate.
"""

import argparse
import sys
import tempfile

import torch
from ronde.tune.huggingface import RondeTunerCallback
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

WORDS = 64
LENGTH = 16
MASK = 1


class Sequences(torch.utils.data.Dataset):
    """Arithmetic sequences with masked words: the others tell what these are."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        labels = 2 + (index + torch.arange(LENGTH) * (1 + index % 3)) % (WORDS - 2)
        words = labels.clone()
        words[index % LENGTH] = words[(index + 7) % LENGTH] = MASK
        return {"input_ids": words, "labels": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--state", help="file of measurements, from which the next job begins")
    parser.add_argument("--max-loss", type=float, default=float("inf"), help="fail above this loss")
    options = parser.parse_args()

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=LENGTH,
    )
    callback = RondeTunerCallback(low=0.25, state=options.state, steps=options.steps)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=options.steps,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            logging_steps=25,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            ddp_find_unused_parameters=False,
        )
        trainer = Trainer(
            BertForMaskedLM(config),
            arguments,
            train_dataset=Sequences(16 * options.steps),
            callbacks=[callback],
        )
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    loss = float(losses[-1])
    if trainer.is_world_process_zero():
        print(f"loss {loss:.3f} with ddp_bucket_cap_mb={callback.settings['bucket_cap_mb']:g}")
        print(callback.verdict["reason"] if callback.verdict else "the search has not ended")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if loss > options.max_loss:
        sys.exit(f"loss {loss:.3f} is above {options.max_loss}")


if __name__ == "__main__":
    main()
