"""Queries such as rank and size, and the names that programs import."""

import json
import os
import threading
import time

import pytest
import torch

#: All names of ``horovod.torch``.
NAMES = """
    Adasum Average Compression DistributedOptimizer HorovodInternalError Max Min ProcessSet Product Sum
    SyncBatchNorm add_process_set allgather allgather_async allgather_object allreduce allreduce_
    allreduce_async allreduce_async_ alltoall alltoall_async barrier broadcast broadcast_ broadcast_async
    broadcast_async_ broadcast_object broadcast_optimizer_state broadcast_parameters ccl_built cross_rank
    cross_size cuda_built ddl_built elastic global_process_set gloo_built gloo_enabled grouped_allgather
    grouped_allgather_async grouped_allreduce grouped_allreduce_ grouped_allreduce_async
    grouped_allreduce_async_ grouped_reducescatter grouped_reducescatter_async init is_initialized join
    local_rank local_size mpi_built mpi_enabled mpi_threads_supported nccl_built poll rank reducescatter
    reducescatter_async remove_process_set rocm_built shutdown size sparse_allreduce_async start_timeline
    stop_timeline synchronize compression functions mpi_ops optimizer sync_batch_norm autotune_report
    ddp_hook mark_epoch mark_step check_extension
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_name(hvd, name):
    assert getattr(hvd, name) is not None


def test_no_other_name(hvd):
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = hvd.no_such_name


def test_operations_are_numbers(hvd):
    ops = (hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product)
    assert ops == (0, 1, 2, 3, 4, 5)


def test_ranks_and_sizes(hvd):
    size = hvd.size()
    assert hvd.is_initialized()
    assert hvd.allgather_object(hvd.rank()) == list(range(size))
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), size)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.mpi_ops.is_homogeneous()
    assert int(os.environ.get("HOROVOD_RANK", 0)) == hvd.rank()


def test_what_is_built(hvd):
    assert hvd.gloo_built() is True
    assert hvd.gloo_enabled() != hvd.mpi_enabled()
    assert isinstance(hvd.mpi_built(), bool)
    assert hvd.nccl_built() == 0
    assert not any((hvd.ccl_built(), hvd.cuda_built(), hvd.ddl_built(), hvd.rocm_built()))
    if hvd.mpi_enabled():
        assert hvd.mpi_threads_supported()
    else:
        with pytest.raises(ValueError, match="MPI"):
            hvd.mpi_threads_supported()


def test_init_again_changes_nothing(hvd):
    rank, size = hvd.rank(), hvd.size()
    hvd.init()
    hvd.init(process_sets="dynamic")
    assert (hvd.rank(), hvd.size()) == (rank, size)


def test_init_again_looks_up_process_sets(several):
    hvd = several
    added = hvd.add_process_set([0])
    same = hvd.ProcessSet([0])
    hvd.init(process_sets=[same])
    assert same.process_set_id == added.process_set_id
    with pytest.raises(ValueError, match="twice"):
        hvd.init(process_sets=[hvd.ProcessSet([0]), [0]])
    with pytest.raises(ValueError, match="none of the process sets"):
        hvd.init(process_sets=[[1]])
    with pytest.raises(ValueError, match="dynamic"):
        hvd.init(process_sets="static")
    assert hvd.remove_process_set(added)


def test_nobody_leaves_a_barrier_before_all_are_there(hvd):
    for late in range(hvd.size()):
        if hvd.rank() == late:
            time.sleep(0.2)
        arrival = time.monotonic()  # one clock for all processes of a host
        hvd.barrier()
        departure = time.monotonic()
        arrivals, departures = zip(*hvd.allgather_object((arrival, departure)))
        assert min(departures) >= max(arrivals)


def test_join_alone(hvd):
    last = hvd.join(hvd.local_rank())
    assert hvd.allgather_object(last) == [last] * hvd.size()
    assert 0 <= last < hvd.size()


def test_timeline(hvd, tmp_path):
    path = tmp_path / "timeline.json"
    hvd.start_timeline(str(path), mark_cycles=True)
    hvd.allreduce(torch.ones(3), name="recorded")
    hvd.barrier()
    hvd.stop_timeline()
    hvd.stop_timeline()
    if hvd.rank() == 0:
        text = path.read_text()
        assert "allreduce.recorded" in text and "NEGOTIATE_ALLREDUCE" in text
        assert isinstance(json.loads(text), list)
    else:
        assert not path.exists()


def test_no_tuner(hvd):
    if "HOROVOD_AUTOTUNE" in os.environ:
        pytest.skip("there is one")
    assert hvd.autotune_report() is None
    hvd.mark_step()
    hvd.mark_epoch()


def test_other_threads_may_wait(hvd):
    results = []
    handle = hvd.allreduce_async(torch.ones(3), name="other_thread", op=hvd.Sum)
    thread = threading.Thread(target=lambda: results.append(hvd.synchronize(handle)))
    thread.start()
    thread.join(60)
    assert results[0].tolist() == [hvd.size()] * 3


def test_helpers_of_common_util(hvd):
    from ronde.common import util

    assert [util.num_rank_is_power_2(n) for n in range(6)] == [False, True, True, False, True, False]
    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert util.split_list([1], 2) == [[1], []]
    assert util.is_iterable("a") and not util.is_iterable(1)
    with util.env(RONDE_TEST_A="1", PATH=None):
        assert os.environ["RONDE_TEST_A"] == "1" and "PATH" not in os.environ
    assert "RONDE_TEST_A" not in os.environ and "PATH" in os.environ
    assert util.gloo_built(verbose=True) and not util.nccl_built() and not util.gpu_available("torch")
    assert util.extension_available("torch") and not util.extension_available("mxnet")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    util.check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", __file__, "mpi_lib")
    with pytest.raises(ImportError, match="mxnet"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")


def test_exceptions(hvd):
    import pickle

    from ronde.common import exceptions

    assert hvd.HorovodInternalError is exceptions.HorovodInternalError
    error = exceptions.HorovodInternalError("gone")
    assert isinstance(error, RuntimeError)
    assert (error.tensor, error.rank, error.first_rank) == (None, None, None)
    interrupt = pickle.loads(pickle.dumps(exceptions.HostsUpdatedInterrupt(skip_sync=True)))
    assert interrupt.skip_sync and not exceptions.HostsUpdatedInterrupt().skip_sync
    assert "1.13" in str(exceptions.HorovodVersionMismatchError("torch", "1.13", "2.0"))
