"""One rank of the tests of `ronde.tune.ddp`: trains with and without changes of the bucket size.

    ddp_rank.py CASE            # a name of CASES, or of a function that main calls

Writes nothing if the weights agree.
"""

import contextlib
import logging
import sys
import weakref

import ronde.tune.ddp as ddp_module
import torch
import torch.distributed as dist
from ronde.tune._model import Unchangeable
from ronde.tune.ddp import MIB, BucketTuner, Buckets
from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

SIZES_MB = [None, 0.01, None, 0.6, 0.05, 8.0, 0.01]
STEPS_PER_SIZE = 3
LEARNING_RATE = 0.01


class Net(torch.nn.Module):
    """3 MiB in 26 tensors; one layer is used in every second step only."""

    def __init__(self, has_unused):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(12))
        self.norm = torch.nn.BatchNorm1d(256)
        self.sometimes = torch.nn.Linear(256, 256) if has_unused else None

    def forward(self, x, step):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        if self.sometimes is not None and step % 2:
            x = self.sometimes(x)
        return self.norm(x)


def compiled(ddp):
    return torch.compile(ddp, backend="aot_eager")


# Options of DDP; options of this test.
CASES = {
    "plain": ({}, {}),
    "start": ({"bucket_cap_mb": 0.1}, {}),
    "view": ({"gradient_as_bucket_view": True}, {}),
    "unused": ({"find_unused_parameters": True}, {"has_unused": True}),
    "static": ({"static_graph": True}, {}),
    "static_view": ({"static_graph": True, "gradient_as_bucket_view": True}, {}),
    "no_sync": ({}, {"accumulate": 3}),
    "no_sync_view": ({"gradient_as_bucket_view": True}, {"accumulate": 2}),
    "autocast": ({}, {"autocast": True}),
    "compile": ({}, {"wrap": compiled}),
    # Divides by the gradient, so a difference in one near 0 changes the weight by a step's size.
    "adam": ({}, {"optimizer": torch.optim.AdamW, "tolerance": LEARNING_RATE}),
}


def fp16_hook(state, bucket):
    """Averages in 16 bits; counts its calls in `state`."""
    state.append(bucket.index())
    half = bucket.buffer().to(torch.float16).div_(dist.get_world_size())
    future = dist.all_reduce(half, async_op=True).get_future()
    return future.then(lambda f: bucket.buffer().copy_(f.value()[0]))


def train(
    options,
    sizes_mb,
    has_unused=False,
    accumulate=1,
    autocast=False,
    wrap=None,
    optimizer=torch.optim.SGD,
    hook=None,
    keep_loss=False,
):
    """Trains; returns the weights and the numbers of buckets that each size had."""
    torch.manual_seed(7)
    ddp = DistributedDataParallel(Net(has_unused), **options)
    if hook is not None:
        ddp.register_comm_hook(*hook)
    known = getattr(ddp, "_comm_hooks", None)
    buckets = Buckets(ddp, comm_hook=hook if known is None else None)
    model = ddp if wrap is None else wrap(ddp)
    steps = optimizer(ddp.parameters(), lr=LEARNING_RATE)
    data = torch.Generator().manual_seed(dist.get_rank())
    counts, losses, step = [], [], 0
    for size_mb in sizes_mb:
        if size_mb is not None or step > 0:
            buckets.set_cap_mb(buckets.start_mb if size_mb is None else size_mb)
        for _ in range(STEPS_PER_SIZE):
            steps.zero_grad()
            for micro in range(accumulate):
                last = micro == accumulate - 1
                with contextlib.nullcontext() if last else ddp.no_sync():
                    inputs = torch.randn(8, 256, generator=data)
                    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                        loss = (model(inputs, step).float() - inputs).pow(2).mean()
                    loss.backward()
                    if keep_loss:
                        losses.append(loss)  # its graph refers to the reducer
            steps.step()
            step += 1
        counts.append(bucket_count(ddp))
    return torch.cat([p.detach().flatten() for p in ddp.parameters()]), counts


def raises(error, text, function):
    """Calls the function; returns whether it raises this error with this text."""
    try:
        function()
    except error as found:
        assert text in str(found), found
    else:
        raise AssertionError(text)


def equal_on_all_ranks(tensor):
    every = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(every, tensor)
    return all(torch.equal(one, tensor) for one in every)


def bucket_count(ddp):
    return len(ddp.reducer._get_zeros_like_grad_buckets())


def compare(options, tolerance=1e-5, **how):
    """Compares the weights with those of a run whose bucket size is never changed."""
    fixed, counts = train(options, [None] * len(SIZES_MB), **how)
    assert len(set(counts)) == 1, counts
    changed, counts = train(options, SIZES_MB, **how)
    assert counts[1] > counts[3] > counts[5], counts  # more buckets if they are smaller
    assert counts[0] == counts[2], counts
    if dist.get_world_size() == 2:
        assert torch.equal(fixed, changed), (fixed - changed).abs().max()
    else:
        # A sum of three numbers depends on their order, and so on their place in a bucket.
        torch.testing.assert_close(changed, fixed, rtol=1e-5, atol=tolerance)
    assert equal_on_all_ranks(changed)


def hook():
    """A communication hook stays in force."""
    calls = []
    weights, _ = train({}, [None, 0.01, 8.0], hook=(calls, fp16_hook))
    without, _ = train({}, [None, 0.01, 8.0])
    assert not torch.equal(weights, without)
    assert len(calls) > 9 + 5, calls  # of the steps with many buckets too
    ddp = DistributedDataParallel(Net(False))
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    raises(ValueError, "comm_hook=(state, hook)", lambda: Buckets(ddp))


def frozen():
    """Layers that are frozen at a change are reduced again when they are not."""
    for frozen_layers in (range(3), range(12)):
        torch.manual_seed(7)
        ddp = DistributedDataParallel(Net(False), find_unused_parameters=True)
        buckets = Buckets(ddp)
        steps = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE)
        data = torch.Generator().manual_seed(dist.get_rank())

        def train():
            for _ in range(STEPS_PER_SIZE):
                inputs = torch.randn(8, 256, generator=data)
                steps.zero_grad()
                (ddp(inputs, 0) - inputs).pow(2).mean().backward()
                steps.step()

        layers = torch.nn.ModuleList(ddp.module.layers[index] for index in frozen_layers)
        train()
        # All of them, which is no model to train: a change at this time does not raise.
        (layers if len(layers) < 12 else ddp).requires_grad_(False)
        buckets.set_cap_mb(0.3)
        assert not any(p.requires_grad for p in layers.parameters())
        if len(layers) < 12:
            train()
            buckets.set_cap_mb(0.1)
        ddp.requires_grad_(True)
        before = layers[0].weight.detach().clone()
        train()
        assert not torch.equal(before, layers[0].weight)
        weights = torch.cat([p.detach().flatten() for p in ddp.parameters()])
        assert equal_on_all_ranks(weights)


def bucket_state():
    """Hooks with state for each bucket are refused, when the tuner is made and later."""
    # It never compresses: with several buckets, torch 1.13 may wait for itself over gloo.
    power = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=1000)
    ddp = DistributedDataParallel(Net(False))
    ddp.register_comm_hook(power, powerSGD_hook.powerSGD_hook)
    for hook in (powerSGD_hook.powerSGD_hook, powerSGD_hook.batched_powerSGD_hook):
        raises(
            ValueError,
            f"{hook.__name__} keeps state for each bucket",
            lambda: BucketTuner(ddp, comm_hook=(power, hook)),
        )
    ddp = DistributedDataParallel(Net(False), bucket_cap_mb=1)
    optimizer = ZeroRedundancyOptimizer(
        ddp.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=LEARNING_RATE
    )
    get_backend, dist.get_backend = dist.get_backend, lambda group: "nccl"  # which it needs
    hook = ddp_zero_hook.hook_with_zero_step(fp16_hook, ddp, optimizer)
    dist.get_backend = get_backend
    raises(ValueError, "keeps state for each bucket", lambda: Buckets(ddp, ([], hook)))

    # One that is registered after the tuner was made: the buckets stay, and the hook too.
    ddp = DistributedDataParallel(Net(False), bucket_cap_mb=1)
    tuner = BucketTuner(ddp, low=0.01, high=8)
    reducer, lines = ddp.reducer, []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelno, record.getMessage()))
    logging.getLogger("ronde.tune").addHandler(handler)
    ddp.register_comm_hook(power, powerSGD_hook.powerSGD_hook)
    for step in range(60):
        ddp(torch.randn(8, 256), step).pow(2).mean().backward()
        assert not tuner.step(0.01 + 0.0001 * (step % 7))
    logging.getLogger("ronde.tune").removeHandler(handler)
    warnings = [line for level, line in lines if level >= logging.WARNING]
    assert len(warnings) == (dist.get_rank() == 0), lines
    assert all("powerSGD_hook" in line and "tuning has ended" in line for line in warnings)
    assert tuner.finished and tuner.settings == {"bucket_cap_mb": 1}
    assert ddp.reducer is reducer and ddp.bucket_bytes_cap == MIB


def late_hook():
    """A hook that is registered after the tuner was made stays in force, or the buckets do."""
    calls = []
    ddp = DistributedDataParallel(Net(False))
    buckets = Buckets(ddp)
    known = hasattr(ddp, "_comm_hooks")
    if not known:
        ddp.register_comm_hook(calls, fp16_hook)
        reducer = ddp.reducer
        raises(Unchangeable, "fp16_hook", lambda: buckets.set_cap_mb(0.1))
        assert ddp.reducer is reducer
        ddp = DistributedDataParallel(Net(False))
        buckets = Buckets(ddp, (calls, fp16_hook))
    ddp.register_comm_hook(calls, fp16_hook)
    for size_mb in (0.1, 0.3):
        buckets.set_cap_mb(size_mb)
        before = len(calls)
        ddp(torch.randn(8, 256), 0).pow(2).mean().backward()
        assert len(calls) > before


def freed():
    """The old reducer is gone before there is a new one."""
    build, alive = ddp_module._build_reducer, []

    def noting(ddp):
        alive.append(old() is not None)
        build(ddp)

    ddp_module._build_reducer = noting
    for options in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        ddp = DistributedDataParallel(Net(False), **options)
        buckets = Buckets(ddp)
        for size_mb in (0.1, 8):
            for step in range(STEPS_PER_SIZE):
                ddp(torch.randn(8, 256), step).pow(2).mean().backward()
            old = weakref.ref(ddp.reducer)
            buckets.set_cap_mb(size_mb)
    ddp_module._build_reducer = build
    assert alive == [False] * 6, alive


def search():
    """A whole search, in which small buckets are slower: the result is in force on all ranks."""
    torch.manual_seed(7)
    ddp = DistributedDataParallel(Net(False), bucket_cap_mb=0.02)
    tuner = BucketTuner(ddp, low=0.01, steps=5000)
    sizes = []
    for step in range(600):
        if tuner.finished:
            break
        ddp(torch.randn(8, 256), step).pow(2).mean().backward()
        cap_mb = tuner.settings["bucket_cap_mb"]
        assert ddp.bucket_bytes_cap == int(cap_mb * MIB)
        sizes.append(cap_mb)
        tuner.step(0.001 * (10 + 1 / cap_mb + 0.01 * (step % 7)))
    assert tuner.finished and tuner.verdict["setting"]["bucket_cap_mb"] > 0.1, tuner.verdict
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, sizes)
    assert all(other == sizes for other in gathered)
    assert len(set(sizes)) > 3
    tuner.close()


def refused():
    """What cannot be tuned is named."""
    linear = torch.nn.Linear(2, 2)
    raises(ValueError, "a Linear has no DDP buckets", lambda: BucketTuner(linear))
    buckets = Buckets(DistributedDataParallel(Net(False)))
    for cap_mb in [0, -1, float("nan"), float("inf")]:
        raises(ValueError, "bucket_cap_mb cannot be", lambda: buckets.set_cap_mb(cap_mb))


def loss():
    """Losses that are kept refer to earlier reducers."""
    for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
        compare(options, keep_loss=True)


def main(case):
    if case in CASES:
        options, how = CASES[case]
        compare(options, **how)
    else:
        others = (hook, loss, refused, search, frozen, bucket_state, late_hook, freed)
        {other.__name__: other for other in others}[case]()
    print(f"{case}: good", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        main(name)
    dist.destroy_process_group()
