"""The example examples/torch/elastic.py on handwritten digits: its accuracy without faults,
and with a script of faults on one host and on three."""

import os
import pathlib
import random
import signal
import sys
import tempfile

from hosts import ROOT, Namespaces, ThisMachine
from launched import Launched

PROGRAM = ROOT / "examples" / "torch" / "elastic.py"
EPOCHS = 14
STEP_MS = 40
SECONDS = 240  # for what a fault waits for, and for the rest of the training
#: Largest difference of an accuracy from that of the job without faults: 6 of 297 test images.
DIFFERENCE_MAX = 0.021


def jobs(parent, with_hosts):
    """Runs the jobs; yields the outcome of each."""
    yield Job(parent, "one host, no faults", 1, {"localhost": 3}).run([])
    kills = [(2, "kill", 1), (5, "kill", 0), (8, "stop", 1)]
    yield Job(parent, "one host, faults", 1, {"localhost": 3}).run(kills)
    if with_hosts:
        faults = [(2, "kill", 1), (4, "add a host", 2), (6, "link down", 1), (9, "kill", 0)]
        yield Job(parent, "three hosts, faults", 3, {0: 2, 1: 1}).run(faults)


class Job:
    """A job of the example. `slots`: by the numbers of its hosts, or their names."""

    def __init__(self, parent, name, count, slots):
        self.parent, self.name, self.count, self.slots = parent, name, count, slots

    def run(self, faults):
        """Causes the faults: after which epoch, what, and on which rank or host."""
        with tempfile.TemporaryDirectory(prefix="digits-", dir=self.parent) as folder:
            folder = pathlib.Path(folder)
            name = f"digit{random.randrange(1000)}"
            hosts = ThisMachine() if self.count == 1 else Namespaces(self.count, name, folder)
            try:
                slots = {
                    host if isinstance(host, str) else hosts.names[host]: count
                    for host, count in self.slots.items()
                }
                job = Launched(hosts, folder, slots, "digits")
                program = [sys.executable, PROGRAM, "--epochs", EPOCHS, "--step-ms", STEP_MS]
                job.start(["--min-np", 1, "--blacklist-cooldown-range", 1, 60], program)
                try:
                    for epoch, kind, of in faults:
                        wanted = f"^.*epoch {epoch} of {EPOCHS}: "
                        job.wait(lambda: job.printed(wanted), f"epoch {epoch}", SECONDS)
                        resets = len(job.sizes())
                        self.cause(job, kind, of)
                        is_over = lambda: len(job.sizes()) > resets  # noqa: E731
                        job.wait(is_over, f"a reset after {kind}", SECONDS)
                    job.process.wait(SECONDS)
                finally:
                    job.kill_rest()
                accuracies = job.printed(r"accuracy ([\d.]+) on 297 test images")
                return {
                    "name": self.name,
                    "faults": [kind for _, kind, _ in faults],
                    "sizes": job.sizes(),
                    "code": job.process.returncode,
                    "accuracy": float(accuracies[-1]) if accuracies else None,
                }
            finally:
                hosts.close()

    def cause(self, job, kind, of):
        if kind in ("kill", "stop"):
            pid = list(job.ranks().values())[of]  # ranks keep their order
            os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
            return
        host = job.hosts.names[of]
        if kind == "add a host":
            job.slots[host] = 1
        else:
            job.hosts.link(host, "down")
            del job.slots[host]
        job.write_hosts()


def problems(outcomes):
    """What is wrong, as sentences."""
    found = []
    expected = outcomes[0]["accuracy"]
    for outcome in outcomes:
        name, accuracy = outcome["name"], outcome["accuracy"]
        if outcome["code"] != 0 or accuracy is None:
            found.append(f"{name}: it ended with code {outcome['code']}, accuracy {accuracy}")
        elif expected is not None and abs(accuracy - expected) > DIFFERENCE_MAX:
            found.append(f"{name}: accuracy {accuracy}, without faults {expected}")
    return found
