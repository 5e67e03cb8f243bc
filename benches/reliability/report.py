"""Tables of the campaign's report."""

import collections

import judge
import plan


def quantile(values, fraction):
    """Returns a quantile, linear between neighbours; `None` for an empty list."""
    if not values:
        return None
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def spread(values):
    """Returns median, 99th percentile and maximum."""
    if not values:
        return "– | – | –"
    return " | ".join(
        f"{value:.1f}" if value < 100 else f"{value:.0f}"
        for value in (quantile(values, 0.5), quantile(values, 0.99), max(values))
    )


def row(label, results):
    survivors = [survivor for _, verdict in results for survivor in verdict.survivors]
    errors = [survivor for survivor in survivors if survivor.outcome == "error"]
    right = sum(bool(survivor.is_right) for survivor in errors)
    outcomes = collections.Counter(survivor.outcome for survivor in survivors)
    share = f"{right} of {len(errors)}"
    if errors and right < len(errors):
        share += f" (**{100 * right / len(errors):.2f} %**)"
    times = [survivor.ms for survivor in errors if survivor.ms is not None]
    late = count(results, "waited", "hangs", "left ", "the launcher ended")
    return (
        f"| {label} | {len(results)} | {len(errors)} | {share} | {spread(times)} "
        f"| {outcomes['ended by the launcher']} | {outcomes['finished']} | {late} "
        f"| {count(results, 'left behind')} |"
    )


HEADER = """\
| {} | faults | errors | … that name the victim | ms to the error: median | 99 % | max | ended by the launcher | finished | beyond a limit | leftovers |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def count(results, *beginnings):
    """Counts problems of these kinds."""
    problems = [problem for _, verdict in results for problem in verdict.problems]
    problems += [
        problem
        for _, verdict in results
        for survivor in verdict.survivors
        for problem in survivor.problems
    ]
    kinds = [problem for problem in problems if problem.startswith(beginnings)]
    if "left behind" not in beginnings:
        kinds = [problem for problem in kinds if not problem.startswith("left behind")]
    return len(kinds) if not kinds else f"**{len(kinds)}**"


def table(title, groups):
    lines = [HEADER.format(title)]
    lines += [row(label, results) for label, results in groups if results]
    return lines + [""]


def situation(drawn):
    if drawn.phase == "init":
        return "a rank dies, leaves or is stopped during the rendezvous, or just after it"
    return "a rank is stopped" if drawn.stops else "a rank dies or leaves"


def markdown(results, facts):
    faults = [(drawn, verdict) for drawn, verdict in results if not verdict.is_void]
    void = len(results) - len(faults)
    failed = [(drawn, verdict) for drawn, verdict in results if verdict.all_problems()]
    survivors = [survivor for _, verdict in faults for survivor in verdict.survivors]

    def groups(key, order):
        return [
            (label, [result for result in faults if key(result[0]) == label]) for label in order
        ]

    lines = [
        "# Reliability: errors on survivors after a rank is killed, stopped or ends",
        "",
        f"{facts['date']}, commit {facts['commit']}, seed {facts['seed']}: {len(faults)} faults in jobs "
        f"of 2 to 8 ranks, {len(survivors)} survivors. Void trials beside them: {void}. {facts['jobs']} trials at a time, {facts['minutes']:.1f} minutes.",
        f"{facts['machine']}. Load average from {facts['load_first']:.2f} at the start to {facts['load_last']:.2f} at the end.",
        "",
        f"Made by `{facts['command']}`; a row for each survivor, with its error, in [campaign.csv](campaign.csv).",
        "",
    ]
    lines += table("", [("all", faults)])
    lines += table("phase", groups(lambda drawn: drawn.phase, plan.PHASES))
    lines += table("fault", groups(lambda drawn: drawn.fault, plan.FAULTS))
    lines += table(
        "started",
        [
            ("`ronde run`", [result for result in faults if result[0].launcher]),
            ("each rank by itself", [result for result in faults if not result[0].launcher]),
        ],
    )
    lines += table("ranks", groups(lambda drawn: drawn.ranks, range(2, 9)))
    kinds = sorted({situation(drawn) for drawn, _ in faults})
    lines += table("situation", groups(situation, kinds))
    lines += ["## Trials with problems", ""]
    if failed:
        lines += [
            "Repeat a trial with `--seed` and `--replay NUMBER`; the time of the fault within a trial also depends on the machine.",
            "",
            "| trial | phase | ranks | victim | fault | problems |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for drawn, verdict in failed:
            problems = "<br>".join(text.replace("|", "\\|") for text in verdict.all_problems())
            where = drawn.phase + (", `ronde run`" if drawn.launcher else "")
            lines.append(
                f"| {drawn.name} | {where} | {drawn.ranks} | {drawn.victim} | {drawn.fault} | {problems} |"
            )
    else:
        lines.append("None.")
    lines += [
        "",
        "## The phases",
        "",
        PHASES,
        "## The faults",
        "",
        FAULTS,
        "## The rules",
        "",
        rules(facts),
    ]
    return "\n".join(lines)


PHASES = """\
| phase | the job | time of the fault |
| --- | --- | --- |
| init | the ranks start and connect; in half of the trials one rank starts up to half a second late | up to 0.1 s after the program's start, 0.4 s if a rank is late; without the launcher, signals are sent by another process |
| steady | 1 to 5 allreduces of 10 to 300,000 float32, then an allgather, a broadcast, an alltoall or a barrier; in half of all jobs one rank is late in every step | up to 0.3 s after the rendezvous |
| autotune | the same with `HOROVOD_AUTOTUNE` and its log, half of them with a state file | up to 1.5 s after |
| timeline | the same, recorded by all ranks: plain, compressed, or started and stopped by the program | up to 0.7 s after |
| process-sets | a set of drawn ranks is added, used and removed beside the same steps | up to 0.4 s after |
| shutdown | 1 to 20 steps, then all leave, half of the jobs after up to 5 ms each | up to 5 ms after the last step began |
"""

FAULTS = """\
| fault | effect on the victim |
| --- | --- |
| kill, term, abort | SIGKILL, SIGTERM or SIGABRT, sent by a thread of its own or by another process |
| stop | SIGSTOP; the job has a stall limit |
| exit | `exit(1)` on that thread, without leaving the job |
| quit | the program ends with code 1 during its work and drops the context, as after `sys.exit(1)` in Python |
"""


def rules(facts):
    text = judge.RULES
    for name in (
        "DEATH_LIMIT_S",
        "STALL_LIMIT_S",
        "START_TIMEOUT_S",
        "START_GRACE_S",
        "LAUNCHER_GRACE_S",
    ):
        text = text.replace(f"{{{name}}}", str(getattr(plan, name)))
    return text.replace("{SLACK_S:g}", f"{facts['slack_s']:g}").replace(
        "{GIVE_UP_S:g}", f"{facts['give_up_s']:g}"
    )
