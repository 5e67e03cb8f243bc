"""Tunes the buckets of torch's DistributedDataParallel while it trains.

    from ronde.tune.ddp import BucketTuner

    ddp = DistributedDataParallel(model)
    tuner = BucketTuner(ddp, state="bucket.json")
    for inputs, targets in data:
        optimizer.zero_grad()
        loss(ddp(inputs), targets).backward()
        optimizer.step()
        tuner.step()
    tuner.close()

A change builds a new reducer in the same DistributedDataParallel, as unpickling one does.
Parameters, optimizer, module hooks and references to the module stay as they are, and nothing is
sent. The step after a change reduces all gradients in one bucket and the next one rebuilds the
buckets, so two steps are not measured.

The new reducer has the parameters that required gradients when the tuner was created, as the first
one had: a layer that is frozen at a change is reduced again after it is unfrozen.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
from torch.nn.parallel import DistributedDataParallel

from ._model import ModelTuner, Unchangeable
from .parameters import Log

MIB = 1 << 20
# Bounds of the search in MiB, unless the model's own value is outside.
LOW_MB = 1.0
HIGH_MB = 256.0

# State and function, as of `register_comm_hook`.
CommHook = Tuple[Any, Callable[..., Any]]


class BucketTuner(ModelTuner):
    """Tunes `bucket_cap_mb` of a DistributedDataParallel, from the value in force.

    `low` and `high` are the bounds, in MiB. `high` is by default the size of the gradients, at most
    256: with a larger cap they are one bucket too. `comm_hook` is the state and function that were
    given to `register_comm_hook`; torch before 2.1 does not keep them. Other options are those of
    `Tuner`.

    A communication hook is read at each change. Tuning ends with a warning, and the buckets stay as
    they are, if one was registered meanwhile that cannot be kept.

    Raises ValueError if the module is not a DistributedDataParallel or cannot be changed, such as
    one whose communication hook keeps state for each bucket.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        *,
        low: float = LOW_MB,
        high: Optional[float] = None,
        comm_hook: Optional[CommHook] = None,
        **options: Any,
    ) -> None:
        buckets = Buckets(ddp, comm_hook)
        start = buckets.start_mb
        if high is None:
            high = min(HIGH_MB, gradient_bytes(ddp) / MIB)
        parameter = Log(min(low, start), max(high, low, start), start)
        super().__init__(
            "bucket_cap_mb",
            parameter,
            buckets.set_cap_mb,
            ddp.module,
            ddp.process_group,
            settle_steps=1,
            **options,
        )


class Buckets:
    """Changes the bucket size of a DistributedDataParallel between steps."""

    def __init__(
        self, ddp: DistributedDataParallel, comm_hook: Optional[CommHook] = None
    ) -> None:
        if not isinstance(ddp, DistributedDataParallel):
            raise ValueError(f"a {type(ddp).__name__} has no DDP buckets; wrap the model in DDP")
        reason = _obstacle(ddp)
        if reason is not None:
            raise ValueError(f"the buckets of this DDP cannot be changed: {reason}")
        self._ddp = ddp
        self._comm_hook = comm_hook
        # Names under which `comm_hook` is registered: for a built-in hook, another than its own.
        self._hook_names = {_registered_name(ddp)}
        if comm_hook is not None:
            self._hook_names.add(_name(comm_hook[1]))
        try:
            self._current_hook()
        except Unchangeable as error:
            raise ValueError(str(error)) from None
        self._trained = [p for p in ddp.module.parameters() if p.requires_grad]
        # Without bucket_cap_mb, some versions make the first bucket smaller than with any value.
        self._start = _attributes(ddp)
        self.start_mb = ddp.bucket_bytes_cap / MIB

    def set_cap_mb(self, cap_mb: float) -> None:
        """Sets `bucket_cap_mb`. All ranks call it after the same step, outside of backward.

        Raises ValueError for a value that is not a finite number > 0, and Unchangeable if the
        present communication hook does not allow a change; nothing has changed then.
        """
        if not 0.0 < cap_mb < float("inf"):
            raise ValueError(f"bucket_cap_mb cannot be {cap_mb!r}, expected a number > 0")
        ddp = self._ddp
        comm_hook = self._current_hook()
        is_start = cap_mb == self.start_mb
        for name, value in (self._start if is_start else _changed(ddp, cap_mb)).items():
            setattr(ddp, name, value)
        _drop_reducer(ddp)
        with self._requiring_grad():
            _build_reducer(ddp)
        if comm_hook is not None:
            state, hook = comm_hook
            ddp.logger._set_comm_hook_name(_name(hook))
            torch.distributed._register_comm_hook(ddp.reducer, state, hook)

    def _current_hook(self) -> Optional[CommHook]:
        """The communication hook that a new reducer needs too. Raises Unchangeable if it is not
        known, or would not work with other buckets."""
        name = _registered_name(self._ddp)
        kept = getattr(self._ddp, "_comm_hooks", [])
        if self._comm_hook is not None and (name is None or name in self._hook_names):
            state, hook = self._comm_hook
        elif kept:
            hook, state = kept[-1]
        elif name is not None:
            raise Unchangeable(
                f"this DDP has the communication hook {name}, which torch {torch.__version__} does "
                "not return; register it before the tuner is created and give it as "
                "comm_hook=(state, hook), or register none"
            )
        else:
            return None
        if _has_bucket_state(state, hook):
            raise Unchangeable(
                f"the communication hook {_name(hook)} keeps state for each bucket, which other "
                "buckets do not fit; use another hook, or train untuned"
            )
        return state, hook

    @contextlib.contextmanager
    def _requiring_grad(self) -> Iterator[None]:
        """Lets exactly the parameters of the first reducer require gradients. A reducer that was
        built without those that are frozen now would never reduce them again, and the ranks'
        weights would drift apart without an error."""
        trained = set(map(id, self._trained))
        changed = [
            p for p in self._ddp.module.parameters() if p.requires_grad != (id(p) in trained)
        ]
        for parameter in changed:
            parameter.requires_grad_(not parameter.requires_grad)
        try:
            yield
        finally:
            for parameter in changed:
                parameter.requires_grad_(not parameter.requires_grad)


def gradient_bytes(module: torch.nn.Module) -> int:
    """Returns the size of the gradients, in bytes."""
    parameters = (p for p in module.parameters() if p.requires_grad)
    return sum(p.numel() * p.element_size() for p in parameters)


def _obstacle(ddp: DistributedDataParallel) -> Optional[str]:
    """Reason why a new reducer cannot be built, or None."""
    missing = [
        name
        for name in ("_ddp_init_helper", "_build_params_for_reducer", "bucket_bytes_cap", "reducer")
        if not hasattr(ddp, name)
    ]
    if missing:
        return f"torch {torch.__version__} has no {', '.join(missing)}; 1.13 and 2.15 were tested"
    if getattr(ddp, "mixed_precision", None) is not None:
        return "it has mixed_precision; use torch.autocast instead"
    if getattr(ddp, "_use_python_reducer", False):
        return "torch._dynamo.config.optimize_ddp is 'python_reducer', which has no buckets"
    config = getattr(ddp, "_bucket_config", None)
    if config is not None and config.has_custom_per_bucket_caps:
        return "it has bucket_cap_mb_list; leave it out"
    return None


def _registered_name(ddp: DistributedDataParallel) -> Optional[str]:
    """Name of the registered communication hook, or None."""
    return ddp._get_ddp_logging_data().get("comm_hook") or None


def _name(hook: Callable[..., Any]) -> str:
    """Name under which `register_comm_hook` registers the hook."""
    return getattr(hook, "__qualname__", str(hook))


def _has_bucket_state(state: Any, hook: Callable[..., Any]) -> bool:
    """Whether the hook keeps state by the index of a bucket.

    PowerSGD does, in its state; with a state that is cleared it would also reduce without
    compression for `start_powerSGD_iter` steps after each change, which are not the steps to
    measure. The hooks of ZeroRedundancyOptimizer do, in the optimizer.
    """
    return hasattr(state, "error_dict") or "hook_with_zero" in _name(hook)


def _attributes(ddp: DistributedDataParallel) -> Dict[str, Any]:
    """The attributes from which the reducer gets its bucket sizes."""
    names = ("bucket_bytes_cap", "bucket_bytes_cap_default", "_bucket_config")
    return {name: getattr(ddp, name) for name in names if hasattr(ddp, name)}


def _changed(ddp: DistributedDataParallel, cap_mb: float) -> Dict[str, Any]:
    """The attributes as the constructor sets them for `bucket_cap_mb=cap_mb`."""
    attributes = _attributes(ddp)
    cap = int(cap_mb * MIB)
    attributes["bucket_bytes_cap"] = cap
    if "bucket_bytes_cap_default" in attributes:
        attributes["bucket_bytes_cap_default"] = False
    if "_bucket_config" in attributes:
        attributes["_bucket_config"] = dataclasses.replace(
            attributes["_bucket_config"], bucket_bytes_cap=cap, first_bucket_bytes_cap=cap
        )
    return attributes


def _drop_reducer(ddp: DistributedDataParallel) -> None:
    """Frees the reducer, whose buckets are as large as all gradients, before there is another."""
    # Otherwise the old hooks remain for as long as a loss refers to the reducer.
    if hasattr(ddp.reducer, "_remove_autograd_hooks"):
        ddp.reducer._remove_autograd_hooks()
    # The logger refers to the reducer too.
    ddp.reducer = ddp.logger = None


def _build_reducer(ddp: DistributedDataParallel) -> None:
    """Does what `DistributedDataParallel.__setstate__` does for the reducer."""
    parameters, expect_sparse_gradient = ddp._build_params_for_reducer()
    names = ddp._build_debug_param_to_name_mapping(parameters)
    ddp._ddp_init_helper(parameters, expect_sparse_gradient, names, ddp.static_graph)
    ddp._has_rebuilt_buckets = False
    if getattr(ddp, "_require_manual_backward_finalization", False):
        ddp.require_manual_backward_finalization = True
    if ddp.static_graph:
        ddp._static_graph_delay_allreduce_enqueued = False
        ddp.reducer._set_static_graph()
        ddp.logger._set_static_graph()
