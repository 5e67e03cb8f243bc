#!/usr/bin/env python3
"""Kill campaign: kills, stops and ends ranks of Ronde jobs at random moments, and checks the errors
of the other ranks and their times.

    scripts/bench-reliability                          # 1,000 faults; some 15 minutes on two cores
    scripts/bench-reliability --trials 60              # a smoke test, some 50 seconds
    scripts/bench-reliability --only init,shutdown --seed 7
    scripts/bench-reliability --replay 412 --keep      # trial 412 of this seed; keeps its folder

Trials are drawn from the seed: phase, ranks, fault, victim, moment, with the launcher (`ronde run`)
or without. The exit status is 1 if a survivor hung, waited beyond its limit or named a wrong rank,
or if something was left behind. Writes OUT/README.md (rules and tables) and OUT/campaign.csv (a row
for each survivor), also while it runs.
"""

import argparse
import collections
import concurrent.futures
import csv
import datetime
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import threading
import time

import judge
import plan
import report
import trial as trials

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from interleave import ROOT, commit, machine  # noqa: E402

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
ATTEMPTS_MAX = 10  # trials of one number whose faults all came too late
WRITE_INTERVAL_S = 30


class Campaign:
    """Runs trials and collects their verdicts."""

    def __init__(self, options):
        self.options = options
        self.programs = {"ronde": options.ronde, "rank": options.rank_program}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ronde-reliability-"))
        self.results = []  # (trial, verdict)
        self.lock = threading.Lock()
        self.load_first, self.began = os.getloadavg()[0], time.monotonic()
        self.stopping = threading.Event()

    def run_number(self, number):
        """Runs the trial of this number, drawn again while its fault comes too late."""
        for attempt in range(ATTEMPTS_MAX):
            if self.stopping.is_set():
                return
            drawn = plan.draw(self.options.seed, number, attempt, self.options.only)
            verdict = self.run(drawn)
            with self.lock:
                self.results.append((drawn, verdict))
            if not verdict.is_void:
                return

    def run(self, drawn):
        options = self.options
        folder = self.folder / drawn.name
        run = trials.Run(drawn, self.programs, folder, options.give_up_s)
        outcome = run.run()
        verdict = judge.judge(drawn, outcome, run.out, options.slack_s, options.give_up_s)
        failed = bool(verdict.all_problems())
        if failed:
            lines = [f"trial {drawn.name}: {drawn}"] + [
                f"  {problem}" for problem in verdict.all_problems()
            ]
            progress_line("\n".join(lines))
        if failed or options.keep:
            kept = options.failed / f"{options.seed}-{drawn.name}"
            shutil.rmtree(kept, ignore_errors=True)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, kept)
            (kept / "verdict.txt").write_text(f"{drawn}\n{outcome}\n{verdict}\n")
        else:
            shutil.rmtree(folder)
        return verdict

    def write(self):
        with self.lock:
            results = sorted(
                self.results, key=lambda result: [int(part) for part in result[0].name.split(".")]
            )
        self.options.out.mkdir(parents=True, exist_ok=True)
        write_csv(self.options.out / "campaign.csv", results)
        facts = {
            "date": datetime.date.today().isoformat(),
            "commit": commit(),
            "machine": machine(),
            "command": " ".join(["scripts/bench-reliability"] + sys.argv[1:]),
            "seed": self.options.seed,
            "jobs": self.options.jobs,
            "slack_s": self.options.slack_s,
            "give_up_s": self.options.give_up_s,
            "load_first": self.load_first,
            "load_last": os.getloadavg()[0],
            "minutes": (time.monotonic() - self.began) / 60,
        }
        (self.options.out / "README.md").write_text(report.markdown(results, facts))


COLUMNS = (
    "trial",
    "phase",
    "variant",
    "launcher",
    "ranks",
    "victim",
    "fault",
    "delay_ms",
    "survivor",
    "outcome",
    "ms",
    "limit_ms",
    "is_right",
    "problems",
    "error",
)


def write_csv(path, results):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for drawn, verdict in results:
            own = [
                drawn.name,
                drawn.phase,
                drawn.variant,
                int(drawn.launcher),
                drawn.ranks,
                drawn.victim,
                drawn.fault,
                f"{drawn.delay_us / 1e3:.3f}",
            ]
            if verdict.is_void or verdict.problems:
                outcome = "void: the victim had left" if verdict.is_void else "trial"
                writer.writerow(own + ["", outcome, "", "", "", "; ".join(verdict.problems), ""])
            if verdict.is_void and not verdict.all_problems():
                continue
            for survivor in verdict.survivors:
                ms = "" if survivor.ms is None else f"{survivor.ms:.1f}"
                limit = "" if survivor.limit_ms is None else f"{survivor.limit_ms:.0f}"
                right = "" if survivor.is_right is None else int(survivor.is_right)
                writer.writerow(
                    own
                    + [
                        survivor.rank,
                        survivor.outcome,
                        ms,
                        limit,
                        right,
                        "; ".join(survivor.problems),
                        survivor.text,
                    ]
                )


def progress_line(text):
    """Prints a line on standard error, over the progress bar if there is one."""
    end = "\r\033[K" if sys.stderr.isatty() else ""
    print(f"{end}{text}", file=sys.stderr, flush=True)


def show_progress(done, wanted, failed, began):
    elapsed = time.monotonic() - began
    left = elapsed / max(done, 1) * (wanted - done) / 60
    filled = 30 * done // wanted
    bar = f"[{'#' * filled}{'.' * (30 - filled)}]"
    text = f"{bar} {done} of {wanted} faults, {failed} trials with problems, {left:.0f} min left"
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def run(options):
    campaign = Campaign(options)
    numbers = [options.replay] if options.replay is not None else range(options.trials)
    wanted, done, failed, written = len(numbers), 0, 0, time.monotonic()
    minutes = (
        wanted * 1.7 / options.jobs / 60
    )  # a stopped rank is waited for two seconds and more, a dead one is not
    progress_line(
        f"bench-reliability: {wanted} faults, seed {options.seed}, {options.jobs} jobs at a time: "
        f"some {minutes:.0f} minutes"
    )
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            try:
                futures = [pool.submit(campaign.run_number, number) for number in numbers]
                for future in concurrent.futures.as_completed(futures):
                    future.result()
                    done += 1
                    with campaign.lock:
                        failed = sum(
                            bool(verdict.all_problems()) for _, verdict in campaign.results
                        )
                    if sys.stderr.isatty() or done % max(1, wanted // 40) == 0:
                        show_progress(done, wanted, failed, campaign.began)
                    if time.monotonic() - written > WRITE_INTERVAL_S and options.replay is None:
                        campaign.write()  # a late failure loses nothing
                        written = time.monotonic()
            except BaseException:
                campaign.stopping.set()  # trials under way end, and clean up
                for future in futures:
                    future.cancel()
                raise
    finally:
        progress_line("")
        if campaign.results and options.replay is None:
            campaign.write()
        shutil.rmtree(campaign.folder, ignore_errors=True)
    summarise(campaign, options, failed)
    return 1 if failed else 0


def summarise(campaign, options, failed):
    kinds = collections.Counter()
    for _, verdict in campaign.results:
        kinds.update(problem.split(":")[0] for problem in verdict.all_problems())
    faults = sum(not verdict.is_void for _, verdict in campaign.results)
    print(f"bench-reliability: {faults} faults, {failed} trials with problems")
    if options.replay is not None:
        for drawn, verdict in campaign.results:
            print(drawn, verdict, sep="\n")
    else:
        print(f"tables in {options.out / 'README.md'}")
    if failed:
        print(f"folders of these trials, with logs and verdicts: {options.failed}")


def main():
    parser = argparse.ArgumentParser(
        prog="bench-reliability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--trials", type=int, default=1000, help="faults that take effect (1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="trials at a time (one per core: more of them measure the machine's queues)",
    )
    parser.add_argument(
        "--only",
        type=lambda names: tuple(names.split(",")),
        default=plan.PHASES,
        help=f"phases, of {','.join(plan.PHASES)}; all by default",
    )
    parser.add_argument(
        "--replay",
        type=int,
        metavar="NUMBER",
        help="only this trial of the seed; writes no results",
    )
    parser.add_argument(
        "--slack-s",
        type=float,
        default=1.0,
        help="allowance beyond each limit for a busy machine (1)",
    )
    parser.add_argument(
        "--give-up-s", type=float, default=45, help="after how long a trial counts as hanging (45)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the folders of all trials, not only of failed ones",
    )
    parser.add_argument(
        "--failed",
        type=pathlib.Path,
        default=ROOT / "target" / "reliability",
        help="where these folders go",
    )
    parser.add_argument("--ronde", type=pathlib.Path, default=TARGET / "ronde")
    parser.add_argument(
        "--rank-program", type=pathlib.Path, default=TARGET / "examples" / "reliability-rank"
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "reliability")
    options = parser.parse_args()
    if unknown := set(options.only) - set(plan.PHASES):
        parser.error(
            f"--only: no phase {', '.join(sorted(unknown))}; there are {', '.join(plan.PHASES)}"
        )
    if min(options.trials, options.jobs) < 1:
        parser.error("--trials and --jobs must be at least 1")
    for program in (options.ronde, options.rank_program):
        if not os.access(program, os.X_OK):
            parser.error(
                f"{program} does not exist; start scripts/bench-reliability, which builds it"
            )
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # inherited by all jobs
    sys.exit(run(options))


if __name__ == "__main__":
    main()
