"""Broadcast of all variables of a graph of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .functions import broadcast_variables


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the operation that broadcasts all variables of the graph from rank ``root_rank``.

    RuntimeError in eager execution, which has no list of all variables: use
    :func:`broadcast_variables`.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Use "
            "hvd.broadcast_variables(variables, root_rank) with the model's and the optimizer's variables"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Hook of a session that broadcasts all variables from rank ``root_rank`` after its creation.

    ``device``: TensorFlow's device for the operations.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op: Any = None
        self.device = device

    def begin(self) -> None:
        """Creates the operation in the default graph."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with tf.device(self.device or None):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the operation."""
        session.run(self.bcast_op)
