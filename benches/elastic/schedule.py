"""Draws the schedules of the fault campaign: a seed and a number determine one."""

import dataclasses
import random

#: Faults, with their weights.
FAULTS = {
    "kill": 4,
    "kill rank 0": 3,
    "two at once": 2,
    "kill during a reset": 3,
    "kill in a commit": 2,
    "stop": 2,
    "add slots": 3,
    "remove slots": 2,
    "script fails": 1,
    "script prints nonsense": 1,
    "script prints zero slots": 1,
    "script prints a host twice": 1,
    "script hangs": 1,
}

#: Faults that need other hosts.
HOST_FAULTS = {"add a host": 3, "remove a host": 2, "link down": 3, "host vanishes": 3}

#: The last fault of some jobs: all ranks die, and with them the job.
ALL = "kill all"
ALL_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str
    pause_s: float  # before it
    is_awaited: bool  # whether the next fault waits until the ranks go on after this one
    seed: int  # of the choices that depend on the job's state


@dataclasses.dataclass(frozen=True)
class Schedule:
    seed: int
    number: int
    hosts: int
    slots: int  # of each host, at the start
    faults: tuple

    @property
    def ends_by_itself(self):
        """Whether the job is to finish its training."""
        return all(fault.kind != ALL for fault in self.faults)


def draw(seed, number, hosts_max, ranks_max, faults_max, only=None):
    """Draws schedule `number`. `only`: faults to draw from, instead of all."""
    random_ = random.Random(f"elastic {seed} {number}")
    hosts = random_.randint(1, hosts_max)
    most = max(2, ranks_max // hosts)
    slots = min(random_.randint(2, most), random_.randint(2, most))  # rather few
    weights = FAULTS | (HOST_FAULTS if hosts_max > 1 else {})
    if only:
        weights = {kind: weight for kind, weight in weights.items() if kind in only}
    count = random_.randint(2, faults_max)
    kinds = random_.choices(list(weights), list(weights.values()), k=count)
    if not only and random_.random() < ALL_SHARE:
        kinds[-1] = ALL
    faults = tuple(
        Fault(
            kind=kind,
            pause_s=random_.choice([0, 0.1, 0.5, 1.5]) * random_.random(),
            is_awaited=random_.random() < 0.75,
            seed=random_.getrandbits(32),
        )
        for kind in kinds
    )
    return Schedule(seed, number, hosts, slots, faults)
