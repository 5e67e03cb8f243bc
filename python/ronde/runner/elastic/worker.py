"""Notification of an elastic job's processes about changes of its hosts: see
:mod:`ronde.common.elastic`.
"""

from __future__ import annotations

from ...common.elastic import HostUpdateResult, WorkerNotificationManager

__all__ = ["HostUpdateResult", "WorkerNotificationManager"]
