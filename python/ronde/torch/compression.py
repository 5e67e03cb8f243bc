"""Making tensors smaller for the way: an algorithm is a class of two static methods, and programs write their
own.
"""

from __future__ import annotations

from typing import Any, Optional

import torch


class Compressor:
    """What a compression algorithm consists of."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send in place of ``tensor``, and whatever :meth:`decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor that a result of compressed ones stands for."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: None) -> torch.Tensor:
        """The tensor itself."""
        return tensor


class _CastCompressor(Compressor):
    """Sends floating-point tensors with elements of ``wire_dtype``, others as they are."""

    wire_dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """The tensor with elements of the type to send, and the type that it had."""
        dtype = tensor.dtype
        return (tensor.to(cls.wire_dtype) if dtype.is_floating_point else tensor), dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """The tensor with elements of the type that it had."""
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors in half precision: 11 bits, up to 65,504."""

    wire_dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: 8 bits, with the range of float32."""

    wire_dtype = torch.bfloat16


def runtime_does(compression: type[Compressor], tensor: torch.Tensor) -> Optional[torch.dtype]:
    """What the runtime is to send the elements of ``tensor`` as, in place of :meth:`Compressor.compress`.

    On GPUs the kernels that fuse tensors convert them. None where they do not, or the algorithm is none of ours.
    """
    is_ours = compression is FP16Compressor or compression is BF16Compressor
    is_wide = tensor.dtype is torch.float32 or tensor.dtype is torch.float64
    return compression.wire_dtype if is_ours and is_wide and tensor.is_cuda else None  # type: ignore[attr-defined]


class Compression:
    """The algorithms there are."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
