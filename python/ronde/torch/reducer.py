"""Reduction of gradients over the ranks, while the backward pass still computes others.

A hook on each parameter's gradient accumulator hands the gradient over as soon as it is there; small ones in host
memory go along with others, in batches.
:meth:`Reducer.finish` hands over what no hook has, so that all ranks submit the same, waits, and leaves the
results in the parameters' ``grad``.

In the first step nothing is handed over before all gradients are there: the ranks compare their models first
(:mod:`.model_check`), so that a difference between them is an error and not a wait without end.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from typing import Any, Callable, Iterable, Optional, Sequence, Union

import torch

from .. import _ronde
from ..common.process_sets import ProcessSet
from ..common.util import split_list
from .compression import Compressor, NoneCompressor, runtime_does
from .functions import broadcast_object
from .model_check import check_same_model, largest
from .mpi_ops import (
    Adasum,
    Average,
    send_batch_in_place,
    send_group_in_place,
    send_in_place,
    size,
    sparse_allreduce_async,
    synchronize,
)

#: How gradients are to be grouped: into so many groups, or these; parameters in none are reduced alone.
Groups = Union[int, Sequence[Sequence[torch.Tensor]], None]

#: A larger gradient is handed over at once; smaller ones wait for it, or for so many others, or for the end of the
#: backward pass, and go along in one call: the call costs more than what they wait for.
BATCHED_BYTES_MAX = 16 << 10
BATCH_TENSORS_MAX = 64

#: Counts how often the ranks of this process's job have changed: models are compared again then.
_generation = 0


def ranks_have_changed() -> None:
    """Says that the job has other ranks now, which have compared their models with nobody."""
    global _generation
    _generation += 1


def generation() -> int:
    """How often they have changed."""
    return _generation


def is_reducing(process_set: ProcessSet) -> bool:
    """Whether there is anything to reduce: not outside of the set, and not alone, unless others may come."""
    return process_set.included() and (size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1")


def memory_order(tensor: torch.Tensor) -> Optional[tuple[int, ...]]:
    """The dimensions from the one that strides most to the one that strides least; None if they come so.

    ``tensor.permute(order)`` is contiguous where elements lie without gaps, as with ``torch.channels_last``.
    """
    if tensor.is_contiguous():
        return None
    stride = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dimension: -stride[dimension]))


def described(parameter: torch.Tensor) -> str:
    """What ranks must agree on in a parameter."""
    order = memory_order(parameter)
    layout = "" if order is None else f" with dimensions in memory in the order {order}"
    return f"{str(parameter.dtype).replace('torch.', '')} {tuple(parameter.shape)}{layout}"


class Shipment:
    """A tensor on its way: made contiguous and compressed, and where its result goes."""

    __slots__ = ("tensor", "sent", "wire_dtype", "context", "_reduced")

    def __init__(
        self, tensor: torch.Tensor, order: Optional[tuple[int, ...]], compression: type[Compressor]
    ) -> None:
        #: What the runtime compresses it to.
        self.wire_dtype = runtime_does(compression, tensor)
        compressed, self.context = (tensor, None) if self.wire_dtype else compression.compress(tensor)
        sent = compressed if order is None else compressed.permute(order)
        self._reduced = compressed
        if not sent.is_contiguous():
            # Other memory than `compressed` has: the result is looked at in the order of its dimensions.
            sent = self._reduced = sent.contiguous()
            if order is not None:
                places = sorted(range(len(order)), key=order.__getitem__)
                self._reduced = sent.permute(places)
        self.tensor = tensor
        #: What the operation works on, in place.
        self.sent = sent

    def result(self, compression: type[Compressor]) -> torch.Tensor:
        """The result, once the operation is over: ``tensor`` itself, or another."""
        return self._reduced if self.wire_dtype else compression.decompress(self._reduced, self.context)


class _Slot:
    """A parameter, and how far its gradient is."""

    __slots__ = (
        "parameter",
        "name",
        "batch_name",
        "order",
        "is_small",
        "passes_left",
        "group",
        "gradient",
        "shipment",
        "handle",
        "sparse_dims",
        "placeholder",
        "hook",
        "__weakref__",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        #: The same name, as a batch takes it.
        self.batch_name = _ronde.AllreduceName(name)
        self.order = memory_order(parameter)
        #: Whether its gradient waits for others.
        self.is_small = parameter.numel() * parameter.element_size() <= BATCHED_BYTES_MAX
        #: Backward passes until the gradient is complete.
        self.passes_left = passes
        self.group: Optional[_Group] = None
        #: While it is being reduced: the gradient, …
        self.gradient: Any = None
        #: … what is sent of it, if it is not just itself, …
        self.shipment: Any = None
        #: … and the operation.
        self.handle: Any = None
        #: Sparse dimensions of its gradients; 0 if they are dense, as far as is known.
        self.sparse_dims = 0
        #: What stands for the gradient until there is one: programs expect zeros after
        #: `DistributedOptimizer(…)`, also in parameters that are frozen before the first step.
        self.placeholder: Optional[torch.Tensor] = None
        #: The hook's handle.
        self.hook: Any = None
        if parameter.requires_grad and parameter.grad is None:
            self.placeholder = parameter.grad = torch.zeros_like(parameter)

    def drop_placeholder(self, gradient: torch.Tensor) -> None:
        """The first gradient has been added to what is in ``grad``: a sparse one shall stay sparse."""
        if gradient.is_sparse and self.parameter.grad is self.placeholder:
            self.parameter.grad = gradient.clone()
        self.placeholder = None

    def is_missing(self) -> bool:
        """Whether there is no gradient, as far as this rank knows."""
        gradient = self.parameter.grad
        return gradient is None or gradient is self.placeholder

    def take_gradient(self) -> torch.Tensor:
        """The gradient to reduce: zeros, if the backward passes have made none."""
        if self.is_missing():
            zeros = torch.zeros_like(self.parameter)
            self.parameter.grad = zeros.to_sparse(self.sparse_dims) if self.sparse_dims else zeros
            self.placeholder = None
        gradient = self.parameter.grad
        if gradient.is_sparse:
            self.sparse_dims = gradient.sparse_dim()
        self.gradient = gradient
        return gradient

    def pack(self, compression: type[Compressor]) -> torch.Tensor:
        """The tensor to reduce in place."""
        gradient = self.take_gradient()
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        self.shipment = shipment = Shipment(dense, self.order, compression)
        return shipment.sent

    def unpack(self, compression: type[Compressor]) -> None:
        """Leaves the result of what was sent in the gradient."""
        gradient = self.gradient
        if self.shipment is None:
            self.put_gradient(gradient)
            return
        result = self.shipment.result(compression)
        if gradient.is_sparse:
            gradient = result.to_sparse(self.sparse_dims)
        elif result is not gradient:
            gradient.detach().copy_(result)
        self.put_gradient(gradient)

    def put_gradient(self, gradient: torch.Tensor) -> None:
        # Not so if it was taken away while it was being reduced.
        if self.parameter.grad is not gradient:
            self.parameter.grad = gradient



#: Whose hook a parameter has, by its id: the optimizer's that was made last.
_hooked: weakref.WeakValueDictionary[int, _Slot] = weakref.WeakValueDictionary()


class _Group:
    """Parameters whose gradients are reduced together, once all are there."""

    __slots__ = ("slots", "complete")

    def __init__(self, slots: list[_Slot]) -> None:
        self.slots = slots
        #: How many of the gradients are there.
        self.complete = 0


class Reducer:
    """Reduces the gradients of the parameters that it is given (:meth:`add`).

    ``passes``: backward passes until a gradient is complete. ``predivide``: gradients are divided by it
    before they are summed, and multiplied by it afterwards.
    """

    def __init__(
        self,
        *,
        compression: type[Compressor],
        passes: int,
        op: int,
        predivide: float,
        groups: Groups,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self.compression = compression
        self._is_uncompressed = compression is NoneCompressor
        self._is_batched = self._is_uncompressed and op != Adasum
        self.passes = passes
        self.op = op
        self.groups = groups
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        #: Whether backward passes are to leave gradients alone.
        self.is_paused = False
        #: Whether a backward pass has been counted since gradients were reduced last.
        self.is_touched = False
        self._factors = (1.0 / predivide, predivide) if op == Average else (1.0, 1.0)
        self._slots: list[_Slot] = []
        #: What the hooks sit on: a parameter does not keep it.
        self._accumulators: list[Any] = []
        self._formed: list[_Group] = []
        #: The generation of ranks that the model has been compared with.
        self._compared: Optional[int] = None
        #: Complete gradients that wait for the comparison, in the order in which they came.
        self._waiting: list[_Slot] = []
        #: Submitted gradients, and lists of those that were submitted as a group or a batch.
        self._in_flight: list[Union[_Slot, list[_Slot]]] = []
        #: Gradients that go with the next batch. Threads of the backward pass may add to it at once.
        self._batch: deque[_Slot] = deque()
        #: Whether the end of the backward pass under way sends the batch.
        self._is_sent_at_end = False

    def add(self, parameters: Iterable[tuple[torch.Tensor, str]]) -> None:
        """Takes these parameters in, by these names, and hooks them, those that are frozen now too."""
        self._compared = None
        for parameter, name in parameters:
            if not (parameter.is_floating_point() or parameter.is_complex()):
                continue  # never has a gradient
            slot = _Slot(parameter, name, self.passes)
            self._slots.append(slot)
            former = _hooked.get(id(parameter))
            if former is not None:
                former.hook.remove()  # else both would hand the gradient over, under one name
            _hooked[id(parameter)] = slot
            accumulator = _gradient_accumulator(parameter)
            slot.hook = accumulator.register_hook(self._hook(slot))
            self._accumulators.append(accumulator)

    def close(self) -> None:
        """Removes the hooks. Whoever has made a reducer calls it in the end, as its hooks keep it alive."""
        for slot in self._slots:
            slot.hook.remove()
        self._slots.clear()
        self._accumulators.clear()

    def set_passes(self, passes: int) -> None:
        """Another number of backward passes, from now on."""
        self.passes = passes
        for slot in self._slots:
            slot.passes_left = passes

    def _hook(self, slot: _Slot) -> Callable[..., None]:
        def on_gradient(_: Any, gradients: tuple[torch.Tensor, ...]) -> None:
            # Runs for every gradient of every step.
            if slot.placeholder is not None:
                slot.drop_placeholder(gradients[0])
            if not slot.passes_left:
                raise AssertionError(
                    f"Gradients were computed more than backward_passes_per_step times before step() or "
                    f"synchronize(): that of {slot.name!r} is being reduced already. Raise "
                    f"backward_passes_per_step, or run the earlier passes within no_sync()"
                )
            if self.is_paused:
                return
            self.is_touched = True
            slot.passes_left -= 1
            if not slot.passes_left:
                if slot.group is None and self._compared == _generation:
                    self._send(slot)
                else:
                    self._hand_over(slot)
                if self._batch and not self._is_sent_at_end:
                    self._is_sent_at_end = True
                    _at_end_of_backward(self._end_backward)

        return on_gradient

    def _hand_over(self, slot: _Slot) -> None:
        """The gradient is complete."""
        if self._compared != _generation:
            self._waiting.append(slot)
            return
        group = slot.group
        if group is None:
            self._send(slot)
            return
        group.complete += 1
        if group.complete == len(group.slots):
            self._send_group(group.slots)

    def _send(self, slot: _Slot) -> None:
        gradient = slot.parameter.grad
        if (
            self._is_uncompressed
            and slot.order is None
            and gradient is not None
            and gradient is not slot.placeholder
            and not gradient.is_sparse
            and gradient.is_contiguous()
        ):
            # As almost all are: it goes as it is.
            slot.gradient = gradient
            if self._is_batched and gradient.is_cpu:
                self._batch.append(slot)
                if not slot.is_small or len(self._batch) >= BATCH_TENSORS_MAX:
                    self._send_batch()
                return
            slot.handle = send_in_place(gradient, slot.name, self.op, self._factors, self.process_set)
        elif self._goes_sparse(slot):
            gradient = slot.take_gradient()
            slot.handle = sparse_allreduce_async(gradient, slot.name, self.op, self.process_set)
        else:
            sent = slot.pack(self.compression)
            wire_dtype = slot.shipment.wire_dtype
            slot.handle = send_in_place(
                sent, slot.name, self.op, self._factors, self.process_set, wire_dtype
            )
        self._in_flight.append(slot)

    def _send_batch(self) -> None:
        slots = []
        while self._batch:
            try:
                slots.append(self._batch.popleft())
            except IndexError:
                break  # another thread has sent it
        if not slots:
            return
        gradients = [slot.gradient for slot in slots]
        names = [slot.batch_name for slot in slots]
        handle = send_batch_in_place(gradients, names, self.op, self._factors, self.process_set)
        for slot in slots:
            slot.handle = handle
        self._in_flight.append(slots)

    def _end_backward(self) -> None:
        self._is_sent_at_end = False
        self._send_batch()

    def _goes_sparse(self, slot: _Slot) -> bool:
        if self.sparse_as_dense:
            return False
        return slot.sparse_dims > 0 if slot.is_missing() else slot.parameter.grad.is_sparse

    def _send_group(self, slots: list[_Slot]) -> None:
        dense = []
        for slot in slots:
            if self._goes_sparse(slot):
                self._send(slot)  # what it sends has another size on each rank
            else:
                dense.append(slot)
        if not dense:
            return
        sent = [slot.pack(self.compression) for slot in dense]
        wire_dtypes = None if self._is_uncompressed else [slot.shipment.wire_dtype for slot in dense]
        handle = send_group_in_place(
            sent, dense[0].name, self.op, self._factors, self.process_set, wire_dtypes
        )
        for slot in dense:
            slot.handle = handle
        self._in_flight.append(dense)

    def finish(self) -> None:
        """Reduces what is not being reduced yet, and waits until the gradients of all ranks are in ``grad``.

        A parameter that requires a gradient and has none gets zeros, since other ranks may have one.
        Parameters that are frozen now take no part. ValueError on all ranks, the first time, if the model is
        not the same on all of them. After any exception the gradients' values are undefined.
        """
        if not self._slots:
            return
        try:
            is_final = self._compared == _generation or self._compare()
            self._send_batch()
            self._send_rest()
            self._send_batch()
            self._wait()
            if not is_final:
                self._compared = None
        finally:
            self.forget()

    def _send_rest(self) -> None:
        sent = sum(len(sent) if isinstance(sent, list) else 1 for sent in self._in_flight)
        if sent == len(self._slots):
            return  # mostly: no parameter is left

        def is_wanted(slot: _Slot) -> bool:
            return slot.handle is None and (slot.passes_left < self.passes or slot.parameter.requires_grad)

        for slot in self._slots:
            if slot.handle is None and slot.group is None and is_wanted(slot):
                self._send(slot)
        for group in self._formed:
            self._send_group([slot for slot in group.slots if is_wanted(slot)])

    def _wait(self) -> None:
        failure = None
        for sent in self._in_flight:
            # All are waited for, whatever has become of others: nothing is left in flight for the next step.
            try:
                self._wait_for(sent)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _wait_for(self, sent: Union[_Slot, list[_Slot]]) -> None:
        if isinstance(sent, list):
            synchronize(sent[0].handle)
            for slot in sent:
                # Looked at here, without a call: mostly there is nothing to do.
                if slot.shipment is not None or slot.parameter.grad is not slot.gradient:
                    slot.unpack(self.compression)
        elif callable(sent.handle):
            sent.put_gradient(sent.handle())  # sparse
        else:
            synchronize(sent.handle)
            sent.unpack(self.compression)

    def forget(self) -> None:
        """Nothing has been handed over, and no backward pass counted."""
        passes = self.passes
        for slot in self._slots:  # without a call for each: this is done in every step
            slot.passes_left = passes
            slot.gradient = slot.shipment = slot.handle = None
        for group in self._formed:
            group.complete = 0
        self._waiting.clear()
        self._in_flight.clear()
        self._batch.clear()
        self._is_sent_at_end = False
        self.is_touched = False

    def _compare(self) -> bool:
        """Compares the model with that of the other ranks, and hands over what has waited for it.

        Returns false if ranks have joined, which will ask for it when they are back.
        """
        slots = sorted(self._slots, key=lambda slot: slot.name)
        for slot in slots:
            slot.order = memory_order(slot.parameter)
            gradient = slot.parameter.grad
            if gradient is not None and gradient.is_sparse:
                slot.sparse_dims = gradient.sparse_dim()
        sparse_dims = [slot.sparse_dims for slot in slots]
        parameters = {slot.name: described(slot.parameter) for slot in self._slots}
        answer = check_same_model(parameters, self.process_set, any(sparse_dims))
        if answer.has_sparse:
            # Ranks without a gradient do not know yet of what kind it is.
            for slot, dims in zip(slots, largest(sparse_dims, self.process_set)):
                slot.sparse_dims = dims
        self._form_groups()
        self._compared = _generation
        waiting, self._waiting = self._waiting, []
        for slot in waiting:
            self._hand_over(slot)
        return answer.is_final

    def _form_groups(self) -> None:
        self._formed = []
        if self.groups is None:
            return
        # Ranks may have the parameters in another order; that of the set's first rank holds for all.
        root = (self.process_set.ranks or [0])[0]
        names = [slot.name for slot in self._slots]
        names = broadcast_object(names, root, "model_check.order", self.process_set)
        by_name = {slot.name: slot for slot in self._slots}
        slots = [by_name[name] for name in names]
        if isinstance(self.groups, int):
            parts = split_list(slots, min(self.groups, len(slots)))
        else:
            by_parameter = {slot.parameter: slot for slot in slots}
            parts = [[by_parameter[one] for one in group if one in by_parameter] for group in self.groups]
        for slot in slots:
            slot.group = None
        for part in parts:
            if len(part) > 1:
                group = _Group(list(part))
                self._formed.append(group)
                for slot in part:
                    slot.group = group


#: Has a function called at the end of the backward pass under way, by torch.
_at_end_of_backward: Callable[[Callable[[], None]], None] = (
    torch.autograd.Variable._execution_engine.queue_callback
)


def _gradient_accumulator(parameter: torch.Tensor) -> Any:
    """The node of the autograd graph that adds to ``parameter.grad``."""
    is_frozen = not parameter.requires_grad
    if is_frozen:
        parameter.requires_grad_(True)  # else it has none
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    if is_frozen:
        parameter.requires_grad_(False)
    return accumulator
