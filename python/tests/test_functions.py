"""Broadcast of parameters, optimizer state and objects."""

import copy
import resource

import pytest
import torch


def model_of(hvd, seed=0):
    """A model whose parameters differ from rank to rank."""
    torch.manual_seed(100 * seed + hvd.rank())
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 2)
    )


def same_everywhere(hvd, values):
    everybodys = hvd.allgather_object([value.tolist() for value in values])
    assert all(others == everybodys[0] for others in everybodys)


@pytest.mark.parametrize(
    "form",
    [
        lambda model: model.state_dict(),
        lambda model: model.named_parameters(),
        lambda model: list(model.named_parameters()),
        lambda model: model.parameters(),
        lambda model: list(model.parameters()),
    ],
    ids=["state_dict", "named_parameters", "list of named", "parameters", "list"],
)
def test_broadcast_parameters(hvd, form):
    root = hvd.size() - 1
    model = model_of(hvd)
    mine = [parameter.detach().clone() for parameter in model.parameters()]
    hvd.broadcast_parameters(form(model), root_rank=root)
    after = [parameter.detach() for parameter in model.parameters()]
    same_everywhere(hvd, after)
    if hvd.rank() == root:
        assert all(torch.equal(a, b) for a, b in zip(mine, after))
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_broadcast_parameters_of_any_layout_and_dtype(hvd):
    rank = hvd.rank()
    numbers = torch.arange(48.0).reshape(2, 4, 2, 3) + rank
    tensors = {
        "channels_last": numbers.to(memory_format=torch.channels_last),
        "transposed": numbers[0, 0].t() if rank else numbers[0, 0].t().contiguous(),
        "complex": torch.complex(numbers[0], numbers[1]),
        "truth": torch.tensor([rank == 0, True]),
        "count": torch.tensor(rank),
        "nothing": torch.empty(0, 3),
        "half": numbers.half(),
        "bfloat16": numbers.bfloat16(),
        "weight": torch.nn.Parameter(numbers.clone()),
    }
    layout = tensors["channels_last"].stride()
    hvd.broadcast_parameters(tensors, root_rank=0)
    first = torch.arange(48.0).reshape(2, 4, 2, 3)
    assert torch.equal(tensors["channels_last"], first)
    assert tensors["channels_last"].stride() == layout
    assert torch.equal(tensors["transposed"], first[0, 0].t())
    assert torch.equal(tensors["complex"], torch.complex(first[0], first[1]))
    assert tensors["truth"].tolist() == [True, True]
    assert tensors["count"].item() == 0
    assert torch.equal(tensors["half"], first.half())
    assert torch.equal(tensors["bfloat16"], first.bfloat16())
    assert torch.equal(tensors["weight"].detach(), first)


def test_broadcast_parameters_wants_tensors(hvd):
    for params in (3, "weight", torch.nn.Linear(1, 1), {"a": 1.0}, [None]):
        with pytest.raises(ValueError, match="invalid params"):
            hvd.broadcast_parameters(params, root_rank=0)


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "plain sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, centered=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, lr=0.01),
    "rprop": lambda parameters: torch.optim.Rprop(parameters, lr=0.01),
}


def stepped(optimizer, model, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(2, 3, 4, 4)).square().sum().backward()
        optimizer.step()


def contents(value):
    """The state with lists in place of tensors, to be compared and pickled."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: contents(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [contents(part) for part in value])
    return (type(value).__name__, value)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("steps_elsewhere", [0, 2])
def test_broadcast_optimizer_state(hvd, kind, steps_elsewhere):
    """Rank 0 has made three steps, the others none or some; all continue with the state of rank
    0."""
    model = model_of(hvd)
    optimizer = OPTIMIZERS[kind](model.parameters())
    stepped(optimizer, model, 3 if hvd.rank() == 0 else steps_elsewhere)
    before = copy.deepcopy(optimizer.state_dict())
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    after = contents(optimizer.state_dict())
    assert hvd.allgather_object(after) == [after] * hvd.size()
    if hvd.rank() == 0:
        assert after == contents(before)
    # The broadcast makes no step.
    assert all(torch.equal(a, b) for a, b in zip(parameters, model.parameters()))
    stepped(optimizer, model, 1)


def test_tensors_of_the_state_stay_where_they_are(hvd):
    model = model_of(hvd)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    stepped(optimizer, model, 2)
    weight = next(iter(model.parameters()))
    before = optimizer.state[weight]["exp_avg"]
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.state[weight]["exp_avg"] is before


def referring_to_itself():
    state = {}
    state["self"] = state
    return state


UNSENDABLE = {
    "recursive": (referring_to_itself, RecursionError, "recursion"),
    "sparse": (lambda: torch.eye(2).to_sparse(), ValueError, "optimizer_state.0 cannot be .*to_dense"),
    "meta": (lambda: torch.ones(2, device="meta"), ValueError, "optimizer_state.0 cannot be .*on meta"),
}


@pytest.mark.parametrize("kind", UNSENDABLE)
@pytest.mark.parametrize("place", ["state", "options"])
def test_state_that_only_the_root_cannot_send(hvd, kind, place):
    make, error, words = UNSENDABLE[kind]
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    is_root = hvd.rank() == 0

    def target():
        return optimizer.state[weight] if place == "state" else optimizer.param_groups[0]

    target()["extra"] = make() if is_root else 1
    expected = (error, words) if is_root else (hvd.HorovodInternalError, "rank 0 could not send")
    with pytest.raises(expected[0], match=expected[1]):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    target()["extra"] = torch.arange(3.0) if is_root else 1
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert target()["extra"].tolist() == [0.0, 1.0, 2.0]


def test_state_that_is_sparse_on_other_ranks_only(hvd):
    weight = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    mine = torch.eye(2)
    optimizer.state[weight]["extra"] = mine if hvd.rank() == 0 else mine.to_sparse()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert torch.equal(optimizer.state[weight]["extra"], mine)


def test_options_have_the_roots_values_and_types(hvd):
    weight = torch.nn.Parameter(torch.ones(2))
    is_root = hvd.rank() == 0
    optimizer = torch.optim.Adam(
        [weight], lr=0.1 if is_root else 1, betas=(0.8, 0.9) if is_root else (0.5, 0.6)
    )
    optimizer.param_groups[0]["names"] = ["a", None, True] if is_root else None
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    group = optimizer.param_groups[0]
    assert group["lr"] == 0.1 and type(group["lr"]) is float
    assert group["betas"] == (0.8, 0.9) and type(group["betas"]) is tuple
    assert group["amsgrad"] is False and group["names"] == ["a", None, True]
    assert group["params"][0] is weight


def test_options_that_are_tensors(hvd):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    rate = torch.tensor(0.5 + hvd.rank())
    optimizer.param_groups[0]["lr"] = rate
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.5


def test_gradients_where_there_is_no_state(hvd):
    counts = torch.nn.Parameter(torch.tensor([1, 2]), requires_grad=False)
    weight, used = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(2))
    used.grad = torch.full((2,), 5.0)
    optimizer = torch.optim.SGD([counts, weight, used], lr=0.1, momentum=0.9)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert counts.grad is None
    assert weight.grad.tolist() == [0.0] * 3
    assert used.grad.tolist() == [5.0] * 2
    assert not optimizer.state


def test_sparse_adam(hvd):
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(list(embedding.parameters()), lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert embedding.weight.grad.is_sparse
    optimizer.step()


def test_sparse_gradients_where_there_is_no_state(hvd):
    model = torch.nn.ModuleList(
        [
            torch.nn.Embedding(5, 2, sparse=True),
            torch.nn.EmbeddingBag(5, 2, sparse=True, mode="sum"),
            torch.nn.Embedding(5, 2),
        ]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    assert [layer.weight.grad.is_sparse for layer in model] == [True, True, False]
    for _ in range(2):
        optimizer.zero_grad()
        sum(layer(torch.tensor([[1, 1]])).sum() for layer in model).backward()
        assert [layer.weight.grad.is_sparse for layer in model] == [True, True, False]
        assert all(layer.weight.grad.to_dense()[1].tolist() == [2.0, 2.0] for layer in model)


def test_lbfgs_is_refused(hvd):
    optimizer = torch.optim.LBFGS([torch.nn.Parameter(torch.ones(2))])
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def test_optimizers_that_differ(several):
    hvd = several
    shapes = [(2,), (3 + hvd.rank(),)]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(shape)) for shape in shapes], lr=0.1)
    with pytest.raises(ValueError, match="rank 1 .* parameter 1 of group 0"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(1 + hvd.rank())]
    with pytest.raises(ValueError, match=r"rank 1 .* \[2\] parameters"):
        hvd.broadcast_optimizer_state(torch.optim.SGD(parameters, lr=0.1), root_rank=0)


@pytest.mark.parametrize("value", [None, 7, "text", {"a": [1, (2, 3)]}, b"", torch.arange(3)], ids=repr)
def test_broadcast_object(hvd, value):
    root = hvd.size() - 1
    mine = value if hvd.rank() == root else {"another": "type"}
    result = hvd.broadcast_object(mine, root_rank=root)
    assert type(result) is type(value)
    assert result.tolist() == value.tolist() if isinstance(value, torch.Tensor) else result == value
    if hvd.rank() == root:
        assert result is mine


def test_large_object(hvd):
    data = bytes(range(256)) * 40_000
    assert hvd.broadcast_object(data if hvd.rank() == 0 else None, name="large") == data
    everybodys = hvd.allgather_object(data[: 10_000_000 >> hvd.rank()], name="large")
    assert [len(part) for part in everybodys] == [10_000_000 >> rank for rank in range(hvd.size())]


def broadcast_of_arrays(hvd):
    """Broadcast of objects as other front ends do, whose tensors NumPy can read."""
    np = pytest.importorskip("numpy")
    from ronde.common import objects

    def send(data, name):
        return hvd.broadcast_(torch.from_numpy(np.array(data)), 0, name).numpy()

    return objects, lambda obj, name: objects.broadcast_object(obj, 0, name, send)


def broadcast_of_tensors(hvd):
    from ronde.torch import functions

    return functions, lambda obj, name: hvd.broadcast_object(obj, 0, name)


@pytest.mark.parametrize("form", [broadcast_of_tensors, broadcast_of_arrays])
@pytest.mark.parametrize("length", [1 << 20, 3 << 20, (3 << 20) + 1])
def test_objects_in_pieces(hvd, monkeypatch, form, length):
    module, broadcast = form(hvd)
    monkeypatch.setattr(module, "PIECE_BYTES", 1 << 20)
    data = bytes(range(256)) * (length // 256)
    data = data[: length - 1000] + b"end"  # with what pickle adds, on both sides of the limit
    assert broadcast(data if hvd.rank() == 0 else None, "pieces") == data


@pytest.mark.parametrize("form", [broadcast_of_tensors, broadcast_of_arrays])
def test_an_object_that_one_rank_cannot_allocate(several, monkeypatch, form):
    hvd = several
    module, broadcast = form(hvd)
    monkeypatch.setattr(module, "PIECE_BYTES", 1 << 20)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    length, is_root = 200_000_000, hvd.rank() == 0
    if hvd.rank() == 1:
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), limits[1]))
    try:
        if hvd.rank() == 1:
            with pytest.raises(hvd.HorovodInternalError, match="rank 1 cannot allocate 2000.* object huge"):
                broadcast(None, "huge")
        else:
            assert len(broadcast(bytes(length) if is_root else None, "huge")) == length
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert broadcast("text" if is_root else None, "small") == "text"


def test_allgather_object(hvd):
    mine = {"rank": hvd.rank()} if hvd.rank() % 2 == 0 else ["rank", hvd.rank()]
    everybodys = hvd.allgather_object(mine)
    assert everybodys == [{"rank": r} if r % 2 == 0 else ["rank", r] for r in range(hvd.size())]


def test_objects_that_cannot_be_pickled(check_pickling_errors):
    check_pickling_errors()


def test_functions_of_the_test_can_be_sent(hvd):
    pytest.importorskip("cloudpickle")
    double = hvd.broadcast_object((lambda x: 2 * x) if hvd.rank() == 0 else None)
    assert double(21) == 42
