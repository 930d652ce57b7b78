"""The learned chain: as right as the default for less, on cases that it wasn't fitted on; and what it may never be."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.config.app_config import patch
from deployments.evaluate.figures import cascade
from deployments.evaluate.figures.cascade import CASES_MIN, _is_fitted, _list_candidates, _play, learn_chain
from reliability.config import StartRule
from tests.support.evaluation_cells import CONFIG, call_cell, hesitant_cells, make_cells

CHAIN = ("fast", "large")


def test_a_tier_that_only_costs_is_left_out():
    """`fast` is never right and always delivers: the proposal does without it, though it costs more."""
    cells = make_cells(fast_right=0)
    for number in range(24):
        cells[f"layers/call/fast/{number}"] = call_cell(number, layer="grammar", right=False)
    found = learn_chain(cells, CHAIN)

    assert found["proposal"] == {"reliability": {"escalation": {"chain": ["large"]}}}
    assert found["default"]["held_out"]["right"]["hits"] == 0
    assert found["chosen"]["held_out"]["right"]["hits"] == 10


def test_the_grammar_at_once_is_proposed_where_it_is_cheaper():
    """`fast` answers as often and takes half."""
    found = learn_chain(make_cells(fast_right=24), CHAIN)

    assert found["proposal"]["tiers"] == {"fast": {"retry_strategy": ["constrain"]}}
    assert found["chosen"]["held_out"]["right"]["hits"] >= found["default"]["held_out"]["right"]["hits"]
    assert found["chosen"]["held_out"]["seconds"] < found["default"]["held_out"]["seconds"]


def test_requests_that_a_tier_can_t_do_start_behind_it():
    """Where `fast` can't do more than one tool, and only costs there, a rule by the tools is found; it is cheaper, and
    as right, on cases that it wasn't fitted on."""
    cells = make_cells(48)
    for number in range(48):
        alone = cells[f"layers/call/fast/{number}"]["features"]["tools"] == 1
        answer = {"layer": "raw" if alone else None, "right": alone, "seconds": 1.0 if alone else 5.0}
        for variant in ("layers", "constrain"):
            cells[f"{variant}/call/fast/{number}"] = call_cell(number, **answer)
        cells[f"layers/call/large/{number}"] = call_cell(number, layer="raw", right=True, seconds=10.0)
    found = learn_chain(cells, CHAIN)
    default, chosen = found["default"]["held_out"], found["chosen"]["held_out"]
    rules = found["proposal"]["reliability"]["escalation"]["start_at"]

    assert rules == [{"tier": "large", "tools_min": 2}]
    assert chosen["right"]["hits"] == default["right"]["hits"] == 24
    assert chosen["seconds"] < default["seconds"]
    # Once it is applied it is what is configured, with its price.
    again = learn_chain(cells, CHAIN, [StartRule(**rule) for rule in rules])
    assert again["proposal"] is None
    assert again["default"]["held_out"] == chosen


def test_rules_of_the_configuration_that_only_cost_are_taken_away():
    """What is proposed can be started with: no rule is left that names a tier which isn't in the chain any more."""
    cells = make_cells(fast_right=24)
    for number in range(24):
        cells[f"layers/call/large/{number}"] = call_cell(number, layer="raw", right=True, seconds=10.0)
    start_at = [{"tier": "large", "tools_min": 1, "messages_min": 1}]
    found = learn_chain(cells, CHAIN, [StartRule(**rule) for rule in start_at])
    config = patch(CONFIG, {"reliability": {"escalation": {"start_at": start_at}}})

    assert "start at large" in found["default"]["words"]
    assert found["default"]["held_out"]["seconds"] == 10.0
    assert found["proposal"]["reliability"]["escalation"]["start_at"] == []
    assert patch(config, found["proposal"]).reliability.escalation.start_at == ()


@pytest.mark.parametrize(("dearer", "why"), [(False, "held-out"), (True, "costs no less")])
def test_a_choice_that_the_held_out_cases_don_t_bear_out_is_not_proposed(dearer, why):
    """`large` alone is as right for less on the fit; on the other half it is wrong, or right as often and dearer."""
    cells = make_cells(24, fast_right=0)
    for number in range(24):
        seen = _is_fitted(number)
        fast = {"layer": None if seen else "raw", "right": not seen, "seconds": 5.0 if seen else 0.1}
        cells[f"layers/call/fast/{number}"] = call_cell(number, **fast)
        cells[f"layers/call/large/{number}"] = call_cell(number, layer="raw", right=dearer or seen, seconds=4.0)
        cells.pop(f"constrain/call/fast/{number}")
    found = learn_chain(cells, CHAIN)

    assert found["chosen"]["words"] == "large"
    assert found["proposal"] is None
    assert why in found["why"]


def test_the_held_out_half_has_no_part_in_the_choice():
    """Whatever is changed in it, the same chain is chosen and its figures on the fit are the same."""
    cells = make_cells(24, fast_right=12)
    other = dict(cells)
    for key in cells:
        if "/call/" in key and not _is_fitted(int(key.rsplit("/", 1)[1])):
            other[key] = cells[key] | {"right": not cells[key]["right"], "seconds": 99.0}
    one, two = learn_chain(cells, CHAIN), learn_chain(other, CHAIN)

    assert one["chosen"]["words"] == two["chosen"]["words"]
    assert one["chosen"]["fit"] == two["chosen"]["fit"]
    assert one["candidates"] == two["candidates"]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_the_choice_is_nearly_as_right_as_any_and_the_cheapest_of_those_on_what_it_was_fitted_on(seed):
    """Whatever the tiers do; and it is one that the server takes."""
    dice = random.Random(seed)
    cells = {}
    for number in range(CASES_MIN + dice.randrange(20)):
        for tier in CHAIN:
            for variant in ("layers", "constrain"):
                layer = dice.choice(["raw", "grammar", None])
                right = layer is not None and dice.random() < 0.7
                seconds = dice.randint(1, 20)
                cells[f"{variant}/call/{tier}/{number}"] = call_cell(number, layer=layer, right=right, seconds=seconds)
    found = learn_chain(cells, CHAIN)
    default, chosen = found["default"]["fit"], found["chosen"]["fit"]

    assert chosen["right"]["hits"] >= default["right"]["hits"]
    rivals = [one for one in found["candidates"] if one["right"] >= chosen["right"]["share"]]
    assert min(one["seconds"] for one in rivals) >= chosen["seconds"] - 1e-9
    assert chosen["right"]["share"] >= 0.97 * max(one["right"] for one in found["candidates"])
    if found["proposal"] is not None:
        patch(CONFIG, found["proposal"])  # raises where the server wouldn't take it
        held = [found[which]["held_out"]["right"]["hits"] for which in ("default", "chosen")]
        assert held[1] >= held[0]


@pytest.mark.parametrize("cases", [0, CASES_MIN - 1])
def test_too_few_cases_are_no_choice(cases):
    """And it is said how many there are. Where nothing is ever right nothing is proposed: less for nothing is no
    better."""
    found = learn_chain(make_cells(cases), CHAIN)

    assert found["proposal"] is None
    assert f"{cases} cases" in found["why"]
    assert learn_chain(make_cells(24, fast_right=0, large_right=0), CHAIN)["proposal"] is None


@pytest.mark.parametrize(("prose", "seconds", "right"), [(False, 12 * 1.0 + 6 * 10.0, 12), (True, 12 * 1.0, 6)])
def test_a_chain_stops_at_the_first_that_delivers(prose, seconds, right):
    """What it pays is what was asked until there. Prose ends it: the server delivers it where a call was wanted and not
    forced, and nobody behind is asked."""
    cells = make_cells(12, fast_right=6)
    for number in range(6, 12) if prose else ():
        cells[f"layers/call/fast/{number}"] |= {"error": "", "calls": [], "valid": False}
    cases = cascade._read_cases(cells, CHAIN)
    default = next(one for one in _list_candidates(CHAIN, cases) if len(one.tiers) == 2 and not one.rules)
    played = _play(default, cases)

    assert played.seconds == pytest.approx(seconds)
    assert (played.right, played.runs) == (right, 12)


def test_calls_that_tell_of_themselves_are_held_where_that_makes_the_chain_right():
    """Law: the least confidence is learned with the rest; what it is worth is said by calls that fitted neither it nor
    the calibration, and the server takes what is proposed."""
    found = learn_chain(hesitant_cells(144), CHAIN)
    untold = learn_chain(hesitant_cells(144, told=False), CHAIN, least=0.25)
    default, chosen = (found[which]["held_out"] for which in ("default", "chosen"))
    assert "confidence" not in untold["proposal"]["reliability"]["escalation"]
    assert found["proposal"]["reliability"]["escalation"]["confidence"]["min"] > 0
    assert chosen["right"]["hits"] == chosen["right"]["runs"] > default["right"]["hits"]
    assert chosen["seconds"] < 4.0
    patch(CONFIG, found["proposal"])


def test_what_is_configured_has_no_calibration_that_is_only_fitted_here():
    """Law: a server that has no calibration for its models delivers the first valid answer, whatever `min` it is told.
    One that was fitted is worth proposing though `min` stays as it is."""
    found = learn_chain(hesitant_cells(144), CHAIN, least=0.2)
    off = learn_chain(hesitant_cells(144), CHAIN)
    shipped = hesitant_cells(144)
    for cell in shipped.values():
        for attempt in cell.get("attempts") or ():
            hesitates = (attempt.get("signs") or {}).get("most_unsure")
            attempt["confidence"] = None if hesitates is None else 0.9 if hesitates < 1 else 0.1
    assert found["default"]["held_out"] == off["default"]["held_out"]
    assert found["proposal"] == {"reliability": {"escalation": {"confidence": {"min": 0.2}}}}
    assert found["chosen"]["words"] != found["default"]["words"]
    assert learn_chain(shipped, CHAIN, least=0.2)["proposal"] is None


def test_of_doubted_answers_the_likeliest_is_played():
    """Law: as the server does: the last tier is believed where nobody before it was in doubt, else the likeliest."""
    cells = make_cells(1, fast_right=0)
    case = cascade._read_cases(cells, CHAIN)[0]
    (chain, *_) = (one for one in _list_candidates(CHAIN, [case]) if len(one.tiers) == 2)
    for fast, large, right in ((0.4, 0.3, "fast"), (0.3, 0.4, "large"), (0.4, 0.9, "large"), (0.9, 0.1, "fast")):
        ways = {}
        for tier, likely in (("fast", fast), ("large", large)):
            answer, _ = case.ways[tier]["as configured"]
            ways[tier] = {"as configured": (answer | {"error": "", "right": tier == right}, likely)}
        assert _play(replace(chain, least=0.5), [replace(case, ways=ways)]).right == 1
