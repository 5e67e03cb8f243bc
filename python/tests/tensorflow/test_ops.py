"""Collective operations: every kind and element type, eagerly and in functions."""

import numpy as np
import pytest

REDUCED = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64", "bfloat16"]
MOVED = [*REDUCED, "uint16", "int16", "uint32", "uint64", "bool", "complex64"]


def of_rank(tf, dtype, rank, rows=3):
    return tf.cast(tf.reshape(tf.range(2 * rows), [rows, 2]) % 3 + rank, dtype)


@pytest.mark.parametrize("dtype", REDUCED)
def test_allreduce(tf, hvd, run, dtype):
    n = hvd.size()
    ranks = [of_rank(tf, "float64", rank).numpy() for rank in range(n)]
    x = of_rank(tf, dtype, hvd.rank())
    for op, expected in (
        (hvd.Sum, sum(ranks)),
        (hvd.Min, np.min(ranks, 0)),
        (hvd.Max, np.max(ranks, 0)),
        (hvd.Product, np.prod(ranks, 0)),
    ):
        result = run(lambda x, op=op: hvd.allreduce(x, op=op, name=f"reduce.{op}"), x)
        assert result.dtype == x.dtype and result.shape == x.shape
        np.testing.assert_allclose(tf.cast(result, tf.float64), expected)
    if x.dtype.is_floating:
        result = run(lambda x: hvd.allreduce(x, name="average"), x)
        np.testing.assert_allclose(tf.cast(result, tf.float64), sum(ranks) / n, rtol=1e-2)


def test_factors(tf, hvd, run):
    x = tf.constant([1.0, 2.0], tf.float64)
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=1 / 3, postscale_factor=0.3), x)
    # Factors of 64 bits: no rounding to 32 bits.
    np.testing.assert_allclose(result, np.array([1.0, 2.0]) * hvd.size() * 0.1, rtol=1e-15)


def test_average_argument(tf, hvd):
    x = tf.constant([2.0])
    with pytest.warns(DeprecationWarning):
        assert hvd.allreduce(x, average=False).numpy() == 2.0 * hvd.size()
    with pytest.raises(ValueError, match="average"):
        hvd.allreduce(x, average=True, op=hvd.Sum)


def test_compression(tf, hvd, run):
    x = tf.constant([1.5, 2.5], tf.float32)
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        result = run(lambda x, c=compression: hvd.allreduce(x, compression=c), x)
        assert result.dtype == tf.float32
        np.testing.assert_allclose(result, [1.5, 2.5])


def test_grouped_allreduce(tf, hvd, run):
    tensors = [tf.fill([n + 1], float(hvd.rank() + n)) for n in range(4)]
    tensors.append(tf.constant([3], tf.int32))
    results = run(lambda *t: hvd.grouped_allreduce(list(t), op=hvd.Sum, name="group"), *tensors)
    total = sum(range(hvd.size()))
    for n in range(4):
        np.testing.assert_allclose(results[n], [total + n * hvd.size()] * (n + 1))
    assert results[4].numpy() == 3 * hvd.size()
    assert hvd.grouped_allreduce([]) == []


def test_indexed_slices(tf, hvd, run):
    def reduce(values, indices):
        slices = tf.IndexedSlices(values, indices, dense_shape=tf.constant([4, 2]))
        one = hvd.allreduce(slices, name="slices")
        (other,) = hvd.grouped_allreduce([slices], op=hvd.Sum, name="slices.group")
        return tf.convert_to_tensor(one), tf.convert_to_tensor(other)

    values = tf.ones([2, 2]) * (hvd.rank() + 1.0)
    one, other = run(reduce, values, tf.constant([0, hvd.rank() % 3 + 1]))
    expected = np.zeros([4, 2])
    for rank in range(hvd.size()):
        expected[0] += rank + 1
        expected[rank % 3 + 1] += rank + 1
    np.testing.assert_allclose(other, expected)
    np.testing.assert_allclose(one, expected / hvd.size(), rtol=1e-6)
    slices = tf.IndexedSlices(values, tf.constant([0, 1]))
    for arguments in ({"op": hvd.Min}, {"op": hvd.Adasum}, {"prescale_factor": 2.0}):
        with pytest.raises(NotImplementedError):
            hvd.allreduce(slices, **arguments)


@pytest.mark.parametrize("dtype", MOVED)
def test_moved(tf, hvd, run, dtype):
    rank, n = hvd.rank(), hvd.size()
    x = of_rank(tf, dtype, rank, rank + 1)
    expected = np.concatenate([of_rank(tf, dtype, other, other + 1).numpy() for other in range(n)])
    np.testing.assert_array_equal(run(lambda x: hvd.allgather(x, name="gather"), x), expected)
    group = run(lambda x: hvd.grouped_allgather([x, x[:1]], name="gathers"), x)
    np.testing.assert_array_equal(group[0], expected)
    same = of_rank(tf, dtype, rank)
    result = run(lambda x: hvd.broadcast(x, n - 1, name="cast"), same)
    np.testing.assert_array_equal(result, of_rank(tf, dtype, n - 1))
    rows, counts = run(lambda x: hvd.alltoall(x, splits=tf.range(1, n + 1)), of_rank(tf, dtype, rank, 6))
    assert counts.numpy().tolist() == [rank + 1] * n
    starts = rank * (rank + 1) // 2
    parts = [of_rank(tf, dtype, other, 6).numpy()[starts : starts + rank + 1] for other in range(n)]
    np.testing.assert_array_equal(rows, np.concatenate(parts))


def test_alltoall_without_splits(tf, hvd, run):
    n = hvd.size()
    x = tf.range(2 * n) + 100 * hvd.rank()
    expected = [100 * other + 2 * hvd.rank() + index for other in range(n) for index in range(2)]
    assert run(lambda x: hvd.alltoall(x), x).numpy().tolist() == expected


def test_alltoall_errors(tf, hvd):
    x = tf.zeros([4, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Number of entries in splits"):
        hvd.alltoall(x, splits=[1] * (hvd.size() + 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="greater than the first dimension"):
        hvd.alltoall(x, splits=[5] * hvd.size())
    with pytest.raises(tf.errors.InvalidArgumentError, match="must not be negative"):
        hvd.alltoall(x, splits=[-1] * hvd.size())
    with pytest.raises(ValueError, match="1D"):
        hvd.alltoall(x, splits=[[1] * hvd.size()])
    with pytest.raises(ValueError, match="integers"):
        hvd.alltoall(x, splits=[1.0] * hvd.size())


def test_reducescatter(tf, hvd, run):
    rank, n = hvd.rank(), hvd.size()
    rows = 2 * n + 1
    x = tf.cast(tf.reshape(tf.range(2 * rows), [rows, 2]) * (rank + 1), tf.float64)
    total = sum(range(1, n + 1))
    begin = 2 * rank + min(rank, 1)
    count = 2 + (rank < 1)
    share = np.arange(2 * rows).reshape(rows, 2)[begin : begin + count] * float(total)
    np.testing.assert_allclose(run(lambda x: hvd.reducescatter(x, op=hvd.Sum, name="rs"), x), share)
    np.testing.assert_allclose(run(lambda x: hvd.reducescatter(x, name="rs.average"), x), share / n)
    results = run(lambda x: hvd.grouped_reducescatter([x, 2 * x], op=hvd.Sum), x)
    np.testing.assert_allclose(results[1], 2 * share)


def test_empty_tensors(tf, hvd, run):
    assert run(lambda: hvd.allreduce(tf.zeros([0, 3]), name="empty")).shape == (0, 3)
    rows = tf.zeros([hvd.rank(), 2])
    assert run(lambda x: hvd.allgather(x, name="some"), rows).shape == (sum(range(hvd.size())), 2)
    assert run(lambda: hvd.allgather(tf.zeros([0]), name="none")).shape == (0,)


def test_queries(tf, hvd, run):
    def ask():
        return hvd.size_op(), hvd.rank_op(), hvd.local_rank_op(), hvd.local_size_op(), hvd.process_set_included_op()

    answers = [answer.numpy().item() for answer in run(ask)]
    assert answers == [hvd.size(), hvd.rank(), hvd.local_rank(), hvd.local_size(), 1]
    assert hvd.process_set_included_op(77).numpy() == -2
    with pytest.raises(tf.errors.InvalidArgumentError, match="Process set 77"):
        hvd.size_op(77)


def test_independent_operations_run_in_program_order(tf, hvd):
    @tf.function
    def many(x):
        return tf.add_n([hvd.allreduce(x * float(index), op=hvd.Sum) for index in range(20)])

    assert many(tf.ones([3])).numpy().tolist() == [190.0 * hvd.size()] * 3


def test_operations_in_control_flow(tf, hvd):
    @tf.function
    def loop(x, flag):
        for _ in tf.range(3):
            x = hvd.allreduce(x, op=hvd.Sum)
        return tf.cond(flag, lambda: hvd.allreduce(x, op=hvd.Sum, name="taken"), lambda: x)

    n = hvd.size()
    assert loop(tf.ones([2]), tf.constant(True)).numpy().tolist() == [float(n**4)] * 2
    assert loop(tf.ones([2]), tf.constant(False)).numpy().tolist() == [float(n**3)] * 2


def test_shapes_in_a_function(tf, hvd):
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec(None)])
    def shapes(x, unknown):
        assert hvd.allreduce(x).shape.as_list() == [None, 3]
        assert hvd.allgather(x).shape.as_list() == [None, 3]
        assert hvd.allreduce(unknown).shape.rank is None
        assert hvd.broadcast(tf.zeros([2, 3]), 0).shape == (2, 3)
        assert hvd.reducescatter(tf.zeros([2, 3])).shape.as_list() == [None, 3]
        assert hvd.size_op().shape.rank in (0, None)
        return x

    shapes(tf.zeros([2, 3]), tf.zeros([1]))


def test_process_sets(tf, hvd, run):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    first = hvd.add_process_set([0])
    others = hvd.add_process_set(range(1, hvd.size()))
    mine = first if hvd.rank() == 0 else others
    x = tf.constant([float(hvd.rank())])
    result = run(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=mine, name="part"), x)
    assert result.numpy() == (0 if hvd.rank() == 0 else sum(range(1, hvd.size())))
    assert hvd.size_op(others.process_set_id).numpy() == hvd.size() - 1
    assert hvd.process_set_included_op(first.process_set_id).numpy() == int(hvd.rank() == 0)
    not_mine = others if hvd.rank() == 0 else first
    with pytest.raises(tf.errors.OpError, match="not a member"):
        hvd.allreduce(x, process_set=not_mine)
    hvd.remove_process_set(first)
    hvd.remove_process_set(others)
    with pytest.raises(ValueError, match="registered"):
        hvd.allreduce(x, process_set=first)


def test_join(tf, hvd, run):
    for _ in range(3 if hvd.rank() == 0 else 1):
        result = hvd.allreduce(tf.constant([6.0]), op=hvd.Sum, name="joining")
    last = run(hvd.join)
    assert last.dtype == tf.int32 and last.shape == ()
    assert int(last) == 0  # its last two are complete once all others have joined
    if hvd.rank() == 0:
        assert result.numpy() == 6.0 if hvd.size() > 1 else True
    hvd.barrier()


def test_adasum(tf, hvd, run):
    if hvd.size() & (hvd.size() - 1):
        with pytest.raises(NotImplementedError, match="2, 4, 8"):
            hvd.allreduce(tf.ones([2]), op=hvd.Adasum)
        return
    # Equal tensors: their mean. Orthogonal ones: their sum.
    x = tf.constant([1.0, 2.0, 3.0])
    np.testing.assert_allclose(run(lambda x: hvd.allreduce(x, op=hvd.Adasum), x), x, rtol=1e-6)
    own = tf.one_hot(hvd.rank(), hvd.size(), dtype=tf.float64)
    result = run(lambda x: hvd.allreduce(x, op=hvd.Adasum), own)
    np.testing.assert_allclose(result, [1.0] * hvd.size())
