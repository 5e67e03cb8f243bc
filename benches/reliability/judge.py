"""Judges a trial: allowed outcomes after a fault, and problems. RULES has the rules."""

import dataclasses
import re

import outputs
import plan

RULES = """\
A trial is one job in which one rank, the *victim*, is hit by one fault. These outcomes are allowed:

- **A survivor gets an error that names the victim**, and no other rank, within the limit. Where a
  survivor reports another survivor's error (`rank 2 stopped after an error: rank 1 died …`), the
  innermost error counts. An operation submitted after that fails with an error that names the
  victim as well, and the rank then leaves and exits by itself within 2 s.
- **A survivor finishes normally** only in the phase *shutdown*, in which all ranks leave: a rank that
  has its results does not need the victim any more.
- **A survivor is ended by the launcher** with SIGTERM, if it does not ignore that signal; or it
  fails because of others that the launcher has ended, and names them. After a signal that killed
  the victim the launcher must name the victim. After the other faults it may name a survivor that
  failed: it cannot see that a rank is stopped, or which of two ranks that exit with a code gave up
  because of the other.
- A fault after the victim has left in order does not count: all others must finish normally, and the
  trial is drawn again under the same number (`17.1`), so that the number of trials is the number of
  faults.

Limits, from the fault to the error (from the end of the rendezvous if that is later), by the
settings of the job:

| situation | limit |
| --- | --- |
| a rank dies or leaves while the job runs | {DEATH_LIMIT_S} s |
| a rank is stopped while the job runs | `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS`={STALL_LIMIT_S} |
| … in the phase *process-sets*, where it may be stopped at a rendezvous | {START_TIMEOUT_S} s, {START_GRACE_S} s, and the stall limit for the agreement that follows |
| any fault during the rendezvous at the start | `HOROVOD_START_TIMEOUT`={START_TIMEOUT_S}, {START_GRACE_S} s of waiting for rank 0's verdict, and the delay of a late rank |
| the launcher's end after a stop | {LAUNCHER_GRACE_S} s more: a stopped rank does not react to SIGTERM |

The driver adds an allowance for a busy machine to each limit ({SLACK_S:g} s); the times in the table are
without it. A job that has not ended {GIVE_UP_S:g} s after its fault counts as hanging, and is
killed.

Nothing may be left: processes that inherited the trial's mark in their environment (only a stopped
victim that was started without the launcher is ended by the driver), names in `/dev/shm`, abstract
sockets of the job, files in the working folder, in the folder of outputs or in `TMPDIR` that were not
requested. Core dumps are off. A timeline of a rank that ended by itself is complete; that of a
killed rank can be read up to its last write, and holds what was recorded half a second before the
fault. An autotune log has whole lines; a state file is valid JSON or absent. A killed rank may
leave its own unfinished file (`*.tmp`) if the fault occurred during the write: no other process knows of it.
"""

LEAVE_LIMIT_S = 2

NAMES = [
    r"rank (\d+) died",
    r"rank (\d+) has shut down",
    r"rank (\d+) on host \S+ has been silent",
    r"rank (\d+) has not answered",
    r"missing on ranks (\[[^]]*\])",
    r"ranks (\[[^]]*\]) did not arrive",
    r"rank (\d+) \(process \d+\) ended before",
]
LAUNCHER_LINE = re.compile(
    r"^ronde run: (rank (\d+) (?:exited with code|was killed by signal) .*?)(?:; ending|$)", re.M
)


def innermost(text):
    """Returns the original error, where one rank reports another's."""
    text = text.rsplit("stopped after an error: ", 1)[-1]
    return re.sub(r"process set \d+ of ranks \[[^]]*\]: ", "", text)


def named_ranks(text):
    """Returns the ranks that an error blames.

    >>> named_ranks("rank 2 stopped after an error: rank 1 died (process 7); look")
    {1}
    >>> named_ranks("ranks [0, 3] did not arrive within 3 s, of 4 that are to meet") == {0, 3}
    True
    """
    text = innermost(text)
    found = [match for pattern in NAMES for match in re.findall(pattern, text)]
    found = found or re.findall(r"ranks? (\d+|\[[^]]*\])", text)
    return {int(number) for names in found for number in re.findall(r"\d+", names)}


@dataclasses.dataclass
class Survivor:
    rank: int
    outcome: str  # error, finished, ended by the launcher, or what should not be
    ms: float | None = None
    limit_ms: float | None = None
    text: str = ""
    is_right: bool | None = None
    problems: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Verdict:
    is_void: bool
    survivors: list
    problems: list  # of the trial as a whole

    def all_problems(self):
        return self.problems + [
            f"rank {survivor.rank}: {problem}"
            for survivor in self.survivors
            for problem in survivor.problems
        ]


def judge(trial, outcome, out, slack_s, give_up_s):
    """Returns the verdict on a trial whose outputs are in the folder `out`."""
    victim = outcome.ranks[trial.victim]
    left = victim.time("left")
    is_void = outcome.fault is None or (
        left is not None and trial.fault != "quit" and left <= outcome.fault
    )
    problems = [
        f"left behind: {leftover}"
        for leftover in outcome.leftovers
        if not own_unfinished_file(trial, leftover)
    ]
    if outcome.ended is None:
        problems.append(f"hangs: not ended {give_up_s:g} s after the fault")
    if outcome.fault is None and left is None:
        problems.append("the fault did not happen, and the victim did not finish")
    survivors = [
        judge_survivor(trial, outcome, number, is_void, slack_s)
        for number in range(trial.ranks)
        if number != trial.victim
    ]
    if trial.launcher and not is_void:
        problems += judge_launcher(trial, outcome, survivors, slack_s)
    if not is_void:
        problems += outputs.check(trial, outcome, out)
    return Verdict(is_void, survivors, problems)


def own_unfinished_file(trial, leftover):
    """Whether the victim was writing this file; rank 0 writes all atomically created files."""
    return trial.victim == 0 and leftover.startswith("file out/") and leftover.endswith(".tmp")


def judge_survivor(trial, outcome, number, is_void, slack_s):
    rank = outcome.ranks[number]
    survivor = Survivor(number, "")
    problems = survivor.problems
    if wrong := rank.first("wrong"):
        problems.append(f"wrong result: {wrong['text']}")
    if "panicked" in rank.output:
        problems.append("a panic")
    exit_ = launcher_exits(outcome).get(number) if trial.launcher else rank.code
    if error := rank.first("error"):
        judge_error(trial, outcome, rank, error, survivor, exit_, slack_s)
        if is_void:
            problems.append("an error without a fault")
    elif exit_ == 0 and rank.first("left"):
        survivor.outcome = "finished"
        if trial.phase != "shutdown":
            problems.append("finished although the job lost a rank")
    elif trial.launcher and exit_ == -15 and not is_void:
        survivor.outcome = "ended by the launcher"
        if trial.ignore_term and rank.first("start"):
            problems.append("was killed by SIGTERM, which it ignores")
    elif trial.launcher and exit_ == -9 and not trial.ignore_term and not rank.first("start"):
        survivor.outcome = "ended by the launcher"
    else:
        survivor.outcome = "hangs" if outcome.ended is None else "no error"
        problems.append(
            "hangs" if outcome.ended is None else f"ended without an error (exit {exit_})"
        )
    return survivor


def judge_error(trial, outcome, rank, error, survivor, exit_, slack_s):
    survivor.outcome, survivor.text = "error", error["text"]
    if outcome.fault is None:
        return
    problems = survivor.problems
    survivor.ms = 1e3 * (error["t"] - outcome.fault)
    is_meeting = error["stage"] == "start"
    survivor.limit_ms = 1e3 * trial.limit_s(is_meeting)
    # A rank may reach the rendezvous only after the fault; then its wait begins there.
    waited_ms = (
        survivor.ms if is_meeting else 1e3 * (error["t"] - max(outcome.fault, rank.time("met")))
    )
    survivor.is_right = named_ranks(error["text"]) == {trial.victim}
    if survivor.ms < 0:
        problems.append(f"an error {-survivor.ms:.1f} ms before the fault")
    if waited_ms > survivor.limit_ms + 1e3 * slack_s:
        problems.append(
            f"waited {waited_ms:.0f} ms, the limit is {survivor.limit_ms:.0f} ms ({error['stage']})"
        )
    if not survivor.is_right and names_only(error["text"], trial, outcome):
        survivor.outcome, survivor.is_right = (
            "ended by the launcher",
            None,
        )  # others were, and this is how it noticed
    elif not survivor.is_right:
        problems.append(
            f"names {sorted(named_ranks(error['text']))}, not rank {trial.victim} "
            f"({error['stage']}): {error['text']}"
        )
    later, left = rank.first("later"), rank.time("left")
    was_ended = exit_ in (-15, -9) and trial.launcher and not trial.ignore_term
    if error["stage"] != "start" and not was_ended:
        if not later or not names_only(later["text"], trial, outcome):
            problems.append(f"a later operation: {later['text'] if later else 'no answer'}")
        if not left or left - error["t"] > LEAVE_LIMIT_S + slack_s:
            problems.append(
                f"left {left - error['t']:.1f} s after its error"
                if left
                else "did not leave after its error"
            )
    if exit_ != 3 and not was_ended:
        problems.append(f"exit {exit_} after an error")


def names_only(text, trial, outcome):
    """Whether an error blames only the victim and ranks that the launcher has killed."""
    ended = {rank for rank, exit_ in launcher_exits(outcome).items() if exit_ in (-15, -9)}
    named = named_ranks(text)
    return bool(named) and named <= {trial.victim} | ended


def launcher_exits(outcome):
    """Returns the ranks' ends as the launcher reports them: a code, or -n for signal n."""
    exits = {}
    for match in re.finditer(
        r"^ronde run: rank (\d+) (exited with code|was killed by signal) (\d+)",
        outcome.launcher_text,
        re.M,
    ):
        number = int(match[3])
        exits.setdefault(int(match[1]), -number if match[2].startswith("was") else number)
    return exits


def judge_launcher(trial, outcome, survivors, slack_s):
    problems = []
    if outcome.ended is not None:
        waited = outcome.ended - outcome.fault
        if waited > trial.launcher_limit_s() + slack_s:
            problems.append(
                f"the launcher ended {waited:.1f} s after the fault, "
                f"the limit is {trial.launcher_limit_s():.1f} s"
            )
        if outcome.launcher_code == 0:
            problems.append("the launcher reports success")
    causes = [
        match for match in LAUNCHER_LINE.finditer(outcome.launcher_text) if "; ending" in match[0]
    ]
    if not causes:  # nobody was left to be ended
        return problems
    named = int(causes[0][2])
    if named != trial.victim and trial.fault in ("kill", "term", "abort"):
        problems.append(f"the launcher names rank {named}: {causes[0][1]}")
    return problems
