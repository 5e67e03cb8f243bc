"""Reduction of gradients over the ranks, overlapped with the backward pass.

A hook on each parameter's gradient accumulator submits the gradient as soon as it is computed;
small gradients in host memory are submitted in batches. :meth:`Reducer.finish` submits the rest, so
that all ranks submit the same tensors, waits, and leaves the results in the parameters' ``grad``.

In the first step nothing is submitted before all gradients are computed: the ranks compare their
models first (:mod:`.model_check`), so that a difference is an error instead of an endless wait.
They also agree on the parameters whose gradients are sparse: each rank reduces those as sparse
gradients, also where its own is dense or missing, and all others as dense ones.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from typing import Any, Callable, Iterable, Optional, Sequence, Union

import torch

from .. import _ronde
from ..common import seat
from ..common.basics import HorovodBasics
from ..common.exceptions import HorovodInternalError
from ..common.model_check import lock
from ..common.process_sets import ProcessSet
from ..common.util import split_list
from .compression import Compressor, NoneCompressor, runtime_does
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

#: Groups of gradients: their number, or lists of parameters; other parameters are reduced alone.
Groups = Union[int, Sequence[Sequence[torch.Tensor]], None]

#: Largest gradient that is submitted in a batch. A larger one is submitted at once. Smaller ones
#: wait for a larger one, for enough small ones, or for the end of the backward pass: a call for
#: each would cost more than the wait.
BATCHED_BYTES_MAX = 16 << 10
BATCH_TENSORS_MAX = 64

#: Number of changes of the ranks of this process's job; after a change models are compared again.
_generation = 0


def ranks_have_changed() -> None:
    """Notes that the job has new ranks, whose models have not been compared."""
    global _generation
    _generation += 1


def generation() -> int:
    """Number of changes of the ranks."""
    return _generation


def may_grow() -> bool:
    """Whether ranks may be added: an elastic job. Horovod's own variable says so where another
    launcher adds them."""
    return seat.is_elastic() or os.environ.get("HOROVOD_ELASTIC") == "1"


def is_reducing(process_set: ProcessSet) -> bool:
    """Whether gradients are reduced: not outside of the set, and not on one rank unless ranks may
    be added."""
    return process_set.included() and (size() > 1 or may_grow())


def may_reduce(process_set: ProcessSet) -> bool:
    """Whether gradients are reduced now, or may be after ranks have changed."""
    return may_grow() or is_reducing(process_set)


def memory_order(tensor: torch.Tensor) -> Optional[tuple[int, ...]]:
    """Dimensions in order of descending stride; None if that is their own order.

    If the memory has no gaps, ``tensor.permute(order)`` is contiguous, as with
    ``torch.channels_last``.
    """
    if tensor.is_contiguous():
        return None
    stride = tensor.stride()
    return tuple(sorted(range(tensor.dim()), key=lambda dimension: -stride[dimension]))


def described(parameter: torch.Tensor) -> str:
    """Properties of a parameter that must be equal on all ranks."""
    order = memory_order(parameter)
    layout = "" if order is None else f" with dimensions in memory in the order {order}"
    return f"{str(parameter.dtype).replace('torch.', '')} {tuple(parameter.shape)}{layout}"


class Shipment:
    """A tensor made contiguous and compressed for sending, and the destination of its result."""

    __slots__ = ("tensor", "sent", "wire_dtype", "context", "_reduced")

    def __init__(
        self, tensor: torch.Tensor, order: Optional[tuple[int, ...]], compression: type[Compressor]
    ) -> None:
        #: The dtype in which the runtime sends it.
        self.wire_dtype = runtime_does(compression, tensor)
        compressed, self.context = (tensor, None) if self.wire_dtype else compression.compress(tensor)
        if compressed.dim() != tensor.dim():
            order = None  # the order of dimensions that the compressor has replaced
        sent = compressed if order is None else compressed.permute(order)
        self._reduced = compressed
        if not sent.is_contiguous():
            # Not the memory of `compressed`: the result is viewed in the order of the original
            # dimensions.
            sent = self._reduced = sent.contiguous()
            if order is not None:
                places = sorted(range(len(order)), key=order.__getitem__)
                self._reduced = sent.permute(places)
        self.tensor = tensor
        #: The tensor that the operation reduces in place.
        self.sent = sent

    def result(self, compression: type[Compressor]) -> torch.Tensor:
        """The result of the completed operation: ``tensor`` itself, or another tensor."""
        return self._reduced if self.wire_dtype else compression.decompress(self._reduced, self.context)


class _Slot:
    """A parameter and the state of its gradient."""

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
        "is_sent",
        "sparse_dims",
        "placeholder",
        "hook",
        "__weakref__",
    )

    def __init__(self, parameter: torch.Tensor, name: str, passes: int) -> None:
        self.parameter = parameter
        self.name = name
        #: The same name in the runtime's form, for batches.
        self.batch_name = _ronde.AllreduceName(name)
        self.order = memory_order(parameter)
        #: Whether its gradient is submitted in a batch.
        self.is_small = parameter.numel() * parameter.element_size() <= BATCHED_BYTES_MAX
        #: Backward passes until the gradient is complete.
        self.passes_left = passes
        self.group: Optional[_Group] = None
        #: The gradient while it is being reduced.
        self.gradient: Any = None
        #: Its shipment, if the gradient itself is not sent.
        self.shipment: Any = None
        #: Whether its gradient is submitted.
        self.is_sent = False
        #: Sparse dimensions of its gradients, equal on all ranks; 0 if they are reduced as dense
        #: ones. Until the ranks have compared their models, those of this rank's gradient.
        self.sparse_dims = 0
        #: Zero gradient until the first backward pass: programs expect zeros after
        #: `DistributedOptimizer(…)`, also in parameters that are frozen before the first step.
        self.placeholder: Optional[torch.Tensor] = None
        #: Handle of the hook.
        self.hook: Any = None
        if parameter.requires_grad and parameter.grad is None:
            self.placeholder = parameter.grad = torch.zeros_like(parameter)

    def drop_placeholder(self, gradient: torch.Tensor) -> None:
        """Removes the placeholder from a first gradient that is sparse, so that it stays sparse."""
        if gradient.is_sparse and self.parameter.grad is self.placeholder:
            self.parameter.grad = gradient.clone()
        self.placeholder = None

    def is_missing(self) -> bool:
        """Whether this rank has no gradient."""
        gradient = self.parameter.grad
        # A program may write a gradient into the placeholder.
        return gradient is None or (gradient is self.placeholder and not gradient.any())

    def take_gradient(self) -> torch.Tensor:
        """The gradient to reduce; zeros if there is none. Sparse if the ranks have agreed on it; it
        may be sparse otherwise, too."""
        gradient = torch.zeros_like(self.parameter) if self.is_missing() else self.parameter.grad
        dims = self.sparse_dims
        if dims and not (gradient.is_sparse and gradient.sparse_dim() == dims):
            dense = gradient.to_dense() if gradient.is_sparse else gradient
            gradient = dense.detach().to_sparse(dims)
        self.placeholder = None
        self.put_gradient(gradient)
        self.gradient = gradient
        return gradient

    def pack(self, compression: type[Compressor]) -> torch.Tensor:
        """The tensor to reduce in place."""
        gradient = self.take_gradient()
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        self.shipment = shipment = Shipment(dense, self.order, compression)
        return shipment.sent

    def unpack(self, compression: type[Compressor]) -> None:
        """Writes the result of the shipment to the gradient."""
        gradient = self.gradient
        if self.shipment is None:
            self.put_gradient(gradient)
            return
        result = self.shipment.result(compression)
        if gradient.is_sparse:
            gradient = result.to_sparse(gradient.sparse_dim())
        elif result is not gradient:
            gradient.detach().copy_(result)
        self.put_gradient(gradient)

    def put_gradient(self, gradient: torch.Tensor) -> None:
        # Unless the program removed it while it was being reduced.
        if self.parameter.grad is not gradient:
            self.parameter.grad = gradient


#: By the id of a parameter, the slot whose hook it has: that of the last optimizer.
_hooked: weakref.WeakValueDictionary[int, _Slot] = weakref.WeakValueDictionary()


class _Group:
    """Parameters whose gradients are reduced together, once all are complete."""

    __slots__ = ("slots", "complete")

    def __init__(self, slots: list[_Slot]) -> None:
        self.slots = slots
        #: Number of complete gradients.
        self.complete = 0


class Reducer:
    """Reduces the gradients of the parameters added by :meth:`add`.

    ``passes``: backward passes until a gradient is complete. ``predivide``: gradients are divided
    by it before the sum and multiplied by it afterwards.
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
        #: Whether backward passes only accumulate.
        self.is_paused = False
        #: Whether a backward pass was counted since gradients were last reduced.
        self.is_touched = False
        self._factors = (1.0 / predivide, predivide) if op == Average else (1.0, 1.0)
        self._slots: list[_Slot] = []
        #: Nodes that the hooks are registered on; a parameter holds no reference to its node.
        self._accumulators: list[Any] = []
        self._formed: list[_Group] = []
        #: Generation of the ranks for which the models were compared.
        self._compared: Optional[int] = None
        #: Complete gradients that wait for the comparison, in order.
        self._waiting: list[_Slot] = []
        #: Whether the models need not be compared again in the next step.
        self._is_final = True
        #: Submitted gradients that are not waited for yet, with the handle of their operation.
        self._in_flight: deque[tuple[list[_Slot], Any]] = deque()
        #: The job in which the first gradient of the step was submitted.
        self._job: Optional[int] = None
        #: The first error of the gradients waited for.
        self._failure: Optional[Exception] = None
        #: Whether all gradients are reduced, and the state is still to be reset.
        self._is_done = False
        #: Gradients of the next batch. Threads of the backward pass may append concurrently.
        self._batch: deque[_Slot] = deque()
        #: Whether a callback at the end of the current backward pass will send the batch.
        self._is_sent_at_end = False

    def add(self, parameters: Iterable[tuple[torch.Tensor, str]]) -> None:
        """Adds parameters with their names and registers their hooks, including frozen ones."""
        self._compared = None
        for parameter, name in parameters:
            if not (parameter.is_floating_point() or parameter.is_complex()):
                continue  # never has a gradient
            slot = _Slot(parameter, name, self.passes)
            self._slots.append(slot)
            former = _hooked.get(id(parameter))
            if former is not None:
                former.hook.remove()  # or both would submit the gradient, under one name
            _hooked[id(parameter)] = slot
            accumulator = _gradient_accumulator(parameter)
            slot.hook = accumulator.register_hook(self._hook(slot))
            self._accumulators.append(accumulator)

    def close(self) -> None:
        """Removes the hooks. The owner must call it, as the hooks hold references to the
        reducer."""
        for slot in self._slots:
            slot.hook.remove()
        self._slots.clear()
        self._accumulators.clear()

    def set_passes(self, passes: int) -> None:
        """Changes the number of backward passes."""
        self.passes = passes
        for slot in self._slots:
            slot.passes_left = passes

    def _hook(self, slot: _Slot) -> Callable[..., None]:
        def on_gradient(_: Any, gradients: tuple[torch.Tensor, ...]) -> None:
            # Runs for every gradient of every step.
            if self._compared != _generation and not is_reducing(self.process_set):
                return
            if slot.placeholder is not None and gradients[0] is not None:
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
        """Handles a complete gradient."""
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
            and not slot.sparse_dims
            and gradient is not None
            and gradient is not slot.placeholder
            and not gradient.is_sparse
            and gradient.is_contiguous()
        ):
            # The usual case: the gradient itself is sent.
            slot.gradient = gradient
            if self._is_batched and gradient.is_cpu:
                self._batch.append(slot)
                if not slot.is_small or len(self._batch) >= BATCH_TENSORS_MAX:
                    self._send_batch()
                return
            handle: Any = send_in_place(gradient, slot.name, self.op, self._factors, self.process_set)
        elif self._goes_sparse(slot):
            gradient = slot.take_gradient()
            handle = sparse_allreduce_async(gradient, slot.name, self.op, self.process_set)
        else:
            sent = slot.pack(self.compression)
            wire_dtype = slot.shipment.wire_dtype
            handle = send_in_place(sent, slot.name, self.op, self._factors, self.process_set, wire_dtype)
        self._note_sent([slot], handle)

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
        self._note_sent(slots, handle)

    def _note_sent(self, slots: list[_Slot], handle: Any) -> None:
        if self._job is None:
            self._job = HorovodBasics.jobs
        self._in_flight.append((slots, handle))
        for slot in slots:
            slot.is_sent = True

    def _end_backward(self) -> None:
        self._is_sent_at_end = False
        self._send_batch()

    def _goes_sparse(self, slot: _Slot) -> bool:
        # As all ranks have agreed: they wait for one another's operations.
        return slot.sparse_dims > 0 and not self.sparse_as_dense

    def _send_group(self, slots: list[_Slot]) -> None:
        dense = []
        for slot in slots:
            if self._goes_sparse(slot):
                self._send(slot)  # sparse: its size differs between ranks
            else:
                dense.append(slot)
        if not dense:
            return
        sent = [slot.pack(self.compression) for slot in dense]
        wire_dtypes = None if self._is_uncompressed else [slot.shipment.wire_dtype for slot in dense]
        handle = send_group_in_place(
            sent, dense[0].name, self.op, self._factors, self.process_set, wire_dtypes
        )
        self._note_sent(dense, handle)

    def finish(self) -> None:
        """Reduces the remaining gradients and waits until all results are in ``grad``.

        A parameter that requires a gradient and has none gets zeros, since other ranks may have
        one. Frozen parameters take no part. Raises ValueError on all ranks, the first time, if
        their models differ; HorovodInternalError if gradients were submitted in an earlier job.
        After an exception the gradients' values are undefined; after a KeyboardInterrupt, a second
        call completes the first.
        """
        if self._job not in (None, HorovodBasics.jobs):
            # Their handles are no longer known, so waiting for them would report no error.
            self.forget()
            raise HorovodInternalError(
                "gradients were submitted before hvd.shutdown() and hvd.init(), which ended their reduction: "
                "call optimizer.step() before hvd.shutdown(), or compute the gradients again"
            )
        if not self._slots or (self._compared != _generation and not is_reducing(self.process_set)):
            return
        try:
            if not self._is_done:
                self._reduce()
                self._is_done = True
            self.forget()
        except Exception:
            self.forget()
            raise

    def _reduce(self) -> None:
        if self._compared != _generation:
            self._compare()
        self._send_batch()
        self._send_rest()
        self._send_batch()
        self._wait()
        if not self._is_final:
            self._compared = None

    def _send_rest(self) -> None:
        sent = sum(len(slots) for slots, _ in self._in_flight)
        if sent == len(self._slots):
            return  # the usual case: nothing remains
        for slots, _ in self._in_flight:
            for slot in slots:
                slot.is_sent = True  # also where a KeyboardInterrupt came between

        def is_wanted(slot: _Slot) -> bool:
            return not slot.is_sent and (slot.passes_left < self.passes or slot.parameter.requires_grad)

        for slot in self._slots:
            if not slot.is_sent and slot.group is None and is_wanted(slot):
                self._send(slot)
        for group in self._formed:
            self._send_group([slot for slot in group.slots if is_wanted(slot)])

    def _wait(self) -> None:
        while self._in_flight:
            # Waits for all, even after an error: nothing may be in flight in the next step.
            try:
                self._wait_for(*self._in_flight[0])
            except Exception as error:
                self._failure = self._failure or error
            self._in_flight.popleft()
        if self._failure is not None:
            raise self._failure

    def _wait_for(self, slots: list[_Slot], handle: Any) -> None:
        """Waits for gradients and puts them into ``grad``; again, if a KeyboardInterrupt has ended
        the first call after its wait."""
        if callable(handle):
            slots[0].put_gradient(handle())  # sparse
            return
        synchronize(handle)
        for slot in slots:
            # Checked here to save a call: mostly there is nothing to do.
            if slot.shipment is not None or slot.parameter.grad is not slot.gradient:
                slot.unpack(self.compression)

    def forget(self) -> None:
        """Resets the state to that before a backward pass."""
        passes = self.passes
        for slot in self._slots:  # inlined: it runs in every step
            slot.passes_left = passes
            slot.gradient = slot.shipment = None
            slot.is_sent = False
        for group in self._formed:
            group.complete = 0
        self._waiting.clear()
        self._failure = None
        self._in_flight.clear()
        self._batch.clear()
        self._is_sent_at_end = False
        self.is_touched = False
        self._is_done, self._job = False, None  # last: nothing is reset in part

    def _compare(self) -> None:
        """Compares the models of the ranks, and submits the gradients that waited for it.

        If ranks have joined, the comparison is to be repeated in the next step.
        """
        slots = sorted(self._slots, key=lambda slot: slot.name)
        for slot in slots:
            slot.order = memory_order(slot.parameter)
            gradient = slot.parameter.grad
            if gradient is not None and gradient.is_sparse:
                slot.sparse_dims = gradient.sparse_dim()
        sparse_dims = [slot.sparse_dims for slot in slots]
        parameters = {slot.name: described(slot.parameter) for slot in self._slots}
        with lock(self.process_set):
            answer = check_same_model(parameters, self.process_set, any(sparse_dims))
            if answer.has_sparse:
                # Ranks without a gradient do not know whether it is sparse.
                for slot, dims in zip(slots, largest(sparse_dims, self.process_set)):
                    slot.sparse_dims = dims
            self._form_groups()
        self._is_final = answer.is_final
        self._compared = _generation
        waiting, self._waiting = self._waiting, []
        for slot in waiting:
            self._hand_over(slot)

    def _form_groups(self) -> None:
        self._formed = []
        if self.groups is None:
            return
        if isinstance(self.groups, int):
            slots = self._in_common_order()
            parts = split_list(slots, min(self.groups, len(slots)))
        else:
            by_parameter = {slot.parameter: slot for slot in self._slots}
            parts = [[by_parameter[one] for one in group if one in by_parameter] for group in self.groups]
        for slot in self._slots:
            slot.group = None
        for part in parts:
            if len(part) > 1:
                group = _Group(list(part))
                self._formed.append(group)
                for slot in part:
                    slot.group = group

    def _in_common_order(self) -> list[_Slot]:
        """The parameters in an order that all ranks share: by their last place on any rank. This is
        the ranks' own order, if all have the same."""
        places = {slot.name: place for place, slot in enumerate(self._slots)}
        names = sorted(places)
        # By an allreduce, as ranks that have joined take part in no other operation.
        last = dict(zip(names, largest([places[name] for name in names], self.process_set)))
        return sorted(self._slots, key=lambda slot: (last[slot.name], slot.name))


#: Registers a callback for the end of the current backward pass.
_at_end_of_backward: Callable[[Callable[[], None]], None] = (
    torch.autograd.Variable._execution_engine.queue_callback
)


def _gradient_accumulator(parameter: torch.Tensor) -> Any:
    """The node of the autograd graph that accumulates ``parameter.grad``."""
    is_frozen = not parameter.requires_grad
    if is_frozen:
        parameter.requires_grad_(True)  # without it there is no node
    with torch.enable_grad():
        accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    if is_frozen:
        parameter.requires_grad_(False)
    return accumulator
