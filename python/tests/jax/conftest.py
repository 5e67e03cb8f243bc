"""Fixtures of the tests of `ronde.jax`, which run in ranks.

Start: ``ronde run -np N -- python -m pytest --import-mode=importlib
python/tests/jax``.
"""

import pytest


@pytest.fixture(scope="session")
def jax(settings):
    """JAX on the CPU, with 64-bit types."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    return jax


@pytest.fixture(scope="session")
def hvd(jax, join):
    """``ronde.jax``, in a job."""
    return join("ronde.jax")


@pytest.fixture(params=["eager", "jit"])
def run(request, jax):
    """Calls a function, directly or compiled."""
    if request.param == "eager":
        return lambda function, *args: function(*args)
    return lambda function, *args: jax.jit(function)(*args)
