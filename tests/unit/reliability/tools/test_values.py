"""No value changes between a model's text and a client: a slice of the differential fuzz of values."""

import pytest

from tests.support import renderings
from tests.values_fuzz import CANT_SAY, Tally, run

VALUES = 3_000


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_model_writes_is_what_the_client_gets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: in every format, whole and streamed, a value arrives in each dialect as it was, or its format can't say it:
    then the call is refused, or its repair says what was changed."""
    monkeypatch.setattr(renderings, "SPELLING", renderings.SPELLING)
    tally = Tally()
    for _ in run(seed, 0, 1, VALUES, tally):
        assert not tally.failures, (
            f"python -m tests.values_fuzz --seed {seed} --only {max(tally.failures)}: {tally.failures}"
        )


def test_every_reason_names_a_format_that_is_tried() -> None:
    """Law: what formats can't say is said of formats that the fuzz writes."""
    assert all(cant.kinds and cant.kinds <= renderings.ALL.keys() for cant in CANT_SAY)
