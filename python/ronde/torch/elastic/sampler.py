"""A sampler whose ranks can change in the middle of an epoch."""

from __future__ import annotations

import itertools
import random
from typing import Any, Iterator, Sized

import torch.utils.data

from ..mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """Shares a data set out over the ranks; when they change, what is left of the epoch is shared out anew.

    All ranks work at the same pace and say so (:meth:`record_batch`), and say at the *end* of an epoch that
    it is over (:meth:`set_epoch`). As a part of a :class:`TorchState` the sampler follows the job by itself.

    ``shuffle``: in another order each epoch, by ``seed``, which is the same on all ranks. The shares are
    equally long: if that does not come out even, some samples come twice.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        #: Samples of this epoch that the ranks have been through, all together.
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, with nothing processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that each rank has been through a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Where in its epochs the sampler is."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up what :meth:`state_dict` has told, with the ranks that there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Shares out what is left of the epoch over the ranks that there are now."""
        self.num_replicas = size()
        self.rank = rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        """This rank's share of what was left at the last :meth:`reset`."""
        # Shares are made equally long by beginning again, as often as it takes.
        indices = itertools.islice(itertools.cycle(self.remaining_indices), self.total_size)
        self.indices = list(indices)[self.rank :: self.num_replicas]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
