"""One rank of the tests of `ronde.tune.ddp`: trains with and without changes of the bucket size.

    ddp_rank.py CASE            # a name of CASES, or search, hook, loss

Writes nothing if the weights agree.
"""

import contextlib
import sys

import torch
import torch.distributed as dist
from ronde.tune.ddp import MIB, BucketTuner, Buckets
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
    all_ranks = [torch.empty_like(changed) for _ in range(dist.get_world_size())]
    dist.all_gather(all_ranks, changed)
    assert all(torch.equal(weights, changed) for weights in all_ranks)


def hook():
    """A communication hook stays in force."""
    calls = []
    weights, _ = train({}, [None, 0.01, 8.0], hook=(calls, fp16_hook))
    without, _ = train({}, [None, 0.01, 8.0])
    assert not torch.equal(weights, without)
    assert len(calls) > 9 + 5, calls  # of the steps with many buckets too
    ddp = DistributedDataParallel(Net(False))
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    try:
        Buckets(ddp)
    except ValueError as error:
        assert "comm_hook=(state, hook)" in str(error), error
    else:
        raise AssertionError("a hook that cannot be found again is an error")


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
    for model, text in [(torch.nn.Linear(2, 2), "a Linear has no DDP buckets")]:
        try:
            BucketTuner(model)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
    buckets = Buckets(DistributedDataParallel(Net(False)))
    for cap_mb in [0, -1, float("nan"), float("inf")]:
        try:
            buckets.set_cap_mb(cap_mb)
        except ValueError as error:
            assert "bucket_cap_mb cannot be" in str(error), error
        else:
            raise AssertionError(cap_mb)


def loss():
    """Losses that are kept refer to earlier reducers."""
    for options in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
        compare(options, keep_loss=True)


def main(case):
    if case in CASES:
        options, how = CASES[case]
        compare(options, **how)
    else:
        {"hook": hook, "loss": loss, "refused": refused, "search": search}[case]()
    print(f"{case}: good", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        main(name)
    dist.destroy_process_group()
