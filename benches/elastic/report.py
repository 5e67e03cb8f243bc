"""Page of the fault campaign's results."""

import collections
import json
import statistics

GOALS = {"death": 3, "arrival": 5, "death on several hosts": 8}
SILENT = ("stop", "link down", "host vanishes")  # noticed by a timeout
EXITS = ("commit raises", "callback raises")  # the process ends by itself
FAILURES = ("commit fails", "callback fails", "state differs")  # no process ends


def times(values):
    """Cells of a table: count, median, 90th percentile and maximum."""
    if not values:
        return "0 | – | – | –"
    several = values if len(values) > 1 else values * 2  # a decile needs two
    p90 = statistics.quantiles(several, n=10, method="inclusive")[-1]
    cells = (statistics.median(values), p90, max(values))
    return " | ".join([str(len(values)), *(f"{value:.2f}" for value in cells)])


def beside(goal, values):
    """Cells of a table: count, median, 90th percentile, maximum, goal, and how many met it."""
    met = sum(value <= goal for value in values) if values else ""
    return f"{times(values)} | ≤ {goal} | {met}"


def markdown(folder):
    """The page, from the files of the campaigns in `folder`."""
    lines = [
        "# Elastic jobs: faults, recovery and overhead",
        "",
        "Jobs with random faults that are drawn from a seed, on one machine and on hosts that are",
        "network namespaces. A job must end with the weights of one process that repeats the steps",
        "which count, by the rules of `benches/elastic/judge.py`.",
        "",
    ]
    parts = [
        ("elastic", "One machine", faults_section),
        ("within", "One machine, with faults within commits and callbacks", faults_section),
        ("hosts", "Several hosts (network namespaces)", faults_section),
        ("within-hosts", "Several hosts, with faults within commits and callbacks", faults_section),
        ("digits", "Accuracy with faults", digits_section),
        ("resets", "Many resets of one job", resets_section),
        ("overhead", "Overhead without faults", overhead_section),
    ]
    for name, title, section in parts:
        path = folder / f"{name}.json"
        lines += [f"## {title}", ""]
        if path.exists():
            record = json.loads(path.read_text())
            lines += [*circumstances(record), "", *section(record), ""]
        else:
            lines += ["Not measured yet.", ""]
    return "\n".join(lines).rstrip() + "\n"


def circumstances(record):
    return [
        f"{record['date']}, commit {record['commit']}. {record['machine']}. Load average "
        f"{record['load_first']} before, {record['load_last']} after.",
        f"Made by `{record['command']}`. {record['note']}".rstrip(),
    ]


def faults_section(record):
    jobs = record["jobs"]
    faults = collections.Counter(kind for job in jobs for kind in job["faults"])
    ends = collections.Counter(job["end"] for job in jobs)
    hangs = ends["hang"]
    wrong = sum(job["end"] == "finished" and bool(job["problems"]) for job in jobs)
    resets = sum(job["resets"] for job in jobs)
    lines = [
        f"Seed {record['seed']}, {record['at_once']} jobs at a time.",
        "",
        f"**{len(jobs)} jobs of 2 to {most_ranks(record)} ranks, {sum(faults.values())} faults, "
        f"{resets} resets: {hangs} hangs, {wrong} wrong results.**",
        "",
        "| end | jobs |",
        "| --- | --- |",
        *(f"| {end} | {count} |" for end, count in sorted(ends.items())),
        "",
        *recovery_table(jobs, faults),
    ]
    arrivals = [arrival for job in jobs for arrival in job["arrivals"]]

    def after(is_meant):
        recoveries = (item for job in jobs for item in job["recoveries"].items())
        return [time for kind, values in recoveries if is_meant(kind) for time in values]

    deaths = after(lambda kind: kind not in SILENT + EXITS + FAILURES)
    goal = GOALS["death"] if record["hosts"] == 1 else GOALS["death on several hosts"]
    waits = [first_step - imports for first_step, imports in arrivals]
    lines += [
        "",
        "| time, s | n | median | p90 | max | goal | met by |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"| death of ranks to the first step of the survivors | {beside(goal, deaths)} |",
        "| exception of a rank to the first step, with the end of its process "
        f"| {times(after(EXITS.__contains__))} | | |",
        f"| failure without a death to the first step | {times(after(FAILURES.__contains__))} | | |",
        f"| new slot or host to its first step | {times([a[0] for a in arrivals])} | | |",
        f"| … without its imports | {beside(GOALS['arrival'], waits)} |",
    ]
    problems = [(job["number"], problem) for job in jobs for problem in job["problems"]]
    if problems:
        lines += ["", "| job | problem |", "| --- | --- |"]
        lines += [f"| {number} | {problem} |" for number, problem in problems]
    return lines


def most_ranks(record):
    """Most ranks that a job can have: each host may get a slot more than at the start."""
    return max(record["hosts"] * (job["slots"] + 1) for job in record["jobs"])


def recovery_table(jobs, faults):
    recoveries = collections.defaultdict(list)
    for job in jobs:
        for kind, values in job["recoveries"].items():
            recoveries[kind] += values
    lines = [
        "| fault | number | seconds to the first step of the survivors: n | median | p90 | max |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind, count in sorted(faults.items(), key=lambda item: -item[1]):
        lines.append(f"| {kind} | {count} | {times(recoveries[kind])} |")
    return lines


def overhead_section(record):
    pairs = record["pairs"]
    lines = [
        f"2 ranks, {len(pairs)} pairs of jobs, plain and elastic in turn. A step has its share of "
        "a commit; the CPU",
        "time is that of the whole job, with its launcher and imports. Median over pairs "
        "[least, most].",
        "",
        "| | plain job | elastic job | more, % of the plain job, per pair (goal: 0) |",
        "| --- | --- | --- | --- |",
    ]
    for figure, title in (("step_ms", "step, ms"), ("cpu_s", "CPU time, s")):
        plain, elastic = ([pair[way][figure] for pair in pairs] for way in ("plain", "elastic"))
        more = [100 * (after / before - 1) for before, after in zip(plain, elastic)]
        cells = (
            f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"
            for values in (plain, elastic, more)
        )
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return lines


def digits_section(record):
    return [
        "`examples/torch/elastic.py` on handwritten digits. The learning rate follows the number "
        "of ranks, so that",
        "the weights differ from job to job; the accuracy is that of 297 test images.",
        "",
        "| job | faults | resets: ranks after each | accuracy |",
        "| --- | --- | --- | --- |",
        *(
            f"| {job['name']} | {', '.join(job['faults']) or '–'} "
            f"| {', '.join(map(str, job['sizes'])) or '–'} | {job['accuracy']} |"
            for job in record["jobs"]
        ),
    ]


def resets_section(record):
    lines = [
        "One job of two ranks that stay, under the launcher. Figures are those after a tenth of "
        "the resets, which",
        "fill caches, and at the end: medians of ten readings.",
        "",
        "| resets by | number | process | memory, bytes per reset | descriptors | threads "
        "| mappings of shared memory |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for way, job in record["jobs"].items():
        count = job["between"][1] - job["between"][0]
        for process, figures in job["processes"].items():
            memory = figures["memory_bytes"]
            others = (f"{before} → {after}" for before, after in list(figures.values())[1:])
            lines.append(
                f"| {way} | {job['resets']} | {process} | {(memory[1] - memory[0]) / count:.0f} | "
                + " | ".join(others)
                + " |"
            )
    files = "; ".join(f"{job['shm'][0]} → {job['shm'][1]}" for job in record["jobs"].values())
    return [*lines, "", f"Files in /dev/shm: {files}."]
