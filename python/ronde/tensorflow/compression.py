"""Compression of tensors for sending. Programs may define their own algorithms."""

from __future__ import annotations

import tensorflow as tf

from ..common.compression import Compressor, NoneCompressor


class _CastCompressor(Compressor):
    """Sends floating-point tensors as ``wire_dtype``, others unchanged."""

    wire_dtype: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, tf.DType]:
        """Returns the tensor in the dtype to send, and its original dtype."""
        dtype = tensor.dtype
        return (tf.cast(tensor, cls.wire_dtype) if dtype.is_floating else tensor), dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: tf.DType) -> tf.Tensor:
        """Returns the tensor in its original dtype."""
        return tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16: 11 bits of precision, up to 65,504."""

    wire_dtype = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: 8 bits of precision, with the range of float32."""

    wire_dtype = tf.bfloat16


class Compression:
    """The available algorithms."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
