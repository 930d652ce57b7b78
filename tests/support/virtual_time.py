"""Async tests in virtual time: a conftest that imports this has them run on a loop whose clock jumps to what is due."""

import inspect

import pytest

from tests.sim.clock import run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test, but for those of a module that says `REAL_TIME = True`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or getattr(pyfuncitem.module, "REAL_TIME", False):
        return None
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True
