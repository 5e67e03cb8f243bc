"""Elastic jobs of TensorFlow, and of Keras on TensorFlow and JAX: a rank is killed, and the training
continues; it is replaced.

Start: ``python -m pytest python/tests/frontends``, where Keras and TensorFlow or JAX are installed.
"""

import os
import re
import subprocess
import sys

import pytest

SECONDS = 180

# `module` and `state` are replaced. The model's step is the same on all ranks, so that the weights
# do not depend on their number: each step subtracts the learning rate.
PROGRAM = """
import os, signal, sys
import numpy as np
import tensorflow as tf
import keras
import ronde.MODULE as hvd

hvd.init()
layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
model = keras.Sequential([keras.Input((1,)), layer])
optimizer = keras.optimizers.SGD(0.125)
model.compile(optimizer=optimizer, loss="mse")
state = hvd.elastic.STATE(model, optimizer, step=0)

@hvd.elastic.run
def train(state):
    while state.step < 8:
        gradient = hvd.allreduce(tf.constant([[1.0]]), name="gradient")
        if state.step == 5 and hvd.size() == 2 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.apply_gradients([(gradient, model.trainable_variables[0])])
        state.step += 1
        if state.step % 2 == 0:
            state.commit()

train(state)
weight = float(np.array(model.get_weights()[0])[0, 0])
print("ends with", weight, "after", state.step, "on", hvd.size(), flush=True)
"""


# Steps that were compiled before a rank was replaced: its replacement compiles them anew. Each adds
# the learning rate, of a sparse gradient, once; it is divided by the number of ranks of its time.
REPLACED = """
import os, signal, time
import numpy as np
import tensorflow as tf
import keras
import ronde.keras
import ronde.tensorflow as hvd

hvd.init()

def model_of_one_weight(optimizer):
    embedding = keras.layers.Embedding(1, 1, embeddings_initializer="zeros")
    model = keras.Sequential([keras.Input((1,), dtype="int32"), embedding, keras.layers.Flatten()])
    optimizer.build(model.trainable_variables)
    model.compile(optimizer=optimizer, loss=lambda y, found: tf.reduce_mean(found), jit_compile=False)
    return model

plain = keras.optimizers.SGD(0.125)
taped = model_of_one_weight(plain)
fitted = model_of_one_weight(ronde.keras.DistributedOptimizer(keras.optimizers.SGD(0.125)))
eager = tf.Variable([[0.0]])
weights = [*taped.variables, *fitted.variables, eager]
state = hvd.elastic.TensorFlowState(weights, step=0, together=0)

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(taped(tf.zeros((1, 1), tf.int32)))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, taped.trainable_variables)
    plain.apply_gradients(zip(gradients, taped.trainable_variables))

@hvd.elastic.run
def train(state):
    while state.together < 3:
        if state.step == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        step()
        fitted.fit(np.zeros((1, 1), "int32"), np.zeros((1, 1)), verbose=0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(eager)
        eager.assign_sub(0.125 * hvd.DistributedGradientTape(tape).gradient(loss, [eager])[0])
        state.step += 1
        state.together += state.step > 4 and hvd.size() == 2
        state.commit()
        time.sleep(0.1)

train(state)
print("ends with", *(float(weight.numpy()[0, 0]) / state.step for weight in weights), flush=True)
"""


def test_compiled_steps_go_on_with_a_rank_that_was_replaced():
    pytest.importorskip("tensorflow")
    flags = ["-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "1", "2"]
    output = run(flags, REPLACED)
    assert "rank 1 on host localhost was killed by signal 9" in output, output
    assert output.count("ends with -0.125 -0.125 -0.125") == 2, output


@pytest.mark.parametrize(
    "module, state", [("keras", "KerasState"), ("tensorflow", "TensorFlowKerasState")]
)
def test_a_state_survives_the_loss_of_a_rank(module, state):
    pytest.importorskip("tensorflow")
    output = run(["-np", "2", "--min-np", "1"], PROGRAM.replace("MODULE", module).replace("STATE", state))
    assert "rank 1 on host localhost was killed by signal 9" in output, output
    # 8 steps of 0.125: those after the last commit are repeated and count once.
    ends = re.findall(r"ends with (\S+) after (\d+) on (\d+)", output)
    assert ends == [("-1.0", "8", "1")], output


# Steps of JAX still run, with results of the step that failed, when Keras starts the next ones.
FITTED = """
import os, signal
import numpy as np
import keras
import ronde.keras as hvd

hvd.init()
keras.utils.set_random_seed(0)
layers = [keras.layers.Dense(8, activation="relu") for _ in range(4)]
model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse")
state = hvd.elastic.KerasState(model, epoch=0)
x = np.random.rand(256, 8).astype("float32")

class Kill(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if state.epoch == 2 and batch == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

@hvd.elastic.run
def train(state):
    while state.epoch < 4:
        model.fit(x, x[:, :1], verbose=0, batch_size=32, callbacks=[Kill()])
        state.epoch += 1
        state.commit()

train(state)
print("ends after", state.epoch, "on", hvd.size(), flush=True)
"""


def test_fit_on_jax_survives_the_loss_of_a_rank():
    pytest.importorskip("jax")
    output = run(["-np", "2", "--min-np", "1"], FITTED, "jax")
    assert "rank 1 on host localhost was killed by signal 9" in output, output
    assert output.count("ends after 4 on 1") == 1, output


def run(flags, program, backend="tensorflow"):
    """Output of an elastic job of the program."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    ended = subprocess.run(
        [sys.executable, "-m", "ronde", "run", *flags, "--", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        env={**own, "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": backend},
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout
