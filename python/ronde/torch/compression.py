"""Compression of tensors for sending. Programs may define their own algorithms."""

from __future__ import annotations

from typing import Optional

import torch

from ..common.compression import Compressor, NoneCompressor


class _CastCompressor(Compressor):
    """Sends floating-point tensors as ``wire_dtype``, others unchanged."""

    wire_dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        """Returns the tensor in the dtype to send, and its original dtype."""
        dtype = tensor.dtype
        return (tensor.to(cls.wire_dtype) if dtype.is_floating_point else tensor), dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        """Returns the tensor in its original dtype."""
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16: 11 bits of precision, up to 65,504."""

    wire_dtype = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: 8 bits of precision, with the range of float32."""

    wire_dtype = torch.bfloat16


def runtime_does(compression: type[Compressor], tensor: torch.Tensor) -> Optional[torch.dtype]:
    """The dtype in which the runtime sends ``tensor``, in place of :meth:`Compressor.compress`.

    On GPUs, the kernels that fuse tensors also convert them. None if they cannot, or if the
    algorithm is not one of this module.
    """
    is_ours = compression is FP16Compressor or compression is BF16Compressor
    is_wide = tensor.dtype is torch.float32 or tensor.dtype is torch.float64
    return compression.wire_dtype if is_ours and is_wide and tensor.is_cuda else None  # type: ignore[attr-defined]


class Compression:
    """The available algorithms."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
