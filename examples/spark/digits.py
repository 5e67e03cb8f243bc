"""Trains examples/torch/digits.py with Spark's TorchDistributor.

    python examples/spark/digits.py                # two ranks that the driver starts
    python examples/spark/digits.py --executors    # one rank for each task of the executors

The training is as under torchrun, which TorchDistributor calls: `hvd.init()` reads torchrun's
variables. Ranks that the driver starts on its machine use shared memory. With --executors, each
rank counts as a host of its own, and they connect over TCP.

Needs pyspark, a Java runtime, torch and scikit-learn.
"""

import argparse
import os
import pathlib
import sys

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession

TRAINING = pathlib.Path(__file__).resolve().parents[1] / "torch" / "digits.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--executors", action="store_true", help="start the ranks on executors")
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of executors
    spark = SparkSession.builder.master(f"local[{options.ranks}]").getOrCreate()
    distributor = TorchDistributor(
        num_processes=options.ranks, local_mode=not options.executors, use_gpu=False
    )
    # The check compares the weights with those of one process.
    distributor.run(str(TRAINING), "--epochs", "4", "--min-accuracy", "0.9", "--check")
    spark.stop()


if __name__ == "__main__":
    main()
