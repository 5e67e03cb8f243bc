"""Operations inside and outside of ``jit``, gradients, ``vmap``, trees and the optimizer."""

import os
import subprocess
import sys

import numpy as np
import pytest

REDUCED = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16"]
MOVED = [*REDUCED, "uint16", "uint32", "uint64", "bool", "complex64"]


def of_rank(jax, dtype, rank, rows=3):
    return (jax.numpy.arange(2 * rows).reshape(rows, 2) % 3 + rank).astype(dtype)


@pytest.mark.parametrize("dtype", REDUCED)
def test_allreduce(jax, hvd, run, dtype):
    ranks = [np.asarray(of_rank(jax, "float64", rank)) for rank in range(hvd.size())]
    x = of_rank(jax, dtype, hvd.rank())
    for op, expected in (
        (hvd.Sum, sum(ranks)),
        (hvd.Min, np.min(ranks, 0)),
        (hvd.Max, np.max(ranks, 0)),
        (hvd.Product, np.prod(ranks, 0)),
    ):
        result = run(lambda x, op=op: hvd.allreduce(x, f"reduce.{op}", op), x)
        assert result.dtype == x.dtype
        np.testing.assert_allclose(result.astype("float64"), expected)


def test_average_factors_and_compression(jax, hvd, run):
    x = jax.numpy.array([1.5, 2.5])
    np.testing.assert_allclose(run(lambda x: hvd.allreduce(x), x), x)
    scaled = run(lambda x: hvd.allreduce(x, "scaled", hvd.Sum, 1 / 3, 0.3), x)
    np.testing.assert_allclose(scaled, np.array([1.5, 2.5]) * hvd.size() * 0.1, rtol=1e-15)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        result = run(lambda x, c=compression: hvd.allreduce(x, compression=c), x)
        assert result.dtype == x.dtype
        np.testing.assert_allclose(result, x)


@pytest.mark.parametrize("dtype", MOVED)
def test_moved(jax, hvd, run, dtype):
    rank, n = hvd.rank(), hvd.size()
    x = of_rank(jax, dtype, rank)
    ranks = [np.asarray(of_rank(jax, dtype, other)) for other in range(n)]
    np.testing.assert_array_equal(run(lambda x: hvd.allgather(x, "g"), x), np.concatenate(ranks))
    np.testing.assert_array_equal(run(lambda x: hvd.broadcast(x, n - 1, "b"), x), ranks[-1])
    y = of_rank(jax, dtype, rank, 2 * n)
    parts = [np.asarray(of_rank(jax, dtype, other, 2 * n))[2 * rank : 2 * rank + 2] for other in range(n)]
    np.testing.assert_array_equal(run(lambda y: hvd.alltoall(y, "a"), y), np.concatenate(parts))


def test_reducescatter(jax, hvd, run):
    rank, n = hvd.rank(), hvd.size()
    x = jax.numpy.arange(2.0 * n + 1) * (rank + 1)
    begin, count = 2 * rank + min(rank, 1), 2 + (rank < 1)
    share = np.arange(2.0 * n + 1)[begin : begin + count] * sum(range(1, n + 1))
    np.testing.assert_allclose(run(lambda x: hvd.reducescatter(x, op=hvd.Sum), x), share)
    np.testing.assert_allclose(run(lambda x: hvd.reducescatter(x, "average"), x), share / n)


def test_operations_are_matched_by_name(jax, hvd):
    # Operations without dependencies may run in any order, and do not block one another.
    names = [f"any.{index}" for index in range(40)]

    @jax.jit
    def many(x):
        return sum(hvd.allreduce(x * index, name, hvd.Sum) for index, name in enumerate(names))

    for _ in range(5):
        assert many(jax.numpy.ones(3)).tolist() == [sum(range(40)) * hvd.size()] * 3


def test_loops(jax, hvd):
    @jax.jit
    def loop(x):
        return jax.lax.fori_loop(0, 4, lambda _, x: hvd.allreduce(x, "loop", hvd.Sum), x)

    assert loop(jax.numpy.ones(2)).tolist() == [float(hvd.size() ** 4)] * 2


def test_gradients(jax, hvd, run):
    rank, n = hvd.rank(), hvd.size()
    weight = rank + 1.0
    total = sum(range(1, n + 1))

    def gradient(function, x):
        return run(jax.grad(lambda x: (function(x) * weight).sum()), x)

    x = jax.numpy.ones(3)
    np.testing.assert_allclose(gradient(lambda x: hvd.allreduce(x, "ga", hvd.Sum), x), [total] * 3)
    np.testing.assert_allclose(gradient(lambda x: hvd.allreduce(x, "gm"), x), [total / n] * 3)
    with pytest.raises(NotImplementedError, match="Min, Max"):
        gradient(lambda x: hvd.allreduce(x, "gx", hvd.Max), x)
    weights = jax.numpy.arange(3.0 * n)
    gathered = gradient(lambda x: hvd.allgather(x, "gg") * weights, x)
    np.testing.assert_allclose(gathered, np.arange(3.0 * n)[3 * rank : 3 * rank + 3] * total / n)
    cast = gradient(lambda x: hvd.broadcast(x, 0, "gb"), x)
    np.testing.assert_allclose(cast, [total / n if rank == 0 else 0.0] * 3)
    rows = jax.numpy.ones((n + 1, 2))
    owners = np.array([1.0, *range(1, n + 1)])[:, None] * np.ones([1, 2])
    np.testing.assert_allclose(gradient(lambda x: hvd.reducescatter(x, "gr"), rows), owners)
    summed = gradient(lambda x: hvd.reducescatter(x, "gs", hvd.Sum), rows)
    np.testing.assert_allclose(summed, owners * n)
    exchanged = gradient(lambda x: hvd.alltoall(x, "gt"), jax.numpy.ones(2 * n))
    np.testing.assert_allclose(exchanged, [row // 2 + 1.0 for row in range(2 * n)])


def test_vmap(jax, hvd, run):
    n = hvd.size()
    batch = jax.numpy.arange(6.0).reshape(2, 3) + hvd.rank()
    total = np.arange(6.0).reshape(2, 3) * n + n * (n - 1) / 2
    result = run(jax.vmap(lambda x: hvd.allreduce(x, "v", hvd.Sum)), batch)
    np.testing.assert_allclose(result, total)
    gathered = run(jax.vmap(lambda x: hvd.allgather(x, "vg")), batch)
    expected = [np.concatenate([np.arange(3.0) + 3 * row + rank for rank in range(n)]) for row in range(2)]
    np.testing.assert_allclose(gathered, expected)
    axis = run(jax.vmap(lambda x: hvd.allreduce(x, "va", hvd.Sum), in_axes=1, out_axes=1), batch)
    np.testing.assert_allclose(axis, total)
    of_gradient = jax.vmap(jax.grad(lambda x: (hvd.allreduce(x, "vd", hvd.Sum) ** 2).sum()))
    np.testing.assert_allclose(run(of_gradient, batch), 2 * total * n)
    nested = run(jax.vmap(jax.vmap(lambda x: hvd.reducescatter(x, "vn", hvd.Sum))), jax.numpy.ones((2, 2, n)))
    np.testing.assert_allclose(nested, np.full((2, 2, 1), n))


def test_trees(jax, hvd, run):
    tree = {"a": jax.numpy.ones(3) * hvd.rank(), "b": [jax.numpy.array(2, "int32"), None]}
    reduced = run(lambda tree: hvd.allreduce_tree(tree, "tree", hvd.Sum), tree)
    n = hvd.size()
    assert reduced["a"].tolist() == [n * (n - 1) / 2] * 3
    assert reduced["b"][0] == 2 * n and reduced["b"][1] is None
    assert hvd.allreduce_tree({}) == {}
    cast = run(lambda tree: hvd.broadcast_tree(tree, n - 1), tree)
    assert cast["a"].tolist() == [n - 1.0] * 3 and cast["b"][0].dtype == "int32"


def test_one_call_for_a_tree(jax, hvd):
    text = jax.jit(lambda tree: hvd.allreduce_tree(tree, "one")).lower([jax.numpy.ones(2)] * 10).as_text()
    assert text.count("@ronde_collective") == 1


def test_calls_for_a_large_tree(jax, hvd, run):
    # XLA's time for a call grows with the square of the number of arrays.
    tree = {f"{index:03}": jax.numpy.full(2, index + hvd.rank()) for index in range(600)}

    def lowered(**how):
        step = jax.jit(lambda tree: hvd.allreduce_tree(tree, "large", hvd.Sum, **how))
        return step.lower(tree).as_text()

    text = lowered()
    assert text.count("@ronde_collective") == 3
    assert all(text.count(f"large['{name}']") == 1 for name in tree)
    assert lowered(marks_step=True).count("@ronde_collective") == 1
    n = hvd.size()
    reduced = run(lambda tree: hvd.allreduce_tree(tree, "large", hvd.Sum), tree)
    assert [int(reduced[name][1]) for name in tree] == [n * index + n * (n - 1) // 2 for index in range(600)]


def test_objects(jax, hvd):
    n = hvd.size()
    obj = {"rank": hvd.rank(), "text": "x" * hvd.rank()}
    assert hvd.broadcast_object(obj, n - 1) == {"rank": n - 1, "text": "x" * (n - 1)}
    assert [one["rank"] for one in hvd.allgather_object(obj)] == list(range(n))


def test_objects_that_cannot_be_pickled(check_pickling_errors):
    check_pickling_errors()


def test_ranks_train_as_one_process(jax, hvd):
    optax = pytest.importorskip("optax")

    def batch_of(rank):
        x = np.random.default_rng(rank).normal(size=(4, 3))
        return x, x.sum(1, keepdims=True)

    def train(optimizer, params, x, y):
        @jax.jit
        def step(params, state):
            gradients = jax.grad(lambda p: ((x @ p["w"] + p["b"] - y) ** 2).mean())(params)
            updates, state = optimizer.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        state = optimizer.init(params)
        for _ in range(5):
            params, state = step(params, state)
        return params

    params = {"w": jax.numpy.ones((3, 1)) * hvd.rank(), "b": jax.numpy.zeros(1)}
    params = hvd.broadcast_tree(params)
    for arguments in ({}, {"gradient_predivide_factor": 2.0}):
        result = train(hvd.distributed(optax.adam(0.1), **arguments), params, *batch_of(hvd.rank()))
        joined = [np.concatenate(parts) for parts in zip(*(batch_of(rank) for rank in range(hvd.size())))]
        alone = train(optax.adam(0.1), params, *joined)
        for name in ("w", "b"):
            np.testing.assert_allclose(result[name], alone[name], rtol=1e-9)
    with pytest.raises(ValueError, match="twice"):
        hvd.distributed(hvd.distributed(optax.sgd(0.1)))
    with pytest.raises(ValueError, match="op=Average"):
        hvd.distributed(optax.sgd(0.1), gradient_predivide_factor=2.0, op=hvd.Sum)


def test_trees_that_differ(jax, hvd):
    optax = pytest.importorskip("optax")
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    tree = {"a": jax.numpy.ones(2), "b": jax.numpy.ones(2 if hvd.rank() == 0 else 3)}
    optimizer = hvd.distributed(optax.sgd(0.1), "differs")
    for update in (optimizer.update, jax.jit(optimizer.update)):
        with pytest.raises(ValueError, match=r"\['b'\].*\(2,\) on rank 0.*\(3,\) on rank"):
            update(tree, optimizer.init(tree))


def test_errors(jax, hvd):
    x = jax.numpy.ones(2 + hvd.rank())
    if hvd.size() > 1:
        with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE tensor shapes .*differs"):
            hvd.allreduce(x, "differs")
        with pytest.raises(jax.errors.JaxRuntimeError, match="Mismatched ALLREDUCE tensor shapes .*compiled"):
            jax.jit(lambda x: hvd.allreduce(x, "compiled"))(x).block_until_ready()
        with pytest.raises(ValueError, match="multiple"):
            hvd.alltoall(jax.numpy.ones(hvd.size() + 1))
    with pytest.raises(ValueError, match="op 17"):
        hvd.allreduce(x, op=17)
    with pytest.raises(ValueError, match="(?i)root"):
        hvd.broadcast(x, hvd.size())
    with pytest.raises(ValueError, match="without dimensions"):
        hvd.allgather(jax.numpy.array(1.0))
    with pytest.raises(ValueError, match="astype"):
        hvd.allreduce(jax.numpy.ones(2, "uint32"), op=hvd.Sum)
    with pytest.raises(ValueError, match="registered"):
        hvd.allreduce(x, process_set=hvd.ProcessSet([0]))
    # The job goes on.
    assert hvd.allreduce(jax.numpy.array(1.0), op=hvd.Sum) == hvd.size()


def test_process_sets_and_join(jax, hvd, run):
    if hvd.size() > 1:
        first = hvd.add_process_set([0])
        others = hvd.add_process_set(range(1, hvd.size()))
        mine = first if hvd.rank() == 0 else others
        result = run(lambda x: hvd.allreduce(x, "part", hvd.Sum, process_set=mine), jax.numpy.ones(2))
        assert result.tolist() == [mine.size()] * 2
        hvd.remove_process_set(first)
        hvd.remove_process_set(others)
    for _ in range(3 if hvd.rank() == 0 else 1):
        run(lambda x: hvd.allreduce(x, "joining", hvd.Sum), jax.numpy.ones(2)).block_until_ready()
    assert hvd.join() == 0  # its last two are complete once all others have joined
    hvd.barrier()


def test_arrays_that_stay_on_a_rank_are_not_compressed(jax, hvd, run):
    n = hvd.size()
    sets = [hvd.add_process_set([rank]) for rank in range(n)] if n > 1 else [hvd.global_process_set]
    how = {"compression": hvd.Compression.fp16, "process_set": sets[hvd.rank()]}
    x = np.float32(0.1)
    assert run(lambda tree: hvd.allreduce_tree(tree, "alone", **how), [x])[0] == x
    for one in sets if n > 1 else ():
        hvd.remove_process_set(one)


def test_adasum(jax, hvd, run):
    if hvd.size() & (hvd.size() - 1):
        with pytest.raises(NotImplementedError, match="2, 4, 8"):
            hvd.allreduce(jax.numpy.ones(2), op=hvd.Adasum)
        return
    own = jax.nn.one_hot(hvd.rank(), hvd.size())
    np.testing.assert_allclose(run(lambda x: hvd.allreduce(x, op=hvd.Adasum), own), [1.0] * hvd.size())


def test_a_result_that_one_rank_uses(jax, hvd):
    def step(x):
        total = hvd.allreduce(x, "one", hvd.Sum)
        return total if hvd.rank() == 0 else x

    expected = hvd.size() if hvd.rank() == 0 else 1
    assert jax.jit(step)(jax.numpy.ones(2)).tolist() == [expected] * 2


def test_a_process_set_with_the_number_of_a_removed_one(jax, hvd, run):
    if hvd.size() < 3:
        pytest.skip("wants three ranks")
    x, rows = jax.numpy.array([1.0 * hvd.rank()]), jax.numpy.ones(3)
    for ranks in ([0, 1], [0, 1, 2], [1, 2]):
        part = hvd.global_process_set if len(ranks) == hvd.size() else hvd.add_process_set(ranks)
        if part.included():
            n, place = len(ranks), part.rank()
            gathered = run(lambda x: hvd.allgather(x, "again.g", part), x)
            assert gathered.tolist() == ranks
            shared = run(lambda rows: hvd.reducescatter(rows, "again.r", hvd.Sum, part), rows)
            assert shared.tolist() == [n] * (3 // n + (place < 3 % n))
            gradient = run(jax.grad(lambda x: hvd.allgather(x, "again.gg", part)[-1]), x)
            assert gradient.tolist() == [place == n - 1]
            gradient = run(jax.grad(lambda rows: hvd.reducescatter(rows, "again.gr", hvd.Sum, part).sum()), rows)
            assert gradient.tolist() == [n] * 3
        if part is not hvd.global_process_set:
            hvd.remove_process_set(part)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("INVALID_ARGUMENT: ronde: the text", ValueError),
        ("FAILED_PRECONDITION: ronde: the text", "HorovodInternalError"),
        ("UNKNOWN: ronde: the text", "HorovodInternalError"),
        ("INTERNAL: Error dispatching computation: ronde: the text", "HorovodInternalError"),
        ("INTERNAL: " + "Error dispatching computation: " * 3 + "ronde: the text", "HorovodInternalError"),
    ],
)
def test_the_class_of_an_error(hvd, text, kind):
    from ronde.jax import library

    error = library.as_horovod_error(RuntimeError(text))
    assert type(error) is (getattr(hvd, kind) if isinstance(kind, str) else kind)
    assert str(error) == "the text"


@pytest.mark.parametrize(
    "text", ["INTERNAL: ronde: the text", "UNKNOWN: the text", "INTERNAL: Error dispatching computation: the text"]
)
def test_errors_that_stay(hvd, text):
    from ronde.jax import library

    error = RuntimeError(text)
    assert library.as_horovod_error(error) is error


def test_two_optimizers_in_one_program(jax, hvd):
    optax = pytest.importorskip("optax")
    optimizers = [hvd.distributed(optax.sgd(1.0)) for _ in range(2)]

    @jax.jit
    def step(trees, matrix, counts):
        # The ranks compute the gradients in different orders.
        delays = [jax.lax.fori_loop(0, count, lambda _, m: m @ m, matrix).sum() * 0 for count in counts]
        trees = [{"w": tree["w"] + delay} for tree, delay in zip(trees, delays)]
        return [one.update(tree, one.init(tree))[0] for one, tree in zip(optimizers, trees)]

    trees = [{"w": jax.numpy.full(3, value)} for value in (1.0, 100.0)]
    counts = jax.numpy.array([8, 1] if hvd.rank() == 0 else [1, 8])
    arguments = trees, jax.numpy.eye(200), counts
    text = step.lower(*arguments).as_text()
    assert "distributed['w']" in text and "distributed.1['w']" in text
    for _ in range(3):
        changes = [change["w"].tolist() for change in step(*arguments)]
        assert changes == [[-1.0] * 3, [-100.0] * 3]


def test_a_distributed_optimizer_of_several_steps(jax, hvd, run):
    optax = pytest.importorskip("optax")
    optimizer = hvd.distributed(optax.MultiSteps(optax.sgd(1.0), 2), "several")
    gradients = {"w": jax.numpy.full(2, hvd.rank() + 1.0)}
    state = optimizer.init(gradients)
    for expected in (0.0, -(hvd.size() + 1) / 2):
        changes, state = run(optimizer.update, gradients, state)
        np.testing.assert_allclose(changes["w"], [expected] * 2)
    with pytest.raises(ValueError, match="twice"):
        hvd.distributed(optimizer)


def test_a_join_after_a_failed_operation(jax, hvd):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    from ronde.jax import library

    failing = jax.jit(lambda x: hvd.allreduce(jax.numpy.sin(x @ x), "failing"))
    results = []
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched"):
        try:
            results.append(failing(jax.numpy.ones([300 + hvd.rank()] * 2)))
            results.append(jax.jit(lambda x: x * 2)(results[0]))
            jax.block_until_ready(results[::-1])
        except library.ERRORS as error:
            raise library.as_horovod_error(error) from error
    assert 0 <= hvd.join() < hvd.size()
    # JAX waits for the last program with an effect at its end.
    jax.jit(lambda x: hvd.allreduce(x, "afterwards"))(jax.numpy.ones(2)).block_until_ready()
    jax.effects_barrier()


def test_names(jax, hvd, run):
    n, x = hvd.size(), jax.numpy.ones(2)
    for name, problem in (("a\nb", "newline"), ("\ud800", "surrogate")):
        with pytest.raises(ValueError, match=problem):
            run(lambda x, name=name: hvd.allreduce(x, name), x)
        with pytest.raises(ValueError, match=problem):
            hvd.broadcast_tree([x, x], 0, name)
        with pytest.raises(ValueError, match=problem):
            hvd.allgather_object(1, name)
    assert run(lambda x: hvd.allreduce(x, "ä\U0001f600", hvd.Sum), x).tolist() == [n] * 2
    # An empty name is a name: a counter does not replace it.
    assert 'names = " "' in jax.jit(lambda x: hvd.allreduce(x, "")).lower(x).as_text()
    assert run(lambda x: hvd.allreduce(x, "", hvd.Sum), x).tolist() == [n] * 2
    assert run(lambda x: hvd.broadcast_tree([x, x], 0, ""), x)[1].tolist() == [1.0] * 2


DEVICES = """
import jax
import ronde.jax as hvd

hvd.init()
devices = jax.devices()
mesh = jax.sharding.Mesh(devices, ("x",))
for spec in (jax.sharding.PartitionSpec("x"), jax.sharding.PartitionSpec()):
    x = jax.device_put(jax.numpy.arange(4.0), jax.sharding.NamedSharding(mesh, spec))
    for operation in (hvd.allreduce, hvd.allgather, lambda x: hvd.broadcast_tree({"x": x})):
        try:
            operation(x)
        except ValueError as error:
            print(len(devices), error)
x = jax.device_put(x, devices[1])
assert hvd.allreduce(x).tolist() == [0, 1, 2, 3]
"""


def test_arrays_on_several_devices(hvd):
    if hvd.size() > 1:
        pytest.skip("a job of its own")
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    own.update(XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    output = subprocess.check_output([sys.executable, "-c", DEVICES], env=own, text=True)
    assert output.count("2 an array of shape (4,) is on 2 devices") == 6, output


# The last test: steps that are traced after it are not checked.
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_rank_that_has_joined_before_its_first_step(jax, hvd, is_compiled):
    optax = pytest.importorskip("optax")
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    optimizer = hvd.distributed(optax.sgd(1.0), "late")
    tree = [jax.numpy.ones(3)]
    state = optimizer.init(tree)
    update = jax.jit(optimizer.update) if is_compiled else optimizer.update
    if hvd.rank() > 0:
        (change,), _ = update(tree, state)
        np.testing.assert_allclose(change, [(1 - hvd.size()) / hvd.size()] * 3)
    hvd.join()
    for _ in range(2):  # with all ranks again, of which one has not checked its tree yet
        (change,), _ = update(tree, state)
        np.testing.assert_allclose(change, [-1.0] * 3)
