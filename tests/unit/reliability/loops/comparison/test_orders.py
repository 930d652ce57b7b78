"""How often a person asks for a thing, and what that spares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import LoopConfig, Stage
from reliability.loops.comparison.orders import NUMBER_MAX, read_number, read_times
from tests.evals.step_cases import StepCase
from tests.support.conversation import stages

CONFIG = LoopConfig()
POLL_NUDGE, POLL_BREAK = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold


@pytest.mark.parametrize(
    ("request_text", "times"),
    [
        ("Run the tests 10 times.", 10),
        ("a dozen times", 12),
        ("6x, please", 6),
        ("zehnmal, nein: zwölf Mal", 12),
        ("doce veces", 12),
        ("按六次", 6),
        ("二十五次", 25),
        ("10 times faster, 3 times a day, 100 times the size, 6x9, normal, 2026 times", 0),
        ("Look at all 12 of them.", 0),
    ],
)
def test_how_often_is_read(request_text: str, times: int) -> None:
    """A number with a word for repetition; a comparison and a rate are none."""
    assert read_times(request_text) == times


@pytest.mark.parametrize(
    ("request_text", "number"),
    [
        ("press Down 12 times", 12),
        ("add six apples to the cart", 6),
        ("create 8 tickets", 8),
        ("Insert twenty-five rows", 25),
        ("drücke zwölfmal nach unten", 12),
        ("añade ocho manzanas", 8),
        ("ajoute quinze lignes", 15),
        ("two dozen? no: a dozen", 12),
        ("look at issue #41 on port 8080, version 3.12, at 12:30", 0),
        ("Fix the build.", 0),
    ],
)
def test_the_number_of_a_request_is_read(request_text: str, number: int) -> None:
    """Digits and words count, in four languages; what only names something doesn't."""
    assert read_number(request_text) == number


@given(st.text(max_size=80))
def test_any_request_has_a_number_within_bounds(text: str) -> None:
    """Law: every text is read, and no number is larger than the bound."""
    assert 0 <= read_number(text) <= NUMBER_MAX
    assert 0 <= read_times(text) <= NUMBER_MAX


ENDLESS = (
    "Check the service again and again.",
    "Please check the service every minute and tell me when it is up.",
    "Run it over and over until I stop you.",
    "Keep polling the service.",
    "Call it repeatedly, please.",
    "Prüfe den Dienst immer wieder.",
    "Revisa el servicio cada 5 minutos.",
    "Vérifie le service sans arrêt.",
    "每分钟检查一次",
)


@pytest.mark.parametrize("request_text", ENDLESS)
def test_an_order_of_repetition_without_a_number_has_the_limits_of_a_poll(request_text: str) -> None:
    """Law: a person who orders repetition without an end gets it: one nudge and no break before a poll's."""
    for result in ("all is well with the database", '{"error": "connection refused by the host"}'):
        found = stages(StepCase("check_service", '{"name": "db"}', result).build(POLL_BREAK, request_text))
        assert found[: POLL_NUDGE - 1] == [None] * (POLL_NUDGE - 1)
        assert found.count(Stage.WARN) <= 1
        assert found.index(Stage.BREAK) == POLL_BREAK - 1


@pytest.mark.parametrize(
    "request_text",
    [
        "The build fails again and again, find out why.",
        "Every minute the server crashes. Fix it.",
        "It keeps failing. I can't keep paying for it.",
        "Don't call the same tool over and over.",
        "Find a nonstop flight. Wait until I confirm it.",
    ],
)
def test_a_complaint_about_repetition_is_no_order(request_text: str) -> None:
    """Law: words of repetition that tell what happens, or that forbid it, spare no loop."""
    found = stages(StepCase("check_service", '{"name": "db"}', "all is well").build(6, request_text))
    assert found.index(Stage.BREAK) == CONFIG.break_threshold - 1
