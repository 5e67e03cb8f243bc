"""Hosts, their slots, and the assignment of ranks to them.

::

    hosts = parse_hosts("node1:2,node2:1")
    slots = get_host_assignments(hosts, 3)
    assert [(slot.hostname, slot.local_rank) for slot in slots] == [("node1", 0), ("node1", 1),
    ("node2", 0)]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike
from typing import Iterable, Optional, Union

# A name, an address, or an IPv6 address in brackets. A name that begins with `-` would be an option
# of `ssh` or `mpirun`.
_ENTRY = re.compile(r"(?P<host>[\w.][\w.-]*|\[[0-9A-Fa-f:.]+\]):(?P<slots>[0-9]+)", re.ASCII)


@dataclass
class HostInfo:
    """A host and the number of its slots."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Reads ``host:slots``. ValueError for anything else."""
        match = _ENTRY.fullmatch(host_string.strip())
        if match is None:
            raise ValueError(
                f"Invalid host input: {host_string.strip()!r} is not a host and its slots; write for example "
                f"worker-0:2,worker-1:2"
            )
        return HostInfo(match["host"], int(match["slots"]))


@dataclass
class SlotInfo:
    """Assignment of a rank: its host, and its rank and size in the job, on its host, and among the
    ranks with its local rank.
    """

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """The six numbers separated by commas, each rank before its size."""
        numbers = (
            self.rank,
            self.size,
            self.local_rank,
            self.local_size,
            self.cross_rank,
            self.cross_size,
        )
        return ",".join(map(str, numbers))


#: The value for no assignment.
INVALID_SLOT_INFO = SlotInfo(
    "", rank=-1, local_rank=-1, cross_rank=-1, size=-1, local_size=-1, cross_size=-1
)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Reads ``host:slots,host:slots``. ValueError for anything else, with the entry."""
    return [HostInfo.from_string(entry) for entry in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """Like :func:`parse_hosts`, but returns the hosts in order, and the slots by host."""
    parsed = parse_hosts(hosts)
    return [host.hostname for host in parsed], {host.hostname: host.slots for host in parsed}


def parse_host_files(filename: Union[str, PathLike[str]]) -> str:
    """Reads lines ``host slots=n``, where ``#`` begins a comment; returns ``host:n,host:n``.

    Raises ValueError for any other line, with its number; OSError if the file cannot be read.
    """
    hosts = []
    with open(filename) as file:
        for number, line in enumerate(file, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            slots = (
                words[1][len("slots=") :]
                if len(words) > 1 and words[1].startswith("slots=")
                else ""
            )
            try:
                host = HostInfo.from_string(f"{words[0]}:{slots}")
            except ValueError:
                raise ValueError(
                    f"{filename}, line {number}: {line.strip()!r} is not a host and its slots; write for "
                    f"example worker-0 slots=2"
                ) from None
            hosts.append(f"{host.hostname}:{host.slots}")
    return ",".join(hosts)


def get_host_assignments(
    hosts: Iterable[HostInfo], min_num_proc: int, max_num_proc: Optional[int] = None
) -> list[SlotInfo]:
    """Assigns ranks to slots, host by host, and returns the assignments by rank.

    Uses all slots, or ``max_num_proc`` of them. ValueError if there are fewer than
    ``min_num_proc``.
    """
    places: list[tuple[str, int, int]] = []  # host, local rank, local size
    for host in hosts:
        left = host.slots if max_num_proc is None else min(host.slots, max_num_proc - len(places))
        places.extend((host.hostname, local_rank, left) for local_rank in range(left))
    if len(places) < min_num_proc:
        raise ValueError(
            f"Requested more processes ({min_num_proc}) than there are available slots ({len(places)}); "
            f"raise the hosts' slots or lower the number of processes"
        )
    # By local rank: the hosts that have it, in order.
    columns: dict[int, list[str]] = {}
    for hostname, local_rank, _ in places:
        column = columns.setdefault(local_rank, [])
        if hostname not in column:
            column.append(hostname)
    return [
        SlotInfo(
            hostname=hostname,
            rank=rank,
            local_rank=local_rank,
            cross_rank=columns[local_rank].index(hostname),
            size=len(places),
            local_size=local_size,
            cross_size=len(columns[local_rank]),
        )
        for rank, (hostname, local_rank, local_size) in enumerate(places)
    ]
