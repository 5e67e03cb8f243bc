"""Tuner of a training loop, on one rank or on several that agree through a broadcast.

Rank 0 searches; the others follow. All ranks call `step` once per step and hold their next
agreement at the same step, which rank 0 named at the last one:

    step     1   2   3   4   5   6   7   8   9  …
    rank 0   A       A       A   A       A        A: rank 0 broadcasts the settings, and the number
    rank 1   A       A       A   A       A           of steps until the next agreement

A setting changes only at an agreement, so all ranks change it after the same step. A broadcast that
does not block goes on during the next step, and the agreement ends after that. While the search
runs, agreements cost at most 0.05 % of the time or are `SEARCH_STEPS` steps apart; after the
verdict they are `WATCH_STEPS` steps apart, but for checks of the chosen setting.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import time
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type, Union

from .. import __version__
from ._messages import Decision, Greeting, TunerError
from ._search import Search, Settings, StatePath, check_state
from .parameters import Parameter, space_line, whole

__all__ = ["Tuner", "TunerError"]

# Part of the step time that agreements may take during the search.
SHARE = 0.0005
# Most steps between agreements during the search: a bad setting stays in force for that long.
SEARCH_STEPS = 5
# Steps between agreements after the verdict: a drift is noticed later by at most this.
WATCH_STEPS = 50
# Seconds of a search between saves, for jobs that are killed: a save may take milliseconds.
SAVE_S = 60.0
# Variable with the seed of the random choices; the runtime's tuner reads it too.
SEED = "RONDE_AUTOTUNE_SEED"

_log = logging.getLogger("ronde.tune")
_VERSION = __version__

# `broadcast(text, root)` returns the text of rank `root` on every rank, or begins to send it and
# returns a function that waits for it.
Broadcast = Callable[[str, int], Union[str, Callable[[], str]]]


def _seed() -> int:
    """The seed of the environment, or a drawn one: the limit of wrong adoptions is a probability
    over seeds.

    Raises ValueError if the environment's is no number from 0 to 2^64 - 1.
    """
    text = os.environ.get(SEED, "").strip()
    if not text:
        return secrets.randbits(32)
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 64):
        raise ValueError(f"{SEED}={text!r} is no seed; give a number from 0 to 2^64 - 1")
    return int(text)


class Tuner:
    """Finds better settings while a job trains.

    `parameters` gives each setting's name, scale, bounds and start. With several ranks, `broadcast`
    is a function of a text and a rank that returns that rank's text on all of them, such as
    mpi4py's `comm.bcast`; `rank` and `size` are this process and the number of processes. The
    constructor calls it `size` times and once more, and `step` at steps on which all ranks agree.
    It may also begin to send the text and return a function that waits for it and returns it:
    `step` calls that one step later, so that no rank waits for another.

    `state` is the path of a file, on rank 0, from which the next job of equal `key` begins at the
    result. `steps` is the number of steps of the job, if known: the search may then cost 2 % of it,
    otherwise 20 steps. `seed` makes the same random choices, as RONDE_AUTOTUNE_SEED does; without
    both, each job draws another one. `settle_steps` are discarded after each change, besides the
    first one. With `watch`, the search goes on after its verdict, when the step time changes for good.

    The file is written with each verdict, once a minute during a search, and by `close` or at the
    end of the interpreter.

    Raises ValueError for invalid parameters and for a state file whose folder does not exist, and
    TunerError, on all ranks, if versions or parameters differ between ranks.
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        broadcast: Optional[Broadcast] = None,
        rank: int = 0,
        size: Optional[int] = None,
        *,
        state: StatePath = None,
        key: Optional[Mapping[str, str]] = None,
        steps: Optional[int] = None,
        seed: Optional[int] = None,
        settle_steps: int = 0,
        watch: bool = True,
    ) -> None:
        if broadcast is not None and size is None:
            raise ValueError("a tuner with broadcast needs size, the number of ranks")
        self._size = 1 if size is None else size
        if not 0 <= rank < self._size:
            raise ValueError(f"rank {rank} of {self._size} ranks; give rank, size and broadcast")
        if self._size > 1 and broadcast is None:
            raise ValueError(f"{self._size} ranks need broadcast, to agree on the settings")
        self.rank = rank
        self._broadcast = broadcast
        self._settle_steps = settle_steps
        self._watch = watch
        self._state = state
        self._at_exit: Optional[weakref.finalize[Any, Any]] = None
        self._saved = time.perf_counter()
        self._search: Optional[Search] = None
        self._failure: Optional[str] = None
        self._is_off = False
        self._verdict: Optional[Dict[str, Any]] = None
        self._steps = 0
        self._agreement = 0
        # The step after which the search learns the times since the last report.
        self._report_step = 0
        # The agreement under way: rank 0's decision, and the function that waits for it.
        self._pending: Optional[Tuple[Decision, Callable[[], Any]]] = None
        self._settling = 0
        self._begin: Optional[float] = None
        self._step_s = 0.0
        self._broadcast_s = 0.0
        self._sending_s = 0.0

        options = {"steps": whole(steps), "seed": whole(seed), "key": dict(key or {})}
        line = {name: value for name, value in options.items() if value is not None}
        greeting = self._greeting(parameters, line)
        self._settings: Settings = greeting.space.get("start", {})
        self._greet(greeting)
        line.update(greeting.space)
        if rank == 0 and not self._is_off:
            try:
                self._search = Search(line, state)
                _log.debug("%s=%s makes the same random choices", SEED, line["seed"])
                self._at_exit = weakref.finalize(self, _save_at_exit, self._search, os.getpid())
            except Exception as error:
                self._failure = _text(error)
        self._agree()
        self._end_agreement()

    @property
    def settings(self) -> Settings:
        """The settings in force, by name; equal on all ranks."""
        return dict(self._settings)

    @property
    def finished(self) -> bool:
        """Whether there is a verdict, or tuning has stopped."""
        return self._is_off or self._verdict is not None

    @property
    def measuring(self) -> bool:
        """Whether the time of the next step counts: during the search, and on rank 0 in a check
        after its verdict."""
        return not self.finished if self._search is None else self._search.measures

    @property
    def verdict(self) -> Optional[Dict[str, Any]]:
        """Result of the search: the chosen `setting` and its gain over the start. None before."""
        return self._verdict

    def begin(self) -> None:
        """Marks the start of a step: the time since the last one is not part of it.

        For work that is not in every step, such as an evaluation.
        """
        self._begin = time.perf_counter()

    def step(self, seconds: Optional[float] = None) -> bool:
        """Marks the end of a step; returns whether the settings have changed, for the next step.

        `seconds` is its duration; by default, the time since the last call or `begin`. The duration
        on rank 0 counts; in data-parallel training, every rank waits for the slowest in each step.
        """
        now = time.perf_counter()
        if seconds is None:
            measured = None if self._begin is None else now - self._begin
        elif not 0.0 < seconds < math.inf:
            raise ValueError(f"a step of {seconds!r} seconds; expected a finite number > 0")
        else:
            measured = float(seconds)
        self._begin = now
        if self._is_off:
            return False
        self._steps += 1
        if self._search is not None and measured:
            self._report(self._search, measured)
        if not self._is_due():
            return False
        is_changed = self._end_agreement()
        if self._steps >= self._agreement:
            is_changed = self._agree() or is_changed
        self._save_now_and_then()
        self._begin = time.perf_counter()
        return is_changed

    def close(self) -> None:
        """Ends tuning and saves what was measured; the settings stay in force.

        All ranks call it after the same step. It waits for none of them, so that it may follow an
        error; a rank that goes on to call `step` waits for this one at the next agreement.
        """
        self._is_off = True
        # Not waited for: a rank that has failed would not send it.
        self._pending = None
        search, self._search = self._search, None
        if self._at_exit is not None:
            self._at_exit.detach()
        if search is not None:
            _save(search, reports=self._failure is None)

    def abandon(self, settings: Settings, reason: str) -> None:
        """Ends tuning because the settings cannot be changed any more: `settings` stay in force.

        All ranks call it after the same step.
        """
        self._settings = dict(settings)
        # Rank 0 says it for all.
        self._stop(reason, logging.WARNING if self.rank == 0 else logging.DEBUG)

    def __enter__(self) -> Tuner:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def _greeting(self, parameters: Mapping[str, Parameter], options: Dict[str, Any]) -> Greeting:
        """Checks the parameters of this rank, and draws a seed if the options have none. An error
        waits until all ranks know it.
        """
        space: Dict[str, Any] = {}
        try:
            space = space_line(parameters)
            if "seed" not in options:
                options["seed"] = _seed()
            Search({**options, **space})
            if self.rank == 0:
                check_state(self._state)
        except Exception as error:
            if self._size == 1:
                raise
            return Greeting(_VERSION, space, _text(error))
        return Greeting(_VERSION, space)

    def _greet(self, own: Greeting) -> None:
        """Compares version and parameters with all other ranks."""
        if self._size == 1:
            return
        greetings: List[Greeting] = []
        for root in range(self._size):
            text = self._received(self._send(own.text(), root, "versions"), "versions")
            if self._is_off:
                if own.problem is not None:
                    raise ValueError(own.problem)
                return
            text = own.text() if root == self.rank else text
            greetings.append(Greeting.parse(text, root))
        first = greetings[0]
        for rank, greeting in enumerate(greetings):
            if greeting.version != first.version:
                raise TunerError(
                    f"rank 0 has the tuner of ronde {first.version}, rank {rank} that of ronde "
                    f"{greeting.version}; install the same version on all ranks"
                )
        for rank, greeting in enumerate(greetings):
            if greeting.problem is not None:
                raise ValueError(f"rank {rank}: {greeting.problem}")
            if greeting.space != first.space:
                raise TunerError(
                    f"rank {rank} tunes {greeting.space}, rank 0 {first.space}; give all ranks the "
                    "same parameters"
                )

    def _send(self, text: str, root: int, what: str) -> Any:
        """Broadcasts a text from `root`; returns the received one, unchecked, or a function that
        waits for it. If the broadcast fails, tuning ends on this rank."""
        broadcast = self._broadcast
        assert broadcast is not None  # with several ranks
        self._sending_s = 0.0
        return self._try(lambda: broadcast(text if self.rank == root else "", root), what)

    def _received(self, sent: Any, what: str) -> Any:
        """Waits for the text of `_send`."""
        return self._try(sent, what) if callable(sent) else sent

    def _try(self, call: Callable[[], Any], what: str) -> Any:
        begin = time.perf_counter()
        try:
            return call()
        except Exception as error:
            self._stop(f"the broadcast of {what} after step {self._steps} failed: {_text(error)}")
            return None
        finally:
            self._sending_s += time.perf_counter() - begin

    def _is_due(self) -> bool:
        """Whether an agreement begins or ends after this step."""
        if self._size == 1 and self._search is not None:
            return self._search.has_news or self._failure is not None
        return self._steps >= self._agreement or self._pending is not None

    def _report(self, search: Search, seconds: float) -> None:
        """Notes the time of a step on rank 0. The search learns it before the last step of an
        agreement, in which it computes a proposal: a call after a step has nothing in the
        processor's caches, and takes many times as long as another one."""
        self._step_s = seconds
        if self._settling > 0:
            self._settling -= 1
        else:
            search.add(seconds)
        if self._size > 1 and self._steps != self._report_step:
            return
        try:
            search.report()
        except (KeyboardInterrupt, SystemExit):
            raise
        # A panic of the extension module is not an Exception.
        except BaseException as error:
            self._failure = _text(error)

    def _save_now_and_then(self) -> None:
        """Saves an unfinished search on rank 0: a job that is killed closes nothing. A verdict is
        saved by the service."""
        search, now = self._search, time.perf_counter()
        if search is None or search.verdict is not None or now - self._saved < SAVE_S:
            return
        # A file that cannot be written is reported once, and again at the end.
        self._saved = now if _save(search, reports=False) else math.inf

    def _agree(self) -> bool:
        """Begins an agreement on rank 0's decision, and ends it if the broadcast blocks. Returns
        whether the settings change."""
        if self._is_off:
            return False
        decision = self._decide()
        if self._size == 1:
            return self._follow(decision)
        sent = self._send(decision.text(), 0, "settings")
        if self._is_off:
            return False
        self._pending = decision, sent if callable(sent) else lambda: sent
        return False if callable(sent) else self._end_agreement()

    def _end_agreement(self) -> bool:
        """Ends the agreement under way, if there is one; returns whether the settings change."""
        if self._is_off or self._pending is None:
            return False
        (decision, received), self._pending = self._pending, None
        text = self._received(received, "settings")
        if self._is_off:
            return False
        # A moving average: a broadcast may wait until the other ranks receive it.
        self._broadcast_s += (self._sending_s - self._broadcast_s) / 4
        if self.rank != 0:
            decision = Decision.parse(text, decision.step, self._settings)
        return self._follow(decision)

    def _follow(self, decision: Decision) -> bool:
        """Puts rank 0's decision in force; returns whether it changes the settings."""
        if decision.stopped is not None:
            # Rank 0 says it for all.
            level = logging.WARNING if self.rank == 0 else logging.DEBUG
            self._stop(f"the tuner of rank 0 failed: {decision.stopped}", level)
            return False
        is_changed = decision.settings != self._settings
        self._settings = decision.settings
        self._agreement = decision.step + decision.steps
        self._report_step = max(self._agreement - 1, self._steps + 1)
        self._settling = self._settle_steps if is_changed else self._settling
        self._note(decision.verdict)
        if self._search is not None:
            self._search.put_in_force(decision.settings)
            self._say_warnings(self._search)
        if decision.steps == 0:
            self.close()
        return is_changed

    def _decide(self) -> Decision:
        search = self._search
        if search is None or self._failure is not None:
            return Decision(self._steps, self._settings, 0, stopped=self._failure or "")
        return Decision(self._steps, search.wanted, self._interval(search), search.verdict)

    def _interval(self, search: Search) -> int:
        """Steps until the next agreement."""
        if search.verdict is not None and not self._watch:
            return 0
        if self._size == 1:
            return 1
        if search.rests:
            return WATCH_STEPS
        allowed = SHARE * self._step_s
        if self._broadcast_s >= SEARCH_STEPS * allowed:
            return SEARCH_STEPS
        return max(1, math.ceil(self._broadcast_s / allowed))

    def _note(self, verdict: Optional[Dict[str, Any]]) -> None:
        if self.rank == 0 and verdict is not None and verdict != self._verdict:
            _log.info("%s: %s", verdict.get("reason"), verdict.get("setting"))
        self._verdict = verdict

    def _say_warnings(self, search: Search) -> None:
        for warning in search.warnings:
            _log.warning("%s", warning)
        search.warnings.clear()

    def _stop(self, reason: str, level: int = logging.WARNING) -> None:
        """Ends tuning, with the settings in force."""
        _log.log(
            level,
            "rank %d: %s; tuning has ended, training continues with %s",
            self.rank,
            reason,
            self._settings,
        )
        self.close()


def _save(search: Search, reports: bool) -> bool:
    """Saves what was measured, after a report of the last steps if `reports`; returns whether that
    was possible."""
    try:
        if reports:
            search.report()
        search.save()
        return True
    except (KeyboardInterrupt, SystemExit):
        raise
    # A panic of the extension module is not an Exception.
    except BaseException as error:
        _log.warning("the tuner's measurements are lost: %s", _text(error))
        return False


def _save_at_exit(search: Search, pid: int) -> None:
    """Saves what a tuner without `close` has measured, but not in a process forked from its own:
    the file is the parent's, and a lock of the service may be held for ever."""
    if os.getpid() == pid:
        _save(search, reports=True)


def _text(error: BaseException) -> str:
    """The error's message, or its class if it has none."""
    return str(error) or type(error).__name__
