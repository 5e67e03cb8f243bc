"""Tuner of a model whose ranks are those of a torch process group."""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Dict, Optional

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import get_global_rank

from .parameters import Parameter
from .tuner import Tuner

# Bytes of a message's first broadcast: its length and, for most messages, all of it.
_FRAME = 1024
_LENGTH = 8
# Longest message that is accepted, in bytes.
_LENGTH_MAX = 1 << 20


class Unchangeable(RuntimeError):
    """The setting cannot be changed any more."""


class ModelTuner:
    """Tunes one setting of a model while it trains: `apply` changes it at a step boundary.

    All ranks of `group` create it at the same step, call `step` after each optimizer step, and
    `close` after the same one. `apply` may raise Unchangeable, on all ranks: tuning then ends with
    a warning.
    """

    def __init__(
        self,
        name: str,
        parameter: Parameter,
        apply: Callable[[Any], None],
        module: torch.nn.Module,
        group: Any,
        *,
        key: Optional[Dict[str, str]] = None,
        **options: Any,
    ) -> None:
        self._name = name
        self._apply = apply
        self._device = next(module.parameters()).device
        size = dist.get_world_size(group)
        backend = dist.get_backend(group)
        self._tuner = Tuner(
            {name: parameter},
            _broadcast(group, self._device if backend == "nccl" else torch.device("cpu")),
            dist.get_rank(group),
            size,
            key=key or {"model": _digest(module), "ranks": f"{size} over {backend}"},
            **options,
        )
        # The value that the model has.
        self._in_force: Any = parameter.start
        if self._tuner.settings[name] != parameter.start:
            self._change()

    @property
    def settings(self) -> Dict[str, Any]:
        """The setting in force, by name."""
        return self._tuner.settings

    @property
    def finished(self) -> bool:
        """Whether there is a verdict, or tuning has stopped."""
        return self._tuner.finished

    @property
    def verdict(self) -> Optional[Dict[str, Any]]:
        """Result of the search; None before."""
        return self._tuner.verdict

    def begin(self) -> None:
        """Marks the start of a step, after work that is not in every step."""
        self._synchronize()
        self._tuner.begin()

    def step(self, seconds: Optional[float] = None) -> bool:
        """Marks the end of a step; returns whether the setting has changed."""
        if seconds is None:
            self._synchronize()
        return self._tuner.step(seconds) and self._change()

    def close(self) -> None:
        """Ends tuning and saves what was measured. All ranks call it after the same step: the
        others would wait for rank 0, or it for them."""
        self._tuner.close()

    def _change(self) -> bool:
        """Puts the tuner's setting in force in the model; returns whether that was possible."""
        value = self._tuner.settings[self._name]
        try:
            self._apply(value)
        except Unchangeable as error:
            self._tuner.abandon({self._name: self._in_force}, str(error))
            return False
        self._in_force = value
        return True

    def _synchronize(self) -> None:
        """Waits for the GPU where the step is measured: else the time is that of the launches."""
        if self._device.type == "cuda" and self._tuner.measuring:
            torch.cuda.synchronize(self._device)


def _digest(module: torch.nn.Module) -> str:
    """Identifies a model by the names, shapes and types of its parameters."""
    lines = [f"{name} {tuple(p.shape)} {p.dtype}" for name, p in module.named_parameters()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _broadcast(group: Any, device: torch.device) -> Callable[[str, int], Callable[[], str]]:
    """Returns a function that begins to broadcast texts in the process group, without pickle."""

    def broadcast(text: str, root: int) -> Callable[[], str]:
        source = root if group is None else get_global_rank(group, root)
        data = text.encode() if dist.get_rank(group) == root else b""
        frame = bytearray(len(data).to_bytes(_LENGTH, "little") + data[: _FRAME - _LENGTH])
        frame += bytes(_FRAME - len(frame))
        head = begin(frame, source)

        def received() -> str:
            frame = head()
            length = int.from_bytes(frame[:_LENGTH], "little")
            if length > _LENGTH_MAX:
                raise ValueError(
                    f"rank {root} sent {length} bytes, at most {_LENGTH_MAX} are accepted"
                )
            text, rest = frame[_LENGTH : _LENGTH + length], length - (_FRAME - _LENGTH)
            if rest > 0:
                text += begin(bytearray(data[-rest:] or bytes(rest)), source)()
            return text.decode()

        return received

    def begin(data: bytearray, source: int) -> Callable[[], bytes]:
        tensor = torch.frombuffer(data, dtype=torch.uint8).to(device)
        work = dist.broadcast(tensor, src=source, group=group, async_op=True)

        def end() -> bytes:
            work.wait()
            return bytes(tensor.cpu().numpy())

        return end

    return broadcast
