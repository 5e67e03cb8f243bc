"""Starts Python programs as torch ranks over gloo, with torchrun's variables."""

import os
import socket
import subprocess
import sys
import time


def run(size, program, *arguments, timeout_s=180, is_distributed=True):
    """Runs `program` on `size` ranks; returns their outputs. Fails with those of the ranks that fail.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(size):
        job = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
        }
        variables = {
            **os.environ,
            **(job if is_distributed else {}),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, "-B", str(program), *map(str, arguments)]
        ranks.append(
            subprocess.Popen(
                command,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    end = time.monotonic() + timeout_s
    outputs, codes = [], []
    try:
        for rank in ranks:
            outputs.append(rank.communicate(timeout=max(1, end - time.monotonic()))[0])
            codes.append(rank.returncode)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{program} takes more than {timeout_s} s") from None
    finally:
        for rank in ranks:
            rank.kill()
    failed = [number for number, code in enumerate(codes) if code]
    assert not failed, "\n".join(f"rank {number}:\n{outputs[number]}" for number in failed)
    return outputs
