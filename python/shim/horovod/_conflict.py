"""Check that Horovod itself is not installed beside this package."""

from importlib import metadata


def refuse() -> None:
    """Raises ImportError if Horovod is installed: both distributions provide the package
    `horovod`."""
    try:
        other = metadata.distribution("horovod")
    except metadata.PackageNotFoundError:
        return
    raise ImportError(
        f"horovod {other.version} and ronde-horovod are both installed, and both are the package horovod.\n"
        "To use Ronde:   pip uninstall -y horovod, then in a checkout of Ronde "
        "pip install --force-reinstall --no-deps ./python/shim\n"
        "To use Horovod: pip uninstall -y ronde-horovod && pip install --force-reinstall --no-deps horovod"
    )
