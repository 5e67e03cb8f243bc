"""Tunes bucket_cap_mb of PyTorch's DistributedDataParallel while it trains: two gloo ranks on this machine's CPU.

    pip install torch        # or Debian's python3-torch
    python3 examples/tune-ddp-bucket.py

`ronde` has to be on the PATH; docs/TUNE.md has the protocol.
"""
import json, os, subprocess, time
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

SPACE = {"parameters": [{"name": "bucket_cap_mb", "scale": "log", "low": 0.25, "high": 64, "levels": 9}],
         "start": {"bucket_cap_mb": 25}}


def train(rank, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29517"))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(24)))  # 24 MiB of gradients
    rebuild = lambda cap: DDP(model, bucket_cap_mb=cap)
    inputs = torch.randn(16, 512)

    if rank == 0:  # the client: one line out, one line in
        tuner = subprocess.Popen(["ronde", "tune"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def say(line):
            print(json.dumps(line), file=tuner.stdin, flush=True)
            return json.loads(tuner.stdout.readline())

        say(SPACE)
    ddp, finished = rebuild(SPACE["start"]["bucket_cap_mb"]), False
    while not finished:
        begin = time.perf_counter()
        ddp(inputs).sum().backward()
        dist.barrier()
        model.zero_grad()
        if rank == 0:
            answer = say({"step_ms": 1000 * (time.perf_counter() - begin)})
        todo = [answer if rank == 0 else None]
        dist.broadcast_object_list(todo)
        finished = todo[0]["action"] == "finished"
        if todo[0]["action"] == "switch":
            ddp = rebuild(todo[0]["setting"]["bucket_cap_mb"])
    if rank == 0:
        print(json.dumps(answer["verdict"], indent=1))


if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
