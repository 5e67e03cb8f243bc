"""Draws the schedules of the fault campaign: a seed and a number determine one."""

import dataclasses
import random
import typing

#: Faults, with their weights.
FAULTS = {
    "kill": 4,
    "kill rank 0": 3,
    "two at once": 2,
    "kill during a reset": 3,
    "two deaths during a reset": 2,
    "kill in a commit": 2,
    "kill rank 0 in a commit": 2,
    "commit raises": 2,
    "commit fails": 2,
    "callback raises": 2,
    "callback fails": 2,
    "state differs": 2,
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
HOST_FAULTS = {
    "add a host": 3,
    "remove a host": 2,
    "link down": 3,
    "host vanishes": 3,
    "kill a host's ranks": 3,
}

#: Faults after which no rank is left: the last fault of some jobs, which end with an error.
ENDS = ("kill all", "commit raises on all", "callback raises on all")
ENDS_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Order:
    """What a rank does to itself: `act` at one of `moments` (benches/elastic/rank.py has both).
    `ranks`: which one does it."""

    act: str
    moments: tuple
    ranks: typing.Literal["any", "first", "not first", "all"] = "any"


COMMIT = ("before a commit", "within a commit", "before the agreement", "after a commit")
CALLBACK = ("in a callback",)
ORDERS = {
    "kill in a commit": Order("die", COMMIT),
    "kill rank 0 in a commit": Order("die", COMMIT, "first"),
    "commit raises": Order("raise", COMMIT),
    "commit fails": Order("fail", COMMIT),
    "commit raises on all": Order("raise", COMMIT, "all"),
    "callback raises": Order("raise", CALLBACK),
    "callback fails": Order("fail", CALLBACK),
    "callback raises on all": Order("raise", CALLBACK, "all"),
    "state differs": Order("differ", ("after a commit",), "not first"),
}


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
        return all(fault.kind not in ENDS for fault in self.faults)


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
    if not only and random_.random() < ENDS_SHARE:
        kinds[-1] = random_.choice(ENDS)
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
