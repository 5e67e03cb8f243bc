"""Checks a job of the fault campaign: its steps, samples and weights, from the ranks' logs.

A step counts if no later generation has begun before it. The rules:

- A generation begins at the last state that its rank 0 has saved or received, which is no earlier
  than any commit that had returned on some rank.
- The steps that count are 1, 2, 3, …, each with the samples of all ranks.
- In each epoch every sample was used; the only repetitions are those with which the last partition
  was filled, fewer than there are ranks.
- The weights of every rank at the start of a generation, and at the end of the job, are those of
  one process that repeats these steps.
"""

import collections

import training

TOLERANCE = 1e-10  # of a weight, relative to the largest one


def judge(logs):
    """Problems of a job that has ended by itself, as sentences; empty if there are none."""
    ends = [record for process in logs.processes.values() for record in process.all("end")]
    if not ends:
        return ["no rank has reached the end"]
    try:
        steps = counted_steps(logs, max(record["step"] for record in ends))
        check_samples(steps)
        check_weights(logs, steps)
    except ValueError as error:
        return [str(error)]
    return []


def counted_steps(logs, last):
    """The steps 1 to `last` that count: their epoch, and the samples of each rank."""
    tries = collections.defaultdict(dict)  # (generation, step): {rank: record}
    for process in logs.processes.values():
        for record in process.all("try"):
            tries[record["generation"], record["step"]][record["rank"]] = record
    generation_of = {}
    for generation in logs.generations():
        base = begin(logs, generation)
        generation_of = {step: name for step, name in generation_of.items() if step <= base}
        tried = [step for name, step in tries if name == generation.name]
        generation_of |= {step: generation.name for step in tried if step > base}
    steps = []
    for step in range(1, last + 1):
        if step not in generation_of:
            raise ValueError(f"step {step} was lost")
        ranks = tries[generation_of[step], step]
        size = next(iter(ranks.values()))["size"]
        epochs = {record["epoch"] for record in ranks.values()}
        if set(ranks) != set(range(size)) or len(epochs) != 1:
            raise ValueError(f"step {step}: ranks {sorted(ranks)} of {size}, epochs {epochs}")
        samples = [ranks[rank]["samples"] for rank in range(size)]
        steps.append({"epoch": epochs.pop(), "samples": samples})
    return steps


def begin(logs, generation):
    """The step after which a generation begins."""
    if 0 not in generation.members:
        # All its processes ended before they could train: nothing of it counts.
        return max(
            record["step"]
            for pid in generation.members.values()
            for record in logs.processes[pid].all("begin")
            if record["generation"] == generation.name
        )
    first = logs.processes[generation.members[0]]
    saved, base, began = 0, None, None
    for record in first.events:
        if record["event"] == "begin" and record["generation"] == generation.name:
            base, began = record["step"], record["t"]
            break
        if record["event"] in ("saved", "begin"):
            saved = record["step"]
    if base != saved:
        raise ValueError(f"a generation begins after step {base}; its rank 0 had saved {saved}")
    committed = [
        record["step"]
        for process in logs.processes.values()
        for record in process.all("committed")
        if record["t"] < began
    ]
    if committed and base < max(committed):
        raise ValueError(f"a generation begins after step {base}; {max(committed)} was committed")
    return base


def check_samples(steps):
    epochs = collections.defaultdict(list)
    for step in steps:
        epochs[step["epoch"]].append(step["samples"])
    if sorted(epochs) != list(range(len(epochs))):
        raise ValueError(f"epochs {sorted(epochs)}")
    for epoch, parts in epochs.items():
        uses = collections.Counter(sample for ranks in parts for part in ranks for sample in part)
        lost = set(range(training.SAMPLES)) - set(uses)
        if lost:
            raise ValueError(f"epoch {epoch}: {len(lost)} samples were lost, such as {min(lost)}")
        more = sum(uses.values()) - training.SAMPLES
        if more >= len(parts[-1]):
            raise ValueError(f"epoch {epoch}: {more} samples were used twice")


def check_weights(logs, steps):
    expected = training.repeat([step["samples"] for step in steps])
    for process in logs.processes.values():
        for record in process.all("begin") + process.all("end"):
            pairs = zip(record["weights"], expected[record["step"]])
            largest = max(map(abs, expected[record["step"]]))
            difference = max(abs(weight - other) for weight, other in pairs) / largest
            if not difference <= TOLERANCE:
                raise ValueError(
                    f"the weights after step {record['step']} differ from one process's by "
                    f"{difference:.3g}"
                )
    ends = [record for process in logs.processes.values() for record in process.all("end")]
    if any(record["step"] != len(steps) for record in ends):
        raise ValueError("the ranks ended after different steps")
