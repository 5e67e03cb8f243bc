"""Exceptions of Ronde, with Horovod's names."""

from __future__ import annotations

from typing import Optional


class HorovodInternalError(RuntimeError):
    """An operation failed: the ranks disagree about a tensor, or a rank was lost.

    The attributes describe the cause; an unknown one is None.
    """

    #: Name of the tensor, prefixed with its operation (``allreduce.loss``).
    tensor: Optional[str] = None
    #: The rank at fault.
    rank: Optional[int] = None
    #: The rank that the rank at fault differs from.
    first_rank: Optional[int] = None


class HostsUpdatedInterrupt(RuntimeError):
    """The job's hosts have changed: an elastic program joins again and keeps its state.

    ``skip_sync``: whether hosts were only removed, so that all remaining ranks have the same state.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A library has another version than the one that an extension was built for.

    Never raised by Ronde, whose extension is not built for a particular version of torch.
    """

    def __init__(self, name: str, version: Optional[str], installed_version: Optional[str]) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: Optional[str], installed_version: Optional[str]) -> str:
    """Message for an extension that was built for another version of ``name``."""
    return (
        f"the extension was built with {name} {installed_version or '(none)'}, but {name} {version} is "
        f"installed; reinstall ronde"
    )
