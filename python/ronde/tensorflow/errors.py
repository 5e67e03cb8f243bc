"""Errors of operations: TensorFlow's classes and Horovod's at once.

Kernels report a code and a message, from which TensorFlow creates its own exceptions. In eager
execution they are replaced by those of this module; errors of a ``tf.function`` keep their class,
unless :func:`as_horovod_error` converts them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..common.exceptions import HorovodInternalError

#: In the messages of TensorFlow's errors of these operations.
_OPS = ("RondeCollective", "RondeExchange", "RondeSubmit", "RondeWait", "Horovod has")


class _Both(HorovodInternalError):
    """Base of exceptions with TensorFlow's constructor."""

    def __init__(self, node_def: Any, op: Any, message: str, *args: Any) -> None:
        tf.errors.OpError.__init__(self, node_def, op, message, self.code)


class UnknownError(_Both, tf.errors.UnknownError):
    """The job has failed: a lost rank, or a context that has been shut down."""

    code = tf.errors.UNKNOWN


class FailedPreconditionError(_Both, tf.errors.FailedPreconditionError):
    """The ranks differ, or this process is in no job."""

    code = tf.errors.FAILED_PRECONDITION


_CLASSES = {tf.errors.UNKNOWN: UnknownError, tf.errors.FAILED_PRECONDITION: FailedPreconditionError}


def raised_for(error: tf.errors.OpError) -> BaseException:
    """The exception to raise for an error of one of ronde's operations."""
    kind = _CLASSES.get(error.error_code)
    return error if kind is None else kind(error.node_def, error.op, error.message)


#: Exceptions of a ``tf.function``.
ERRORS = (tf.errors.OpError, RuntimeError)


def as_horovod_error(error: Exception) -> BaseException:
    """The exception for an error of a ``tf.function``: Horovod's if one of ronde's operations has
    failed, KeyboardInterrupt if TensorFlow could not raise it, the error itself otherwise."""
    if isinstance(error, HorovodInternalError):
        return error
    if isinstance(error, tf.errors.OpError):
        return raised_for(error) if any(op in error.message for op in _OPS) else error
    # A wait has been given up, and Python raises KeyboardInterrupt while TensorFlow creates its
    # error.
    return KeyboardInterrupt() if "REPLACED BY KeyboardInterrupt" in str(error) else error
