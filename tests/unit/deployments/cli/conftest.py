"""A hang of the doctor's is short here."""

from __future__ import annotations

import pytest

from deployments.cli import tier_checks


@pytest.fixture(autouse=True)
def _short_hang(monkeypatch):
    monkeypatch.setattr(tier_checks, "HANG_S", 0.2)
