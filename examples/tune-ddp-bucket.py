"""Tunes bucket_cap_mb of PyTorch's DistributedDataParallel while it trains: two gloo ranks on this
machine's CPU.

Needs torch and `ronde` on the PATH; docs/TUNE.md has the protocol. Run it as: python3
examples/tune-ddp-bucket.py
"""
import json, subprocess, time, torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

SPACE = {"parameters": [{"name": "bucket_cap_mb", "scale": "log", "low": 0.25, "high": 64, "levels": 9}],
         "start": {"bucket_cap_mb": 25}}  # PyTorch's default


def train(rank):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29517", rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(24)))  # 24 MiB of gradients
    inputs = torch.randn(16, 512)
    tuner = subprocess.Popen(["ronde", "tune"], stdin=-1, stdout=-1, text=True) if rank == 0 else None

    def say(line):  # rank 0 talks to the tuner and broadcasts the answer
        answer = [None]
        if rank == 0:
            print(json.dumps(line), file=tuner.stdin, flush=True)
            answer = [json.loads(tuner.stdout.readline())]
        dist.broadcast_object_list(answer)
        return answer[0]

    answer = say(SPACE)["ready"]
    while answer.get("action") != "finished":
        if "setting" in answer:
            ddp = DDP(model, bucket_cap_mb=answer["setting"]["bucket_cap_mb"])
        begin = time.perf_counter()
        ddp(inputs).sum().backward()
        dist.barrier()  # the step ends when the slowest rank has finished it
        answer = say({"step_ms": 1000 * (time.perf_counter() - begin)})
    if rank == 0:
        print(json.dumps(answer["verdict"], indent=1))


if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
