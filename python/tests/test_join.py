"""Operations during and after joins, above all those without a name, which are named by a
counter.
"""

import pytest
import torch


def check(hvd, tensor, expected):
    assert tensor.tolist() == [expected] * 2


def test_unnamed_operations_after_a_join(several):
    hvd = several
    size, rank = hvd.size(), hvd.rank()
    for epoch in range(3):
        # Rank 0 has the least data, or the most; with three ranks all have different numbers of
        # batches.
        batches = list(range(size)) if epoch % 2 else list(range(size, 0, -1))
        for batch in range(batches[rank]):
            reduced = hvd.allreduce(torch.ones(2), op=hvd.Sum)
            check(hvd, reduced, sum(own > batch for own in batches))
        # Its last batch is complete once all others have joined.
        assert hvd.join() == (size - 1 if epoch % 2 else 0)
        # All ranks use the same name, whatever the number of earlier operations.
        check(hvd, hvd.allreduce(torch.ones(2), op=hvd.Sum), size)
        assert hvd.allgather(torch.tensor([rank])).tolist() == list(range(size))
        check(hvd, hvd.broadcast(torch.full((2,), float(rank)), 0), 0.0)
        check(hvd, hvd.grouped_allreduce([torch.ones(2)] * 2, op=hvd.Sum)[1], size)
        hvd.barrier()


def test_unnamed_operations_in_flight_at_a_join(several):
    hvd = several
    size, rank = hvd.size(), hvd.rank()
    handles = [hvd.allreduce_async(torch.ones(2), op=hvd.Sum) for _ in range(1 + rank)]
    hvd.join()
    later = [hvd.allreduce_async(torch.ones(2), op=hvd.Sum) for _ in range(3)]
    for batch, handle in enumerate(handles):
        check(hvd, hvd.synchronize(handle), size - batch)
    for handle in later:
        check(hvd, hvd.synchronize(handle), size)


def test_unnamed_operations_of_a_process_set_after_a_join(several):
    hvd = several
    if hvd.size() < 3:
        pytest.skip("wants a set that is not that of all ranks")
    pair = hvd.add_process_set([0, 1])
    for _ in range(1 + hvd.rank()):
        hvd.allreduce(torch.ones(2), op=hvd.Sum)
    hvd.join()
    if pair.included():
        check(hvd, hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=pair), 2)
    check(hvd, hvd.allreduce(torch.ones(2), op=hvd.Sum), hvd.size())
    hvd.remove_process_set(pair)


def test_unnamed_operations_after_one_that_a_rank_refuses(several):
    hvd = several
    if hvd.rank() == 0:
        with pytest.raises(ValueError):
            hvd.allreduce_(torch.eye(3).to_sparse())
        with pytest.raises(TypeError):
            hvd.allreduce([1.0])
    check(hvd, hvd.allreduce(torch.ones(2), op=hvd.Sum), hvd.size())
