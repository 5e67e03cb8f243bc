"""Front ends in jobs that the tests start: one thread, lost ranks, signals, and what imports load.

Start: ``python -m pytest python/tests/frontends``, where TensorFlow, Keras and JAX are installed.
"""

import itertools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

numbers = itertools.count()

#: A limit for jobs that ought to end by themselves.
SECONDS = 120


def variables(**more):
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    return {**own, "TF_CPP_MIN_LOG_LEVEL": "2", **more}


def job(ranks, code, **environment):
    """Runs `code` on `ranks` ranks; returns the ended launcher."""
    command = [sys.executable, "-m", "ronde", "run", "-np", str(ranks), "--", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=variables(**environment))


def start(code, *arguments, **environment):
    """Starts two ranks without a launcher, which would end one after the other."""
    name = f"frontends-{os.getpid()}-{next(numbers)}"
    ranks = []
    for rank in range(2):
        identity = {
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": "2",
            "HOROVOD_LOCAL_RANK": str(rank),
            "HOROVOD_LOCAL_SIZE": "2",
            "RONDE_JOB_ID": name,
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=variables(**identity, **environment),
            )
        )
    return ranks


def alone(code, **environment):
    """Runs `code` in one process, and returns its output."""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=variables(**environment))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_importing_ronde_imports_no_framework():
    alone(
        "import sys, ronde, ronde.common.util\n"
        "assert not {'torch', 'tensorflow', 'keras', 'jax', 'numpy'} & set(sys.modules)"
    )


def test_keras_on_jax_imports_no_tensorflow():
    alone(
        "import sys, ronde.keras\nassert 'jax' in sys.modules and 'ronde.tensorflow' not in sys.modules",
        KERAS_BACKEND="jax",
    )


def test_both_frameworks_share_one_runtime():
    alone(
        "import ronde.jax, ronde.tensorflow\n"
        "ronde.jax.init()\n"
        "assert ronde.tensorflow.size() == 1 and ronde.tensorflow.allreduce(2.0).numpy() == 2.0\n"
        "assert ronde.jax.allreduce(3.0) == 3.0\n"
        "ronde.tensorflow.shutdown()\n"
        "assert not ronde.jax.is_initialized()"
    )


def test_operations_before_init():
    alone(
        "import tensorflow as tf, ronde.tensorflow as hvd\n"
        "for call in (lambda: hvd.allreduce(1.0), tf.function(lambda: hvd.allreduce(1.0))):\n"
        "    try:\n"
        "        call()\n"
        "    except (tf.errors.FailedPreconditionError, ValueError) as error:\n"
        "        assert 'hvd.init()' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError\n"
        "assert hvd.process_set_included_op().numpy() == -1\n"
    )


def test_a_job_is_joined_again():
    alone(
        "import tensorflow as tf, ronde.tensorflow as hvd\n"
        "variable = tf.Variable(1.0)\n"
        "@tf.function\n"
        "def step():\n"
        "    with tf.GradientTape() as tape:\n"
        "        loss = variable * 2\n"
        "    return hvd.DistributedGradientTape(tape).gradient(loss, [variable])\n"
        "for _ in range(3):\n"
        "    hvd.init()\n"
        "    assert step()[0].numpy() == 2.0\n"
        "    hvd.shutdown()\n"
    )


RESIZED = """
import os
import jax.numpy as jnp
import ronde.jax as hvd
hvd.init()
assert hvd.allgather(jnp.ones(4)).shape == (8,) and hvd.reducescatter(jnp.ones(4)).shape == (2,)
hvd.shutdown()
for name in [name for name in os.environ if name.startswith(("HOROVOD_", "RONDE_"))]:
    del os.environ[name]
hvd.init()
assert hvd.size() == 1
assert hvd.allgather(jnp.ones(4)).tolist() == [1.0] * 4 and hvd.reducescatter(jnp.ones(4)).tolist() == [1.0] * 4
"""


def test_a_job_with_fewer_ranks_on_jax():
    for rank in start(RESIZED):
        _, errors = rank.communicate(timeout=SECONDS)
        assert rank.returncode == 0, errors


DIES = """
import os, sys, numpy as np, keras
import ronde.keras as hvd
hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")

class Dies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2 and hvd.rank() == 1:
            os._exit(17)

try:
    model.fit(np.ones([64, 4]), np.ones([64, 1]), batch_size=4, callbacks=[Dies()])
except hvd.HorovodInternalError as error:
    print("caught:", " ".join(str(error).split()))
    sys.exit(5)
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_rank_that_dies_during_fit(backend):
    ranks = start(DIES, KERAS_BACKEND=backend)
    output, errors = ranks[0].communicate(timeout=SECONDS)
    ranks[1].communicate(timeout=SECONDS)
    assert ranks[1].returncode == 17
    assert ranks[0].returncode == 5, errors
    *_, progress, caught = output.rstrip("\n").split("\n")
    # The line of the progress bar has ended.
    assert caught.startswith("caught:") and "rank 1" in caught, output


WAITS = """
import sys, keras, numpy as np, tensorflow as tf
import ronde.keras, ronde.tensorflow as hvd
hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")

class Pauses(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            print("ready", flush=True)
            if hvd.rank() == 1:
                sys.stdin.readline()

def fit():
    model.fit(np.ones([64, 4]), np.ones([64, 1]), batch_size=4, callbacks=[Pauses()], verbose=0)

def expect_interrupt(step, kind):
    try:
        step()
    except (hvd.HorovodInternalError, tf.errors.OpError) as error:
        print("error:", error, flush=True)
    except kind as error:
        assert "KeyboardInterrupt" in repr(error), error
        print("interrupted", flush=True)

if hvd.rank() == 0:
    # TensorFlow itself cannot raise KeyboardInterrupt.
    for way, kind in ((lambda f: f, KeyboardInterrupt), (tf.function, RuntimeError)):
        print("ready", flush=True)
        expect_interrupt(way(lambda: hvd.allreduce(tf.ones([2]), name=kind.__name__)), kind)
expect_interrupt(fit, KeyboardInterrupt)
"""


def await_idle(process):
    """Waits until the process has used next to no CPU time for two seconds."""

    def ticks():
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])  # hundredths of a second, user and system

    before = ticks()
    for _ in range(SECONDS):
        time.sleep(2)
        before, last = ticks(), before
        if before - last <= 5:
            return
    raise AssertionError("it does not wait")


def test_ctrl_c_ends_a_wait():
    ranks = start(WAITS, KERAS_BACKEND="tensorflow")
    try:
        for _ in ("eager", "function", "fit"):
            assert ranks[0].stdout.readline() == "ready\n"
            await_idle(ranks[0])  # it waits for rank 1, once it has traced its function
            ranks[0].send_signal(signal.SIGINT)
            assert ranks[0].stdout.readline() == "interrupted\n"
        output, errors = ranks[0].communicate(timeout=SECONDS)
        assert output == "" and ranks[0].returncode == 0, errors
        output, errors = ranks[1].communicate("\n", timeout=SECONDS)
        assert output.startswith("ready\nerror:") and ranks[1].returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


ONE_THREAD = """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)
import ronde.tensorflow as hvd
hvd.init()
variables = [tf.Variable(tf.ones([n + 1])) for n in range(30)]
norm = hvd.SyncBatchNormalization()

@tf.function
def step(x):
    with tf.GradientTape() as tape:
        # Independent branches, each with an operation that blocks.
        branches = [hvd.allreduce(tf.reduce_sum(v) * x, op=hvd.Sum, name=f"branch.{i}") for i, v in enumerate(variables)]
        loss = tf.add_n(branches) + tf.reduce_sum(norm(tf.reshape(x, [1, 1]) * [[1.0], [2.0]], training=True))
    return hvd.DistributedGradientTape(tape).gradient(loss, variables)

for _ in range(20):
    gradients = step(tf.constant(1.0))
n = hvd.size()
assert all((gradient.numpy() == n).all() for gradient in gradients), gradients
print("done")
"""


def test_one_thread_for_operations_suffices():
    ended = job(3, ONE_THREAD)
    assert ended.returncode == 0 and ended.stdout.count("done") == 3, ended.stderr
