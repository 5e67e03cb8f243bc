"""Secret keys of a job, and message digests made with them."""

from __future__ import annotations

import hmac
import secrets

SECRET_LENGTH = 32  # bytes
DIGEST_LENGTH = 32  # bytes, of SHA-256
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"


def make_secret_key() -> bytes:
    """Returns a new random key."""
    return secrets.token_bytes(SECRET_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Returns the HMAC-SHA256 of ``message``."""
    return hmac.digest(key, message, "sha256")


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Whether ``digest`` is that of ``message``; constant time."""
    return hmac.compare_digest(compute_digest(key, message), digest)
