"""How a process of an elastic job hears of changes of its hosts: see
:mod:`ronde.common.elastic`.
"""

from __future__ import annotations

from ...common.elastic import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
