"""Messages between the tuners of a job's ranks, as JSON. Messages of other ranks are checked."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict, Mapping, Optional

from ._search import Settings

# Most steps between two agreements, whatever rank 0 sends.
STEPS_MAX = 1000


class TunerError(RuntimeError):
    """The ranks cannot tune together: versions, parameters or steps differ."""


@dataclasses.dataclass
class Greeting:
    """Version and parameters of a rank, before the search. `problem`: they are invalid."""

    version: str
    space: Dict[str, Any]
    problem: Optional[str] = None

    def text(self) -> str:
        fields = {"ronde_tune": self.version, "space": self.space, "problem": self.problem}
        return json.dumps(fields)

    @classmethod
    def parse(cls, text: Any, rank: int) -> Greeting:
        fields = _fields(text, rank)
        version = fields.get("ronde_tune")
        if not isinstance(version, str):
            raise TunerError(f"rank {rank} sent {_short(text)}, not the greeting of ronde.tune")
        return cls(version, fields.get("space"), fields.get("problem"))


@dataclasses.dataclass
class Decision:
    """Decision of rank 0 at the agreement after `step` steps. The next agreement is `steps` later,
    or never if that is 0. `stopped` is the reason, if rank 0 has lost its tuner."""

    step: int
    settings: Settings
    steps: int
    verdict: Optional[Dict[str, Any]] = None
    stopped: Optional[str] = None

    def text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: Any, step: int, settings: Mapping[str, Any]) -> Decision:
        """Reads the decision of rank 0 for step `step`, about parameters with the names of
        `settings`."""
        fields = _fields(text, 0)
        if fields.get("step") != step:
            raise TunerError(
                f"rank 0 is at step {fields.get('step')!r}, this rank at step {step}; call "
                "Tuner.step once per step on every rank"
            )
        found, steps, verdict = fields.get("settings"), fields.get("steps"), fields.get("verdict")
        is_valid = (
            isinstance(found, dict)
            and found.keys() == settings.keys()
            and all(isinstance(value, (bool, int, float)) for value in found.values())
            and type(steps) is int
            and 0 <= steps <= STEPS_MAX
            and (verdict is None or isinstance(verdict, dict))
        )
        if not is_valid:
            raise TunerError(f"rank 0 sent {_short(text)}, not a decision about {list(settings)}")
        stopped = fields.get("stopped")
        return cls(step, found, steps, verdict, None if stopped is None else str(stopped))


def _fields(text: Any, rank: int) -> Dict[str, Any]:
    try:
        fields = json.loads(text)
    except (TypeError, ValueError):
        fields = None
    if not isinstance(fields, dict):
        raise TunerError(
            f"rank {rank} sent {_short(text)}, not a message of ronde.tune; broadcast(text, root) "
            "has to return the text of rank `root` on every rank"
        )
    return fields


def _short(text: Any) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
