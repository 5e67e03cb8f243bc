"""The exceptions that Ronde raises, under the names that programs written for Horovod catch."""

from __future__ import annotations

from typing import Optional


class HorovodInternalError(RuntimeError):
    """An operation failed: the ranks disagree about a tensor, or one of them is gone.

    The attributes tell what is known of it; what is not known is None.
    """

    #: Name of the tensor, with its operation in front (``allreduce.loss``).
    tensor: Optional[str] = None
    #: The rank at fault.
    rank: Optional[int] = None
    #: The rank that it differs from.
    first_rank: Optional[int] = None


class HostsUpdatedInterrupt(RuntimeError):
    """The job's hosts have changed: an elastic program joins anew, and keeps its state.

    ``skip_sync``: whether ranks have only left, so that all that remain have the same state already.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """A library was installed after, and in another version than, the one that an extension was built for.

    Ronde's extension is built for no particular version of torch and never raises it.
    """

    def __init__(self, name: str, version: Optional[str], installed_version: Optional[str]) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: Optional[str], installed_version: Optional[str]) -> str:
    """What to say when the extension was built for one version of ``name`` and meets another."""
    return (
        f"the extension was built with {name} {installed_version or '(none)'}, but {name} {version} is "
        f"installed; install it again"
    )
