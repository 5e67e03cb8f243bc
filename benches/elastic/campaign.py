#!/usr/bin/env python3
"""Fault campaign of elastic jobs: ranks are killed and stopped, slots and hosts come and go, and
the discovery script fails, while a small network is trained.

    scripts/bench-elastic                        # 120 jobs with some 500 faults
    scripts/bench-elastic --jobs 5 --seed 7
    scripts/bench-elastic --replay 12 --keep     # job 12 of this seed; keeps its folder
    scripts/bench-elastic --hosts 3              # on up to three network namespaces; needs root
    scripts/bench-elastic --jobs 0 --pairs 0 --resets 1000 --changes 200
    scripts/bench-elastic --jobs 0 --pairs 0 --digits --hosts 3

Each job is drawn from the seed. It must end with the weights of one process that repeats the steps
which count, as the logs of the ranks give them (benches/elastic/judge.py has the rules), within a
deadline for each fault, and without processes that are left over. The exit status is 1 if one does
not. Then measures the overhead of jobs without faults (--pairs). With --resets and --changes, it
resets one job many times and looks for what that leaves behind; with --digits, it compares the
accuracy of examples/torch/elastic.py with faults and without.
Writes OUT/elastic.json, with --hosts OUT/hosts.json, OUT/overhead.json, OUT/resets.json,
OUT/digits.json, and OUT/README.md of all, also while it runs.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]
import digits  # noqa: E402
import judge  # noqa: E402
import overhead  # noqa: E402
import report  # noqa: E402
import resets  # noqa: E402
import schedule  # noqa: E402
from hosts import Namespaces, ThisMachine  # noqa: E402
from interleave import ROOT, circumstances  # noqa: E402
from job import Job  # noqa: E402


def run(options, number):
    """Runs job `number`; returns its outcome, with what the judge finds."""
    limits = options.hosts, options.ranks, options.faults
    drawn = schedule.draw(options.seed, number, *limits, options.only)
    # Not under /tmp, which is another folder on each namespace.
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"job{number}-", dir=options.folder))
    is_one = options.hosts == 1
    network = f"{options.network}{number}"
    hosts = ThisMachine() if is_one else Namespaces(options.hosts, network, folder)
    try:
        job = Job(drawn, hosts, folder)
        outcome = job.run()
    finally:
        hosts.close()
    if outcome.end == "finished":
        outcome.problems += judge.judge(job.logs)
    elif outcome.end not in ("all ranks lost", "error told", "hang"):
        outcome.problems.append(f"the job ended with {outcome.end}")
    if outcome.problems:
        print(f"job {number} of seed {options.seed}: {drawn}", file=sys.stderr)
        for problem in outcome.problems:
            print(f"  {problem}", file=sys.stderr)
        print(f"  its folder: {folder}", file=sys.stderr, flush=True)
    elif not options.keep:
        shutil.rmtree(folder)
    return outcome


def campaign(options):
    """Runs the jobs, several at a time; returns how many have problems."""
    numbers = [options.replay] if options.replay is not None else range(options.jobs)
    parameters = {name: vars(options)[name] for name in ("seed", "hosts", "ranks", "at_once")}
    name = options.name or ("elastic" if options.hosts == 1 else "hosts")
    record = Record(options, name, **parameters)
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        futures = [pool.submit(run, options, number) for number in numbers]
        try:
            for future in concurrent.futures.as_completed(futures):
                outcomes.append(future.result())
                outcomes.sort(key=lambda outcome: outcome.number)
                record.write(jobs=list(map(dataclasses.asdict, outcomes)))
                print(progress(outcomes, len(numbers)), file=sys.stderr, flush=True)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    ends = collections.Counter(outcome.end for outcome in outcomes)
    print(f"{progress(outcomes, len(numbers))}; ends: {dict(ends)}")
    return sum(bool(outcome.problems) for outcome in outcomes)


def progress(outcomes, number):
    faults = sum(len(outcome.faults) for outcome in outcomes)
    failed = sum(bool(outcome.problems) for outcome in outcomes)
    return f"{len(outcomes)} of {number} jobs, {faults} faults, {failed} with problems"


def arguments():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("bench-elastic", description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("--jobs", type=int, default=120, help="jobs with faults (%(default)s)")
    add("--seed", type=int, default=1)
    add("--ranks", type=int, default=7, help="most ranks of a job at its start (%(default)s)")
    add("--faults", type=int, default=7, help="most faults of a job (%(default)s)")
    add("--hosts", type=int, default=1, help="most hosts; above 1 they are network namespaces")
    add("--network", default="job", help="beginning of their networks' names, at most 5 letters")
    add("--at-once", type=int, default=2, help="jobs at a time (%(default)s)")
    add("--only", type=lambda text: text.split(","), help="faults to draw from")
    add("--replay", type=int, metavar="NUMBER", help="only this job; writes no results")
    add("--keep", action="store_true", help="keep the folders of all jobs")
    add("--pairs", type=int, default=10, help="pairs of jobs without (%(default)s)")
    add("--resets", type=int, default=0, metavar="N", help="resets by operations that fail")
    add("--changes", type=int, default=0, metavar="N", help="resets by slots that come and go")
    add("--digits", action="store_true", help="accuracy of examples/torch/elastic.py")
    add("--note", default="", help="text for the page, such as how ronde was built")
    add("--name", help="name of the campaign's file instead of elastic or hosts")
    add("--folder", type=pathlib.Path, default=ROOT / "target" / "elastic", help="of the jobs")
    add("--out", type=pathlib.Path, default=ROOT / "results" / "elastic")
    options = parser.parse_args()
    known = schedule.FAULTS | (schedule.HOST_FAULTS if options.hosts > 1 else {})
    if unknown := set(options.only or ()) - set(known):
        parser.error(f"--only: no fault {', '.join(unknown)}; there are {', '.join(known)}")
    return options


class Record:
    """Results of one part, written after each of its jobs. `name`: of its file."""

    def __init__(self, options, name, **fields):
        self.options, self.name, self.fields = options, name, fields
        self.load_first = os.getloadavg()[0]

    def write(self, **fields):
        self.fields.update(fields, **circumstances("scripts/bench-elastic", self.load_first))
        note = self.options.note
        command = self.fields["command"].replace(f" --note {note}", "")
        self.fields.update(note=note, command=command)
        out = self.options.out
        if self.options.replay is None:
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{self.name}.json").write_text(json.dumps(self.fields, indent=1) + "\n")
            (out / "README.md").write_text(report.markdown(out))


def main():
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    if options.jobs > 0:
        print(f"bench-elastic: seed {options.seed}", flush=True)
        failed = campaign(options)
    if options.hosts == 1 and options.replay is None:
        record, pairs = Record(options, "overhead"), []
        for number in range(options.pairs):
            pairs.append(overhead.pair(options.folder, number))
            record.write(pairs=pairs)
    failed += count_resets(options) + train_digits(options)
    sys.exit(1 if failed else 0)


def count_resets(options):
    """Resets one job many times; returns how much of it has grown."""
    record, outcomes, found = Record(options, "resets"), {}, []
    ways = {
        "operations that fail": (resets.operations_fail, options.resets),
        "slots that come and go": (resets.slots_change, options.changes),
    }
    for name, (way, count) in ways.items():
        if count > 0:
            outcomes[name] = way(options.folder, count)
            found += resets.grown(outcomes[name])
            record.write(jobs=outcomes)
            print(f"{name}: {outcomes[name]}", flush=True)
    for problem in found:
        print(problem, file=sys.stderr)
    return len(found)


def train_digits(options):
    """Compares the accuracy of the example with and without faults; returns the number of
    problems."""
    if not options.digits:
        return 0
    record, outcomes = Record(options, "digits"), []
    for outcome in digits.jobs(options.folder, options.hosts > 1):
        outcomes.append(outcome)
        record.write(jobs=outcomes)
        print(outcome, flush=True)
    found = digits.problems(outcomes)
    for problem in found:
        print(problem, file=sys.stderr)
    return len(found)


if __name__ == "__main__":
    main()
