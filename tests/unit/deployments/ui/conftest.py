"""Async tests here run in virtual time."""

from tests.support.virtual_time import pytest_pyfunc_call  # noqa: F401
