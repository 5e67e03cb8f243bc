"""Broadcast of variables and objects, synchronized batch normalization, elastic states."""

import numpy as np
import pytest


def test_broadcast_variables(tf, hvd, run):
    root = hvd.size() - 1
    variables = [
        tf.Variable(tf.fill([2], float(hvd.rank()))),
        tf.Variable(hvd.rank(), dtype=tf.int64),
        tf.Variable(hvd.rank() == root),
    ]

    def broadcast():
        hvd.broadcast_variables(variables, root)

    run(broadcast)
    assert variables[0].numpy().tolist() == [root] * 2 and variables[1].numpy() == root and variables[2].numpy()
    values = hvd.broadcast_(variables, 0)
    assert [value.dtype for value in values] == [tf.float32, tf.int64, tf.bool]
    hvd.broadcast_variables(variables, 0, inplace=True)
    hvd.broadcast_variables([], 0)


@pytest.mark.parametrize("shapes", [[[2]], [], [[2], [4]], [[2], [3]]])
def test_broadcast_of_variables_that_differ(tf, hvd, shapes):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    last = hvd.rank() == hvd.size() - 1
    dtype = tf.int64 if shapes == [[2], [3]] and last else tf.float32
    variables = [tf.Variable(tf.zeros(shape, dtype)) for shape in (shapes if last else [[2], [3]])]
    with pytest.raises(ValueError, match=r"variable \d.*broadcast_variables needs the same"):
        hvd.broadcast_variables(variables, 0)
    unknown = tf.Variable(tf.fill([2], hvd.rank()), shape=tf.TensorShape(None))
    hvd.broadcast_variables([unknown], 0)
    assert unknown.numpy().tolist() == [0, 0]


def test_objects(tf, hvd):
    root = hvd.size() - 1
    obj = {"rank": hvd.rank(), "text": "x" * hvd.rank()}
    assert hvd.broadcast_object(obj, root) == {"rank": root, "text": "x" * root}
    everything = hvd.allgather_object(obj, name="objects")
    assert [one["rank"] for one in everything] == list(range(hvd.size()))


def test_objects_that_cannot_be_pickled(check_pickling_errors):
    check_pickling_errors()


def test_objects_in_a_session(tf, hvd):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        broadcast = hvd.broadcast_object_fn(root_rank=0, session=session)
        assert broadcast([hvd.rank()]) == [0]
        assert broadcast({"again": hvd.rank()}) == {"again": 0}
        assert hvd.broadcast_object(hvd.rank(), session=session) == 0
        assert hvd.allgather_object(hvd.rank(), session=session) == list(range(hvd.size()))


@pytest.mark.parametrize("axis", [-1, 1])
def test_sync_batch_norm(tf, hvd, run, axis):
    # The batches of the ranks differ in size.
    generator = np.random.default_rng(3)
    batches = [generator.normal(size=(rank + 2, 3, 3)).astype("float32") * (rank + 1) for rank in range(hvd.size())]
    joined = np.concatenate(batches)
    layer = hvd.SyncBatchNormalization(axis=axis)
    alone = tf.keras.layers.BatchNormalization(axis=axis)
    layer.build(joined.shape)
    alone.build(joined.shape)

    def both(layer, batch):
        with tf.GradientTape() as tape:
            tape.watch(batch)
            output = layer(batch, training=True)
            loss = tf.reduce_sum(output**3)
        return output, tape.gradient(loss, batch)

    output, gradient = run(lambda batch: both(layer, batch), tf.constant(batches[hvd.rank()]))
    expected, expected_gradient = both(alone, tf.constant(joined))
    begin = sum(len(batch) for batch in batches[: hvd.rank()])
    mine = slice(begin, begin + len(batches[hvd.rank()]))
    np.testing.assert_allclose(output, expected[mine], atol=1e-4)
    np.testing.assert_allclose(gradient, expected_gradient[mine], atol=1e-3)
    np.testing.assert_allclose(layer.moving_mean, alone.moving_mean, atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, alone.moving_variance, atol=1e-4)
    with pytest.raises(ValueError, match="fused"):
        hvd.SyncBatchNormalization(fused=True)


def test_elastic_state_of_variables(tf, hvd):
    variable = tf.Variable([1.0 + hvd.rank()])
    state = hvd.elastic.TensorFlowState([variable], epoch=hvd.rank())
    variable.assign([7.0])
    state.epoch = 9
    state.restore()
    assert variable.numpy() == 1.0 + hvd.rank() and state.epoch == hvd.rank()
    state.sync()
    assert variable.numpy() == 1.0 and state.epoch == 0


def test_elastic_state_in_a_session_makes_its_operations_once(tf, hvd):
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("variable", initializer=[1.0 + hvd.rank()])
        session.run(tf.compat.v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState([variable], session, epoch=hvd.rank())
        graph.finalize()
        for _ in range(2):
            state.sync()
            state.commit()
        assert session.run(variable).tolist() == [1.0] and state.epoch == 0


def test_elastic_state_of_a_model(tf, hvd):
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=3)
    before = model.get_weights()
    model.set_weights([weight + 1 for weight in before])
    state.batch = 4
    state.restore()
    for one, other in zip(model.get_weights(), before):
        np.testing.assert_array_equal(one, other)
    assert state.batch == 3
    state.sync()
    weights = hvd.allgather_object(model.get_weights())
    for one, other in zip(weights[0], weights[-1]):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="not built"):
        hvd.elastic.TensorFlowKerasState(tf.keras.Sequential([tf.keras.layers.Dense(1)]), optimizer)


def test_elastic_run_restores_after_an_error_of_a_function(tf, hvd):
    state = hvd.elastic.TensorFlowState([tf.Variable(1.0)], attempts=0)
    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(state.attempts)
        if len(calls) == 1:
            bad = tf.function(lambda: hvd.allreduce(tf.ones([2 + hvd.rank()]), name="elastic.bad"))
            if hvd.size() == 1:
                raise hvd.HorovodInternalError("no other rank differs")
            bad()
        return "trained"

    assert train(state) == "trained" and len(calls) == 2
