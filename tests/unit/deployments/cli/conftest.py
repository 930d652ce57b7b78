"""A hang of the doctor's is short here."""

import pytest

from deployments.cli import doctor


@pytest.fixture(autouse=True)
def _short_hang(monkeypatch):
    monkeypatch.setattr(doctor, "HANG_S", 0.2)
