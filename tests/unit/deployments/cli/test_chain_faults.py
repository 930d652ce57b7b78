"""Each edge of a chain is tried with each fault."""

from __future__ import annotations

import pytest

from deployments.cli import chain_faults
from tests.support.chain_configs import config


def test_every_edge_of_a_good_chain_works():
    """Each fault on each edge's head is answered by the next tier."""
    findings = list(chain_faults.check_edges(config()))

    assert len(findings) == 2 * len(chain_faults.FAULTS)
    assert {f.level for f in findings} == {"ok"}


@pytest.mark.parametrize(
    ("allowed", "broken"), [(["server_error"], {"a hang"}), (["timeout"], {"a 500", "a cut connection"}), ([], None)]
)
def test_an_edge_that_does_not_work_is_found(allowed, broken):
    """An `escalate_on` that lacks a reason makes the edges fail that need it; the line says so."""
    findings = list(chain_faults.check_edges(config(escalate_on=allowed)))
    failed = {f.words.partition(" on ")[0] for f in findings if f.level == "fail"}

    assert failed == (broken or {"a 500", "a hang", "a cut connection"})
    assert all("escalate_on: " in f.words for f in findings if f.level == "fail")


def test_a_switched_off_chain_is_said_so():
    """`enabled: false` is no failure, and no silence either."""
    findings = list(chain_faults.check_edges(config(enabled=False)))

    assert [f.level for f in findings] == ["warn"]
