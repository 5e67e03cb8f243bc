"""Identifier of this process's host or container."""

from __future__ import annotations

import hashlib
import os
import socket
from typing import Any

_NAMESPACES = "/proc/self/ns"


def host_hash(salt: Any = None) -> str:
    """Returns the host's short name and a digest, equal for processes on the same host in the same
    namespaces.

    ``salt`` is added to the digest if it is true, to distinguish processes that must not count as
    being on one host.
    """
    name = socket.gethostname()
    parts = [name, *_namespaces(), *([str(salt)] if salt else [])]
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    return f"{name.split('.')[0]}-{digest}"


def _namespaces() -> list[str]:
    try:
        return sorted({os.readlink(entry.path) for entry in os.scandir(_NAMESPACES)})
    except OSError:
        return []
