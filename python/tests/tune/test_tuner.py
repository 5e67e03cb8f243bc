"""`ronde.tune.Tuner`: the search, agreement between ranks, state file, and failures.

Needs no framework; ranks are threads.
"""

import gc
import json
import logging
import math
import os
import random
import subprocess
import sys

import pytest
import ronde.tune.tuner as tuner_module
from ronde.tune import Boolean, Integer, Linear, Log, Tuner, TunerError
from world import World

BUCKET = {"bucket_cap_mb": Log(1, 256, start=25)}
STEPS_MAX = 3000


def step_seconds(settings, noise):
    """Time of a step: 100 ms at 80 MB, 109 ms at 25 MB."""
    distance = abs(math.log2(settings["bucket_cap_mb"] / 80))
    return (100 + 3 * distance**2 + noise.gauss(0, 1)) / 1000


def search(tuner, noise, steps_max=STEPS_MAX):
    """Steps until the verdict; returns the settings by step."""
    settings = []
    while not tuner.finished and len(settings) < steps_max:
        settings.append(tuner.settings["bucket_cap_mb"])
        tuner.step(step_seconds(tuner.settings, noise))
    return settings


def test_importing_it_imports_no_framework():
    code = (
        "import sys, ronde.tune; "
        "found = {'torch', 'lightning', 'transformers', 'deepspeed', 'numpy'} & set(sys.modules); "
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_rank_finds_a_faster_setting():
    tuner = Tuner(BUCKET)
    settings = search(tuner, random.Random(1))
    assert tuner.finished
    verdict = tuner.verdict
    assert settings[0] == 25 and len(set(settings)) > 3
    assert not verdict["kept_default"]
    assert 40 < verdict["setting"]["bucket_cap_mb"] < 160
    assert verdict["gain_pct"][0] > 0
    assert tuner.settings == verdict["setting"]


def test_ranks_change_settings_at_the_same_step_with_few_broadcasts():
    world = World(3)

    def rank(rank, broadcast):
        tuner = Tuner(BUCKET, broadcast, rank, 3)
        # Each rank measures other times; those of rank 0 count.
        settings = search(tuner, random.Random(rank))
        return settings, tuner.verdict, tuner.settings

    results = world.run(rank)
    settings, verdict, last = results[0]
    assert results[1] == results[0] and results[2] == results[0]
    assert len(set(settings)) > 3 and verdict["setting"] == last
    assert world.broadcasts <= 3 + 1 + len(settings)


def test_a_broadcast_that_does_not_block_is_waited_for_one_step_later():
    world = World(3)

    def rank(rank, broadcast):
        waits = []

        def begin(text, root):
            def received():
                waits.append(len(settings))
                return broadcast(text, root)

            begins.append(len(settings))
            return received

        settings, begins, noise = [], [], random.Random(rank)
        tuner = Tuner(BUCKET, begin, rank, 3)
        greetings = len(begins)
        while not tuner.finished and len(settings) < STEPS_MAX:
            settings.append(tuner.settings["bucket_cap_mb"])
            tuner.step(step_seconds(tuner.settings, noise))
        assert waits[:greetings] == begins[:greetings]  # the constructor waits
        for begin, wait in zip(begins[greetings:], waits[greetings:]):
            assert wait == begin + 1
        return settings, tuner.verdict, tuner.settings

    results = world.run(rank)
    settings, verdict, last = results[0]
    assert results[1] == results[0] and results[2] == results[0]
    assert len(set(settings)) > 3 and verdict["setting"] == last


def test_close_does_not_wait_for_a_broadcast():
    own = tuner_module.Greeting(tuner_module._VERSION, tuner_module.space_line(BUCKET)).text()
    begins, waits = [], []

    def broadcast(text, root):
        begins.append(root)
        return lambda: waits.append(root) or own

    tuner = Tuner(BUCKET, broadcast, 0, 2)
    assert len(waits) == len(begins) == 3  # two greetings, and the start
    while len(begins) == 3:
        tuner.step(0.1)
    tuner.close()
    assert len(waits) == 3
    assert not tuner.step(0.1) and len(begins) == 4


def test_agreements_are_rare_where_broadcasts_are_slow_and_after_the_verdict(monkeypatch):
    clock, calls = [0.0], []
    monkeypatch.setattr(tuner_module.time, "perf_counter", lambda: clock[0])
    greeting = tuner_module.Greeting(tuner_module._VERSION, tuner_module.space_line(BUCKET))

    def broadcast(text, root):
        """Rank 0's, with a rank 1 that agrees."""
        if root == 1:
            return greeting.text()
        clock[0] += 0.01
        calls.append(steps)
        return text

    steps = checked = 0
    tuner, noise, searched = Tuner(BUCKET, broadcast, 0, 2), random.Random(1), None
    assert tuner.measuring
    while searched is None or steps < searched + 200:
        steps += 1
        tuner.step(step_seconds(tuner.settings, noise))
        if searched is None and tuner.finished:
            searched = steps
        checked += searched is not None and tuner.settings != tuner.verdict["setting"]
    during = [call for call in calls if call <= searched]
    gaps = {after - before for before, after in zip(during[2:], during[3:])}
    assert gaps == {5}
    # Every 50 steps, and for the check after about 100 steps, for which the start is in force.
    assert len(calls) - len(during) <= 200 / 50 + 6
    assert 0 < checked <= 20 and not tuner.measuring


@pytest.mark.parametrize("size", [2, 3])
def test_different_versions_are_an_error_on_all_ranks_that_names_both(size, monkeypatch):
    world = World(size)
    original = Tuner._greeting

    def greeting(self, parameters, options):
        own = original(self, parameters, options)
        if self.rank == size - 1:
            own.version = "9.8.7"
        return own

    monkeypatch.setattr(Tuner, "_greeting", greeting)
    errors = world.run(lambda rank, broadcast: Tuner(BUCKET, broadcast, rank, size))
    for error in errors:
        assert isinstance(error, TunerError), error
        assert "9.8.7" in str(error) and tuner_module._VERSION in str(error)
        assert f"rank {size - 1}" in str(error)


def test_different_or_invalid_parameters_are_an_error_on_all_ranks():
    other = {"bucket_cap_mb": Log(1, 128, start=25)}
    invalid = {"bucket_cap_mb": Log(1, 16, start=25)}

    def create(parameters):
        return World(2).run(
            lambda rank, broadcast: Tuner(parameters if rank else BUCKET, broadcast, rank, 2)
        )

    for error in create(other):
        assert isinstance(error, TunerError) and "128" in str(error) and "256" in str(error)
    for error in create(invalid):
        assert isinstance(error, ValueError)
        assert "rank 1" in str(error) and "bucket_cap_mb" in str(error) and "1 to 16" in str(error)


def test_a_tuner_that_fails_ends_tuning_on_all_ranks_and_says_so_once(caplog, monkeypatch):
    def report(self):
        raise RuntimeError("no more memory")

    def rank(rank, broadcast):
        tuner = Tuner(BUCKET, broadcast, rank, 2)
        for _ in range(100):
            tuner.step(0.1)
        return tuner.settings, tuner.finished, tuner.verdict

    monkeypatch.setattr(tuner_module.Search, "report", report)
    with caplog.at_level(logging.INFO, "ronde.tune"):
        results = World(2).run(rank)
    assert results == [({"bucket_cap_mb": 25}, True, None)] * 2
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "rank 0 failed: no more memory" in record.getMessage()
    assert "training continues with {'bucket_cap_mb': 25.0}" in record.getMessage()


@pytest.mark.parametrize("good", [0, 2, 3, 7])
def test_a_broadcast_that_fails_ends_tuning_and_says_so_once(good, caplog):
    """It fails from call `good` on: in the greeting, at the first agreement, or later."""

    def rank(rank, broadcast):
        calls = []

        def failing(text, root):
            calls.append(root)
            if len(calls) > good:
                raise OSError("connection reset")
            return broadcast(text, root)

        tuner = Tuner(BUCKET, failing, rank, 2)
        for _ in range(100):
            tuner.step(0.1)
        assert len(calls) == good + 1  # it is not called again
        return tuner.settings, tuner.finished

    with caplog.at_level(logging.INFO, "ronde.tune"):
        results = World(2).run(rank)
    assert results[0] == results[1] and results[0][1], results
    assert len(caplog.records) == 2
    assert all("connection reset" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        '{"step": 0}',
        '{"step": 7, "settings": {"bucket_cap_mb": 5}, "steps": 5}',
        '{"step": 0, "settings": {"other": 1}, "steps": 5}',
        '{"step": 0, "settings": {"bucket_cap_mb": "large"}, "steps": 5}',
        '{"step": 0, "settings": {"bucket_cap_mb": 5}, "steps": -1}',
        '{"step": 0, "settings": {"bucket_cap_mb": 5}, "steps": 1e99}',
        '{"step": 0, "settings": {"bucket_cap_mb": 5}, "steps": 1, "verdict": 3}',
    ],
)
def test_what_another_rank_sends_is_checked(text):
    own = tuner_module.Greeting(tuner_module._VERSION, tuner_module.space_line(BUCKET)).text()
    answers = [own, own, text]
    with pytest.raises(TunerError, match="rank 0"):
        Tuner(BUCKET, lambda _, root: answers.pop(0), 1, 2)


def test_the_next_job_begins_at_the_result(tmp_path, caplog):
    path = tmp_path / "state.json"

    def job(key="same", parameters=BUCKET):
        tuner = Tuner(parameters, state=path, key={"job": key})
        first = tuner.settings
        settings = search(tuner, random.Random(3))
        tuner.close()
        return first, tuner.verdict, len(settings)

    first, verdict, steps = job()
    assert first == {"bucket_cap_mb": 25} and not verdict["kept_default"]
    again, confirmed, steps_again = job()
    assert again == verdict["setting"] and steps_again < steps
    assert confirmed["setting"] == verdict["setting"]
    # That of another job is neither used nor overwritten.
    content = path.read_text()
    with caplog.at_level(logging.WARNING, "ronde.tune"):
        foreign, _, _ = job("another")
    assert foreign == {"bucket_cap_mb": 25} and path.read_text() == content
    assert "of another job" in caplog.text


def samples_of(path):
    return len(json.loads(path.read_text())["samples"])


UNFINISHED = """
import random, sys
sys.path.insert(0, {tests!r})
from test_tuner import BUCKET, Tuner, step_seconds
tuner, noise = Tuner(BUCKET, state={state!r}), random.Random(1)
for _ in range(60):
    tuner.step(step_seconds(tuner.settings, noise))
assert not tuner.finished
{end}
"""


@pytest.mark.parametrize("end, code", [("", 0), ("raise MemoryError", 1), ("sys.exit(3)", 3)])
def test_a_program_without_close_saves_what_it_has_measured(end, code, tmp_path):
    state = tmp_path / "state.json"
    program = UNFINISHED.format(tests=os.path.dirname(__file__), state=str(state), end=end)
    assert subprocess.run([sys.executable, "-c", program]).returncode == code
    assert samples_of(state) > 1


def unfinished(state):
    """A tuner that has measured 60 steps, without a verdict."""
    tuner, noise = Tuner(BUCKET, state=state), random.Random(1)
    for _ in range(60):
        tuner.step(step_seconds(tuner.settings, noise))
    return tuner


def test_a_forked_process_does_not_write_the_state_file(tmp_path):
    state = tmp_path / "state.json"
    tuner = unfinished(state)
    child = os.fork()
    if child == 0:
        tuner._at_exit()  # as at the end of the interpreter
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not state.exists()
    tuner.close()
    assert samples_of(state) > 1


def test_a_tuner_that_is_forgotten_saves_what_it_has_measured(tmp_path):
    state = tmp_path / "state.json"
    tuner = unfinished(state)
    del tuner
    gc.collect()
    assert samples_of(state) > 1


def test_an_unfinished_search_is_saved_now_and_then(tmp_path, monkeypatch):
    clock, state = [0.0], tmp_path / "state.json"
    monkeypatch.setattr(tuner_module.time, "perf_counter", lambda: clock[0])
    tuner, noise, saves = Tuner(BUCKET, state=state), random.Random(1), []
    save = tuner._search.save
    monkeypatch.setattr(tuner._search, "save", lambda: saves.append(clock[0]) or save())
    while len(saves) < 3 and not tuner.finished:
        clock[0] += 10
        tuner.step(step_seconds(tuner.settings, noise))
    assert len(saves) == 3 and state.exists()
    assert all(after - before >= 60 for before, after in zip([0, *saves], saves)), saves
    search(tuner, noise)
    saves.clear()
    for _ in range(50):
        clock[0] += 10
        tuner.step(step_seconds(tuner.verdict["setting"], noise))
    assert not saves  # the service has saved the verdict


def test_a_state_file_without_folder_is_an_error_on_all_ranks(tmp_path):
    state = tmp_path / "missing" / "state.json"
    for found, message in [(state, "no folder"), (tmp_path, "is the folder")]:
        with pytest.raises(ValueError, match=message):
            Tuner(BUCKET, state=found)
    errors = World(2).run(
        lambda rank, broadcast: Tuner(BUCKET, broadcast, rank, 2, state=None if rank else state)
    )
    assert all(isinstance(error, ValueError) for error in errors), errors
    assert all("rank 0: state is" in str(error) for error in errors), errors


def test_a_state_file_in_a_read_only_folder_is_said_at_the_start(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(tmp_path))
    with caplog.at_level(logging.WARNING, "ronde.tune"):
        Tuner(BUCKET, state=tmp_path / "state.json").close()
    (record,) = caplog.records
    assert "cannot be written" in record.getMessage()


def test_a_state_file_that_cannot_be_written_is_said_once(tmp_path, caplog):
    (tmp_path / "missing").mkdir()
    tuner = Tuner(BUCKET, state=tmp_path / "missing" / "state.json")
    (tmp_path / "missing").rmdir()
    with caplog.at_level(logging.WARNING, "ronde.tune"):
        search(tuner, random.Random(1))
        tuner.close()
    assert tuner.verdict is not None
    assert "missing" in caplog.text


def test_without_watch_tuning_ends_with_the_verdict():
    world = World(2)

    def rank(rank, broadcast):
        tuner = Tuner(BUCKET, broadcast, rank, 2, watch=False)
        search(tuner, random.Random(1))
        before = world.broadcasts
        for _ in range(500):
            assert not tuner.step(0.3)  # nor does it notice that the steps take longer
        return tuner.verdict, tuner.settings, world.broadcasts - before

    results = world.run(rank)
    assert results[0][0]["setting"] == results[0][1]
    assert results[0] == results[1] and results[0][2] == 0


def test_drift_begins_another_search_on_all_ranks():
    def rank(rank, broadcast):
        tuner, noise = Tuner(BUCKET, broadcast, rank, 2), random.Random(4)
        search(tuner, noise)
        first = tuner.verdict
        lost = False
        for step in range(2000):
            slower = 1.5 if step > 500 else 1
            tuner.step(slower * step_seconds(tuner.settings, noise))
            lost |= not tuner.finished
        return first, lost

    results = World(2).run(rank)
    assert results[0] == results[1]
    assert results[0][0] is not None and results[0][1]


def test_it_measures_the_time_between_steps_and_from_begin(monkeypatch):
    clock, reported = [0.0], []
    monkeypatch.setattr(tuner_module.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(
        tuner_module.Search, "add", lambda self, seconds: reported.append(seconds)
    )
    tuner = Tuner(BUCKET)
    clock[0] = 5
    tuner.step()  # there is no begin
    clock[0] = 6
    tuner.step()
    clock[0] = 60  # an evaluation
    tuner.begin()
    clock[0] = 62
    tuner.step()
    tuner.step(7)
    assert reported == [1, 2, 7]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_time_that_is_none_is_an_error(seconds):
    with pytest.raises(ValueError, match="finite number > 0"):
        Tuner(BUCKET).step(seconds)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (({},), "no parameters"),
        (({"a": 3},), "parameter 'a' is 3"),
        (({"a": Log(1, float("inf"), 2)},), "parameter 'a': high is inf"),
        (({"a": Log(0, 8, 2)},), "a"),
        (({"a": Integer(1, 8, 2.5)},), "a"),
        (({"a": Linear(1, 8, 9)},), "its bounds are 1 to 8"),
        ((BUCKET, None, 1, 2), "need broadcast"),
        ((BUCKET, None, 1), "rank 1 of 1"),
        ((BUCKET, lambda text, root: text, 0), "size"),
        ((BUCKET, lambda text, root: text, 2, 2), "rank 2 of 2"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Tuner(*arguments)


class Whole:
    """A whole number as NumPy has them: neither an int, nor accepted by JSON."""

    def __init__(self, value):
        self._value = value

    def __index__(self):
        return self._value


@pytest.mark.parametrize("kind", ["index", "numpy"])
def test_whole_numbers_of_other_types_are_accepted(kind):
    whole = Whole if kind == "index" else pytest.importorskip("numpy").int64
    parameters = {
        "size": Log(whole(1), whole(64), start=whole(8), levels=whole(7)),
        "threads": Integer(whole(1), whole(8), start=whole(4)),
    }
    tuner = Tuner(parameters, steps=whole(1000), seed=whole(3), settle_steps=2)
    assert tuner.settings == {"size": 8, "threads": 4}


def visited(**options):
    tuner, noise, settings = Tuner(BUCKET, **options), random.Random(1), []
    for _ in range(60):
        settings.append(tuner.settings["bucket_cap_mb"])
        tuner.step(step_seconds(tuner.settings, noise))
    return settings


def test_the_seed_is_an_argument_or_in_the_environment_or_drawn(monkeypatch):
    seventh = visited(seed=7)
    assert visited() == seventh  # conftest.py
    monkeypatch.setenv("RONDE_AUTOTUNE_SEED", "8")
    assert visited(seed=7) == seventh
    assert visited() == visited(seed=8) != seventh
    monkeypatch.delenv("RONDE_AUTOTUNE_SEED")
    assert len({tuple(visited()) for _ in range(8)}) > 1


@pytest.mark.parametrize("seed", ["-1", "x", "18446744073709551616"])
def test_a_bad_seed_is_an_error_on_all_ranks(seed, monkeypatch):
    monkeypatch.setenv("RONDE_AUTOTUNE_SEED", seed)
    errors = World(2).run(lambda rank, broadcast: Tuner(BUCKET, broadcast, rank, 2))
    for error in errors:
        assert "RONDE_AUTOTUNE_SEED" in str(error) and "2^64 - 1" in str(error)


def test_a_setting_that_cannot_be_changed_any_more_ends_tuning(caplog):
    def rank(rank, broadcast):
        tuner, noise = Tuner(BUCKET, broadcast, rank, 2), random.Random(1)
        while not tuner.step(step_seconds(tuner.settings, noise)):
            pass
        tuner.abandon({"bucket_cap_mb": 25.0}, "no more changes")
        assert not any(tuner.step(0.1) for _ in range(100))
        return tuner.settings, tuner.finished

    with caplog.at_level(logging.WARNING, "ronde.tune"):
        results = World(2).run(rank)
    assert results == [({"bucket_cap_mb": 25.0}, True)] * 2
    (record,) = caplog.records
    assert "no more changes; tuning has ended" in record.getMessage()


def test_several_parameters_of_every_scale():
    parameters = {
        "threads": Integer(1, 8, start=4),
        "share": Linear(0, 1, start=0.5, levels=5),
        "limit": Log(1, 64, start=0, levels=7, zero=True, rough=True),
        "overlap": Boolean(start=False),
    }
    tuner, noise = Tuner(parameters, seed=3), random.Random(5)
    seen = []
    while not tuner.finished and len(seen) < STEPS_MAX:
        seen.append(tuner.settings)
        slow = abs(tuner.settings["threads"] - 2) + 10 * (not tuner.settings["overlap"])
        tuner.step((50 + slow + noise.gauss(0, 0.3)) / 1000)
    assert tuner.finished
    assert seen[0] == {"threads": 4, "share": 0.5, "limit": 0, "overlap": False}
    assert tuner.settings["overlap"] is True
