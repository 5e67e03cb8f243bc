"""Compression of arrays for sending. An algorithm is a class with two static methods; programs may
define their own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


class Compressor:
    """Interface of a compression algorithm."""

    @staticmethod
    def compress(array: jax.Array) -> tuple[jax.Array, Any]:
        """Returns the array to send in place of ``array``, and the context for
        :meth:`decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(array: jax.Array, ctx: Any) -> jax.Array:
        """Returns the result for a reduced compressed array."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends arrays unchanged."""

    @staticmethod
    def compress(array: jax.Array) -> tuple[jax.Array, None]:
        """The array itself."""
        return array, None

    @staticmethod
    def decompress(array: jax.Array, ctx: None) -> jax.Array:
        """The array itself."""
        return array


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
