"""`DistributedOptimizer` makes the steps that one process would make with the joined batches."""

import copy
import gc
import io
import pickle
import threading
import time
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

ROWS = 4


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def image_network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4).eval(),
        nn.ReLU(),
        nn.Conv2d(4, 2, 3),
        nn.Flatten(),
        nn.Linear(32, 3),
    )


def twins(make, kind, **options):
    """Two equal copies of a model, each with its own optimizer, equal on all ranks."""
    torch.manual_seed(1)
    model = make()
    other = copy.deepcopy(model)
    return model, kind(model.parameters(), **options), other, kind(other.parameters(), **options)


def batches(hvd, *shape, passes=1):
    """The batches of all ranks by pass and rank, equal on all ranks; and those of this rank by
    pass."""
    torch.manual_seed(2)
    everybodys = [[torch.randn(ROWS, *shape) for _ in range(hvd.size())] for _ in range(passes)]
    return everybodys, [of_pass[hvd.rank()] for of_pass in everybodys]


def loss_of(model, batch):
    return model(batch).square().sum(dim=1).mean()


def assert_alike(model, other, tolerance=1e-6):
    for (name, parameter), expected in zip(model.named_parameters(), other.parameters()):
        difference = (parameter - expected).abs().max().item()
        assert difference <= tolerance, f"{name} differs by {difference}"


def step(optimizer, model, *own):
    optimizer.zero_grad()
    for batch in own:
        loss_of(model, batch).backward()
    optimizer.step()


def plain_step(optimizer, model, everybodys):
    """The step that :func:`step` must make, in one process: sums over passes, averages over
    ranks."""
    optimizer.zero_grad()
    for of_pass in everybodys:
        loss_of(model, torch.cat(of_pass)).backward()
    optimizer.step()


KINDS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (torch.optim.Adam, {"lr": 0.01}),
    (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
    (torch.optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 0.5}),
    (torch.optim.RMSprop, {"lr": 0.01, "centered": True}),
]


@pytest.mark.parametrize("kind, options", KINDS, ids=[kind.__name__ for kind, _ in KINDS])
def test_steps_are_those_of_the_joined_batch(hvd, kind, options):
    model, optimizer, other, plain = twins(network, kind, **options)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    everybodys, own = batches(hvd, 6, passes=4)
    for pass_ in range(4):
        step(optimizer, model, own[pass_])
        plain_step(plain, other, everybodys[pass_ : pass_ + 1])
    assert_alike(model, other, 2e-5)


def test_the_class_is_derived_from_the_wrapped_ones(hvd):
    model, wrapped, *_ = twins(network, torch.optim.SGD, lr=0.1, momentum=0.9)
    wrapped.state["something"] = 1
    optimizer = hvd.DistributedOptimizer(wrapped)
    assert type(optimizer).__name__ == "SGD" and type(optimizer) is not torch.optim.SGD
    assert isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__module__ == "ronde.torch.optimizer"
    assert not optimizer.state
    assert optimizer.param_groups[0] is wrapped.param_groups[0]
    assert optimizer.param_groups[0]["params"][0] is model[0].weight
    assert optimizer.defaults == wrapped.defaults
    assert repr(optimizer) == repr(wrapped)
    with pytest.raises(ValueError, match="already"):
        hvd.DistributedOptimizer(optimizer)


class Scaled(torch.optim.SGD):
    """An optimizer that cannot be created from its groups and defaults alone."""

    def __init__(self, params, scale, **options):
        super().__init__(params, **options)
        self.scale = scale

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad *= self.scale
        return super().step(closure)


def test_an_optimizer_with_arguments_of_its_own(hvd):
    model, optimizer, other, plain = twins(network, Scaled, scale=3.0, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer)
    everybodys, own = batches(hvd, 6)
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_gradients_of_several_backward_passes_add_up(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=2)
    everybodys, own = batches(hvd, 6, passes=3)
    for _ in range(2):
        step(optimizer, model, *own[:2])
        plain_step(plain, other, everybodys[:2])
    # An epoch that ends between the passes of a step: the gradients so far are reduced.
    step(optimizer, model, own[2])
    plain_step(plain, other, everybodys[2:])
    assert_alike(model, other)
    assert optimizer.backward_passes_per_step == 2
    optimizer.set_backward_passes_per_step(3)
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    optimizer.backward_passes_per_step = 1
    step(optimizer, model, own[0])
    plain_step(plain, other, everybodys[:1])
    assert_alike(model, other)
    with pytest.raises(ValueError, match="positive"):
        optimizer.backward_passes_per_step = 0


def test_arguments_are_attributes(hvd):
    def attributes(**options):
        optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
        one = hvd.DistributedOptimizer(optimizer, **options)
        return one.op, one.gradient_predivide_factor, one.sparse_as_dense, one.process_set

    assert attributes() == (hvd.Average, 1.0, False, hvd.global_process_set)
    own = {"op": hvd.Average, "gradient_predivide_factor": 2.0, "sparse_as_dense": True}
    assert attributes(**own) == (*own.values(), hvd.global_process_set)
    assert attributes(op=hvd.Sum)[0] == hvd.Sum


def test_no_sync_adds_up_without_reducing(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, own = batches(hvd, 6, passes=3)
    for _ in range(2):
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss_of(model, own[0]).backward()
            loss_of(model, own[1]).backward()
        loss_of(model, own[2]).backward()
        optimizer.step()
        plain_step(plain, other, everybodys)
    # All passes are in the context: the step reduces their gradients.
    optimizer.zero_grad()
    with optimizer.no_sync():
        loss_of(model, own[0]).backward()
    optimizer.step()
    plain_step(plain, other, everybodys[:1])
    assert_alike(model, other)


def test_one_backward_pass_too_many(several):
    hvd = several
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    _, (own,) = batches(hvd, 6)
    for _ in range(2):  # in the first step, gradients wait; in the second, they are in flight
        optimizer.zero_grad()
        loss = loss_of(model, own)
        loss.backward(retain_graph=True)
        with pytest.raises(AssertionError, match="more than backward_passes_per_step times"):
            loss.backward()
        with pytest.raises(AssertionError, match="backward_passes_per_step"), optimizer.no_sync():
            loss_of(model, own).backward()
        optimizer.step()


def test_zero_grad_while_gradients_are_being_reduced(several):
    hvd = several
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    _, (own,) = batches(hvd, 6)
    for _ in range(2):
        loss_of(model, own).backward()
        with pytest.raises(AssertionError, match="zero_grad"):
            optimizer.zero_grad()
        optimizer.step()
        optimizer.zero_grad()


def test_zero_grad_takes_set_to_none(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, (own,) = batches(hvd, 6)
    step(optimizer, model, own)
    optimizer.zero_grad(set_to_none=False)
    assert not model[0].weight.grad.any()
    optimizer.zero_grad(set_to_none=True)
    assert model[0].weight.grad is None
    step(optimizer, model, own)
    for _ in range(2):
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_predivided_averages(hvd, factor):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), gradient_predivide_factor=factor
    )
    everybodys, own = batches(hvd, 6)
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_sums(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Sum)
    plain.param_groups[0]["lr"] *= hvd.size()
    everybodys, own = batches(hvd, 6)
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    assert_alike(model, other)


@pytest.mark.parametrize("grouping", ["one", "two", "many", "lists"])
@pytest.mark.parametrize("options", [{}, {"gradient_predivide_factor": 2.0}, {"passes": 2}], ids=str)
def test_groups(hvd, grouping, options):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    groups = {"one": 1, "two": 2, "many": 100, "lists": [[model[2].weight, model[0].bias], [model[0].weight]]}
    passes = options.get("passes", 1)
    options = {name: value for name, value in options.items() if name != "passes"}
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        model.named_parameters(),
        groups=groups[grouping],
        backward_passes_per_step=passes,
        **options,
    )
    everybodys, own = batches(hvd, 6, passes=passes)
    for _ in range(3):
        step(optimizer, model, *own)
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_groups_with_ranks_that_have_the_parameters_in_another_order(hvd):
    model, _, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    named = list(model.named_parameters())
    if hvd.rank() == 1:
        named.reverse()
    optimizer = torch.optim.SGD([parameter for _, parameter in named], lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, named, groups=2)
    everybodys, own = batches(hvd, 6)
    for _ in range(2):
        step(optimizer, model, *own)
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_a_group_of_which_a_part_is_frozen(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=1)
    everybodys, own = batches(hvd, 6)
    for frozen in [False, True, True, False]:
        for one in (model, other):
            one[0].weight.requires_grad_(not frozen)
        optimizer.zero_grad(set_to_none=True)
        step(optimizer, model, *own)
        plain.zero_grad(set_to_none=True)
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize("groups", [None, 1])
def test_compressed_gradients(hvd, kind, groups):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), compression=getattr(hvd.Compression, kind), groups=groups
    )
    everybodys, own = batches(hvd, 6)
    for _ in range(2):
        step(optimizer, model, *own)
        plain_step(plain, other, everybodys)
    assert_alike(model, other, 2e-3 if kind == "fp16" else 2e-2)
    assert model[0].weight.grad.dtype == torch.float32


def test_a_compressor_of_ones_own(hvd):
    class Halved(hvd.compression.Compressor):
        """Does not change the tensor; its result is not the reduced tensor."""

        @staticmethod
        def compress(tensor):
            return tensor.mul_(0.5), "halved"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "halved"
            return tensor * 2

    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=Halved)
    everybodys, own = batches(hvd, 6)
    if hvd.size() == 1:
        pytest.skip("a single rank reduces nothing")
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    assert_alike(model, other)


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"compression": "fp16"}], ids=str)
def test_weights_in_channels_last(hvd, options):
    if "compression" in options:
        options = {"compression": hvd.Compression.fp16}
    model, optimizer, other, plain = twins(image_network, torch.optim.SGD, lr=0.1)
    model.to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    everybodys, (own,) = batches(hvd, 3, 8, 8)
    own = own.to(memory_format=torch.channels_last)
    for _ in range(2):
        step(optimizer, model, own)
        plain_step(plain, other, everybodys)
    assert model[0].weight.grad.is_contiguous(memory_format=torch.channels_last)
    assert_alike(model, other, 2e-3 if options else 1e-5)


def test_gradients_in_another_layout_than_the_weights(several):
    hvd = several
    weight = nn.Parameter(torch.zeros(4, 3, 2, 2).to(memory_format=torch.channels_last))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    gradient = torch.arange(48.0).view(4, 3, 2, 2)
    layouts = [gradient.clone(), gradient.to(memory_format=torch.channels_last), gradient.mT.contiguous().mT]
    for _ in range(2):
        # Another layout on each rank.
        weight.grad = layouts[hvd.rank() % 3] * (hvd.rank() + 1.0)
        optimizer.synchronize()
        assert torch.equal(weight.grad, gradient * (hvd.size() + 1) / 2)


def test_a_compressor_that_changes_the_number_of_dimensions(hvd):
    class Flat(hvd.compression.Compressor):
        @staticmethod
        def compress(tensor):
            return tensor.flatten(), tensor.shape

        @staticmethod
        def decompress(tensor, ctx):
            return tensor.view(ctx)

    weight = nn.Parameter(torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, compression=Flat)
    gradient = torch.arange(24.0).view(2, 3, 2, 2)
    for _ in range(2):
        optimizer.zero_grad()
        (weight * gradient * (hvd.rank() + 1)).sum().backward()
        optimizer.synchronize()
        assert torch.equal(weight.grad, gradient * (hvd.size() + 1) / 2)


def test_clipping(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, (own,) = batches(hvd, 6)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, own).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with optimizer.skip_synchronize():
                optimizer.step()
        plain.zero_grad()
        loss_of(other, torch.cat(everybodys[0])).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        plain.step()
    assert_alike(model, other)


def test_a_step_after_synchronize_warns(hvd):
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    loss_of(model, batches(hvd, 6)[1][0]).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match=r"optimizer.step\(\) called without optimizer.skip_synchronize\(\)"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(optimizer, model, *batches(hvd, 6)[1])


@pytest.mark.parametrize("kind, options", [(torch.optim.SGD, {}), (torch.optim.LBFGS, {"max_iter": 3})])
def test_closures(hvd, kind, options):
    model, optimizer, other, plain = twins(network, kind, lr=0.1, **options)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, (own,) = batches(hvd, 6)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, own)
        loss.backward()
        return loss

    def plain_closure():
        plain.zero_grad()
        loss = loss_of(other, torch.cat(everybodys[0]))
        loss.backward()
        return loss

    for _ in range(2):
        loss = optimizer.step(closure)
        plain.step(plain_closure)
    assert loss.item() > 0
    assert_alike(model, other, 1e-4)


def test_a_closure_that_only_tells_the_loss(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Sum)
    plain.param_groups[0]["lr"] *= hvd.size()
    everybodys, (own,) = batches(hvd, 6)
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, own)
        loss.backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert optimizer.step(lambda loss=loss: loss) is loss
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.heads = nn.ModuleList([nn.Linear(5, 3), nn.Linear(5, 3)])

    def forward(self, batch, head):
        return self.heads[head](self.body(batch))


@pytest.mark.parametrize("groups", [None, 1, 2])
def test_a_parameter_without_gradient_on_one_rank(several, groups):
    hvd = several
    torch.manual_seed(1)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=groups)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(torch.ones(1, 6), head=min(hvd.rank(), 1)).sum().backward()
        optimizer.synchronize()
        # Only rank 0 used the first head, for whose bias the gradient is 1.
        assert torch.allclose(model.heads[0].bias.grad, torch.full((3,), 1 / hvd.size()))
        assert torch.allclose(model.heads[1].bias.grad, torch.full((3,), 1 - 1 / hvd.size()))
        with optimizer.skip_synchronize():
            optimizer.step()
    gathered = hvd.allgather(model.heads[1].weight.detach().flatten()[None])
    assert (gathered == gathered[0]).all()


def test_a_generator_and_a_discriminator(hvd):
    torch.manual_seed(1)
    generator, discriminator = nn.Conv2d(1, 10, 1), nn.Conv2d(10, 1, 1)
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(one.parameters(), lr=0.01, weight_decay=0.1), one.named_parameters()
        )
        for one in (generator, discriminator)
    ]
    for round in range(4):
        turn = round % 2
        models = [generator, discriminator]
        for number, model in enumerate(models):
            model.requires_grad_(number == turn)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        frozen = [parameter.clone() for parameter in models[1 - turn].parameters()]
        discriminator(generator(torch.rand(1, 1, 20, 20))).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        for parameter, before in zip(models[1 - turn].parameters(), frozen):
            assert parameter.grad is None
            assert torch.equal(parameter, before)
        assert all(parameter.grad.any() for parameter in models[turn].parameters())
    for model in (generator, discriminator):
        gathered = hvd.allgather(model.weight.detach().flatten()[None])
        assert (gathered == gathered[0]).all()


def test_gradients_are_zeros_before_the_first_backward_pass(several):
    hvd = several
    model = network()
    model[2].bias.requires_grad_(False)
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert model[2].bias.grad is None
    gradients = [parameter.grad for parameter in model.parameters() if parameter.requires_grad]
    assert len(gradients) == 3 and not any(gradient.any() for gradient in gradients)


def test_two_optimizers_of_one_model(hvd):
    model, _, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    named = [(f"0.{name}", one) for name, one in model[0].named_parameters()]
    rest = [(f"2.{name}", one) for name, one in model[2].named_parameters()]
    first = hvd.DistributedOptimizer(torch.optim.SGD(model[0].parameters(), lr=0.1), named)
    second = hvd.DistributedOptimizer(torch.optim.SGD(model[2].parameters(), lr=0.1), rest)
    everybodys, (own,) = batches(hvd, 6)
    for _ in range(3):
        for optimizer in (first, second):
            optimizer.zero_grad()
        loss_of(model, own).backward()
        for optimizer in (first, second):
            optimizer.step()
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_parameters_that_thaw_later(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    for one in (model, other):
        one[0].requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    assert not model[0].weight.requires_grad
    everybodys, own = batches(hvd, 6)
    for round in range(4):
        if round == 2:
            for one in (model, other):
                one[0].requires_grad_(True)
        step(optimizer, model, *own)
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_a_group_that_is_added_later(hvd):
    model, _, other, _ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    plain = torch.optim.SGD(other[0].parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, own = batches(hvd, 6)
    for round in range(4):
        if round == 2:
            for one, layers in ((optimizer, model), (plain, other)):
                one.add_param_group({"params": layers[2].parameters()})
            model.zero_grad()  # gradients accumulated there in the meantime
            other.zero_grad()
        step(optimizer, model, *own)
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


class Words(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.embedding = nn.Embedding(10, 4, sparse=sparse)
        self.linear = nn.Linear(4, 2)

    def forward(self, words):
        return self.linear(self.embedding(words))


@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"groups": 1}], ids=str)
@pytest.mark.parametrize("none", [True, False, "never"])
def test_sparse_gradients(hvd, options, none):
    torch.manual_seed(1)
    model = Words(sparse=True)
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    plain = torch.optim.SGD(other.parameters(), lr=0.5)
    for round in range(3):
        everybodys = torch.tensor([[rank, rank + 1 + round, 7] for rank in range(hvd.size())])
        if round or none != "never":
            optimizer.zero_grad(set_to_none=bool(none))
        loss_of(model, everybodys[hvd.rank()]).backward()
        assert model.embedding.weight.grad.is_sparse
        optimizer.step()
        assert model.embedding.weight.grad.is_sparse
        plain.zero_grad(set_to_none=bool(none))
        loss_of(other, everybodys.flatten()).backward()
        plain.step()
    assert_alike(model, other)


@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}], ids=str)
def test_sparse_gradients_that_one_rank_does_not_have(several, options):
    hvd = several
    weight = nn.Parameter(torch.zeros(5, 2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), **options)
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        if hvd.rank() == 0:
            nn.functional.embedding(torch.tensor([1, 1, 3]), weight, sparse=True).sum().backward()
        optimizer.synchronize()
        assert weight.grad.is_sparse
        expected = torch.zeros(5, 2)
        expected[1], expected[3] = 2 / hvd.size(), 1 / hvd.size()
        assert torch.allclose(weight.grad.to_dense(), expected)


@pytest.mark.parametrize("options", [{}, {"sparse_as_dense": True}, {"groups": 1}], ids=str)
def test_sparse_gradients_that_are_dense_on_one_rank(several, options):
    """As after `broadcast_optimizer_state` without a model on ranks that have no state."""
    hvd = several
    parameters = [nn.Parameter(torch.zeros(5, 2)), nn.Parameter(torch.zeros(2))]
    weight = parameters[0]
    if hvd.rank() == 1:
        weight.grad = torch.zeros(5, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), **options)
    expected = torch.zeros(5, 2)
    expected[1], expected[3] = 2.0, 1.0
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        nn.functional.embedding(torch.tensor([1, 1, 3]), weight, sparse=True).sum().backward()
        optimizer.synchronize()
        assert weight.grad.is_sparse
        assert torch.equal(weight.grad.to_dense(), expected)
    # All ranks have agreed that it is sparse.
    weight.grad = expected.clone()
    optimizer.synchronize()
    assert weight.grad.is_sparse and torch.equal(weight.grad.to_dense(), expected)


def test_sparse_gradients_that_no_rank_has_in_the_first_step(several):
    hvd = several
    parameters = [nn.Parameter(torch.zeros(5, 2)), nn.Parameter(torch.zeros(2))]
    weight, other = parameters
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0))
    for step in range(3):
        optimizer.zero_grad(set_to_none=True)
        other.sum().backward()
        if step and hvd.rank() == 0:
            nn.functional.embedding(torch.tensor([1]), weight, sparse=True).sum().backward()
        optimizer.synchronize()
        assert weight.grad.to_dense().sum().item() == pytest.approx(2 / hvd.size() if step else 0)


def test_sparse_adam(hvd):
    torch.manual_seed(1)
    model, words = nn.Embedding(6, 3, sparse=True), torch.tensor([1, 4])
    other = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(list(model.parameters())), sparse_as_dense=True
    )
    plain = torch.optim.SparseAdam(list(other.parameters()))
    for one, steps in ((model, optimizer), (other, plain)):
        for _ in range(2):
            steps.zero_grad(set_to_none=True)
            one(words).square().sum().backward()
            steps.step()
    assert_alike(model, other)


def test_a_scheduler(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, own = batches(hvd, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedulers = [torch.optim.lr_scheduler.StepLR(one, 2, gamma=0.1) for one in (optimizer, plain)]
        for _ in range(4):
            step(optimizer, model, *own)
            plain_step(plain, other, everybodys)
            for scheduler in schedulers:
                scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.001)
    assert_alike(model, other)


def test_the_last_of_two_optimizers_of_the_same_parameters_has_the_hooks(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    everybodys, own = batches(hvd, 6)
    first = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    step(first, model, *own)
    second = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for _ in range(2):
        step(second, model, *own)
    del second
    step(first, model, *own)  # reduces when it steps
    for _ in range(4):
        plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_hooks_go_with_their_optimizer(hvd):
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    step(optimizer, model, *batches(hvd, 6)[1])
    reducer = weakref.ref(optimizer._reducer)
    del optimizer
    gc.collect()
    assert reducer() is None


def test_step_hooks_run_once(hvd):
    if not hasattr(torch.optim.Optimizer, "register_step_pre_hook"):
        pytest.skip("torch 2.0 has them first")
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    step(optimizer, model, *batches(hvd, 6)[1])
    assert calls == ["before", "after"]


def test_a_gradient_scaler(hvd):
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    before = model[0].weight.clone()
    # Without a GPU the scaler only forwards its calls.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaler = torch.cuda.amp.GradScaler(enabled=False)
    optimizer.zero_grad()
    scaler.scale(loss_of(model, batches(hvd, 6)[1][0])).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model[0].weight, before)


def test_a_state_that_is_loaded(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, own = batches(hvd, 6)
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    saved = io.BytesIO()
    torch.save(optimizer.state_dict(), saved)
    saved.seek(0)
    again = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=7.0), model.named_parameters())
    again.load_state_dict(torch.load(saved))
    step(again, model, *own)
    plain_step(plain, other, everybodys)
    assert_alike(model, other)


def test_loading_a_state_forgets_what_is_under_way(hvd):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    everybodys, own = batches(hvd, 6)
    loss_of(model, own[0]).backward()
    optimizer.load_state_dict(optimizer.state_dict())
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    assert_alike(model, other)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"]
)
def test_copies_reduce_too(hvd, copied):
    model, optimizer, other, plain = twins(network, torch.optim.SGD, lr=0.1, momentum=0.9)
    groups = [[model[0].weight, model[2].weight]]
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=groups)
    everybodys, own = batches(hvd, 6)
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    model, optimizer = copied((model, optimizer))
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD)
    assert optimizer.param_groups[0]["params"][0] is model[0].weight
    step(optimizer, model, *own)
    plain_step(plain, other, everybodys)
    assert_alike(model, other)


@pytest.mark.parametrize("elastic", ["0", "1"])  # then ranks outside may become members
def test_ranks_outside_of_the_process_set_step_alone(several, elastic, monkeypatch):
    hvd = several
    monkeypatch.setenv("HOROVOD_ELASTIC", elastic)
    process_set = hvd.add_process_set([0, hvd.size() - 1] if hvd.size() > 2 else [0])
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), process_set=process_set, groups=2
    )
    for _ in range(2):
        optimizer.zero_grad()
        (model(torch.ones(1, 6)).sum() * (hvd.rank() + 1)).backward()
        optimizer.synchronize()
        members = process_set.ranks
        factor = sum(members) / len(members) + 1 if process_set.included() else hvd.rank() + 1
        assert torch.allclose(model[2].bias.grad, torch.full((3,), float(factor)))
        with optimizer.skip_synchronize():
            optimizer.step()
    hvd.barrier()
    hvd.remove_process_set(process_set)


def test_models_that_differ(several):
    hvd = several
    last = hvd.size() - 1
    is_odd = hvd.rank() == last
    layers = {
        f"'weight' is float32 .5, 3. on rank 0 and float32 .4, 3. on rank {last}": nn.Linear(
            3, 4 if is_odd else 5
        ),
        "'weight' is float32.* and float64": nn.Linear(3, 4).to(torch.float64 if is_odd else torch.float32),
        f"rank {last} does not have parameter 'bias', which is float32 .4,. on": nn.Linear(
            3, 4, bias=not is_odd
        ),
        "rank 0 does not have parameter 'bias', which is float32 .4,. on": nn.Linear(3, 4, bias=is_odd),
    }
    for message, layer in layers.items():
        plain = torch.optim.SGD(layer.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(plain, layer.named_parameters())
        layer(torch.zeros(1, 3, dtype=layer.weight.dtype)).sum().backward()
        with pytest.raises(ValueError, match=message):
            optimizer.step()
    layer = nn.Linear(3, 4)
    named = [(f"odd.{name}" if is_odd else name, one) for name, one in layer.named_parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), named)
    layer(torch.zeros(1, 3)).sum().backward()
    with pytest.raises(ValueError, match="does not have parameter 'weight'"):
        optimizer.step()
    # Nothing is in flight.
    hvd.allreduce_(torch.ones(5), name="bias")


def in_threads(*functions):
    """Calls functions in a thread each; returns what they raise."""
    errors = []

    def call(function):
        try:
            function()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_models_of_two_threads(several):
    hvd = several
    made = [twins(lambda: Words(sparse=True), torch.optim.SGD, lr=0.1) for _ in range(2)]

    def train(number):
        model, optimizer, other, plain = made[number]
        # In the same order on all ranks. The first waits for rank 1 when the second begins.
        time.sleep(2 * (hvd.rank() % 2) + number)
        named = [(f"{number}.{name}", one) for name, one in model.named_parameters()]
        optimizer = hvd.DistributedOptimizer(optimizer, named)
        for step in range(3):
            everybodys = torch.tensor([[rank, number, step] for rank in range(hvd.size())])
            optimizer.zero_grad()
            loss_of(model, everybodys[hvd.rank()]).backward()
            optimizer.step()
            plain.zero_grad()
            loss_of(other, everybodys.flatten()).backward()
            plain.step()
        assert_alike(model, other)

    assert in_threads(lambda: train(0), lambda: train(1)) == []


class MetaByDefault(TorchFunctionMode):
    """Stands for `torch.set_default_device`, of torch 2.0 and newer, with another device."""

    FACTORIES = (torch.arange, torch.empty, torch.full, torch.sparse_coo_tensor, torch.tensor, torch.zeros)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in self.FACTORIES:
            kwargs.setdefault("device", "meta")
        return function(*args, **kwargs)


def test_a_default_device_that_is_not_that_of_the_model(hvd):
    model = Words(sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=1)
    loss_of(model, torch.tensor([1, 2])).backward()
    with MetaByDefault():
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        optimizer.synchronize()
        wait = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "by default", op=hvd.Sum)
        assert wait().device.type == "cpu"
    assert model.embedding.weight.grad.is_sparse and model.embedding.weight.grad.device.type == "cpu"


@pytest.mark.parametrize("groups", [None, 1])
def test_a_rank_that_has_joined_before_its_first_step(several, groups):
    hvd = several
    weights = [nn.Parameter(torch.zeros(3)) for _ in range(2)]
    named = [(str(number), weight) for number, weight in enumerate(weights)]
    if hvd.rank() == 1:
        named.reverse()
    optimizer = torch.optim.SGD([weight for _, weight in named], lr=1.0)
    optimizer = hvd.DistributedOptimizer(optimizer, named, groups=groups)

    def check(expected):
        optimizer.zero_grad()
        (weights[0] + 2 * weights[1]).sum().backward()
        optimizer.synchronize()
        for number, weight in enumerate(weights, 1):
            assert torch.allclose(weight.grad, torch.full((3,), number * expected))

    if hvd.rank() > 0:
        check((hvd.size() - 1) / hvd.size())
    hvd.join()
    for _ in range(2):  # with all ranks again, of which one has not compared its model yet
        check(1.0)


def test_models_that_differ_while_a_rank_has_joined(several):
    hvd = several
    if hvd.size() < 3:
        pytest.skip("wants two ranks that have not joined")
    weight = nn.Parameter(torch.zeros(hvd.rank() + 1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    if hvd.rank() > 0:
        weight.sum().backward()
        with pytest.raises(ValueError, match="models of the ranks differ; .* a rank has joined"):
            optimizer.synchronize()
    hvd.join()


def test_arguments_that_make_no_sense(hvd):
    model = network()
    named = list(model.named_parameters())

    def wrapped(named_parameters=None, **options):
        return hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), named_parameters, **options
        )

    refused = [
        (dict(named_parameters=model.parameters()), "tuples"),
        (dict(named_parameters=[*named, named[0]]), "must be unique"),
        (dict(named_parameters=named[:1]), "were not named"),
        (dict(backward_passes_per_step=0), "positive"),
        (dict(gradient_predivide_factor=2.0, op=hvd.Sum), "gradient_predivide_factor"),
        (dict(groups=0), "positive"),
        (dict(groups="all"), "number, or lists"),
        (dict(groups=[["weight"]]), "torch.Tensor"),
        (dict(groups=[[model[0].weight], [model[0].weight]]), "only appear once"),
    ]
    for options, message in refused:
        with pytest.raises(ValueError, match=message):
            wrapped(**options)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        wrapped(num_groups=2)


def test_errors_leave_the_optimizer_usable(several):
    hvd = several
    model, optimizer, *_ = twins(network, torch.optim.SGD, lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    _, own = batches(hvd, 6)
    step(optimizer, model, *own)
    # From here on the scale factors differ between ranks.
    optimizer._reducer._factors = (1.0 + hvd.rank(), 1.0)
    optimizer.zero_grad()
    loss_of(model, own[0]).backward()
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched prescale and/or postscale factors"):
        optimizer.step()
    optimizer._reducer._factors = (1.0, 1.0)
    step(optimizer, model, *own)


def test_a_gradient_that_is_written_into_the_first_zeros(several):
    hvd = several
    parameters = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    names = [("written", parameters[0]), ("left", parameters[1])]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), names)
    for number in (1, 2):
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.zero_()
        parameters[0].grad.copy_(torch.full((3,), hvd.rank() + 1.0))
        optimizer.step()
        assert parameters[0].tolist() == [-number * (hvd.size() + 1) / 2] * 3
        assert parameters[1].tolist() == [0.0] * 3


def test_a_function_that_gives_a_parameter_no_gradient(several):
    hvd = several

    class Constant(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return 2 * x

        @staticmethod
        def backward(context, gradient):
            return None

    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    names = [("constant", parameters[0]), ("other", parameters[1])]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), names)
    (Constant.apply(parameters[0]).sum() + parameters[1].sum()).backward()
    optimizer.step()
    assert parameters[0].tolist() == [1.0] * 2 and parameters[1].tolist() == [0.0] * 2


def test_where_ranks_may_be_added_one_rank_reduces(hvd, monkeypatch):
    model = torch.nn.Linear(2, 1)

    def hooked():
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        return len(optimizer._reducer._slots)

    assert hooked() == (2 if hvd.size() > 1 else 0)
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    assert hooked() == 2
