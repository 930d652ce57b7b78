"""The scoreboard's figures: fair comparison, and what counts as worse."""

import json

from loadtests.confidence import read_rows
from loadtests.scoreboard.figures import Standings, build_table, collect_standings, find_lost, name_sum
from loadtests.scoreboard.suites import HERE


def _build_row(case: str, right: bool, **fields: object) -> dict[str, object]:
    return {"case": case, "seed": 1, "kind": "k", "right": right, "in": 10, "out": 5, "seconds": 2.0} | fields


def test_no_calibration_has_seen_a_case():
    """What the shipped calibrations were fitted on is no case of the scoreboard's."""
    cases = json.loads((HERE / "drivers" / "cases.json").read_text(encoding="utf-8"))
    assert not {one for some in cases.values() for one in some} & {row["id"] for row in read_rows()}


class TestComparison:
    def test_only_what_all_were_asked_counts(self):
        """A server that got further than another is judged on the cases of both."""
        rows = {"on": [_build_row("a", True), _build_row("b", False)], "off": [_build_row("a", False)]}
        found = collect_standings({"suite": rows})["suite", "k"]
        assert {arm: (one.right, one.cases) for arm, one in found.items()} == {"on": (1, 1), "off": (0, 1)}

    def test_a_server_that_never_calls_is_summed_apart(self):
        """Where no call is wanted, none is right: such cases aren't added to those of the other kinds."""
        rows = [_build_row("a", True) | {"kind": kind} for kind in ("simple", "live_irrelevance")]
        found = collect_standings({"suite": {"on": rows}}, name_sum)
        assert {key[1]: by_arm["on"].cases for key, by_arm in found.items()} == {"the others": 1, "no call wanted": 1}

    def test_costs_count_wrong_answers(self):
        """Tokens and seconds of a right answer hold those that the wrong ones took."""
        rows = {"on": [_build_row("a", True), _build_row("b", False)]}
        one = collect_standings({"suite": rows})["suite", "k"]["on"]
        assert (one.tokens, one.seconds) == (30, 4)

    def test_each_server_has_its_column(self):
        """A suite that a server wasn't asked leaves its column empty."""
        table = build_table(collect_standings({"suite": {"on": [_build_row("a", True)]}}), ("off", "on"))
        assert table.splitlines()[-1].startswith("| suite | k | 1 |  | 100% (21% to 100%); 15 tokens, 2 s |")

    def test_worse_is_below_the_interval(self):
        """One case less in ten is chance; none of ten after nine of ten is a loss."""

        def collect(right: int) -> Standings:
            rows = [_build_row(str(number), number < right) for number in range(10)]
            return collect_standings({"suite": {"on": rows}})

        assert not find_lost(collect(8), collect(9))
        assert find_lost(collect(0), collect(9)) == ["suite, k, on: 0 of 10, last time 9 of 10"]
