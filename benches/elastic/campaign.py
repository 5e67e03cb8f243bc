#!/usr/bin/env python3
"""Fault campaign of elastic jobs: ranks are killed and stopped, slots and hosts come and go, and
the discovery script fails, while a small network is trained.

    scripts/bench-elastic                        # 120 jobs with some 500 faults
    scripts/bench-elastic --jobs 5 --seed 7
    scripts/bench-elastic --replay 12 --keep     # job 12 of this seed; keeps its folder
    scripts/bench-elastic --hosts 3              # on up to three network namespaces; needs root

Each job is drawn from the seed. It must end with the weights of one process that repeats the steps
which count, as the logs of the ranks give them (benches/elastic/judge.py has the rules), within a
deadline for each fault, and without processes that are left over. The exit status is 1 if one does
not. Writes OUT/elastic.json and OUT/README.md, also while it runs.
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
import judge  # noqa: E402
import overhead  # noqa: E402
import report  # noqa: E402
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
    hosts = ThisMachine() if is_one else Namespaces(options.hosts, options.network, folder)
    try:
        job = Job(drawn, hosts, folder)
        outcome = job.run()
    finally:
        hosts.close()
    if outcome.end == "finished":
        outcome.problems += judge.judge(job.logs)
    elif outcome.end != "all ranks lost" and outcome.end != "hang":
        outcome.problems.append(f"the job ended with {outcome.end}")
    if outcome.problems:
        print(f"job {number} of seed {options.seed}: {drawn}", file=sys.stderr)
        for problem in outcome.problems:
            print(f"  {problem}", file=sys.stderr)
        print(f"  its folder: {folder}", file=sys.stderr, flush=True)
    elif not options.keep:
        shutil.rmtree(folder)
    return outcome


def campaign(options, record, write):
    """Runs the jobs, several at a time; returns how many have problems."""
    numbers = [options.replay] if options.replay is not None else range(options.jobs)
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        futures = [pool.submit(run, options, number) for number in numbers]
        try:
            for future in concurrent.futures.as_completed(futures):
                outcomes.append(future.result())
                record["jobs"] = [
                    dataclasses.asdict(outcome)
                    for outcome in sorted(outcomes, key=lambda outcome: outcome.number)
                ]
                write()
                faults = sum(len(outcome.faults) for outcome in outcomes)
                failed = sum(bool(outcome.problems) for outcome in outcomes)
                progress = f"{len(outcomes)} of {len(numbers)} jobs, {faults} faults"
                print(f"{progress}, {failed} with problems", file=sys.stderr, flush=True)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
    return sum(bool(outcome.problems) for outcome in outcomes)


def arguments():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("bench-elastic", description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("--jobs", type=int, default=120, help="number of jobs (%(default)s)")
    add("--seed", type=int, default=1)
    add("--ranks", type=int, default=7, help="most ranks of a job at its start (%(default)s)")
    add("--faults", type=int, default=7, help="most faults of a job (%(default)s)")
    add("--hosts", type=int, default=1, help="most hosts; above 1 they are network namespaces")
    add("--network", default="elastic", help="name of their network, at most 9 letters")
    add("--at-once", type=int, default=2, help="jobs at a time; 1 with several hosts")
    add("--only", type=lambda text: text.split(","), help="faults to draw from")
    add("--replay", type=int, metavar="NUMBER", help="only this job; writes no results")
    add("--keep", action="store_true", help="keep the folders of all jobs")
    add("--pairs", type=int, default=10, help="pairs of jobs without faults, for the overhead")
    add("--folder", type=pathlib.Path, default=ROOT / "target" / "elastic", help="of the jobs")
    add("--out", type=pathlib.Path, default=ROOT / "results" / "elastic")
    options = parser.parse_args()
    known = schedule.FAULTS | schedule.HOST_FAULTS
    if unknown := set(options.only or ()) - set(known):
        parser.error(f"--only: no fault {', '.join(unknown)}; there are {', '.join(known)}")
    if options.hosts > 1:
        options.at_once = 1
    return options


def main():
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    load_first = os.getloadavg()[0]
    record = {"seed": options.seed, "jobs": [], "overhead": []}
    is_written = options.replay is None

    def write():
        record.update(circumstances("scripts/bench-elastic", load_first))
        record.update(hosts=options.hosts, ranks=options.ranks, at_once=options.at_once)
        if is_written:
            options.out.mkdir(parents=True, exist_ok=True)
            name = "elastic" if options.hosts == 1 else "hosts"
            path = options.out / f"{name}.json"
            path.write_text(json.dumps(record, indent=1) + "\n")
            (options.out / "README.md").write_text(report.markdown(options.out))

    print(f"bench-elastic: seed {options.seed}", flush=True)
    failed = campaign(options, record, write)
    if is_written and options.hosts == 1:
        for _ in range(options.pairs):
            record["overhead"].append(overhead.pair(options.folder))
            write()
    ends = collections.Counter(job["end"] for job in record["jobs"])
    faults = sum(len(job["faults"]) for job in record["jobs"])
    total = f"{len(record['jobs'])} jobs, {faults} faults"
    print(f"{total}, {failed} with problems; ends: {dict(ends)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
