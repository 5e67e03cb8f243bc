"""Settings of an elastic job as attributes."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from ..common.util.settings import BaseSettings
from .discovery import HostDiscovery


class ElasticSettings(BaseSettings):
    """Settings of a job whose number of ranks may change.

    ``discovery`` finds the hosts; a pickled copy does not contain it. ``elastic_timeout``: seconds
    for the rendezvous after a change; ``cooldown_range``: see
    :class:`~horovod.runner.elastic.discovery.HostState`.
    """

    def __init__(
        self,
        discovery: HostDiscovery,
        min_num_proc: Optional[int],
        max_num_proc: Optional[int],
        elastic_timeout: Optional[int],
        reset_limit: Optional[int],
        cooldown_range: Optional[Sequence[int]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(elastic=True, **kwargs)
        self.discovery = discovery
        self.min_num_proc = min_num_proc
        self.max_num_proc = max_num_proc
        self.elastic_timeout = elastic_timeout
        self.reset_limit = reset_limit
        self.cooldown_range = cooldown_range

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "discovery": None}
