"""A hang of the doctor's is short here."""

from __future__ import annotations

import pytest

from deployments.cli import chain_faults


@pytest.fixture(autouse=True)
def _short_hang(monkeypatch):
    monkeypatch.setattr(chain_faults, "HANG_S", 0.2)
