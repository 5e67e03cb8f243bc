"""Bad input: clear errors with rank and tensor."""

import pytest


def test_ranks_that_differ(tf, hvd, run):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    x = tf.ones([2 + hvd.rank()])
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"Mismatched ALLREDUCE tensor shapes .*differs"):
        run(lambda x: hvd.allreduce(x, name="differs"), x)
    y = tf.ones([2], tf.float32 if hvd.rank() == 0 else tf.float64)
    with pytest.raises(tf.errors.FailedPreconditionError, match="Mismatched"):
        run(lambda y: hvd.allreduce(y, name="dtypes"), y)
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched"):
        hvd.allreduce(x, name="eager")
    # The job goes on.
    assert hvd.allreduce(tf.constant(1.0), op=hvd.Sum).numpy() == hvd.size()


def test_a_gradient_that_differs_in_a_later_step(tf, hvd):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    variable = tf.Variable(tf.ones([4]))

    @tf.function(reduce_retracing=True)
    def step(rows):
        # A gradient whose shape depends on the batch.
        from ronde.tensorflow.gradients import _make_allreduce_grads_fn

        reduce = _make_allreduce_grads_fn("later", "", "", hvd.Compression.none, False, hvd.Average, 1.0, None)
        return reduce([rows], [variable])

    step(tf.ones([4]))
    with pytest.raises(tf.errors.FailedPreconditionError, match="Mismatched.*later_Allreduce/grads_0"):
        step(tf.ones([4 + hvd.rank()]))
    assert step(tf.ones([4]))[0].numpy().tolist() == [1.0] * 4


def test_kinds_of_tensors(tf, hvd):
    sparse = tf.sparse.from_dense([[0.0, 1.0]])
    with pytest.raises(TypeError, match="SparseTensor.*to_dense"):
        hvd.allreduce(sparse)
    with pytest.raises(TypeError, match="RaggedTensor"):
        hvd.allgather(tf.ragged.constant([[1.0], [2.0, 3.0]]))
    with pytest.raises(TypeError, match="string.*broadcast_object"):
        hvd.broadcast(tf.constant(["text"]), 0)
    with pytest.raises(TypeError, match="IndexedSlices"):
        hvd.broadcast(tf.IndexedSlices(tf.ones([1, 2]), [0]), 0)
    for dtype in (tf.uint16, tf.complex64):
        with pytest.raises(tf.errors.InvalidArgumentError, match="tf.cast"):
            hvd.allreduce(tf.cast([1, 2], dtype), op=hvd.Sum, name="kind")
    with pytest.raises(tf.errors.OpError, match="rank-zero"):
        hvd.allgather(tf.constant(1.0))


def test_arguments(tf, hvd):
    x = tf.ones([2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="op 17"):
        hvd.allreduce(x, op=17)
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)root"):
        hvd.broadcast(x, hvd.size())
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?i)average and sum"):
        hvd.reducescatter(x, op=hvd.Max)
    with pytest.raises((RuntimeError, ValueError, tf.errors.InvalidArgumentError)):
        hvd.allreduce(x, device_dense="/gpu:77:nonsense")


def test_a_compiled_function_is_refused(tf, hvd):
    variable = tf.Variable(1.0)

    @tf.function(jit_compile=True)
    def compiled():
        return hvd.allreduce(variable)

    @tf.function(jit_compile=True)
    def step():
        with tf.GradientTape() as tape:
            loss = variable * 2
        return hvd.DistributedGradientTape(tape).gradient(loss, [variable])

    for function in (compiled, step):
        with pytest.raises(NotImplementedError, match="jit_compile=False"):
            function()


def test_an_optimizer_wrapped_twice(tf, hvd):
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(optimizer)
    legacy = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(legacy)
    with pytest.raises(TypeError, match="optimizer of Keras"):
        hvd.DistributedOptimizer("sgd")
    with pytest.raises(ValueError, match="Adasum"):
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), op=hvd.Adasum)
