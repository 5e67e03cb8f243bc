"""The callbacks for Lightning and Hugging Face, and DeepSpeed, each with the real package."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from ranks import run

HERE = pathlib.Path(__file__).parent
# Packages of which the callback needs one, and its extra.
FRAMEWORKS = {
    "lightning": (("lightning", "pytorch_lightning"), "ronde[lightning]"),
    "huggingface": (("transformers",), "ronde[huggingface]"),
    "deepspeed": (("deepspeed",), "ronde[deepspeed]"),
}


def needs(framework):
    packages, _ = FRAMEWORKS[framework]
    if not any(map(importlib.util.find_spec, packages)):
        pytest.skip(f"{packages[0]} is not installed")


@pytest.mark.parametrize("framework", ["lightning", "huggingface"])
def test_a_callback_tunes_and_the_weights_are_those_without(framework, tmp_path):
    needs(framework)
    run(2, HERE / f"{framework}_rank.py", "tuned", tmp_path)


@pytest.mark.parametrize("framework", ["lightning", "huggingface"])
def test_without_ddp_training_goes_on_and_a_warning_says_so(framework, tmp_path):
    needs(framework)
    run(1, HERE / f"{framework}_rank.py", "alone", tmp_path, is_distributed=False)


def test_ranks_of_multiprocessing_point_to_the_state_file(tmp_path):
    needs("lightning")
    run(1, HERE / "lightning_rank.py", "forked", tmp_path, is_distributed=False)


def test_deepspeed_reads_the_size_in_every_step():
    needs("deepspeed")
    run(2, HERE / "deepspeed_rank.py")


def test_the_callback_for_hugging_face_tunes_a_deepspeed_engine(tmp_path):
    needs("huggingface")
    needs("deepspeed")
    run(2, HERE / "huggingface_deepspeed_rank.py", tmp_path)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_missing_package_is_named(framework):
    packages, extra = FRAMEWORKS[framework]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({packages!r})); "
        f"import ronde.tune.{framework}"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode != 0
    assert f"pip install '{extra}'" in ended.stderr, ended.stderr
