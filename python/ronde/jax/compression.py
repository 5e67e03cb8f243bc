"""Compression of arrays for sending. Programs may define their own algorithms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..common.compression import Compressor, NoneCompressor


class _CastCompressor(Compressor):
    """Sends floating-point arrays as ``wire_dtype``, others unchanged."""

    wire_dtype: Any

    @classmethod
    def compress(cls, array: jax.Array) -> tuple[jax.Array, Any]:
        """Returns the array in the dtype to send, and its original dtype."""
        is_float = jnp.issubdtype(array.dtype, jnp.floating)
        return (array.astype(cls.wire_dtype) if is_float else array), array.dtype

    @staticmethod
    def decompress(array: jax.Array, ctx: Any) -> jax.Array:
        """Returns the array in its original dtype."""
        return array.astype(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating-point arrays as float16: 11 bits of precision, up to 65,504."""

    wire_dtype = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point arrays as bfloat16: 8 bits of precision, with the range of float32."""

    wire_dtype = jnp.bfloat16


class Compression:
    """The available algorithms."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
