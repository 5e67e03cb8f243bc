"""Elastic training: states, samplers, and the loop that restarts."""

import copy
import random

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from ronde.common import process_sets
from ronde.common.elastic import HostUpdateResult, ObjectState, State, notification_manager, run_fn
from ronde.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt


def trained(hvd, value):
    """A model filled with ``value`` plus the rank, and an optimizer with a state."""
    model = nn.Linear(2, 2)
    for parameter in model.parameters():
        nn.init.constant_(parameter, value + hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + hvd.rank(), momentum=0.9)
    model(torch.full((1, 2), 1.0 + hvd.rank())).sum().backward()
    optimizer.step()
    return model, optimizer


def contents(model, optimizer):
    momentum = [optimizer.state[parameter]["momentum_buffer"] for parameter in model.parameters()]
    return [tensor.detach().clone() for tensor in [*model.parameters(), *momentum]]


def assert_equal(left, right):
    assert all(torch.equal(one, other) for one, other in zip(left, right))


def assert_same_everywhere(hvd, tensors):
    for tensor in tensors:
        gathered = hvd.allgather(tensor[None])
        assert (gathered == gathered[0]).all()


@pytest.mark.parametrize("is_distributed", [False, True])
def test_a_state_is_synchronized_committed_and_restored(hvd, is_distributed):
    model, optimizer = trained(hvd, 5.0)
    if is_distributed:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    rank = hvd.rank()
    state = hvd.elastic.TorchState(model, optimizer, batch=20 + rank, seen=[rank], extra=None)
    assert state.model is model and state.optimizer is optimizer
    state.sync()
    assert (state.batch, state.seen, state.extra) == (20, [0], None)
    assert optimizer.param_groups[0]["lr"] == 0.1
    synchronized = contents(model, optimizer)
    assert_same_everywhere(hvd, synchronized)

    def go_on():
        with torch.no_grad():
            for tensor in model.parameters():
                tensor += 1
        for buffers in optimizer.state.values():
            buffers["momentum_buffer"] += 1
        state.batch += 1
        state.seen.append(state.batch)

    go_on()
    state.restore()  # the synchronized state
    assert_equal(contents(model, optimizer), synchronized)
    assert (state.batch, state.seen) == (20, [0])
    go_on()
    committed = contents(model, optimizer)
    state.commit()
    for _ in range(2):  # the same state can be restored twice
        go_on()
        state.restore()
        assert_equal(contents(model, optimizer), committed)
        assert (state.batch, state.seen) == (21, [0, 21])


def test_values_can_be_replaced(hvd):
    model, optimizer = trained(hvd, 5.0)
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    other, _ = trained(hvd, 7.0)
    expected = copy.deepcopy(other.state_dict())
    state.model = other
    nn.init.zeros_(other.weight)
    nn.init.zeros_(model.weight)
    state.restore()
    assert state.model is other
    assert torch.equal(other.weight, expected["weight"]) and not model.weight.any()


@pytest.mark.parametrize(
    "kind, options, metrics",
    [
        ("StepLR", {"step_size": 2}, []),
        ("ReduceLROnPlateau", {}, [1.0]),  # before torch 2.2 not derived from the class of the others
    ],
)
def test_schedulers_keep_their_optimizer(hvd, kind, options, metrics):
    _, optimizer = trained(hvd, 5.0)
    scheduler = getattr(torch.optim.lr_scheduler, kind)(optimizer, **options)
    state = hvd.elastic.TorchState(scheduler=scheduler)
    optimizer.step()
    scheduler.step(*metrics)
    state.restore()
    state.sync()
    assert state.scheduler is scheduler and scheduler.optimizer is optimizer
    assert scheduler.last_epoch == 0


class Counter:
    number = 0

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def test_values_with_state_dict_are_restored_in_place(hvd):
    counter, replaced = Counter(), Counter()
    state = hvd.elastic.TorchState(counter=counter, kind=Counter)
    counter.number = hvd.rank() + 3
    state.commit()
    counter.number = 9
    state.restore()
    assert state.counter is counter and counter.number == hvd.rank() + 3
    state.sync()
    assert counter.number == 3
    assert state.kind is Counter  # a class, which is a plain value
    replaced.number = 4
    state.counter = replaced
    replaced.number = 9
    state.restore()
    assert state.counter is replaced and replaced.number == 4


def test_handlers_of_ones_own(hvd):
    from ronde.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry

    class Counter:
        number = 0

    class CounterHandler(StateHandler):
        def save(self):
            self.saved = self.value.number

        def restore(self):
            self.value.number = self.saved

        def sync(self):
            self.value.number = hvd.broadcast_object(self.value.number)

    before = get_handler_registry()
    set_handler_registry([(Counter, CounterHandler), *before])
    try:
        counter = Counter()
        state = hvd.elastic.TorchState(counter=counter)
    finally:
        set_handler_registry(before)
    counter.number = hvd.rank() + 3
    state.commit()
    counter.number = 9
    state.restore()
    assert counter.number == hvd.rank() + 3
    state.sync()
    assert counter.number == 3 and state.counter is counter


def test_a_commit_that_fails_half_way_keeps_the_commit_before(hvd):
    from ronde.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry

    class Part:
        fails = False

    class PartHandler(StateHandler):
        def save(self):
            if Part.fails:
                raise HorovodInternalError("planted")

        def restore(self):
            pass

    before = get_handler_registry()
    set_handler_registry([(Part, PartHandler), *before])
    first, last = nn.Linear(1, 1), nn.Linear(1, 1)
    try:
        # Handlers save in the order of the arguments, the model last.
        state = hvd.elastic.TorchState(last, first=first, part=Part(), values=[1])
    finally:
        set_handler_registry(before)
    for model in (first, last):
        nn.init.ones_(model.weight)
    state.commit()
    for model in (first, last):
        nn.init.zeros_(model.weight)
    state.values.append(2)
    Part.fails = True
    with pytest.raises(HorovodInternalError, match="planted"):
        state.commit()
    state.restore()
    assert (first.weight, last.weight, state.values) == (1, 1, [1])


def test_ranks_with_different_states_are_told_the_difference(several):
    hvd = several
    is_other = hvd.rank() == 1
    states = {
        "'extra' is missing on rank 0 and a value on rank 1": {
            "step": 0,
            **({"extra": 1} if is_other else {}),
        },
        r"'model.bias' is a tensor \(1,\) of torch.float32 on rank 0 and a tensor \(2,\)": {
            "model": nn.Linear(2, 1 + is_other)
        },
    }
    for text, values in states.items():
        state = hvd.elastic.TorchState(**values)
        with pytest.raises(ValueError, match=text):
            run_fn(lambda state: pytest.fail("trained"), lambda: pytest.fail("joined again"))(state)


def test_a_set_of_all_ranks_is_lost_if_the_next_attempt_to_join_has_fewer(hvd, monkeypatch):
    monkeypatch.setenv("RONDE_ELASTIC_SOCKET", "unused")
    everybody, pair = hvd.ProcessSet(range(3)), hvd.ProcessSet([0, 1])
    monkeypatch.setenv("HOROVOD_SIZE", "3")
    assert process_sets.remaining([everybody, pair]) == [pair]
    assert everybody.process_set_id == 0
    # Joining has failed, as a rank has ended.
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    assert process_sets.remaining([everybody, pair]) == []
    assert (everybody.process_set_id, pair.process_set_id) == (None, 0)
    with pytest.raises(ValueError, match="the job has only 2 ranks now"):
        process_sets.size_of(everybody)


class Squares(torch.utils.data.Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index * index


def union_of(hvd, indices):
    return sorted(index for share in hvd.allgather_object(list(indices)) for index in share)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("length", [24, 23, 1])
def test_shares_make_up_the_data_set(hvd, shuffle, length):
    sampler = hvd.elastic.ElasticSampler(Squares(length), shuffle=shuffle, seed=5)
    sampler.set_epoch(3)
    own = list(sampler)
    assert len(own) == len(sampler) == -(-length // hvd.size())
    assert set(union_of(hvd, own)) == set(range(length))
    order = list(range(length))
    if shuffle:
        random.Random(8).shuffle(order)
    padded = [order[place % length] for place in range(len(own) * hvd.size())]
    assert own == padded[hvd.rank() :: hvd.size()]


def test_what_is_processed_is_not_shared_out_again(hvd):
    per_rank, batch_size = 8, 2
    dataset = Squares(per_rank * hvd.size())
    sampler = hvd.elastic.ElasticSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    state = hvd.elastic.TorchState(sampler=sampler)
    state.sync()
    assert (sampler.epoch, sampler.processed_num) == (0, 0)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        batches = 0
        for index, _ in enumerate(loader):
            sampler.record_batch(index, batch_size)
            batches += 1
            assert sampler.processed_num == batch_size * batches * hvd.size()
        assert batches == per_rank // batch_size
    # The ranks have not changed, so another pass repeats the partition.
    assert len(list(loader)) == per_rank // batch_size

    sampler.set_epoch(2)
    first = list(sampler)
    for index in range(2):
        sampler.record_batch(index, batch_size)
    state.commit()
    sampler.record_batch(2, batch_size)
    state.restore()
    assert sampler.processed_num == 2 * batch_size * hvd.size()
    assert len(sampler) == per_rank - 2 * batch_size
    rest = union_of(hvd, sampler)
    assert sorted(rest + union_of(hvd, first[: 2 * batch_size])) == list(range(len(dataset)))
    sampler.record_batch(2, batch_size)
    state.commit()
    state.sync()
    state.sync()  # changes nothing more
    assert sampler.processed_num == 3 * batch_size * hvd.size()
    assert len(list(loader)) == 1
    sampler.set_epoch(3)
    assert len(sampler) == per_rank


def test_an_epoch_that_is_over_has_nothing_left(hvd):
    sampler = hvd.elastic.ElasticSampler(Squares(5))
    sampler.record_batch(0, 5)
    sampler.load_state_dict(sampler.state_dict())
    assert len(sampler) == 0 and list(sampler) == []


def test_new_hosts_interrupt_all_ranks(hvd):
    state = hvd.elastic.TorchState(step=1)
    state.commit()
    last = hvd.size() - 1
    if hvd.rank() == last:  # it suffices that one rank was notified
        state.on_hosts_updated(100, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is False
    state.commit()  # once for each change
    state.on_hosts_updated(90, HostUpdateResult.added)  # an older change
    state.commit()
    state.on_hosts_updated(110 + hvd.rank(), HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is True
    state.on_hosts_updated(200, HostUpdateResult.added if hvd.rank() == last else HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.check_host_updates()
    assert caught.value.skip_sync is False


class Recorded(ObjectState):
    """A state that records the calls of its methods; a job of one rank."""

    def __init__(self, **kwargs):
        self.calls = []
        super().__init__(bcast_object=lambda value: value, get_rank=lambda: 0, **kwargs)

    def sync(self):
        self.calls.append("sync")
        super().sync()

    def restore(self):
        self.calls.append("restore")
        super().restore()

    def reset(self):
        self.calls.append("reset")


def test_the_loop_begins_again():
    state = Recorded(step=0)
    state.register_reset_callbacks([lambda: state.calls.append("callback")])
    outcomes = [HorovodInternalError("planted"), HostsUpdatedInterrupt(False), None]

    def train(state, factor, *, offset):
        """Its documentation."""
        state.calls.append(f"step {state.step}")
        state.step += 1
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return state.step * factor + offset

    elastic = run_fn(train, lambda: state.calls.append("join"))
    assert elastic.__doc__ == "Its documentation."
    assert elastic(state, 10, offset=1) == 21
    again = ["join", "reset", "callback"]
    assert state.calls == ["sync", "step 0", "restore", *again, "sync", "step 0", *again, "sync", "step 1"]


def test_a_reset_callback_may_fail_like_an_operation():
    state = Recorded(step=0)
    outcomes = [HorovodInternalError("planted"), None]

    def callback():
        state.calls.append("callback")
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    state.register_reset_callbacks([callback])

    def train(state):
        state.calls.append("train")
        if state.calls.count("train") == 1:
            raise HostsUpdatedInterrupt(False)

    run_fn(train, lambda: state.calls.append("join"))(state)
    again = ["join", "reset", "callback"]
    assert state.calls == ["sync", "train", *again, "restore", *again, "sync", "train"]


def test_a_program_may_wait_for_a_change_of_hosts(monkeypatch):
    from ronde.common import elastic

    changes = [(False, False), (True, False)]
    change = lambda: changes.pop(0) if changes else (False, False)
    monkeypatch.setattr(elastic._ronde, "elastic_changes", change)
    state = Recorded(step=0)

    def train(state):
        if not state.calls.count("reset"):
            while state._host_messages.empty():
                assert changes
            state.check_host_updates()
            pytest.fail("not interrupted")

    run_fn(train, lambda: None)(state)
    assert state.calls == ["sync", "reset", "sync"]


def test_other_exceptions_end_the_loop():
    state = Recorded(step=0)

    def train(state):
        raise KeyError("planted")

    with pytest.raises(KeyError):
        run_fn(train, lambda: pytest.fail("joined again"))(state)
    notification_manager.handle_hosts_updated(1, HostUpdateResult.added)  # no listener is left
    state.check_host_updates()


def test_changes_reach_the_states_that_train():
    state = Recorded(step=0)
    rounds = []

    def train(state):
        rounds.append(state.step)
        if len(rounds) == 1:
            state.step = 5
            notification_manager.handle_hosts_updated(1, HostUpdateResult.added)
        state.check_host_updates()
        return len(rounds)

    assert run_fn(train, lambda: None)(state) == 2
    assert rounds == [0, 5]  # completed rounds are kept


def test_a_state_that_cannot_ask_all_ranks_never_skips():
    assert State(lambda value: value, lambda: 0)._all_skip_sync(True) is False


def test_ranks_agree_on_skipping(several):
    state = several.elastic.TorchState(step=several.rank())
    assert state._all_skip_sync(True) is True
    assert state._all_skip_sync(False) is False
    assert state._all_skip_sync(several.rank() == 0) is False
