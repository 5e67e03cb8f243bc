"""Draws the trials of the kill campaign: fault, victim, time and job. A seed and a number determine
one trial."""

import dataclasses
import random

PHASES = ("init", "steady", "autotune", "timeline", "process-sets", "shutdown")
FAULTS = ("kill", "term", "abort", "stop", "exit", "quit")

START_TIMEOUT_S = 3  # HOROVOD_START_TIMEOUT of every job
START_GRACE_S = 2  # how much longer than rank 0 the others wait, for what it then says
STALL_WARNING_S = 1  # HOROVOD_STALL_CHECK_TIME_SECONDS where a rank is stopped
STALL_LIMIT_S = 2  # HOROVOD_STALL_SHUTDOWN_TIME_SECONDS where a rank is stopped
DEATH_LIMIT_S = 2  # within how long every survivor knows of a death (docs/TENSOR.md)
LAUNCHER_GRACE_S = 5  # what `ronde run` gives the ranks between SIGTERM and SIGKILL

MS = 1000  # microseconds


@dataclasses.dataclass(frozen=True)
class Trial:
    """Job with its fault. Times in microseconds."""

    name: str
    phase: str
    variant: str
    launcher: bool
    ranks: int
    victim: int
    fault: str
    outside: bool  # the driver sends the signal; otherwise a thread of the victim
    after: str  # where the fault's delay begins
    delay_us: int
    late_rank: int  # a rank that comes late to the rendezvous; -1: none
    late_us: int
    slow_rank: int  # a rank that comes late to every step; -1: none
    slow_us: int
    steps: int  # 0: the ranks work until they fail
    linger_us: int
    tensors: int
    elements: int
    pause_us: int
    ignore_term: bool
    seed: int

    @property
    def stops(self):
        return self.fault == "stop"

    def limit_s(self, is_meeting):
        """Returns the time limit of a survivor's error, from the job's settings: since the fault during
        the rendezvous (`is_meeting`), otherwise since the fault or the end of the rendezvous,
        whichever is later."""
        if is_meeting:
            return START_TIMEOUT_S + START_GRACE_S + self.late_us / 1e6
        if self.phase == "process-sets" and self.stops:
            return START_TIMEOUT_S + START_GRACE_S + STALL_LIMIT_S
        return STALL_LIMIT_S if self.stops else DEATH_LIMIT_S

    def launcher_limit_s(self):
        """Returns the time limit from the fault to the return of the launcher: a stopped rank does not
        react to its SIGTERM."""
        survivor = self.limit_s(False) + (self.limit_s(True) if self.phase == "init" else 0)
        return survivor + (LAUNCHER_GRACE_S if self.stops else 0)


def draw(seed, number, attempt, phases):
    """Draws the trial of this number. `attempt` counts its earlier draws whose fault came too late."""
    name = f"{number}.{attempt}" if attempt else str(number)
    random_ = random.Random(f"ronde {seed} {number} {attempt}")
    phase = phases[number % len(phases)]
    ranks = random_.randint(2, 8)
    # Rank 0 has additional tasks; it is the victim as often as half of the others together.
    victim = 0 if random_.random() < 1 / 3 else random_.randrange(ranks)
    fault = random_.choice(FAULTS)
    launcher = random_.random() < 0.5
    outside = not launcher and phase == "init" and fault in ("kill", "term", "abort", "stop")
    late = phase == "init" and random_.random() < 0.5
    timing = {
        # Processes start and finish their rendezvous within some ten milliseconds; a late rank keeps the others at the
        # rendezvous.
        "init": (
            "start",
            random_.randint(0, 400 * MS if late else random_.choice([10, 20, 40, 100]) * MS),
        ),
        "steady": ("met", random_.randint(0, random_.choice([2, 20, 300]) * MS)),
        "autotune": ("met", random_.randint(0, 1500 * MS)),
        "timeline": ("met", random_.randint(0, 700 * MS)),
        "process-sets": ("met", random_.randint(0, random_.choice([5, 400]) * MS)),
        "shutdown": ("last-step", random_.randint(0, random_.choice([1, 5]) * MS)),
    }
    variants = {
        "autotune": ["log", "log and state"],
        "timeline": ["plain", "compressed", "started by the program"],
        "process-sets": ["added and removed"],
    }
    after, delay_us = timing[phase]
    # In a quarter of the jobs the victim, in another quarter some rank, is late in every step.
    slow_rank = random_.choice([victim, random_.randrange(ranks), -1, -1])
    return Trial(
        name=name,
        phase=phase,
        variant=random_.choice(variants.get(phase, [""])),
        launcher=launcher,
        ranks=ranks,
        victim=victim,
        fault=fault,
        outside=outside,
        after=after,
        delay_us=delay_us,
        late_rank=random_.randrange(ranks) if late else -1,
        late_us=random_.randint(50, 500) * MS if late else 0,
        slow_rank=slow_rank,
        slow_us=random_.choice([2, 20]) * MS if slow_rank >= 0 else 0,
        steps=random_.randint(1, 20) if phase == "shutdown" else 0,
        linger_us=random_.choice([0, 5 * MS]) if phase == "shutdown" else 0,
        tensors=random_.randint(1, 5),
        elements=random_.choice([10, 3000, 300_000]),
        pause_us=random_.choice([0, 500, 5000]),
        ignore_term=random_.random() < 0.5,
        seed=random_.getrandbits(32),
    )


def environment(trial, out):
    """Returns the variables of the trial's job; its files are written to the folder `out`."""
    variables = {"HOROVOD_START_TIMEOUT": str(START_TIMEOUT_S)}
    if trial.stops:
        variables |= {
            "HOROVOD_STALL_CHECK_TIME_SECONDS": str(STALL_WARNING_S),
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(STALL_LIMIT_S),
        }
    if trial.phase == "autotune":
        variables |= {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": str(out / "a.csv")}
        if trial.variant == "log and state":
            variables["RONDE_AUTOTUNE_STATE"] = str(out / "s.json")
    if trial.phase == "timeline":
        file = {"plain": str(out / "t.json"), "compressed": str(out / "t.json.gz")}
        variables |= {
            "HOROVOD_TIMELINE": file.get(trial.variant, "DYNAMIC"),
            "RONDE_TIMELINE_ALL_RANKS": "1",
        }
    if trial.phase == "process-sets":
        variables["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    return variables


def arguments(trial, folder):
    """Returns the rank program's arguments."""
    programs = {
        "timeline": "timeline" if trial.variant == "started by the program" else "steady",
        "process-sets": "process-sets",
    }
    fields = {
        "folder": folder,
        "phase": programs.get(trial.phase, "steady"),
        "steps": trial.steps,
        "tensors": trial.tensors,
        "elements": trial.elements,
        "pause-us": trial.pause_us,
        "seed": trial.seed,
        "victim": trial.victim,
        "fault": "none" if trial.outside else trial.fault,
        "after": trial.after,
        "delay-us": trial.delay_us,
        "linger-us": trial.linger_us,
        "ignore-term": int(trial.ignore_term),
    }
    if trial.late_rank >= 0:
        fields |= {"late-rank": trial.late_rank, "late-us": trial.late_us}
    if trial.slow_rank >= 0:
        fields |= {"slow-rank": trial.slow_rank, "slow-us": trial.slow_us}
    return [word for name, value in fields.items() for word in (f"--{name}", str(value))]
