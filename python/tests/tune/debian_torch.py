"""Lets Python 3.11 import all of torch 1.13, as Debian 12 has them.

Python 3.11 refuses defaults of dataclasses that have no hash, and torch has one in
torch.distributed._shard, which Lightning and torchrun import. Here dataclasses that are defaults
have a hash, that of their identity.
"""

import dataclasses

_get_field = dataclasses._get_field


def _get_field_with_hash(cls, name, *others):
    default = getattr(cls, name, None)
    default = default.default if isinstance(default, dataclasses.Field) else default
    kind = type(default)
    if dataclasses.is_dataclass(kind) and kind.__hash__ is None:
        kind.__hash__ = object.__hash__
    return _get_field(cls, name, *others)


dataclasses._get_field = _get_field_with_hash
