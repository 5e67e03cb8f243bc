"""DistributedGradientTape and DistributedOptimizer."""

import numpy as np
import pytest


@pytest.fixture
def variables(tf):
    return [tf.Variable(tf.ones([3])), tf.Variable(tf.ones([2, 2])), tf.Variable(tf.ones([5, 2]))]


def loss_of(tf, hvd, variables):
    scale = hvd.rank() + 1.0
    rows = tf.gather(variables[2], [hvd.rank() % 4, 4])
    return scale * (tf.reduce_sum(variables[0] ** 2) + tf.reduce_sum(variables[1] * 3)) + tf.reduce_sum(rows)


def expected_average(hvd):
    mean = sum(range(1, hvd.size() + 1)) / hvd.size()
    rows = np.zeros([5, 2])
    for rank in range(hvd.size()):
        rows[rank % 4] += 1
        rows[4] += 1
    return [np.full(3, 2 * mean), np.full([2, 2], 3 * mean), rows / hvd.size()]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"sparse_as_dense": True},
        {"gradient_predivide_factor": 2.0},
        {"groups": 1},
        {"groups": 2, "sparse_as_dense": True},
        {"compression": "fp16"},
        {"device_dense": "/cpu:0", "device_sparse": "/cpu:0"},
    ],
    ids=str,
)
def test_gradients_are_averages(tf, hvd, run, variables, arguments):
    if "compression" in arguments:
        arguments = {**arguments, "compression": getattr(hvd.Compression, arguments["compression"])}

    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(tf, hvd, variables)
        tape = hvd.DistributedGradientTape(tape, **arguments)
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

    for _ in range(2):
        for result, expected in zip(run(step), expected_average(hvd)):
            np.testing.assert_allclose(result, expected, rtol=1e-3)


def test_a_step_in_a_loop(tf, hvd, variables):
    @tf.function
    def train():
        for _ in tf.range(5):
            with tf.GradientTape() as tape:
                loss = loss_of(tf, hvd, variables)
            gradients = hvd.DistributedGradientTape(tape, sparse_as_dense=True).gradient(loss, variables)
            for variable, gradient in zip(variables, gradients):
                variable.assign_sub(0.01 * gradient)

    train()
    for variable in variables:
        of_ranks = hvd.allgather(variable[tf.newaxis]).numpy()
        assert (of_ranks == of_ranks[0]).all()


def test_groups_of_variables(tf, hvd, run, variables):
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(tf, hvd, variables)
        tape = hvd.DistributedGradientTape(tape, groups=[[variables[1], variables[0]]], sparse_as_dense=True)
        return tape.gradient(loss, variables)

    for result, expected in zip(run(step), expected_average(hvd)):
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_arguments_that_are_refused(tf, hvd):
    tape = tf.GradientTape()
    for groups in (0, -1):
        with pytest.raises(ValueError, match="groups"):
            hvd.DistributedGradientTape(tape, groups=groups)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedGradientTape(tape, num_groups=2)
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        hvd.DistributedGradientTape(tape, gradient_predivide_factor=2.0, op=hvd.Sum)
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tape))


@pytest.mark.parametrize("scale", [True, False])
def test_local_sources(tf, hvd, run, variables, scale):
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(tf, hvd, variables)
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(variables[0])
        return tape.gradient(loss, variables)[:2]

    own, average = run(step)
    factor = hvd.size() if scale else 1
    np.testing.assert_allclose(own, np.full(3, 2 * (hvd.rank() + 1.0)) / factor, rtol=1e-6)
    np.testing.assert_allclose(average, expected_average(hvd)[1])


def test_local_layers(tf, hvd):
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones([1, 2]) * (hvd.rank() + 1.0)))
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0])
    local, shared = tape.get_local_and_global_gradients(loss, model.trainable_variables)
    assert len(local) == len(shared) == 2
    assert local[0][0] is model.layers[0].trainable_variables[0]
    with pytest.raises(ValueError, match="layers of Keras"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[3])


def test_local_layers_that_are_built_later(tf, hvd):
    layer = tf.keras.layers.Dense(1, use_bias=False)
    tape = hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=layer, scale_local_gradients=False)
    with tape:
        loss = tf.reduce_sum(layer(tf.fill([1, 2], hvd.rank() + 1.0)))
    (gradient,) = tape.gradient(loss, layer.trainable_variables)
    assert gradient.numpy().tolist() == [[hvd.rank() + 1.0]] * 2


def test_missing_gradients_stay_none(tf, hvd, run):
    used, unused = tf.Variable(1.0), tf.Variable(1.0)

    def step():
        with tf.GradientTape() as tape:
            loss = used * 2
        return hvd.DistributedGradientTape(tape).gradient(loss, [unused, used])

    nothing, gradient = run(step)
    assert nothing is None and gradient.numpy() == 2.0


@pytest.mark.parametrize("is_function", [False, True])
def test_gradients_that_are_missing_in_later_steps(tf, hvd, is_function):
    variables = [tf.Variable(1.0) for _ in range(3)]

    def step(*places):
        with tf.GradientTape() as tape:
            loss = tf.add_n([variables[place] * (hvd.rank() + 1.0) for place in places])
        gradients = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, variables)
        return [-1.0 if gradient is None else gradient for gradient in gradients]

    call = tf.function(step) if is_function else step
    total = sum(range(1, hvd.size() + 1))
    for _ in range(2):
        for places in ([0, 1, 2], [0, 2], [1]):
            expected = [total if place in places else -1.0 for place in range(3)]
            assert [gradient.numpy() for gradient in map(tf.convert_to_tensor, call(*places))] == expected
    if hvd.size() > 1:
        with pytest.raises(ValueError, match=r"'variable \d'.* without a gradient.* of the same ones in each step"):
            call(1, 0 if hvd.rank() == 0 else 2)


def test_a_missing_gradient_does_not_mix_steps(tf, hvd, monkeypatch):
    submitted = []
    submit = hvd.library.submit

    def recorded(kind, tensors, names, *args, **kwargs):
        submitted.append(set(names))
        return submit(kind, tensors, names, *args, **kwargs)

    monkeypatch.setattr("ronde.tensorflow.library.submit", recorded)
    variables = [tf.Variable(1.0), tf.Variable(1.0)]

    def step(use_both):
        with tf.GradientTape() as tape:
            loss = variables[0] * 2 + variables[1] if use_both else variables[0] * 2
        hvd.DistributedGradientTape(tape).gradient(loss, variables)

    for call in (step, tf.function(step)):
        names = []
        for use_both in (True, False):
            submitted.clear()
            call(use_both)
            names.append(set().union(*submitted))
        assert len(names[0]) == 2 and len(names[1]) == 1 and not names[0] & names[1]


def test_a_tape_is_a_tape(tf, hvd):
    x = tf.Variable(3.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        y = x * x
    assert isinstance(tape, tf.GradientTape) and tape.watched_variables() == (x,)
    assert tape.gradient(y, x).numpy() == 6.0 and tape.gradient(y, [x])[0].numpy() == 6.0
    assert tape.gradient(y, {"x": x}, use_generic_names=True)["x"].numpy() == 6.0


def test_process_set(tf, hvd, run, variables):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    part = hvd.add_process_set([0])

    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(tf, hvd, variables)
        tape = hvd.DistributedGradientTape(tape, process_set=part)
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]

    # The set has one rank, and others keep their gradients.
    np.testing.assert_allclose(run(step)[0], np.full(3, 2 * (hvd.rank() + 1.0)))
    hvd.remove_process_set(part)


def test_gradients_that_stay_on_a_rank_are_not_compressed(tf, hvd, run):
    part = hvd.add_process_set([0]) if hvd.size() > 1 else hvd.global_process_set
    variable = tf.Variable(1.0)

    def step():
        with tf.GradientTape() as tape:
            loss = variable * 0.1
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16, process_set=part)
        return tape.gradient(loss, variable)

    assert run(step).numpy() == np.float32(0.1)
    if part is not hvd.global_process_set:
        hvd.remove_process_set(part)


def test_two_tapes_in_one_function(tf, hvd):
    one, other = tf.Variable(tf.ones([2])), tf.Variable(tf.ones([3]))

    @tf.function
    def step():
        with tf.GradientTape() as first, tf.GradientTape() as second:
            losses = tf.reduce_sum(one * 2), tf.reduce_sum(other * 4)
        return (
            hvd.DistributedGradientTape(first).gradient(losses[0], [one]),
            hvd.DistributedGradientTape(second).gradient(losses[1], [other]),
        )

    (a,), (b,) = step()
    assert a.numpy().tolist() == [2.0] * 2 and b.numpy().tolist() == [4.0] * 3


def test_models_that_differ_are_named(tf, hvd):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    shapes = ([2], [3 if hvd.rank() == hvd.size() - 1 else 4])
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]

    def step(variables):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(variable) for variable in variables])
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    for call in (step, tf.function(step)):
        with pytest.raises(ValueError, match=r"variable 1.*float32 of shape \(4,\) on rank 0.*\(3,\) on rank"):
            call(variables)
    count = 1 if hvd.rank() == 0 else 2
    with pytest.raises(ValueError, match="does not have parameter 'variable 1'"):
        step([tf.Variable(1.0) for _ in range(count)])


def test_legacy_optimizer_in_a_graph(tf, hvd):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=tf.constant([1.0 + hvd.rank(), 2.0]))
        other = tf.compat.v1.get_variable("w", initializer=tf.constant([[1.0]]))
        loss = tf.reduce_sum(variable * (hvd.rank() + 1.0)) + tf.reduce_sum(other)
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
        train = optimizer.minimize(loss)
        broadcast = hvd.broadcast_global_variables(0)
        gathered = hvd.allgather(variable[tf.newaxis])
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(broadcast)
        session.run(train)
        mean = sum(range(1, hvd.size() + 1)) / hvd.size()
        np.testing.assert_allclose(
            session.run(gathered), [[1 - 0.5 * mean, 2 - 0.5 * mean]] * hvd.size(), rtol=1e-6
        )
    with pytest.raises(RuntimeError, match="eager"):
        hvd.broadcast_global_variables(0)


def test_legacy_optimizer_with_passes(tf, hvd):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("v", initializer=tf.constant([1.0]))
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.5), backward_passes_per_step=2
        )
        train = optimizer.minimize(tf.reduce_sum(variable * (hvd.rank() + 1.0)))
        session.run(tf.compat.v1.global_variables_initializer())
        mean = sum(range(1, hvd.size() + 1)) / hvd.size()
        seen = []
        for _ in range(4):
            session.run(train)
            seen.append(session.run(variable).item())
        np.testing.assert_allclose(seen, [1, 1 - mean, 1 - mean, 1 - 2 * mean])


def test_hook(tf, hvd):
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=tf.constant([1.0 + hvd.rank()]))
        tf.compat.v1.train.get_or_create_global_step()
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            assert session.run(variable).tolist() == [1.0]


def test_steps_are_marked(tf, hvd, variables, monkeypatch):
    from ronde.tensorflow import library

    marks = []
    wait = library.wait
    monkeypatch.setattr(library, "wait", lambda *args, is_step: marks.append(is_step) or wait(*args, is_step=is_step))
    with tf.GradientTape() as tape:
        loss = loss_of(tf, hvd, variables)
    hvd.DistributedGradientTape(tape).gradient(loss, variables)
    assert marks == [True]


def test_a_process_set_with_the_number_of_a_removed_one(tf, hvd, run):
    if hvd.size() < 3:
        pytest.skip("wants three ranks")
    variable = tf.Variable(1.0)

    def step(part):
        with tf.GradientTape() as tape:
            loss = variable * hvd.rank()
        return hvd.DistributedGradientTape(tape, process_set=part).gradient(loss, variable)

    for ranks in ([0, 1], [1, 2]):
        part = hvd.add_process_set(ranks)
        if part.included():
            assert run(lambda part=part: step(part)).numpy() == np.mean(ranks)
        hvd.remove_process_set(part)


# The last test: steps that are traced after it are not checked.
@pytest.mark.parametrize("is_function", [False, True])
def test_a_rank_that_has_joined_before_its_first_step(tf, hvd, is_function):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    variable = tf.Variable(1.0)

    def step():
        with tf.GradientTape() as tape:
            loss = variable * 2
        return hvd.DistributedGradientTape(tape).gradient(loss, variable)

    join = hvd.join
    if is_function:
        step, join = tf.function(step), tf.function(join)
    if hvd.rank() > 0:
        np.testing.assert_allclose(step(), 2 * (hvd.size() - 1) / hvd.size())
    join()
    for _ in range(2):  # with all ranks again, of which one has not checked its variables yet
        assert step().numpy() == 2.0
