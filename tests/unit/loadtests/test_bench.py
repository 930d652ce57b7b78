"""The benchmark's own measuring: what counts as an answer, and when a bar is met."""

import asyncio
import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.bench.client import Load, Outcome, drive
from loadtests.bench.measure import Cell
from loadtests.bench.tables import write_tables
from loadtests.series import Series, quantile
from loadtests.table import Figure

STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%b0\r\n\r\n"


def frame_stream(*pieces: bytes) -> bytes:
    return STREAM % b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def outcome_of(answer: bytes, requests: int = 3) -> Outcome:
    """Return what a client makes of a server that answers so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def go() -> Outcome:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            load = Load(url=f"http://127.0.0.1:{port}", body={}, clients=1, seconds=0, least=requests)
            return await drive(load)
        finally:
            server.close()

    return asyncio.run(go())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        # A proxy shows what its upstream has sent under a name that ends alike.
        b"HTTP/1.1 200 OK\r\nupstream-content-length: 99\r\ncontent-length: 2\r\n\r\nok",
        frame_stream(b'data: {"a": 1}\n\n', b"data: [DONE]\n\n"),
        frame_stream(b'data: {"error": null}\n\ndata: [DONE]\n\n'),
    ],
)
def test_a_whole_answer_is_a_duration(answer):
    """Each is counted once, the connection is used again, and nothing is a fault."""
    outcome = outcome_of(answer)

    assert (len(outcome.total_ms), len(outcome.first_ms), outcome.faults) == (3, 3, {})


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno", "503"),
        (frame_stream(b'data: {"error": {"code": "x"}}\n\n', b"data: [DONE]\n\n"), "error frame"),
        (frame_stream(b'data: {"err', b'or": {"code": "x"}}\n\n'), "no end"),
        (frame_stream(b'data: {"a": 1}\n\n'), "no end"),
        (b"what?\r\n\r\n", "OSError"),
    ],
)
def test_what_is_no_good_answer_is_a_fault_and_no_duration(answer, fault):
    """A fast refusal must not look like a fast answer."""
    outcome = outcome_of(answer)

    assert not outcome.total_ms
    assert not outcome.first_ms
    assert outcome.failed == 3
    assert set(outcome.faults) == {fault}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]))
def test_a_quantile_is_at_its_rank(values, share):
    """At least that share of the values is no larger, and any smaller value has fewer; the median is the usual one."""
    found = quantile(values, share)
    if share == 0.5:
        assert found == statistics.median(values)
    else:
        assert found in values
        assert sum(value <= found for value in values) >= share * len(values) - 1e-9
        assert sum(value < found for value in values) < share * len(values)


def test_a_series_is_bounded_and_fair():
    """All values are counted; of a long series so many are kept, from all of it alike."""
    series = Series(kept_max=500)
    for value in range(20_000):
        series.add(value)

    assert (series.count, series.most, len(series.kept)) == (20_000, 19_999, 500)
    assert abs(series.quantile(0.5) - 10_000) < 1500
    assert math.isnan(Series().quantile(0.5))


def cell(side: str, scenario: str, clients: int, **more: Any) -> Cell:
    figures = dict.fromkeys(("p50", "p95", "p99", "first_p50"), 10.0 if side == "litellm" else 2.0)
    figures |= {"direct": dict.fromkeys(figures, 1.0)}.get(side, {})
    figures |= {"per_second": 50.0 if side == "litellm" else 300.0, "cpu_ms": 1.0, "calls": 1.1}
    rest = {"requests": 100, "failed": 0, "faults": {}} | figures | more
    return Cell(side=side, scenario=scenario, clients=clients, **rest)


def bars(*cells: Cell, sides: tuple[str, ...] = ("direct", "off", "on", "litellm"), **on: Any) -> str:
    """Build the table of bars of two rounds, in which `on` has these figures."""
    asked = [("at-once whole", 1), ("at-once whole", 32), ("at-once stream", 32), ("faulty whole", 8)]
    made = [cell(side, *what, **(on if side == "on" else {})) for what in asked for side in sides]
    router = {"ray::ServeReplica:on:Router": 5.0}
    used = {"paced stream": router, "brief stream": {"ray::ServeReplica:on:Router": 1.0}}
    table = write_tables([[*made, *cells]] * 2, {"on": 1}, [used] * 2, "command", "1.0", keep=False)
    return table.partition("| asked |")[0]


def test_bars_that_are_met():
    """Eight bars, each with its figure."""
    table = bars()

    assert table.count("| yes |") == 8
    assert "| 300 against 50 | 6 x (6 to 6) | ≥ 4 x | yes |" in table
    assert "| 71.4 us (71.4 to 71.4) | ≤ 100 us | yes |" in table


def test_a_bar_of_answers_that_failed_is_not_met():
    """Neither where some failed, nor where there was no good one at all; and no bar is left out for that."""
    some, none = bars(failed=1), bars(failed=9, p50=math.nan, p99=math.nan, per_second=0.0, calls=0.0)

    for table in (some, none):
        assert table.count("**no**") == 7
        assert "failed" in table


def test_without_a_rival_its_bars_are_left_out():
    """What was not asked is not judged."""
    table = bars(sides=("direct", "off", "on"))

    assert table.count("| yes |") == 4
    assert "LiteLLM's" not in table


def rows(*rounds: list[Cell]) -> dict[str, dict[str, str]]:
    """Return the table of cells of these rounds: of a side, what stands under which head."""
    text = write_tables(rounds, {"on": 1}, [{}] * len(rounds), "command", "1.0", keep=False)
    lines = [line.strip("| ").split(" |") for line in text.splitlines() if line.startswith("| ")]
    asked = [[part.strip() for part in line] for line in lines]
    head = next(line for line in asked if line[0] == "asked")
    lines = [line for line in asked[asked.index(head) + 1 :] if len(line) == len(head)]
    return {line[2]: dict(zip(head, line, strict=True)) for line in lines}


def test_what_moves_has_its_spread():
    """The least and the most of the rounds stand beside the median, for speed and CPU time as for what is added."""
    moving = [{"p99": 3.0 + n, "per_second": 100.0 * (n + 1), "cpu_ms": 2.0 * n + 1} for n in range(3)]
    rounds = [[cell("direct", "at-once whole", 1), cell("on", "at-once whole", 1, **more)] for more in moving]

    row = rows(*rounds)["on"]

    assert row["added p50"] == "1.00 (1.00 to 1.00)"
    assert row["added p99"] == "3.00 (2.00 to 4.00)"
    assert row["requests/s"] == "200 (100 to 300)"
    assert row["CPU ms a request"] == "3.00 (1.00 to 5.00)"
    assert row["requests/s a core"] == "333"


@pytest.mark.parametrize(
    ("good", "printed"),
    [
        (39, set()),
        (40, {"added p95"}),
        (99, {"added p95"}),
        (100, {"added p95", "CPU ms a request", "requests/s a core"}),
        (199, {"added p95", "CPU ms a request", "requests/s a core"}),
        (200, {"added p95", "added p99", "CPU ms a request", "requests/s a core"}),
    ],
)
def test_few_answers_have_no_tail_and_no_cpu_time(good, printed):
    """Good answers count, over all rounds; what fewer can't tell stays empty, and the rest is printed."""
    rounds = [
        [cell("direct", "at-once whole", 1, requests=1000), cell("on", "at-once whole", 1, requests=n + 7, failed=7)]
        for n in (good // 2, good - good // 2)
    ]

    row = rows(*rounds)["on"]

    may_be_empty = {"added p95", "added p99", "CPU ms a request", "requests/s a core"}
    assert {head for head in may_be_empty if row[head]} == printed
    assert row["added p50"]
    assert row["requests/s"]


def test_the_cost_of_a_fault_is_of_one_side_and_round():
    """A side's request with a fault less its own without; it needs no `direct`, and what failed has no figure."""
    rounds = [
        [
            *(cell(side, "at-once whole", 1) for side in ("direct", "on", "litellm")),
            cell("on", "always-faulty whole", 1, p50=2.0 + more),
            cell("litellm", "always-faulty whole", 1, p50=50.0, failed=2),
        ]
        for more in (1.0, 4.0)
    ]

    text = write_tables(rounds, {"on": 1}, [{}, {}], "command", "1.0", keep=False)

    assert "`on` 2.50 (1.00 to 4.00) ms, `litellm` no figure, 4 failed." in text
    assert rows(*rounds)["on"]["added p50"] == ""
    assert "What one fault adds" not in bars()


def test_what_was_not_asked_is_listed():
    """The gaps stand above the table that has them."""
    above = bars()

    assert "Not asked: `litellm-2` below 32 clients" in above
    assert "is of `on` alone" in above


def test_no_number_meets_no_bar():
    """Whichever way round the bar is."""
    assert not Figure("", "", math.nan, 1, "x").met
    assert not Figure("", "", math.nan, 1, "ms").met
