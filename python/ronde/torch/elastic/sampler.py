"""A sampler for data sets that supports changes of the ranks within an epoch."""

from __future__ import annotations

import itertools
import random
from typing import Any, Iterator, Sized

import torch.utils.data

from ..mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Partitions a data set among the ranks; after a change, partitions the rest of the epoch
    again.

    All ranks process the same number of batches, report each (:meth:`record_batch`), and call
    :meth:`set_epoch` at the *end* of an epoch. In a :class:`TorchState`, the sampler is updated
    automatically.

    ``shuffle``: shuffle with another order in each epoch, from ``seed``, which must be equal on all
    ranks. All partitions have the same length: some samples may occur twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        #: Samples of this epoch that the ranks have processed, in total.
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Starts an epoch, with no sample processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that each rank has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Position of the sampler in its epochs."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a result of :meth:`state_dict`, with the current ranks."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Partitions the rest of the epoch among the current ranks."""
        self.num_replicas = size()
        self.rank = rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """Iterates over this rank's partition as of the last :meth:`reset`."""
        # Repeats samples so that all partitions have the same length.
        indices = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        self.indices = list(indices)[self.rank :: self.num_replicas]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
