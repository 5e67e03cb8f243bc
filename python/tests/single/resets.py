"""Resets in one process, and what they leave behind: memory, descriptors, threads, shared memory.

    ronde run -np 2 --min-np 2 python python/tests/single/resets.py 1000

Also with HOROVOD_TIMELINE and HOROVOD_AUTOTUNE. Without --min-np, the launcher has no part in it.
Each reset fails as after a lost rank: the state is restored, the context is built again, and the
training goes on. The first resets, which fill caches, are not compared. Exits with 1 if anything
has grown.
"""

import os
import sys
import time

import torch

import ronde.torch as hvd
from ronde.common.exceptions import HorovodInternalError

# Resets before the first reading, and bytes that are not taken for a leak: the allocator does not
# return all memory.
WARM_UP = 10
BYTES_MAX = 6 << 20


def settled(former):
    """A reading, once none of its counts is above that of `former`, or after ten seconds."""
    for _ in range(50):
        time.sleep(0.2)  # the kernel counts a thread for a moment after it was joined
        now = reading()
        if former is None or all(new <= old for old, new in zip(former[1:], now[1:])):
            break
    return now


def reading():
    """Resident bytes, descriptors, threads and mappings of shared memory of this process."""
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with open("/proc/self/status") as file:
        threads = next(int(line.split()[1]) for line in file if line.startswith("Threads:"))
    with open("/proc/self/maps") as file:
        # The runtime's memory has no name in /dev/shm; other jobs may have files there.
        mappings = sum("memfd:ronde" in line or "/dev/shm/" in line for line in file)
    return resident, len(os.listdir("/proc/self/fd")), threads, mappings


def main(resets):
    of_rank_0 = hvd.ProcessSet([0])
    hvd.init(process_sets=[of_rank_0])
    model = torch.nn.Linear(1000, 100)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, done=0)
    readings = []

    @hvd.elastic.run
    def train(state):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 1000)).sum().backward()
            optimizer.step()
        if of_rank_0.included():
            hvd.allreduce(torch.ones(1), name="of rank 0", process_set=of_rank_0)
        hvd.barrier()
        if state.done == WARM_UP or state.done == resets:
            readings.append(settled(readings[0] if readings else None))
        hvd.barrier()
        if state.done < resets:
            state.done += 1
            state.save()
            raise HorovodInternalError("as after a lost rank")

    train(state)
    (before, *others), (after, *now) = readings
    count = resets - WARM_UP
    names = ("descriptors", "threads", "mappings of shared memory")
    counts = zip(names, others, now)
    grown = [f"{name}: {old}, then {new}" for name, old, new in counts if new > old]
    bytes_per_reset = (after - before) / count
    if after - before > BYTES_MAX:
        grown.append(f"memory: {bytes_per_reset:.0f} bytes per reset")
    counts = f"{', '.join(map(str, now))} {', '.join(names)}"
    figures = f"(rank {hvd.rank()}: {bytes_per_reset:.0f} bytes per reset, {counts})"
    print("; ".join(grown) or f"no growth in {resets} resets", figures, flush=True)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
