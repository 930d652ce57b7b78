"""Where the figures of a streak go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.comparison.near import LAPS_MAX, Movement, find_movement

ENDS = (
    "{}% of the model is downloaded", "batch {} of 900 is done", "copied {} bytes to the volume",
    "rows found so far: {}", "training, epoch {}/20", '{{"job": "import", "progress": {}}}', "sent: {} kB",
)  # fmt: skip
TRIES = ("called {} times", "attempt {} of 90 at 12 bytes", "try {}", "the {}th retry", "you have {} steps left")


@pytest.mark.parametrize(("template", "values", "movement"), [
    *((way, values, Movement.PROGRESS) for way in ENDS for values in ((1, 2, 3, 4), (10, 11, 40, 90))),
    # A way to an end may go down to it; a rate is no amount.
    ("{} files left to index", (9, 7, 6), Movement.PROGRESS), ("{} KB/s", (10, 20, 40), Movement.DRIFT),
    # What counts how often it was tried is no way to an end, though it moves one way.
    *((told, (4, 5, 7), Movement.NOTHING) for told in TRIES),
    # A figure without a name that goes up by the same step counts the laps; by unlike steps, or down, it drifts.
    ("shop.py ({} lines total)", (98, 100, 102), Movement.NOTHING),
    ("the table holds {}", (98, 100, 150), Movement.DRIFT), ("the queue holds {}", (9, 8, 7), Movement.DRIFT),
    ("running for {} seconds", (10, 11, 12), Movement.DRIFT),
    # One lap tells nothing.
    ("{} % done", (1,), Movement.NOTHING),
])  # fmt: skip
def test_a_figure_tells_by_its_name_and_its_way(template: str, values: tuple[int, ...], movement: Movement) -> None:
    """What counts the repetitions tells nothing, what drifts may be news; a figure that is named as a way to an end and
    moves one way is progress, whatever its steps."""
    assert find_movement([template.format(value) for value in values], False) is movement


@given(st.lists(st.integers(1, 10**6), min_size=3, max_size=LAPS_MAX))
def test_what_goes_up_and_down_tells_nothing(values: list[int]) -> None:
    """Memory, a port, a seed: a figure that turns round is noise, whatever it is called."""
    turned = [*values, max(values) + 1, min(values) - 1, max(values) + 1][-LAPS_MAX:]
    assert find_movement([f"{value} bytes are done" for value in turned], False) is Movement.NOTHING


def test_a_failure_is_on_its_way_to_nothing() -> None:
    """In a failure no figure counts."""
    texts = [f"failed: {n} of 9 rows found" for n in (1, 2, 3)]
    assert find_movement(texts, True) is Movement.NOTHING
    assert find_movement(texts, False) is Movement.PROGRESS


def test_one_drift_among_noise_is_chance() -> None:
    """Where most figures tell nothing, one that rises by chance doesn't spare the loop; a way to an end does."""
    noise = [(9, 1, 5), (2, 8, 1), (3, 1, 2)]
    texts = [f"a {x} b {y} c {z} d {n}" for (x, y, z), n in zip(noise, (1, 2, 4), strict=True)]
    assert find_movement(texts, False) is Movement.NOTHING
    assert find_movement([f"{text}% done" for text in texts], False) is Movement.PROGRESS


def test_texts_that_hold_other_figures_tell_nothing() -> None:
    """Where a figure comes or goes nobody knows which is which."""
    assert find_movement(["1 done", "2 done of 3"], False) is Movement.NOTHING


FRAME = "\n".join(f"link {chr(97 + n % 26)} of the navigation" for n in range(90))


@pytest.mark.parametrize(("words", "movement"), [(2, Movement.NOTHING), (10, Movement.DRIFT), (30, Movement.PROGRESS)])
def test_new_words_in_every_lap_are_news(words: int, movement: Movement) -> None:
    """Law: many words that no lap has said are another page, some may be an advertisement, two are a random name."""
    laps = [[chr(97 + lap) + chr(97 + n % 26) + chr(97 + n // 26) for n in range(words)] for lap in range(6)]
    texts = ["\n".join((FRAME, *lap, FRAME)) for lap in laps]
    assert find_movement(texts, False) is movement
    assert find_movement([*texts, texts[0]], False) is Movement.NOTHING
    assert find_movement(texts, True) is Movement.NOTHING


def test_digests_are_no_words() -> None:
    """Law: the letters of a random name say nothing, however many there are."""
    texts = [f"{FRAME}\nsha512-{'/'.join(chr(97 + lap) * n for n in range(2, 30))}==\n{FRAME}" for lap in range(5)]
    assert find_movement(texts, False) is Movement.NOTHING


LETTERS = "abcdefghijkl"
TAKEN = {
    "the end": [f"text: {LETTERS[: 12 - lap]}" for lap in range(6)],
    "the head": [f"left: {', '.join(f'log{one}.txt' for one in LETTERS[lap:])}" for lap in range(6)],
    "an item": [str([*LETTERS[:3], *LETTERS[3 + lap :]]) for lap in range(6)],
    "with a count": [f"{12 - lap} files: {LETTERS[lap:]}" for lap in range(6)],
}


@pytest.mark.parametrize("laps", TAKEN.values(), ids=TAKEN)
def test_what_takes_something_away_in_every_lap_comes_to_an_end(laps):
    """Law: a text of which each lap takes a piece drifts; not where the call has failed."""
    assert find_movement(laps, failed=False) >= Movement.DRIFT
    assert find_movement(laps, failed=True) is Movement.NOTHING


def test_a_text_that_is_shorter_by_chance_tells_nothing():
    """Law: other words take nothing away, nor does one lap of several."""
    for laps in (["nothing found", "no results", "none"], ["a b c", "a b", "a b"], ["a b c", "a b", "a b d"]):
        assert find_movement(laps, failed=False) is Movement.NOTHING
