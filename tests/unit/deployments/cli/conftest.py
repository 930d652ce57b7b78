"""A hang of the doctor's is short here."""

from __future__ import annotations

import pytest

from deployments.cli import doctor


@pytest.fixture(autouse=True)
def _short_hang(monkeypatch):
    monkeypatch.setattr(doctor, "HANG_S", 0.2)
