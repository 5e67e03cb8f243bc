"""Interface of compression algorithms. An algorithm is a class with two static methods; programs
may define their own.
"""

from __future__ import annotations

from typing import Any


class Compressor:
    """Interface of a compression algorithm."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send in place of ``tensor``, and the context for
        :meth:`decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the result for a reduced compressed tensor."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, None]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: None) -> Any:
        """The tensor itself."""
        return tensor
