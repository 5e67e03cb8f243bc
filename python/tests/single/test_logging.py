"""The runtime's warnings in Python's logging, for programs that have configured it."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import logging, os, sys
{setup}
import ronde
from ronde.common.basics import HorovodBasics
job = HorovodBasics()
job.init()  # one host: hierarchical operations are without effect, and rank 0 says so
job.shutdown()
"""

RECORDS = """
class Keep(logging.Handler):
    def emit(self, record):
        print(record.name, record.levelname, record.rank, record.filename.endswith(".rs"), record.getMessage())
logging.getLogger("ronde").addHandler(Keep())
"""


def run(setup, **environment):
    environment = {**os.environ, "HOROVOD_HIERARCHICAL_ALLREDUCE": "1", **environment}
    command = [sys.executable, "-c", PROGRAM.format(setup=setup)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def test_a_logger_with_a_handler_gets_records_with_the_rank():
    done = run(RECORDS)
    assert done.stdout.startswith("ronde WARNING 0 True HOROVOD_HIERARCHICAL_ALLREDUCE without effect: "), done.stdout
    assert done.stderr == ""


def test_the_loggers_level_counts():
    done = run("logging.basicConfig(level=logging.ERROR)")
    assert done.stderr == ""
    done = run("logging.basicConfig(level=logging.INFO)")
    assert done.stderr.startswith("WARNING:ronde:HOROVOD_HIERARCHICAL_ALLREDUCE without effect")


@pytest.mark.parametrize("setup, level", [("", ""), (RECORDS, "warning")])
def test_without_logging_or_with_a_log_level_the_lines_are_horovods(setup, level):
    done = run(setup, HOROVOD_LOG_LEVEL=level)
    assert "[0]: HOROVOD_HIERARCHICAL_ALLREDUCE without effect" in done.stderr and done.stderr.startswith("[")
    assert done.stdout == ""
