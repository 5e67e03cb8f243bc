"""`hvd.elastic.run`: jobs that leave and join again."""

import time

import pytest
import ronde
from launching import SECONDS

pytest.importorskip("torch")


def joined_again():
    """Trains ten steps with an error and a change of hosts in between; returns a log of the
    steps."""
    import torch

    import ronde.torch as hvd
    from ronde.common.elastic import HostUpdateResult

    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    dataset = list(range(40))
    sampler = hvd.elastic.ElasticSampler(dataset, shuffle=False)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, step=0, samples=[])
    seen = []
    state.register_reset_callbacks([lambda: seen.append("joined")])

    @hvd.elastic.run
    def train(state):
        for sample in sampler:
            seen.append(state.step)
            optimizer.zero_grad()
            model(torch.full((1, 3), float(sample))).sum().backward()
            optimizer.step()
            state.step += 1
            state.samples = state.samples + [sample]
            sampler.record_batch(0, 1)
            if seen.count("joined") == 0 and state.step == 5:
                # The shapes differ between ranks: an error on all of them.
                hvd.allreduce(torch.ones(1 + hvd.rank()), name="planted")
            if state.step in (3, 7):
                if seen.count("joined") == 1 and hvd.rank() == 1:
                    state.on_hosts_updated(state.step, HostUpdateResult.removed)
                state.commit()
            if state.step == 10:
                return
        raise AssertionError("too few samples")

    train(state)
    state.commit()
    weights = hvd.allgather(model.weight.detach()).tolist()
    return seen, state.samples, weights


def test_a_job_joins_again_after_errors_and_changes_of_hosts():
    results = ronde.run(joined_again, num_proc=2)
    assert len(results) == 2
    for rank, (seen, samples, weights) in enumerate(results):
        # The error comes two steps after a commit; the change of hosts is noticed by a commit.
        assert seen == [0, 1, 2, 3, 4, "joined", 3, 4, 5, 6, "joined", 7, 8, 9]
        # After the error, the samples of rank 0's commit; after the change, which only removed
        # hosts, the rank's own.
        assert samples == [0, 2, 4, *range(6 + rank, 20 + rank, 2)]
        assert weights[0] == weights[1]


def after_losing_a_rank():
    """A rank whose peer has ended for good."""
    import os

    import torch

    import ronde.torch as hvd

    hvd.init()
    if hvd.rank() == 1:
        os._exit(0)
    state = hvd.elastic.TorchState(step=3)

    @hvd.elastic.run
    def train(state):
        hvd.allreduce(torch.ones(1))

    train(state)


def test_a_job_that_has_lost_a_rank_ends():
    begin = time.monotonic()
    with pytest.raises(ronde.runner.JobError):
        ronde.run(after_losing_a_rank, num_proc=2, start_timeout=10)
    assert time.monotonic() - begin < SECONDS
