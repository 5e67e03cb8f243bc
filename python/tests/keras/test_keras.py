"""Optimizers, callbacks, elastic training and loading of models."""

import importlib

import numpy as np
import pytest


def data(rank=0, rows=24):
    generator = np.random.default_rng(rank)
    x = generator.normal(size=(rows, 4)).astype("float32")
    return x, x.sum(1, keepdims=True)


def equal_on_all_ranks(hvd, model):
    of_ranks = hvd.allgather_object(model.get_weights())
    return all(
        np.array_equal(one, other) for weights in of_ranks for one, other in zip(of_ranks[0], weights)
    )


def largest_difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one.get_weights(), other.get_weights()))


@pytest.fixture
def optimizer_of(keras):
    return {
        "SGD": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
        "Adam": lambda: keras.optimizers.Adam(0.01),
        "AdamW": lambda: keras.optimizers.AdamW(0.01, clipnorm=1.0),
        "RMSprop": lambda: keras.optimizers.RMSprop(keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)),
        "LossScale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05)),
    }


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "LossScale"])
def test_ranks_train_as_one_process_with_the_joined_batch(keras, hvd, model_of, optimizer_of, name):
    model = model_of(hvd.rank(), hvd.DistributedOptimizer(optimizer_of[name]()))
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    batches = [data(rank) for rank in range(hvd.size())]
    x, y = batches[hvd.rank()]
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
    assert callback.broadcast_done and equal_on_all_ranks(hvd, model)
    alone = model_of(0, optimizer_of[name]())
    order = [index for begin in range(0, 24, 8) for rank in range(hvd.size()) for index in range(24 * rank + begin, 24 * rank + begin + 8)]
    x, y = (np.concatenate([batch[part] for batch in batches])[order] for part in range(2))
    alone.fit(x, y, batch_size=8 * hvd.size(), epochs=2, shuffle=False, verbose=0)
    assert largest_difference(model, alone) < 1e-5


def test_a_model_that_only_rank_0_has_built(keras, hvd):
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.05, momentum=0.9)), loss="mse")
    if hvd.rank() == 0:
        model.build((None, 4))
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    for _ in range(2):
        model.fit(*data(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
    assert callback.broadcast_done and equal_on_all_ranks(hvd, model)


@pytest.mark.parametrize("difference", ["shape", "variables", "optimizer"])
def test_a_broadcast_of_models_that_differ(keras, hvd, difference):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    differs = hvd.rank() == hvd.size() - 1
    width = 4 if differs and difference == "shape" else 3
    use_bias = not (differs and difference == "variables")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width), keras.layers.Dense(1, use_bias=use_bias)])
    kind = keras.optimizers.Adam if differs and difference == "optimizer" else keras.optimizers.SGD
    model.compile(optimizer=hvd.DistributedOptimizer(kind(0.1)), loss="mse")
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with pytest.raises(ValueError, match=r"differ among the ranks: variable \d+ is .* on rank 0 .* on rank"):
        model.fit(*data(), verbose=0, callbacks=[callback])
    assert not callback.broadcast_done


@pytest.fixture
def schedule_of(keras):
    class Schedule(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.05 / (1 + keras.ops.cast(step, "float32"))

    return {"schedule": Schedule, "function": lambda: lambda: 0.05}


@pytest.mark.parametrize("rate", ["schedule", "function"])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_learning_rates_without_a_configuration(keras, hvd, model_of, schedule_of, rate, is_scaled):
    class Own(keras.optimizers.SGD):
        pass

    def optimizer():
        own = Own(schedule_of[rate](), momentum=0.9)
        return keras.optimizers.LossScaleOptimizer(own) if is_scaled else own

    given = optimizer()
    model, alone = model_of(0, hvd.DistributedOptimizer(given)), model_of(0, optimizer())
    for one in (model, alone):
        one.fit(*data(), batch_size=8, verbose=0, shuffle=False)
    assert largest_difference(model, alone) < 1e-6
    inner = getattr(given, "inner_optimizer", given)
    assert type(inner) is Own and callable(inner._learning_rate) and not given.built


def test_variables_without_weight_decay(keras, hvd, model_of):
    trained = []
    for make in (hvd.DistributedOptimizer, lambda optimizer: optimizer):
        model = model_of(0)
        optimizer = keras.optimizers.AdamW(0.01, weight_decay=5.0)
        optimizer.exclude_from_weight_decay(var_list=[model.layers[0].kernel], var_names=["bias"])
        model.compile(optimizer=make(optimizer), loss="mse")
        model.fit(*data(), batch_size=8, verbose=0, shuffle=False)
        trained.append(model)
    assert largest_difference(*trained) < 1e-5


def test_gradients_that_stay_on_a_rank_are_not_compressed(keras, hvd, model_of):
    n = hvd.size()
    sets = [hvd.add_process_set([rank]) for rank in range(n)] if n > 1 else [hvd.global_process_set]
    arguments = {"compression": hvd.Compression.fp16, "process_set": sets[hvd.rank()]}
    model = model_of(0, hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), **arguments))
    alone = model_of(0, keras.optimizers.SGD(0.05))
    for one in (model, alone):
        one.fit(*data(hvd.rank()), batch_size=8, verbose=0, shuffle=False)
    assert largest_difference(model, alone) < 1e-6
    for one in sets if n > 1 else ():
        hvd.remove_process_set(one)


@pytest.mark.parametrize("average", [True, False])
def test_backward_passes(keras, hvd, model_of, average):
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.05), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    model = model_of(0, optimizer)
    before = model.get_weights()
    x, y = data(hvd.rank(), 8)
    model.train_on_batch(x[:4], y[:4])
    for one, other in zip(model.get_weights(), before):
        np.testing.assert_array_equal(one, other)
    model.train_on_batch(x[4:], y[4:])
    assert equal_on_all_ranks(hvd, model)
    alone = model_of(0, keras.optimizers.SGD(0.05 if average else 0.1))
    joined = [np.concatenate(parts) for parts in zip(*(data(rank, 8) for rank in range(hvd.size())))]
    alone.train_on_batch(*joined)
    assert largest_difference(model, alone) < 1e-5


def test_options(keras, hvd, model_of):
    x, y = data(hvd.rank())
    for arguments in (
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
        {"groups": 2},
        {"name": "mine"},
    ):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), **arguments)
        assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, keras.optimizers.SGD)
        model = model_of(0, optimizer)
        model.fit(x, y, batch_size=8, verbose=0)
        assert equal_on_all_ranks(hvd, model), arguments


def test_options_that_are_refused(keras, hvd):
    sgd = keras.optimizers.SGD(0.1)
    for arguments, message in (
        ({"op": hvd.Adasum}, "Average and Sum"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "op=Average"),
        ({"groups": -1}, "groups"),
        ({"backward_passes_per_step": 0}, "positive"),
    ):
        with pytest.raises(ValueError, match=message):
            hvd.DistributedOptimizer(sgd, **arguments)
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd))
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(sgd)))
    with pytest.raises(TypeError, match="optimizer of Keras"):
        hvd.DistributedOptimizer("sgd")
    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="same meaning"):
        hvd.DistributedOptimizer(accumulating, backward_passes_per_step=2)
    with pytest.raises(RuntimeError, match="broadcast_variables"):
        hvd.broadcast_global_variables(0)
    with pytest.raises(ValueError, match="legacy"):
        hvd.load_model("none.keras", legacy_opts=True)


@pytest.mark.parametrize("scale", [True, False])
def test_local_layers(keras, hvd, model_of, scale):
    model = model_of(0)
    before = model.layers[0].get_weights()
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.1), local_layers=model.layers[0], scale_local_gradients=scale
    )
    model.compile(optimizer=optimizer, loss="mse")
    alone = model_of(0, keras.optimizers.SGD(0.1))
    x, y = data(hvd.rank(), 8)
    model.train_on_batch(x, y)
    alone.train_on_batch(x, y)
    factor = hvd.size() if scale else 1
    for one, other, start in zip(model.layers[0].get_weights(), alone.layers[0].get_weights(), before):
        np.testing.assert_allclose((one - start) * factor, other - start, atol=1e-5)
    last = hvd.allgather_object(model.layers[1].get_weights())
    np.testing.assert_array_equal(last[0][0], last[-1][0])


def test_local_layers_that_are_built_later(keras, hvd):
    def trained(distribute):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile(optimizer=distribute(keras.optimizers.SGD(0.1), model.layers), loss="mse")
        model.train_on_batch(*data(hvd.rank(), 8))
        return model

    def partial(optimizer, layers):
        return hvd.PartialDistributedOptimizer(optimizer, local_layers=layers, scale_local_gradients=False)

    assert largest_difference(trained(partial), trained(lambda optimizer, _: optimizer)) < 1e-6


def test_metrics_are_averaged(keras, hvd, model_of):
    callback = hvd.callbacks.MetricAverageCallback()
    logs = {"loss": float(hvd.rank()), "accuracy": 1.0}
    callback.on_epoch_end(0, logs)
    assert logs == {"loss": (hvd.size() - 1) / 2, "accuracy": 1.0}
    callback.on_epoch_end(0, {})
    callback.on_epoch_end(0, None)


def test_metrics_that_are_vectors(keras, hvd):
    logs = {"f1": np.array([[hvd.rank(), 1.0]]), "loss": 2.0, "last": keras.ops.convert_to_tensor([1.0, hvd.rank()])}
    hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    mean = (hvd.size() - 1) / 2
    assert logs["f1"].tolist() == [[mean, 1.0]] and logs["last"].tolist() == [1.0, mean]
    assert logs["loss"] == 2.0 and isinstance(logs["loss"], float)


@pytest.mark.parametrize("of_last", [{"mae": 1.0}, {}, {"loss": 1.0, "mae": 2.0}, {"loss": np.ones(2)}])
def test_metrics_that_differ(keras, hvd, of_last):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    callback = hvd.callbacks.MetricAverageCallback()
    logs = of_last if hvd.rank() == hvd.size() - 1 else {"loss": 1.0}
    with pytest.raises(ValueError, match="metrics differ.*'(loss|mae)' is .* on rank 0"):
        callback.on_epoch_end(0, logs)
    logs = {"loss": 2.0}
    callback.on_epoch_end(1, logs)
    assert logs == {"loss": 2.0}


def test_learning_rates(keras, hvd, model_of):
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))

    def train(callback, epochs):
        seen.clear()
        model = model_of(0, hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)))
        history = model.fit(*data(), batch_size=12, epochs=epochs, verbose=0, callbacks=[callback, Watch()])
        np.testing.assert_allclose(history.history["lr"], seen[1::2])

    callbacks = hvd.callbacks
    train(callbacks.LearningRateScheduleCallback(0.5, 0.1, start_epoch=1), 3)
    np.testing.assert_allclose(seen, [0.5, 0.5, 0.5, 0.5, 0.05, 0.05], rtol=1e-6)
    train(callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 1 / (1 + epoch), staircase=False), 2)
    np.testing.assert_allclose(seen, [0.5, 0.5 / 1.5, 0.25, 0.2], rtol=1e-6)
    train(callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=2, verbose=1), 3)
    n = hvd.size()
    warm = [0.5 / n * (epoch * (n - 1) / 2 + 1) for epoch in (0.5, 1, 1.5, 2)]
    np.testing.assert_allclose(seen, [*warm, 0.5, 0.5], rtol=1e-6)
    with pytest.raises(ValueError, match="initial_lr"):
        callbacks.LearningRateScheduleCallback(None, 0.1)


def test_saved_models(keras, hvd, model_of, tmp_path):
    model = model_of(0, hvd.DistributedOptimizer(keras.optimizers.Adam(0.02, beta_1=0.8)))
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    plain = keras.models.load_model(path)
    assert type(plain.optimizer) is not type(model.optimizer) and type(plain.optimizer).__name__ == "Adam"
    loaded = hvd.load_model(path)
    optimizer = loaded.optimizer
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(optimizer)
    assert optimizer.beta_1 == 0.8 and int(keras.ops.convert_to_numpy(optimizer.iterations)) == 3
    for one, other in zip(optimizer.variables, model.optimizer.variables):
        np.testing.assert_allclose(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other))
    x, y = data(hvd.rank())
    loaded.fit(x, y, batch_size=8, verbose=0)
    assert equal_on_all_ranks(hvd, loaded)
    assert largest_difference(loaded, model) > 0


def test_a_custom_optimizer_is_loaded(keras, hvd, model_of, tmp_path):
    class Halved(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient * 0.5, variable, learning_rate)

    model = model_of(0, hvd.DistributedOptimizer(Halved(0.1)))
    model.fit(*data(), batch_size=8, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = hvd.load_model(path, custom_optimizers=[Halved])
    assert isinstance(loaded.optimizer, Halved)
    with pytest.raises(ValueError, match="twice"):
        hvd.DistributedOptimizer(loaded.optimizer)


def test_a_registered_optimizer_is_saved_under_its_name(keras, hvd, model_of, tmp_path):
    @keras.saving.register_keras_serializable("my", "half")
    class Halved(keras.optimizers.SGD):
        pass

    model = model_of(0, hvd.DistributedOptimizer(Halved(0.1)))
    model.fit(*data(), batch_size=8, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    assert type(keras.models.load_model(path).optimizer) is Halved
    assert isinstance(hvd.load_model(path).optimizer, Halved)
    assert keras.saving.get_registered_object("my>half") is Halved


@pytest.mark.parametrize("average", [True, False, None])
def test_passes_of_a_loaded_model(keras, hvd, model_of, tmp_path, average):
    if average is None:
        arguments, sgd = {}, keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    else:
        arguments = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
        sgd = keras.optimizers.SGD(0.01)
    model = model_of(0, hvd.DistributedOptimizer(sgd, **arguments))
    path = tmp_path / "model.keras"
    x, y = data(hvd.rank(), 8)
    model.train_on_batch(x, y)
    model.save(path)
    loaded = hvd.load_model(path)
    before = model.get_weights()
    for one in (model, loaded):
        one.train_on_batch(x, y)
    assert any((one != other).any() for one, other in zip(model.get_weights(), before))
    assert largest_difference(model, loaded) < 1e-6 and equal_on_all_ranks(hvd, loaded)


def test_two_optimizers_in_one_program(keras, hvd):
    if keras.backend.backend() != "jax":
        pytest.skip("names in TensorFlow's graphs are unique, and torch compiles none")
    import re

    import jax

    variables = [keras.Variable(np.ones(2)) for _ in range(2)]
    optimizers = [hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), name="pair") for _ in variables]
    for optimizer, variable in zip(optimizers, variables):
        optimizer.build([variable])

    @jax.jit
    def step(gradients):
        return [
            optimizer.stateless_apply([one.value for one in optimizer.variables], [gradient], [variable.value])[0]
            for optimizer, variable, gradient in zip(optimizers, variables, gradients)
        ]

    gradients = [np.full(2, hvd.rank() + place, "float32") for place in range(2)]
    # Also when the program is traced again.
    for _ in range(2):
        jax.clear_caches()
        names = re.findall(r'names = "([^"]*)"', step.lower(gradients).as_text())
        assert sorted(names) == ["pair_Allreduce.1['/grads_0']", "pair_Allreduce['/grads_0']"]
    mean = (hvd.size() - 1) / 2
    for place, (result,) in enumerate(step(gradients)):
        np.testing.assert_allclose(result, [1 - 0.5 * (mean + place)] * 2)


def test_values(keras, hvd):
    numpy = keras.ops.convert_to_numpy
    rank, n = hvd.rank(), hvd.size()
    assert numpy(hvd.allreduce([float(rank)], name="value")).tolist() == [(n - 1) / 2]
    assert numpy(hvd.allreduce([1.0], average=False)).tolist() == [n]
    assert numpy(hvd.allreduce([1.0], op=hvd.Sum, prescale_factor=2.0)).tolist() == [2 * n]
    assert numpy(hvd.allgather([rank] * (rank + 1))).tolist() == [other for other in range(n) for _ in range(other + 1)]
    assert numpy(hvd.broadcast([rank], n - 1)).tolist() == [n - 1]
    assert numpy(hvd.reducescatter(np.full([n, 2], rank, "float32"), op=hvd.Sum)).tolist() == [[n * (n - 1) / 2] * 2]
    assert hvd.broadcast_object({"rank": rank}, n - 1) == {"rank": n - 1}
    hvd.barrier()


def test_models_that_differ(keras, hvd):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    width = 3 if hvd.rank() == 0 else 4
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    with pytest.raises(ValueError, match=r"differ.*\(4, 3\) on rank 0.*\(4, 4\) on rank 1"):
        model.fit(*data(), verbose=0)


def test_compiled_by_xla(keras, hvd, model_of):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("only TensorFlow's operations cannot be compiled")
    model = model_of(0, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), jit_compile=True)
    with pytest.raises(NotImplementedError, match="jit_compile=False"):
        model.fit(*data(), verbose=0)


def test_elastic_state(keras, hvd, model_of):
    model = model_of(hvd.rank(), keras.optimizers.SGD(0.1, momentum=0.9))
    state = hvd.elastic.KerasState(model, epoch=hvd.rank(), batch=0)
    before = model.get_weights()
    model.set_weights([weight + 1 for weight in before])
    state.epoch = 7
    state.restore()
    assert all(np.array_equal(one, other) for one, other in zip(model.get_weights(), before))
    assert state.epoch == hvd.rank()
    state.sync()
    assert equal_on_all_ranks(hvd, model) and state.epoch == 0
    with pytest.raises(ValueError, match="not built"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))


@pytest.mark.parametrize("name", ["keras", "tensorflow"])
def test_an_elastic_state_keeps_seeds_different(keras, hvd, name):
    if name == "tensorflow":
        if keras.backend.backend() != "tensorflow":
            pytest.skip("a state of TensorFlow")
        from ronde.tensorflow.elastic import TensorFlowKerasState as State
    else:
        State = hvd.elastic.KerasState
    keras.utils.set_random_seed(hvd.rank())
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    (seed,) = (variable for variable in model.variables if "seed_generator_state" in variable.path)
    before = keras.ops.convert_to_numpy(seed).tolist()
    state = State(model)
    state.sync()
    assert equal_on_all_ranks(hvd, model.layers[-1])
    assert keras.ops.convert_to_numpy(seed).tolist() == before
    assert len({str(one) for one in hvd.allgather_object(before)}) == hvd.size()
    seed.assign(np.zeros_like(before))
    state.restore()
    assert keras.ops.convert_to_numpy(seed).tolist() == before


def test_elastic_training(keras, hvd, model_of):
    model = model_of(hvd.rank(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    attempts = []

    class Fails(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if len(attempts) == 1 and epoch == 1:
                raise hvd.HorovodInternalError("a rank was lost")

    @hvd.elastic.run
    def train(state):
        attempts.append(state.epoch)
        model.fit(
            *data(hvd.rank()),
            batch_size=8,
            epochs=3 - state.epoch,
            verbose=0,
            callbacks=[
                hvd.elastic.UpdateBatchStateCallback(state),
                hvd.elastic.UpdateEpochStateCallback(state),
                hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
                Fails(),
            ],
        )

    train(state)
    assert attempts == [0, 1] and state.epoch == 3 and state.batch == 0
    assert equal_on_all_ranks(hvd, model)


def test_a_loss_scale_around_a_distributed_optimizer(keras, hvd, model_of):
    scaled, sgd = keras.optimizers.LossScaleOptimizer, keras.optimizers.SGD
    inside = model_of(0, hvd.DistributedOptimizer(scaled(sgd(0.1))))
    around = model_of(0, scaled(hvd.DistributedOptimizer(sgd(0.1))))
    for model in (inside, around):
        model.fit(*data(hvd.rank()), batch_size=8, verbose=0, shuffle=False)
    assert equal_on_all_ranks(hvd, around) and largest_difference(inside, around) < 1e-6
    before = around.get_weights()
    x, y = data(hvd.rank(), 8)
    # Gradients of one rank that are not finite: all ranks leave the step out.
    around.train_on_batch(x, y * np.inf if hvd.rank() == 0 else y)
    for one, other in zip(around.get_weights(), before):
        np.testing.assert_array_equal(one, other)
    # Also in a loop without Keras.
    optimizer, variable = scaled(hvd.DistributedOptimizer(sgd(0.1))), keras.Variable(np.ones(2))
    optimizer.build([variable])
    gradient, result = keras.ops.full([2], np.inf if hvd.rank() == 0 else 1.0), variable
    if keras.backend.backend() == "jax":
        state = [one.value for one in optimizer.variables]
        (result,), _ = optimizer.stateless_apply(state, [gradient], [variable.value])
    else:
        optimizer.apply([gradient], [variable])
    of_ranks = hvd.allgather_object(keras.ops.convert_to_numpy(result).tolist())
    assert of_ranks == [[1.0, 1.0]] * hvd.size()
    passes = hvd.DistributedOptimizer(sgd(0.1), backward_passes_per_step=2)
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        model_of(0, scaled(passes)).fit(x, y, verbose=0)


def test_mixed_precision(keras, hvd, model_of):
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        model = model_of(hvd.rank(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        before = model.get_weights()
        model.fit(*data(hvd.rank()), batch_size=8, epochs=2, verbose=0, callbacks=[callback])
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    assert equal_on_all_ranks(hvd, model)
    changed = [(one != other).any() for one, other in zip(model.get_weights(), before)]
    assert hvd.rank() != 0 or any(changed)


def test_fit_on_jax_waits_for_its_last_step(keras, hvd, model_of):
    if keras.backend.backend() != "jax" or hvd.size() < 2:
        pytest.skip("wants JAX and two ranks")
    import jax

    from ronde.jax import allreduce

    class Fail(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            failing = jax.jit(lambda x: allreduce(jax.numpy.sin(x @ x), "failing"))
            self.model.variables[0]._value = failing(jax.numpy.ones([300 + hvd.rank()] * 2))

    model = model_of(0, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLREDUCE .*failing"):
        model.fit(*data(), verbose=0, callbacks=[Fail()])
    # JAX waits for the last program with an effect at its end.
    jax.jit(lambda x: allreduce(x, "afterwards"))(jax.numpy.ones(2)).block_until_ready()


# The last test: steps that are traced after it are not checked.
@pytest.mark.parametrize("is_eager", [True, False])
def test_a_rank_that_has_joined_before_its_first_step(keras, hvd, model_of, is_eager):
    if hvd.size() < 2:
        pytest.skip("wants two ranks")
    join = importlib.import_module(f"ronde.{keras.backend.backend()}").join
    model = model_of(0, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), run_eagerly=is_eager)
    before = model.get_weights()
    if hvd.rank() > 0:
        model.fit(*data(1, 8), batch_size=8, verbose=0)
    join()
    # With all ranks again, of which one has not checked its model yet.
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(hvd.size() - 1)
    model.fit(*data(hvd.rank()), batch_size=8, verbose=0, callbacks=[callback])
    assert equal_on_all_ranks(hvd, model)
    assert any((one != other).any() for one, other in zip(model.get_weights(), before))
