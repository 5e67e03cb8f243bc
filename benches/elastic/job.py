"""One job of the fault campaign: starts it, causes the faults of its schedule, and waits for its
end."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import sys
import time

import schedule
from launched import POLL_S, Hang, Launched, is_alive
from logs import Logs
from schedule import ORDERS

RANK = pathlib.Path(__file__).resolve().parent / "rank.py"
RECOVERY_S = 60  # a job that has not continued by then hangs: longer than its own timeouts
START_S = 150  # for the start of processes, which a busy machine delays
LEFTOVER_S = 5  # by then the processes of a job whose launcher has ended are gone
PLANTED = b"planted by the campaign"  # as benches/elastic/rank.py raises it

DEATHS = {"two at once": 2, "kill during a reset": 2, "two deaths during a reset": 3}

SCRIPT_FAULTS = {
    "script fails": "fails",
    "script prints nonsense": "nonsense",
    "script prints zero slots": "zero",
    "script prints a host twice": "twice",
    "script hangs": "hangs",
}


@dataclasses.dataclass
class Outcome:
    """What has happened. Times in seconds; `faults`: by kind, those that took effect."""

    number: int
    hosts: int
    slots: int
    faults: list
    end: str
    problems: list
    resets: int
    steps: int
    recoveries: dict  # kind of fault: times from it to the first step of the survivors
    arrivals: list  # (time from a new slot to the first step there, of which imports)
    seconds: float


class Job(Launched):
    def __init__(self, drawn, hosts, folder):
        slots = {host: drawn.slots for host in hosts.names[: drawn.hosts]}
        super().__init__(hosts, folder, slots, drawn.number)
        self.drawn = drawn
        self.logs = Logs(folder / "logs")
        self.gone = set()  # processes that were killed or stopped
        self.faults, self.recoveries, self.arrivals = [], {}, []
        self.last_death = 0.0
        self.is_settled = True  # the ranks went on after the last death, before the next fault
        self.has_failed = False  # a host may cool down
        self.end_awaited = "finished"

    def run(self):
        began = time.monotonic()
        (self.folder / "logs").mkdir(parents=True)
        flags = ["--min-np", 1, "--blacklist-cooldown-range", 1, 60, "--elastic-timeout", START_S]
        self.start(flags, [sys.executable, RANK, self.folder])
        problems, end = [], None
        try:
            self.wait(lambda: self.steps_since(0), "the first step", START_S)
            for fault in self.drawn.faults:
                self.cause(fault)
            end = self.finish()
        except Hang as error:
            problems = [f"hangs: {error}"]
            end = "hang"
        finally:
            problems += self.clean_up(end == "hang")
        self.logs.update()
        self.logs.close()
        generations = self.logs.generations()
        steps = [r["step"] for p in self.logs.processes.values() for r in p.all("done")]
        return Outcome(
            number=self.drawn.number,
            hosts=self.drawn.hosts,
            slots=self.drawn.slots,
            faults=self.faults,
            end=end,
            problems=problems,
            resets=len(generations) - 1,
            steps=max(steps, default=0),
            recoveries=self.recoveries,
            arrivals=self.arrivals,
            seconds=time.monotonic() - began,
        )

    # What the job does.

    def wait(self, condition, what, seconds=RECOVERY_S):
        """Waits for a condition on the logs; Hang if it takes too long or the job ends."""

        def is_met():
            self.logs.update()
            return condition()

        return super().wait(is_met, what, seconds)

    def steps_since(self, since):
        """Time of the first step of a generation that began after a time, if there is one."""
        new = [g for g in self.logs.generations() if g.began > since and g.first_done]
        return new[0].first_done if new else None

    def goes_on(self, since):
        """Whether a step has ended after a time, in whatever generation."""
        return any(g.last_done and g.last_done > since for g in self.logs.generations())

    def live(self):
        """Ranks of the last generation that run: {rank: process}."""
        generations = self.logs.generations()
        if not generations:
            return {}
        members = generations[-1].members
        return {
            rank: pid
            for rank, pid in members.items()
            if pid not in self.gone and is_alive(pid)
        }

    def size(self):
        generations = [g for g in self.logs.generations() if g.first_done]
        return generations[-1].size if generations else 0

    # Faults.

    def cause(self, fault):
        time.sleep(fault.pause_s)
        self.logs.update()
        self.is_settled = bool(self.steps_since(self.last_death))
        random_ = random.Random(fault.seed)
        if fault.kind in SCRIPT_FAULTS:
            took_effect = self.break_script(fault.kind)
        elif fault.kind in ("add slots", "remove slots"):
            took_effect = self.change_slots(1 if fault.kind == "add slots" else -1, random_)
        elif fault.kind in schedule.HOST_FAULTS:
            took_effect = self.change_hosts(fault, random_)
        elif fault.kind == "kill all":
            took_effect = self.kill_all()
        elif fault.kind in ORDERS:
            took_effect = self.order(fault, random_)
        else:
            took_effect = self.kill(fault, random_)
        if took_effect:
            self.faults.append(fault.kind)

    def kill(self, fault, random_):
        """Kills or stops ranks, and waits for the first step without them."""
        deaths = DEATHS.get(fault.kind, 1)
        if not self.has_more_ranks(deaths):
            return False
        live = self.live()
        ranks = random_.sample(sorted(live), deaths)
        if fault.kind == "kill rank 0":
            ranks = [min(live)]
        for index, rank in enumerate(ranks):
            if index and "during a reset" in fault.kind:
                time.sleep(random_.choice([0.01, 0.05, 0.2, 1]) * random_.random())
            self.signal(live[rank], fault.kind == "stop")
        self.died(fault, time.monotonic())
        return True

    def has_more_ranks(self, deaths):
        """Waits until more ranks run than are to die; False if the job has not so many."""
        if sum(self.slots.values()) <= deaths:
            return False
        # Lost ranks are replaced after their host's cool-down, which doubles with each failure.
        seconds = START_S + 2 ** len(self.faults)
        self.wait(lambda: len(self.live()) > deaths, f"{deaths + 1} ranks", seconds)
        return True

    def order(self, fault, random_):
        """Has a rank, or all, do what the fault says, and waits for the first step after it."""
        order = ORDERS[fault.kind]
        is_last = order.ranks == "all"
        needs_reset = order.moments == schedule.CALLBACK
        dies = order.act in ("die", "raise")
        if is_last and not self.has_more_ranks(needs_reset):
            return self.kill_all()
        if not is_last and not self.has_more_ranks(dies + needs_reset):
            return False
        if order.act == "differ":
            # It must not become the rank whose state the others copy.
            if not self.has_more_ranks(1):
                return False
            self.wait(lambda: self.steps_since(self.last_death), "a step after the faults before")
        live = self.live()
        last = max(live, default=0) - needs_reset
        rank = {
            "any": random_.choice([0, last]),
            "first": 0,
            "not first": last,
            "all": None,
        }[order.ranks]
        path = self.folder / "order"
        new = self.folder / "order.new"
        moment = random_.choice(order.moments)
        new.write_text(json.dumps({"rank": rank, "moment": moment, "act": order.act}))
        before = time.monotonic()
        new.rename(path)
        if needs_reset and live:
            self.signal(live[random_.choice(sorted(live))], False)
        if is_last:
            self.end_awaited = "error told"
            return True

        def obeyed():
            of_processes = (process.all("obeys") for process in self.logs.processes.values())
            times = [record["t"] for records in of_processes for record in records]
            return [time for time in times if time > before]

        try:
            # The ranks may be fewer by now, and none with this number left.
            since = max(self.wait(obeyed, "what a rank was told to do", 15))
        except Hang:
            path.unlink(missing_ok=True)
            if self.process.poll() is not None:
                raise
            if needs_reset:
                self.died(fault, before)
            return needs_reset
        self.died(fault, since, dies or needs_reset, order.act == "differ")
        return True

    def died(self, fault, since, is_death=True, is_awaited=False):
        """Waits for the first step after ranks have died or failed, if the fault is awaited."""
        self.last_death = since
        self.has_failed |= is_death
        if fault.is_awaited or is_awaited:
            what = f"a step after {fault.kind!r}"
            first = self.wait(lambda: self.steps_since(since), what)
            if self.is_settled:  # otherwise the job also waited for something else
                self.recoveries.setdefault(fault.kind, []).append(first - since)

    def signal(self, pid, is_stop):
        self.gone.add(pid)
        try:
            os.kill(pid, signal.SIGSTOP if is_stop else signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended in another way

    def kill_all(self):
        self.end_awaited = "all ranks lost"
        self.wait(self.live, "ranks that can be killed")
        # Also those that are starting.
        for pid in [pid for pid in self.logs.processes if is_alive(pid)]:
            self.signal(pid, False)
        return True

    def change_slots(self, change, random_):
        host = random_.choice(sorted(self.slots))
        if not 1 <= self.slots[host] + change <= self.drawn.slots + 1:
            return False
        self.slots[host] += change
        wanted = sum(self.slots.values())
        is_measured = change > 0 and not self.has_failed and self.size() == wanted - 1
        began = time.monotonic()
        self.write_hosts()
        if self.has_failed:
            return True  # after a failure, the host's cool-down decides when
        self.wait(lambda: self.size() == wanted, f"{wanted} ranks", START_S)
        if is_measured:
            self.arrived(began)
        return True

    def arrived(self, since):
        """Records the first step of a process that was started after a time."""
        for process in self.logs.processes.values():
            start, first = process.first("start"), process.first("done")
            if start and first and start["started"] > since:
                imports = start["t"] - start["started"]
                self.arrivals.append((first["t"] - since, imports))

    def change_hosts(self, fault, random_):
        kind = fault.kind
        others = [host for host in self.hosts.names[1:] if host in self.slots]
        unused = [host for host in self.hosts.names if host not in self.slots]
        if not (unused if kind == "add a host" else others):
            return False
        host = random_.choice(unused if kind == "add a host" else others)
        if kind in ("link down", "host vanishes", "kill a host's ranks"):
            # A rank that has the state of the training is left on another host.
            def elsewhere():
                return set(self.live().values()) - set(self.hosts.processes(host))

            seconds = START_S + 2 ** len(self.faults)
            self.wait(elsewhere, f"a rank that is not on {host}", seconds)
        before = time.monotonic()
        if kind == "add a host":
            self.slots[host] = self.drawn.slots
            self.write_hosts()
            self.wait(lambda: self.runs_on(host), f"a step on {host}")
            self.arrived(before)
            return True
        ranks = [pid for pid in self.hosts.processes(host) if pid in self.logs.processes]
        has_ranks = self.runs_on(host)
        if kind == "kill a host's ranks":
            for pid in ranks:
                self.signal(pid, False)
            self.has_failed = True
            if has_ranks:
                self.died(fault, before)
            return has_ranks
        del self.slots[host]
        if kind == "remove a host":
            self.write_hosts()
            self.wait(lambda: self.steps_since(before), f"a step without {host}")
            return True
        if kind == "link down":
            self.hosts.link(host, "down")
        else:
            self.hosts.vanish(host)
        if has_ranks:
            self.died(fault, before)
        else:  # its processes had not joined the others yet
            self.wait(lambda: self.goes_on(before + 1), f"a step after {kind!r}")
        # A rank on a host that has lost its network ends by itself.
        self.wait(lambda: not any(map(is_alive, ranks)), f"the end of the ranks on {host}")
        self.write_hosts()
        self.hosts.link(host, "up")
        return True

    def runs_on(self, host):
        """Whether a rank of the last generation is on a host."""
        pids = set(self.hosts.processes(host))
        generations = [g for g in self.logs.generations() if g.first_done]
        return bool(generations) and any(pid in pids for pid in generations[-1].members.values())

    def break_script(self, kind):
        """Breaks the discovery script until the launcher has reported it; the job continues."""
        reports = self.reports()
        order = self.folder / "script-fault"
        order.write_text(SCRIPT_FAULTS[kind])
        self.wait(lambda: self.reports() > reports, f"a report that the {kind}")
        order.unlink()
        reported, polls = time.monotonic(), self.polls()

        # The launcher does not report the same problem twice in a row.
        def is_over():
            return self.goes_on(reported) and self.polls() > polls + 1

        self.wait(is_over, f"a step after the {kind}")
        return True

    def polls(self):
        """Number of times that the script has printed the hosts."""
        return (self.folder / "polls").stat().st_size

    def reports(self):
        return self.output.read_bytes().count(b"ronde run: the discovery script")

    # The end.

    def finish(self):
        if self.drawn.ends_by_itself:
            self.wait(lambda: self.steps_since(self.last_death), "a step after the last fault")
            (self.folder / "end").touch()
        self.wait(lambda: self.process.poll() is not None, "the end of the job")
        code = self.process.returncode
        is_as_awaited = {
            "finished": code == 0,
            # The launcher names the signal that ended the last rank.
            "all ranks lost": code == 128 + signal.SIGKILL,
            "error told": code != 0 and PLANTED in self.output.read_bytes(),
        }[self.end_awaited]
        return self.end_awaited if is_as_awaited else f"code {code}"

    def clean_up(self, is_hanging):
        """Ends what is left, and returns what should not have been there."""
        deadline = time.monotonic() + (0 if is_hanging else LEFTOVER_S)
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self.kill_rest()
        return [] if is_hanging or not left else [f"{len(left)} processes are left"]
