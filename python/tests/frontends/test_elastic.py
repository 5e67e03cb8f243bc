"""Elastic jobs of TensorFlow and Keras: a rank is killed, and the training continues.

Start: ``python -m pytest python/tests/frontends``, where TensorFlow and Keras are installed.
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


@pytest.mark.parametrize(
    "module, state", [("keras", "KerasState"), ("tensorflow", "TensorFlowKerasState")]
)
def test_a_state_survives_the_loss_of_a_rank(module, state):
    pytest.importorskip("tensorflow")
    program = PROGRAM.replace("MODULE", module).replace("STATE", state)
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    launcher = [sys.executable, "-m", "ronde", "run", "-np", "2", "--min-np", "1", "--"]
    ended = subprocess.run(
        [*launcher, sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        env={**own, "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"},
    )
    assert ended.returncode == 0, ended.stdout
    assert "rank 1 on host localhost was killed by signal 9" in ended.stdout, ended.stdout
    # 8 steps of 0.125: those after the last commit are repeated and count once.
    ends = re.findall(r"ends with (\S+) after (\d+) on (\d+)", ended.stdout)
    assert ends == [("-1.0", "8", "1")], ended.stdout
