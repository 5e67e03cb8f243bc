"""Checks the files of a job: timelines, autotune logs, state files."""

import gzip
import json
import zlib

UNWRITTEN_S = 0.5  # an event is in the file by then, even on a busy machine


def check(trial, outcome, out):
    """Returns the problems in the outputs of a trial."""
    if trial.phase == "timeline":
        return check_timelines(trial, outcome, out)
    if trial.phase == "autotune":
        return check_autotune(trial, outcome, out)
    return []


def ended_itself(trial, outcome, rank):
    """Whether a rank left without an error, so that its files are complete."""
    return rank != trial.victim and outcome.ranks[rank].first("left") is not None


def check_timelines(trial, outcome, out):
    problems = []
    by_program = trial.variant == "started by the program"
    for rank in range(trial.ranks):
        infix = f".rank{rank}" if rank else ""
        end = ".json.gz" if trial.variant == "compressed" else ".json"
        stems = [f"t{number}" for number in range(3)] if by_program else ["t"]
        for stem in stems:
            path = out / f"{stem}{infix}{end}"
            if not path.exists():
                if not by_program and outcome.ranks[rank].first("met"):
                    problems.append(f"{path.name} does not exist")
                continue
            events, problem = read_timeline(path, ended_itself(trial, outcome, rank))
            if problem:
                problems.append(f"{path.name}: {problem}")
            elif not by_program:
                problems += check_events(outcome, rank, events, path.name)
    return problems


def check_events(outcome, rank, events, name):
    """Checks that steps that ended some time before the fault are in the file."""
    record = outcome.ranks[rank]
    before = [
        event["steps"]
        for event in record.events
        if event["event"] == "steps" and event["t"] < outcome.fault - UNWRITTEN_S
    ]
    if not before:
        return []
    # Every step has one operation that is a barrier in one step of four, and else a batch; cycles
    # may be dropped if the writer cannot keep up, so a share of them is enough.
    batches = sum(
        event.get("name") in ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL") for event in events
    )
    if batches < before[-1] / 2:
        return [f"{name} holds {batches} operations of {before[-1]} steps"]
    return []


def read_timeline(path, must_be_whole):
    """Returns the events of a timeline, and its problems."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            text = gzip.decompress(data).decode()
        except (EOFError, OSError, zlib.error) as error:
            if must_be_whole:
                return [], f"is not complete: {error}"
            try:
                text = zlib.decompressobj(wbits=31).decompress(data).decode(errors="replace")
            except zlib.error as error:
                return [], f"cannot be decompressed: {error}"
    else:
        text = data.decode(errors="replace")
    try:
        return json.loads(text), None
    except ValueError as error:
        if must_be_whole:
            return [], f"is not JSON: {error}"
    return complete_events(text)


def complete_events(text):
    """The events of a file whose last write was cut, and what is wrong before that: a list without
    its end."""
    decoder, events = json.JSONDecoder(), []
    position = text.find("[") + 1
    while (position := skip(text, position)) < len(text):
        try:
            event, position = decoder.raw_decode(text, position)
        except ValueError:
            rest = text[position:]
            # The line that was being written is incomplete.
            if "}\n{" in rest or "},\n" in rest:
                return (
                    events,
                    f"cannot be read beyond byte {position} of {len(text)}: {rest[:80]!r}",
                )
            break
        events.append(event)
    return events, None


def skip(text, position):
    """Returns the position of the next character that is neither white space nor a separator."""
    while position < len(text) and text[position] in " \n\t\r,]":
        position += 1
    return position


def check_autotune(trial, outcome, out):
    problems = []
    log, state = out / "a.csv", out / "s.json"
    if log.exists():
        lines = log.read_text(errors="replace").split("\n")
        if trial.victim == 0 or outcome.ranks[0].first("left") is None:
            lines = lines[:-1]  # cut where rank 0 was
        columns = {line.count(",") for line in lines if line and not line.startswith("#")}
        if len(columns) > 1:
            problems.append(f"a.csv has lines of {sorted(columns)} commas")
    elif outcome.ranks[0].first("met"):
        problems.append("a.csv does not exist")
    if state.exists():
        try:
            json.loads(state.read_text())
        except ValueError as error:
            problems.append(f"s.json is not JSON: {error}")
    return problems
