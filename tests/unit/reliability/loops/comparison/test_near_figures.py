"""Where the figures of a streak go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops.comparison.near import LAPS_MAX, Movement, find_movement


@pytest.mark.parametrize(
    "template",
    [
        "{}% of the model is downloaded",
        "batch {} of 900 is done",
        "copied {} bytes to the volume",
        "rows found so far: {}",
        "training, epoch {}/20",
        '{{"job": "import", "progress": {}}}',
        "sent: {} kB",
    ],
)
@pytest.mark.parametrize("values", [[1, 2, 3, 4], [10, 11, 40, 90]])
def test_a_way_to_an_end_is_progress(template: str, values: list[int]) -> None:
    """A figure that is named as a way to an end and moves one way is progress, whatever its steps."""
    assert find_movement([template.format(value) for value in values], False) is Movement.PROGRESS


def test_what_is_left_may_go_down() -> None:
    """A way to an end may go down to it."""
    assert find_movement([f"{left} files left to index" for left in (9, 7, 6)], False) is Movement.PROGRESS


@pytest.mark.parametrize(
    "template",
    ["called {} times", "attempt {} of 90 at 12 bytes", "the {}th retry", "you have {} steps left", "try {}"],
)
def test_a_counter_of_the_repetitions_tells_nothing(template: str) -> None:
    """What counts how often it was tried is no way to an end, though it moves one way."""
    assert find_movement([template.format(n) for n in (4, 5, 7)], False) is Movement.NOTHING


def test_an_even_step_counts_the_laps() -> None:
    """A figure without a name that goes up by the same step each lap counts the laps; by unlike steps it drifts."""
    assert find_movement([f"shop.py ({n} lines total)" for n in (98, 100, 102)], False) is Movement.NOTHING
    assert find_movement([f"the table holds {n}" for n in (98, 100, 150)], False) is Movement.DRIFT
    assert find_movement([f"the queue holds {n}" for n in (9, 8, 7)], False) is Movement.DRIFT
    assert find_movement([f"running for {n} seconds" for n in (10, 11, 12)], False) is Movement.DRIFT


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


def test_a_rate_is_no_amount() -> None:
    """Bytes are a way to an end, bytes a second are not."""
    assert find_movement([f"{n} KB/s" for n in (10, 20, 40)], False) is not Movement.PROGRESS


def test_one_drift_among_noise_is_chance() -> None:
    """Where most figures tell nothing, one that rises by chance doesn't spare the loop; a way to an end does."""
    noise = [(9, 1, 5), (2, 8, 1), (3, 1, 2)]
    texts = [f"a {x} b {y} c {z} d {n}" for (x, y, z), n in zip(noise, (1, 2, 4), strict=True)]
    assert find_movement(texts, False) is Movement.NOTHING
    assert find_movement([f"{text}% done" for text in texts], False) is Movement.PROGRESS


def test_texts_that_hold_other_figures_tell_nothing() -> None:
    """Where a figure comes or goes nobody knows which is which; and one lap tells nothing."""
    assert find_movement(["1 done", "2 done of 3"], False) is Movement.NOTHING
    assert find_movement(["1 % done"], False) is Movement.NOTHING


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
