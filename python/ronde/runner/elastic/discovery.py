"""Discovery of the hosts of an elastic job, and tracking of added, removed and failed hosts.

::

    manager = HostManager(HostDiscoveryScript("./hosts.sh", 4), cooldown_range=(10, 300))
    if manager.update_available_hosts() != HostUpdateResult.no_update:
        print(manager.current_hosts)

`ronde run` has a discovery of its own; these classes are for programs that start ranks themselves.
"""

from __future__ import annotations

import io
import logging
import random
import threading
import time
from collections import defaultdict
from typing import Iterable, Mapping, Optional, Sequence

from ...common.elastic import HostUpdateResult
from ..common.util import safe_shell_exec

#: Smallest and largest bound of a cooldown range, in seconds.
DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS = 1
DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS = 3600

_LOG = logging.getLogger(__name__)


class HostDiscovery:
    """Finds hosts: a base class."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Returns the number of slots by host."""
        raise NotImplementedError


class FixedHosts(HostDiscovery):
    """A fixed list of hosts, set by the program."""

    def __init__(self, host_slots: Mapping[str, int]) -> None:
        self.set(host_slots)

    def set(self, host_slots: Mapping[str, int]) -> None:
        """Replaces the hosts."""
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return self._host_slots  # type: ignore[return-value]


class HostDiscoveryScript(HostDiscovery):
    """Hosts printed by a command: lines ``host`` or ``host:slots``; ``slots`` is the default."""

    def __init__(self, discovery_script: str, slots: Optional[int]) -> None:
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Raises RuntimeError if the command fails, ValueError for a line that is not a host."""
        return dict(self._parsed(line) for line in self._execute_discovery_script().split())

    def _parsed(self, line: str) -> tuple[str, int]:
        host, colon, slots = line.rpartition(":")
        if not colon:
            if self._default_slots is None:
                raise ValueError(
                    f"{self._discovery_script} printed {line!r} without slots; print host:slots, or set "
                    f"a default with --slots-per-host"
                )
            return line, self._default_slots
        if not host or not slots.isdecimal():
            raise ValueError(
                f"{self._discovery_script} printed {line!r}; expected host or host:slots"
            )
        return host, int(slots)

    def _execute_discovery_script(self) -> str:
        output = io.StringIO()
        code = safe_shell_exec.execute(self._discovery_script, stdout=output)
        if code != 0:
            raise RuntimeError(
                f"the host discovery script {self._discovery_script} failed: exit code {code}"
            )
        return output.getvalue()


class HostState:
    """State of a host: usable, or failed.

    ``cooldown_range``: the shortest and the longest time in seconds for which a failed host is not
    used; the time doubles with each failure. Without a range, a failed host is never used again.
    """

    def __init__(self, cooldown_range: Optional[Sequence[int]] = None) -> None:
        if cooldown_range:
            self._validate_cooldown_range(cooldown_range)
        self._cooldown_range = tuple(cooldown_range) if cooldown_range else None
        self._cooldown_end = 0.0
        self._failures = 0
        self._is_blacklisted = False
        self._event = threading.Event()

    @staticmethod
    def _validate_cooldown_range(cooldown_range: Sequence[int]) -> None:
        lower, upper = cooldown_range
        if lower < DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS:
            raise ValueError(
                f"the cooldown range begins at {lower} s; it cannot be less than "
                f"{DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS} s"
            )
        if upper > DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS:
            raise ValueError(
                f"the cooldown range ends at {upper} s; it cannot be more than "
                f"{DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS} s"
            )
        if lower > upper:
            raise ValueError(f"the cooldown range ends at {upper} s, before it begins at {lower} s")

    def get_event(self) -> threading.Event:
        """An event that is set at the next failure of the host."""
        if self._event.is_set():
            self._event = threading.Event()
        return self._event

    def set_event(self) -> None:
        """Sets the event of :meth:`get_event`."""
        self._event.set()

    def blacklist(self) -> None:
        """Records a failure of the host. No effect during a cooldown."""
        self._is_blacklisted = True
        now = time.monotonic()
        if self._cooldown_end > now:
            return
        if self._cooldown_range is not None:
            lower, upper = self._cooldown_range
            self._failures += 1
            # With random jitter, so that hosts that failed together do not return together.
            seconds = lower * (2.0 ** min(self._failures, 32) + random.random())
            self._cooldown_end = now + min(max(seconds, lower), upper)
        self.set_event()

    def whitelist(self) -> None:
        """Makes the host usable again."""
        self._is_blacklisted = False
        self._cooldown_end = 0.0

    def is_blacklisted(self) -> bool:
        """Whether the host has failed and has not been whitelisted since."""
        return self._is_blacklisted

    def is_resurrected(self) -> bool:
        """Whether the host has failed and its cooldown has ended."""
        return 0 < self._cooldown_end <= time.monotonic()


class DiscoveredHosts:
    """Hosts with their slots, and the usable hosts in the order in which they get ranks: the oldest
    first.
    """

    def __init__(self, host_slots: Mapping[str, int], host_assignment_order: Sequence[str]) -> None:
        self._host_slots = host_slots
        self._host_assignment_order = list(host_assignment_order)

    @property
    def host_slots(self) -> Mapping[str, int]:
        """Number of slots of every host."""
        return self._host_slots

    @property
    def available_hosts(self) -> set[str]:
        """The usable hosts."""
        return set(self._host_assignment_order)

    @property
    def host_assignment_order(self) -> list[str]:
        """The hosts in the order in which they joined."""
        return self._host_assignment_order

    def get_slots(self, host: str) -> int:
        """A host's number of slots; 0 for an unknown host."""
        return self._host_slots.get(host, 0)

    def count_available_slots(self) -> int:
        """Number of slots of all usable hosts."""
        return sum(map(self.get_slots, self._host_assignment_order))

    def update(self, hosts_state: Mapping[str, HostState]) -> DiscoveredHosts:
        """Removes hosts that have failed. Returns itself."""
        self._host_assignment_order = [
            host for host in self._host_assignment_order if not hosts_state[host].is_blacklisted()
        ]
        return self

    def __str__(self) -> str:
        return f"slots: {dict(self._host_slots)} order: {self._host_assignment_order}"


class HostManager:
    """The hosts found by ``discovery``, without failed ones; see :class:`HostState`."""

    def __init__(
        self, discovery: HostDiscovery, cooldown_range: Optional[Sequence[int]] = None
    ) -> None:
        if cooldown_range:
            HostState._validate_cooldown_range(cooldown_range)
        self._discovery = discovery
        self._hosts_state: defaultdict[str, HostState] = defaultdict(
            lambda: HostState(cooldown_range)
        )
        self._current_hosts = DiscoveredHosts({}, [])

    def update_available_hosts(self) -> int:
        """Runs the discovery again. Returns the change, a :class:`HostUpdateResult`."""
        before = self._current_hosts
        slots = dict(self._discovery.find_available_hosts_and_slots())
        returned = [host for host in slots if self._hosts_state[host].is_resurrected()]
        if slots == before.host_slots and not returned:
            return HostUpdateResult.no_update
        update = HostUpdateResult.no_update
        for host in {*slots, *before.host_slots}:
            change = slots.get(host, 0) - before.get_slots(host)
            is_new = host in slots and host not in before.host_slots
            is_gone = host not in slots
            if is_new or change > 0 or (host in returned and change == 0):
                update |= HostUpdateResult.added
            elif is_gone or change < 0:
                update |= HostUpdateResult.removed
        for host in returned:
            self._hosts_state[host].whitelist()
        available = [host for host in slots if not self._hosts_state[host].is_blacklisted()]
        order = self.order_available_hosts(available, before.host_assignment_order)
        self._current_hosts = DiscoveredHosts(slots, order)
        return update

    @property
    def current_hosts(self) -> DiscoveredHosts:
        """The hosts of the last discovery, without those that have failed since."""
        return self._current_hosts.update(self._hosts_state)

    def blacklist(self, host: str) -> None:
        """Records a failure of the host."""
        if not self.is_blacklisted(host):
            _LOG.info("host %s has failed and is not used", host)
        self._hosts_state[host].blacklist()

    def is_blacklisted(self, host: str) -> bool:
        """Whether the host has failed."""
        return self._hosts_state[host].is_blacklisted()

    def get_host_event(self, host: str) -> threading.Event:
        """An event that is set at the next failure of the host."""
        return self._hosts_state[host].get_event()

    @staticmethod
    def order_available_hosts(
        available_hosts: Iterable[str], prev_host_assignment_order: Sequence[str]
    ) -> list[str]:
        """Sorts hosts: those that had ranks come first, in their previous order, so that the oldest
        keep the lowest ranks.
        """
        available = list(available_hosts)
        kept = [host for host in prev_host_assignment_order if host in set(available)]
        return kept + [host for host in available if host not in set(kept)]
