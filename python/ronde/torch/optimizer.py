"""``DistributedOptimizer``: an optimizer that reduces gradients over the ranks before each step."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional

import torch

from ..common.process_sets import ProcessSet, global_process_set
from .adasum_optimizer import _DistributedAdasumOptimizer
from .compression import Compression, Compressor
from .mpi_ops import Adasum, Average, check_adasum, size
from .reducer import Groups, Reducer, may_grow, may_reduce
from .wrapping import (
    construct,
    default_names,
    distributed_class,
    names_by_parameter,
    parameters_of,
    positive,
    rebuild,
)


class _DistributedOptimizer(torch.optim.Optimizer):
    """Methods that are added to the class of the wrapped optimizer."""

    def __init__(
        self,
        wrapped: torch.optim.Optimizer,
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]],
        options: dict[str, Any],
    ) -> None:
        construct(self, wrapped)
        self._attach(names_by_parameter(self, named_parameters), options)

    def _attach(self, names: dict[torch.Tensor, str], options: dict[str, Any]) -> None:
        self._parameter_names = names
        self._synchronized = False
        self._should_synchronize = True
        self._options = options
        self._reducer = Reducer(**options)
        weakref.finalize(self, self._reducer.close).atexit = False
        if may_reduce(self._reducer.process_set):
            self._hook(parameters_of(self))

    def _hook(self, parameters: Iterable[torch.Tensor]) -> None:
        named = [(parameter, self._parameter_names[parameter]) for parameter in parameters]
        self._reducer.add(named)

    @property
    def backward_passes_per_step(self) -> int:
        """Backward passes whose gradients are accumulated before they are reduced. Can be set
        between steps."""
        return self._reducer.passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self.set_backward_passes_per_step(passes)

    @property
    def op(self) -> int:
        """The reduction operation."""
        return self._reducer.op

    @property
    def gradient_predivide_factor(self) -> float:
        """Divisor of gradients before the sum, and factor after it."""
        return self._options["predivide"]

    @property
    def sparse_as_dense(self) -> bool:
        """Whether sparse gradients are reduced as dense ones."""
        return self._reducer.sparse_as_dense

    @property
    def process_set(self) -> ProcessSet:
        """The ranks over which gradients are reduced."""
        return self._reducer.process_set

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes :attr:`backward_passes_per_step`, between steps. ValueError if it is not
        positive."""
        self._reducer.set_passes(positive(passes))
        self._options["passes"] = passes

    def synchronize(self) -> None:
        """Waits until all gradients are reduced. To modify them before the step, see
        :meth:`skip_synchronize`.

        Every rank of the process set calls it. Raises ValueError at the first step, on all ranks,
        if their models differ; HorovodInternalError for errors between ranks, and if the process has
        joined another job since the backward pass. After a KeyboardInterrupt, a second call
        continues the wait.
        """
        self._reducer.finish()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Context in which :meth:`step` does not synchronize. To modify reduced gradients::

        loss.backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            optimizer.step()
        """
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context in which backward passes only accumulate; the next pass outside reduces the sum::

            with optimizer.no_sync():
                loss(first_half).backward()
            loss(second_half).backward()
            optimizer.step()

        Passes in the context do not count for ``backward_passes_per_step``.
        """
        before = self._reducer.is_paused
        self._reducer.is_paused = True
        try:
            yield
        finally:
            self._reducer.is_paused = before

    def step(self, closure: Optional[Callable[[], Any]] = None, **kwargs: Any) -> Any:
        """Waits until all gradients are reduced, then steps; with ``closure``, after each call of
        it.

        Gradients of fewer backward passes than ``backward_passes_per_step`` are reduced too.
        """
        if not self._should_synchronize:
            self._synchronized = False
            return self._inner_step(closure, kwargs)
        if self._synchronized:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(): the gradients are reduced twice",
                stacklevel=2,
            )
        if closure is None:
            self.synchronize()
        else:
            closure = self._reducing(closure)
        try:
            return self._inner_step(closure, kwargs)
        finally:
            self._synchronized = False

    # Torch must not wrap it: the wrapped class's step is wrapped, and step hooks would run twice.
    step.hooked = True  # type: ignore[attr-defined]

    def _inner_step(self, closure: Optional[Callable[[], Any]], kwargs: dict[str, Any]) -> Any:
        if closure is None:
            return super().step(**kwargs)
        return super().step(closure, **kwargs)

    def _reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Returns a closure that reduces the gradients that ``closure`` computes."""
        if self._reducer.is_touched:
            self.synchronize()  # of an earlier backward pass

        def reducing() -> Any:
            loss = closure()
            if self._reducer.is_touched or not self._synchronized:
                self.synchronize()
            return loss

        return reducing

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like that of the wrapped optimizer. AssertionError while gradients are accumulated or
        reduced."""
        if self._reducer.is_touched:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(); the gradients are still being reduced"
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Like that of the wrapped optimizer; drops gradients that are being reduced."""
        self._reducer.forget()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like that of the wrapped optimizer; all ranks add the same group, between steps."""
        before = len(self.param_groups)
        super().add_param_group(param_group)
        if "_reducer" not in vars(self):
            return  # called by the constructor
        added = default_names(self, before)
        self._parameter_names = {**added, **self._parameter_names}  # given names win
        if may_reduce(self._reducer.process_set):
            self._hook(added)

    def __reduce__(self) -> Any:
        # The class cannot be imported by name, so it is created again.
        options = dict(self._options)
        if options["process_set"] is global_process_set:
            options["process_set"] = None  # that of the process that unpickles it
        names = [self._parameter_names[parameter] for parameter in parameters_of(self)]
        state = dict(super().__getstate__(), _distributed=(names, options))
        return rebuild, (_DistributedOptimizer, type(self).__mro__[2]), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        names, options = state.pop("_distributed", (None, None))
        super().__setstate__(state)
        if options is not None:
            options["process_set"] = options["process_set"] or global_process_set
            self._attach(dict(zip(parameters_of(self), names)), options)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    """Wraps ``optimizer`` so that gradients are reduced over the ranks before each step.

    The result is of a subclass with the same name. It shares the parameter groups of ``optimizer``
    and has a state of its own. The backward pass submits each gradient as soon as it is ready;
    gradients of at most 16 KiB in host memory are submitted in batches, the last one when the pass
    ends. :meth:`step` waits for all. All ranks must have the same parameters, in any order; they
    are identified by name, also on the timeline.

    ``named_parameters``
        ``model.named_parameters()``; without it, names are positions in the optimizer's groups.
    ``compression``
        Compression for sending: a member of :class:`Compression`, or your own class.
    ``backward_passes_per_step``
        Backward passes whose gradients are summed (not averaged) before they are reduced.
    ``op``
        ``Average``, ``Sum`` …; ``Adasum`` combines the changes of each rank's own step, not
        gradients.
    ``gradient_predivide_factor``
        For averages: gradients are divided by it before the sum, and by the remaining factor of the
        number of ranks afterwards.
    ``groups``
        Number of groups of parameters, or lists of parameters, whose gradients are reduced
        together. (``num_groups`` is an older name.)
    ``sparse_as_dense``
        Whether sparse gradients are reduced as dense ones; otherwise they are gathered.
    ``process_set``
        Ranks that train together; on other ranks, the optimizer reduces nothing.

    Raises ValueError for invalid arguments; NotImplementedError for ``Adasum`` on a process set, or
    on a number of ranks that is not a power of two.
    """
    if isinstance(optimizer, (_DistributedOptimizer, _DistributedAdasumOptimizer)):
        raise ValueError("the optimizer is a DistributedOptimizer already")
    positive(backward_passes_per_step)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is not supported with op != Average")
    if num_groups:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    _check_groups(groups)
    if op == Adasum and (size() > 1 or may_grow()):
        check_adasum(process_set)
        adasum_class = distributed_class(_DistributedAdasumOptimizer, type(optimizer))
        return adasum_class(optimizer, named_parameters, compression, backward_passes_per_step)
    options = {
        "compression": compression,
        "passes": backward_passes_per_step,
        "op": op,
        "predivide": gradient_predivide_factor,
        "groups": groups,
        "sparse_as_dense": sparse_as_dense,
        "process_set": process_set,
    }
    return distributed_class(_DistributedOptimizer, type(optimizer))(optimizer, named_parameters, options)


def _check_groups(groups: Any) -> None:
    if groups is None:
        return
    if isinstance(groups, int):
        if groups <= 0:
            raise ValueError(f"groups must be a positive number, or lists of parameters; not {groups}")
        return
    if not isinstance(groups, (list, tuple)):
        raise ValueError(f"groups must be a number, or lists of parameters; not a {type(groups).__name__}")
    grouped = set()
    for group in groups:
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError(f"groups must consist of torch.Tensor; this is a {type(parameter).__name__}")
            if parameter in grouped:
                raise ValueError("A parameter can only appear once in groups.")
            grouped.add(parameter)
