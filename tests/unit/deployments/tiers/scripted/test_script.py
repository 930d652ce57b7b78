"""What a script may ask for at most: a stand-in for a broken tier, but none that breaks the server."""

from __future__ import annotations

import pytest

from deployments.tiers.scripted.script import ScriptError, load_script

DAY_S = 86_400


@pytest.mark.parametrize("act", ["status: 429", "fault: overloaded"])
@pytest.mark.parametrize("wait", [".inf", ".nan", "-1", "1.0e+20", "86401"])
def test_a_wait_without_bound_is_a_wrong_script(tmp_path, act, wait):
    """Law: `retry_after_s` is a number of seconds up to a day, as a real tier's header is read; anything else is told
    as a wrong script, with its rule and key."""
    path = tmp_path / "s.yaml"
    path.write_text(f"- answer: {{{act}, retry_after_s: {wait}}}")

    with pytest.raises(ScriptError, match=r"^rule 1: answer\.1\.retry_after_s: "):
        load_script(path)


@pytest.mark.parametrize("wait", ["0", "0.5", str(DAY_S)])
def test_a_wait_of_a_day_is_fine(tmp_path, wait):
    """Law: whatever a real tier can ask for, a script can."""
    path = tmp_path / "s.yaml"
    path.write_text(f"- answer: {{status: 429, retry_after_s: {wait}}}")

    assert load_script(path).rules[0].answer[0].retry_after_s == float(wait)


@pytest.mark.parametrize("weight", [".inf", ".nan", "0", "1.0e+300"])
def test_a_weight_without_bound_is_a_wrong_script(tmp_path, weight):
    """Law: whatever a script's weights are, one rule can be drawn by them."""
    path = tmp_path / "s.yaml"
    path.write_text(f"- {{weight: {weight}, answer: hi}}")

    with pytest.raises(ScriptError, match=r"^rule 1: weight: "):
        load_script(path)
