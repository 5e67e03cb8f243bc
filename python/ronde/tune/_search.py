"""Rank 0's search: reports step times to the service and keeps the setting that it wants."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional, Union

from .. import _ronde

Settings = Dict[str, Union[bool, int, float]]
StatePath = Union[str, os.PathLike[str], None]


def check_state(state: StatePath) -> None:
    """Raises ValueError if there can be no state file of this path."""
    if state is None:
        return
    path = os.fspath(state)
    if os.path.isdir(path):
        raise ValueError(f"state is the folder {path}; give the path of a file")
    folder = _folder(path)
    if not os.path.isdir(folder):
        raise ValueError(f"state is {path}, but there is no folder {folder}; create it first")


def _folder(path: str) -> str:
    return os.path.dirname(path) or os.curdir


class Search:
    """A search of the service in this process.

    `wanted` is the setting to put in force at the next agreement; until then, steps are left out,
    because the service takes the setting to be in force at once.
    """

    def __init__(self, line: Dict[str, Any], state: StatePath = None) -> None:
        self._service = _ronde.TunerService(state)
        ready = _parsed(self._service.reply(json.dumps(line)))["ready"]
        self.warnings: List[str] = ready.get("warnings", [])
        # The file is replaced by a new one, so the folder counts. No error: the file is read.
        if state is not None and not os.access(_folder(os.fspath(state)), os.W_OK | os.X_OK):
            self.warnings.append(
                f"state file {os.fspath(state)} cannot be written: its folder is read-only for "
                "this user; what is measured will be lost"
            )
        self.wanted: Settings = ready["setting"]
        self.in_force: Optional[Settings] = None
        # Whether anything has changed since the last agreement.
        self.has_news = True
        self.verdict: Optional[Dict[str, Any]] = None
        # Whether steps are measured: during the search, and in a check after its verdict.
        self.measures = True
        # Steps that are not reported yet.
        self._times_ms: List[float] = []

    def put_in_force(self, setting: Settings) -> None:
        """Takes note of the setting of the next steps."""
        if setting != self.in_force:
            self.in_force = setting
            self._times_ms.clear()
        self.has_news = False

    def add(self, seconds: float) -> None:
        """Adds the time of a step, for the next report."""
        self._times_ms.append(1000.0 * seconds)

    def report(self) -> None:
        """Reports the steps since the last report, unless a change of the setting is due."""
        times_ms, self._times_ms = self._times_ms, []
        if not times_ms or self.wanted != self.in_force:
            return
        text = self._service.steps(times_ms)
        self.measures = self._service.measures()
        if text is None:
            return
        answer = _parsed(text)
        self.has_news = True
        self.warnings += answer.get("warnings", [])
        action = answer["action"]
        if action == "switch":
            self.wanted = answer["setting"]
        elif action == "finished":
            self.verdict = answer["verdict"]
            self.wanted = self.verdict["setting"]
        elif action == "drifted":
            self.verdict = None

    @property
    def rests(self) -> bool:
        """Whether the verdict's setting stays in force, unchecked, so that decisions are rare."""
        return self.verdict is not None and self.wanted == self.in_force and not self.measures

    def save(self) -> None:
        """Writes the state file, if there is one."""
        self._service.save()


def _parsed(text: str) -> Dict[str, Any]:
    """An answer of the service. Raises ValueError if it is an error."""
    answer: Dict[str, Any] = json.loads(text)
    if "error" in answer:
        error = answer["error"]
        raise ValueError(f"{error['message']}; {error['try']}")
    return answer
