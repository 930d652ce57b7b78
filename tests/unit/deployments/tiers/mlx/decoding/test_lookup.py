"""A guess is what followed the last tokens before, at the place that agrees longest."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.decoding import lookup
from deployments.tiers.mlx.decoding.lookup import COUNT_MAX, DraftPolicy, Offer, PromptLookup, Record, _StepCosts

TEXTS = st.lists(st.integers(0, 3), max_size=60)


def count_agreed(text: list[int], place: int) -> int:
    """How many tokens up to `place` are the last ones of the text."""
    agreed = 0
    while agreed <= place and text[place - agreed] == text[len(text) - 1 - agreed] and agreed < lookup._AGREED_MAX:
        agreed += 1
    return agreed


def continue_at(text: list[int], start: int, count: int) -> list[int]:
    """What follows there, over the end of the text into the copy itself."""
    out: list[int] = []
    for number in range(count):
        place = start + number
        out.append(text[place] if place < len(text) else out[place - len(text)])
    return out


@given(head=TEXTS, tail=TEXTS, count=st.integers(1, 12))
def test_a_guess_follows_an_earlier_place_that_agrees_as_it_says(head, tail, count):
    """Whatever the text, and however much of it came token by token."""
    grown, text = PromptLookup(head), head + tail
    for token in tail:
        grown.append(token)
    guess = grown.find(count)
    places = range(len(text) - 1)

    if guess is None:
        assert not any(count_agreed(text, place) >= 3 for place in places)
        return
    agreed = [place for place in places if count_agreed(text, place) == guess.agreed]
    assert any(guess.tokens == continue_at(text, place + 1, count) for place in agreed)


@given(text=TEXTS, extra=st.lists(st.integers(4, 9), min_size=3, max_size=9, unique=True), count=st.integers(1, 12))
def test_what_stood_once_before_is_found_with_all_that_agrees(text, extra, count):
    """Tokens that stand nowhere else, said again: the guess is what followed them."""
    whole = [*extra, *text, 11]
    guess = PromptLookup([*whole, *extra]).find(count)

    assert guess.agreed == len(extra)
    assert guess.tokens == continue_at([*whole, *extra], len(extra), count)


def test_built_at_once_or_token_by_token_it_guesses_the_same():
    """The table of a prompt is that of its tokens in turn."""
    text = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3]
    grown = PromptLookup([])
    for token in text:
        grown.append(token)

    assert grown.find(5) == PromptLookup(text).find(5)
    assert grown.find(2).tokens == [5, 1]  # the youngest of two that agree alike


def test_a_copy_goes_on_behind_a_changed_word():
    """No three tokens agree behind the change; the last one stands near where the copy was."""
    source = list(range(100, 140))
    grown = PromptLookup([*source, 1, 2, 3, *source[:10]])
    assert grown.find(4).tokens == source[10:14]
    for token in (7, source[11], source[12]):  # one word changed, then on as it was
        grown.append(token)

    guess = grown.find(4)
    assert (guess.tokens, guess.agreed) == (source[13:17], 2)


def test_nothing_that_agrees_is_no_guess():
    """A short or ever new text gives none."""
    assert [PromptLookup(text).find(3) for text in ([], [1], [1, 2, 3, 4, 5])] == [None] * 3
    assert PromptLookup([1, 2, 1, 2, 1]).find(0) is None


def play(policy: DraftPolicy, *, rate: float, slope: float, jump: float, rows: int, tokens: int, seed: int) -> float:
    """Decode so many tokens a row with a machine on which a step that reads n tokens costs 1 + slope * (n - rows), and
    `jump` more where it reads guesses, and guesses of which each token is right at `rate`. Return tokens per cost."""
    dice, records = random.Random(seed), [Record() for _ in range(rows)]
    spent, made = 0.0, 0
    while made < tokens * rows:
        offers = [Offer(record, COUNT_MAX, dice.choice((1, 3, 5, 12))) for record in records]
        count = policy.choose_count(offers)
        right = [next((n for n in range(count) if dice.random() >= rate), count) for _ in range(rows)]
        cost = 1 + (jump + slope * rows * count if count else 0.0)
        policy.learn(offers, count, right, cost)
        spent += cost
        made += rows + sum(right)
    return made / rows / spent


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0, 1),
    slope=st.floats(0, 1.2),
    jump=st.floats(0, 2),
    rows=st.integers(1, 8),
    seed=st.integers(0, 999),
)
def test_it_never_costs_more_than_three_in_a_hundred(rate, slope, jump, rows, seed):
    """Whatever guesses are worth and wide steps cost: 400 tokens with guesses against 400 without, with nothing known
    of the machine and then again. A step of twice the tokens costs little more than two steps, at most."""
    machine = {"slope": slope / rows, "jump": jump / rows, "rows": rows}
    policy = DraftPolicy()
    for _ in range(2):
        assert play(policy, rate=rate, tokens=400, seed=seed, **machine) > 0.97


@pytest.mark.parametrize(("rows", "least"), [(1, 5.0), (4, 2.5)])
def test_where_guesses_are_right_it_soon_reads_many(rows, least):
    """A text that is copied, on a machine where a token more costs a twentieth of a step."""
    assert play(DraftPolicy(), rate=0.98, slope=0.05, jump=0.0, rows=rows, tokens=400, seed=1) > least


def test_a_machine_where_wide_steps_are_free_reads_all():
    """There the only bound is the number of guesses."""
    policy = DraftPolicy()
    play(policy, rate=1.0, slope=0.0, jump=0.0, rows=1, tokens=1000, seed=1)

    assert policy.choose_count([Offer(Record(30.0, 0.0), COUNT_MAX, 12)]) == COUNT_MAX


@pytest.mark.parametrize(("rows", "most"), [(2, COUNT_MAX), (4, COUNT_MAX), (5, 47), (8, 31), (16, 15)])
def test_a_step_of_many_rows_reads_no_more_than_256_tokens(rows, most):
    """Each token that is read has a line of probabilities as long as the vocabulary: memory, however cheap the step."""
    policy = DraftPolicy()
    for tokens in (rows, *[32 * rows] * 50, *[512] * 50):
        policy.costs.learn(rows, tokens, 0.1)

    assert policy.choose_count([Offer(Record(30.0, 0.0, 20.0), COUNT_MAX, 12)] * rows) == most


def test_nothing_is_read_before_a_step_was_measured_nor_without_guesses():
    """The first step of all is a plain one."""
    policy = DraftPolicy()
    assert policy.choose_count([Offer(Record(), 31, 30)]) == 0
    policy.costs.learn(1, 1, 0.1)

    assert policy.choose_count([Offer(Record())]) == 0
    assert policy.choose_count([Offer(Record(), 5, 30)]) == 1  # how wide it may be is found step by step


def test_guesses_that_were_read_before_a_step_was_measured_count_too():
    """Nobody knows what they cost; how many were right is learned."""
    policy, offer = DraftPolicy(), Offer(Record(), 4, 9)
    before = policy._rate(offer)
    policy.learn([offer], 4, [4], None)

    assert policy._rate(offer) > before


def test_a_wide_step_that_was_slow_once_is_tried_again():
    """An interrupted step counts for little, and what is known of wide ones fades while none are made."""
    costs = _StepCosts()
    costs.learn(1, 1, 0.1)
    for _ in range(20):
        costs.learn(1, 8, 5.0)
    slow = costs.estimate(1, 8)
    for _ in range(4000):
        costs.learn(1, 1, 0.1)

    assert slow > 0.3
    assert costs.estimate(1, 8) < 0.15


@given(steps=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 31), st.floats(0.001, 10)), max_size=40))
def test_a_wider_step_is_never_thought_to_be_cheaper(steps):
    """Whatever was measured, more tokens cost at least as much."""
    costs = _StepCosts()
    for rows, count, seconds in steps:
        costs.learn(rows, rows * (1 + count), seconds)
    for rows in (1, 4):
        found = [costs.estimate(rows, rows * (1 + count)) for count in range(32)]
        assert found == sorted(found)
