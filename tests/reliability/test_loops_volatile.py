"""Meters and readings: which differences between two results count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability.loops.near import near
from reliability.loops.same_result import MASKED_CHARS, ongoing, same

law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

METERS: list[tuple[str, Any, Any]] = [
    ("duration_ms", 12, 340),
    ("durationMs", 340, 12),
    ("duration", 1.25, 0.5),
    ("took", "12ms", "1.3 s"),
    ("elapsed", "0:00:03.2", "0:00:01.9"),
    ("execution_time", 0.1, 0.9),
    ("responseTime", 55, 54),
    ("total_ms", 5, 7),
    ("duration_seconds", 12, 11),
    ("timestamp", "2026-03-03T10:00:01Z", "2026-03-03T10:00:09.123+01:00"),
    ("createdAt", 1_760_000_000, 1_760_000_101),
    ("ts", 1_760_000_000.5, 1_760_000_101.25),
    ("date", "Tue, 03 Mar 2026 10:00:01 GMT", "Tue, 03 Mar 2026 10:00:05 GMT"),
    ("request_id", "a", "b"),
    ("traceId", 17, 18),
    ("id", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("id", "msg_0a1b2c3d4e5f", "msg_9a8b7c6d5e4f"),
    ("execution_count", 3, 4),
    ("pid", 71, 9_333),
    ("nonce", "abc", "xyz"),
    ("timestamp_ms", 1_760_000_000_123, 1_760_000_000_999),
    ("time", 0.12, 0.93),
    ("time", "12 ms", "15 ms"),
    ("server_time", "2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("transactionId", 5, 6),
]
READINGS: list[tuple[str, Any, Any]] = [
    ("count", 1, 2),
    ("percent", 10, 20),
    ("id", 17, 18),
    ("order_id", "W17", "W18"),
    ("duration", "one way", "return"),
    ("duration", True, False),
    ("duration_seconds", 11, 12),
    ("timeout_ms", 100, 200),
    ("remaining_ms", 100, 50),
    ("eta", "2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("updated_at", "2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("last_seen", 1_760_000_000, 1_760_000_001),
    ("next_run_time", "10:00:01", "10:00:02"),
    ("time", "noon", "midnight"),
    ("timestamp", 3, 4),
    ("time", 3, 4),
    ("ok", True, False),
    ("ok", True, 1),
    ("7", 1, 2),
    ("note", "line 4", "line 5"),
    ("request_id", "a", None),
]


@pytest.mark.parametrize(("key", "a", "b"), METERS)
def test_a_meter_beside_content_is_ignored(key: str, a: Any, b: Any) -> None:
    """Two results that differ in a meter only are the same, wherever it stands; alone, it is the content."""
    assert same(json.dumps({"found": "three", key: a}), json.dumps({key: b, "found": "three"}))
    assert same(json.dumps([{"found": [{key: a}]}]), json.dumps([{"found": [{key: b}]}]))
    assert same(json.dumps({"found": "three", key: a}), json.dumps({"found": "three"}))
    assert not same(json.dumps({key: a}), json.dumps({key: b}))
    assert not same(json.dumps({"found": "three", key: a}), json.dumps({"found": "four", key: b}))


@pytest.mark.parametrize(("key", "a", "b"), READINGS)
def test_a_reading_counts(key: str, a: Any, b: Any) -> None:
    """Two results that differ in anything else are not the same."""
    assert not same(json.dumps({"found": "three", key: a}), json.dumps({"found": "three", key: b}))


@pytest.mark.parametrize("status", ["running", "in_progress", "In Progress", "queued", "pending"])
def test_the_duration_of_what_goes_on_is_a_reading(status: str) -> None:
    """Beside a status that says it is going on, a duration counts; an id still doesn't."""
    assert not same(json.dumps({"status": status, "took_ms": 10}), json.dumps({"status": status, "took_ms": 9}))
    assert same(json.dumps({"status": "ok", "took_ms": 10}), json.dumps({"status": "ok", "took_ms": 9}))
    assert same(json.dumps({"status": status, "request_id": 1}), json.dumps({"status": status, "request_id": 2}))


def test_a_pending_order_is_no_running_job() -> None:
    """`pending` says so in a short report only; and a status further in says nothing of the outer meter."""
    order = {"status": "pending", **{f"field{i}": i for i in range(8)}}
    assert same(json.dumps({**order, "took_ms": 10}), json.dumps({**order, "took_ms": 9}))
    inner = {"job": {"status": "running"}}
    assert same(json.dumps({**inner, "took_ms": 10}), json.dumps({**inner, "took_ms": 9}))


TEXT_METERS = [
    ("3 passed in 0.35s", "3 passed in 1.21s"),
    ("ok\ntook 12 ms", "ok\ntook 940 ms"),
    ("(took 0.35s)", "(took 0.5s)"),
    ("done [350ms]", "done [2 ms]"),
    ("real\t0m0.123s\nuser\t0m0.010s", "real\t0m1.001s\nuser\t0m0.020s"),
    ("Execution time (ms): 12\nok", "Execution time (ms): 15\nok"),
    ('cut off {"duration_ms": 12, "a', 'cut off {"duration_ms": 99, "a'),
    ("reply time=12.3 ms", "reply time=15.1 ms"),
    ("12 s elapsed: ok", "14 s elapsed: ok"),
    ("[12:03:44] no rows", "[12:05:01] no rows"),
    ("12:03:44.123 no rows", "12:05:01.999 no rows"),
    ("Mar  3 12:03:44 host sshd[123]: refused", "Mar  3 12:09:44 host sshd[877]: refused"),
    ("2026-03-03 10:00:01,250 ERROR no", "2026-03-03 10:00:02,750 ERROR no"),
    ("printed on Tue Mar  3 10:00:01 CET 2026", "printed on Tue Mar  3 10:00:04 CET 2026"),
    ("checked at 10:00:01", "checked at 10:00:02"),
    ("ts=1760000000 ok", "ts=1760000099 ok"),
    ("request id: abc-1\nno", "request id: abd-2\nno"),
    ("trace 0a1b2c3d4e no", "trace 9a8b7c6d5e no"),
    ("req_8f3kd92k failed", "req_1a2b3c4d failed"),
    ("object at 0x7f00aa1200 here", "object at 0x7f00bb3400 here"),
    ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "id 7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("worker pid 71 died", "worker pid 88 died"),
    ("bash: line 7: javac: not found", "bash: line 9: javac: not found"),
    ("sh: 7: javac: not found", "sh: 12: javac: not found"),
    ("Out[3]: 5", "Out[4]: 5"),
    ("ok 12ms", "ok 340ms"),
    ("Elapsed time (ms): 12\nok", "Elapsed time (ms): 15\nok"),
    ("<duration>12</duration><n>1</n>", "<duration>19</duration><n>1</n>"),
    ("Chunk ID: 3f9a2c\nWall time: 0.4 seconds\nno", "Chunk ID: 77b2d1\nWall time: 0.1 seconds\nno"),
    ('host - [03/Mar/2026:10:00:01 +0000] "GET /"', 'host - [03/Mar/2026:10:00:07 +0000] "GET /"'),
    ("on 3/3/2026, 10:00:01 AM: none", "on 3/3/2026, 10:05:01 AM: none"),
    ("[1] 12345\nok", "[1] 12388\nok"),
    ("wrote /tmp/tmpk_xyzabc", "wrote /tmp/tmpqrsabcde"),
    ("dump 20260303T100001Z", "dump 20260303T100501Z"),
    ("saved to /tmp/run-81/out.txt", "saved to /tmp/run-93/out.txt"),
]
TEXT_READINGS = [
    ("progress 10%", "progress 20%"),
    ("SyntaxError, line 4", "SyntaxError, line 5"),
    ("3 passed in 0.35s", "4 passed in 0.35s"),
    ("still waiting, 12.5s", "still waiting, 13.5s"),
    ("ETA: 12.5s", "ETA: 11.5s"),
    ("last modified 2026-03-03 10:00:01", "last modified 2026-03-03 10:00:05"),
    ("updated_at: 2026-03-03T10:00:01Z", "updated_at: 2026-03-03T10:00:05Z"),
    ("web-1  Running  0  12s", "web-1  Running  0  15s"),
    ("2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("Tue Mar  3 10:00:01 UTC 2026", "Tue Mar  3 10:00:02 UTC 2026"),
    ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("arrives in 5 min", "arrives in 4 min"),
    ("one\ntwo", "one\ntwo\nthree"),
    ("6.0", "8.0"),
    ("[1, 2", "[1, 3"),
]


@pytest.mark.parametrize(("a", "b"), TEXT_METERS)
def test_a_meter_in_a_text_is_ignored(a: str, b: str) -> None:
    """Texts that differ in meters only are the same; as a field of JSON as well."""
    assert same(a, b)
    assert same(json.dumps({"output": a, "n": 1}), json.dumps({"output": b, "n": 1}))


@pytest.mark.parametrize(("a", "b"), TEXT_READINGS)
def test_any_other_difference_counts(a: str, b: str) -> None:
    """Texts that differ in a reading, or that are nothing but a naked meter, are not the same."""
    assert not same(a, b)


@law
@given(st.text(max_size=60), st.text(max_size=60))
def test_sameness_is_symmetric_for_texts_without_meters(a: str, b: str) -> None:
    """A result is the same as itself, and sameness of texts doesn't depend on which came first."""
    assert same(a, a)
    assert same(a, b) == same(b, a)


def test_what_is_too_long_to_be_masked_counts_as_changed() -> None:
    """Beyond the bound a difference is progress: the detector errs towards it, and its cost stays bounded."""
    lines = [f"[12:03:{i % 60:02}] row {i}" for i in range(4_000)]
    assert not same("\n".join(lines), "\n".join(line.replace("12:03", "12:04") for line in lines))
    assert len("\n".join(lines)) > MASKED_CHARS
    deep_a, deep_b = ("[" * 60 + text + "]" * 60 for text in ('"took 1ms"', '"took 2ms"'))
    assert not same(deep_a, deep_b)


@pytest.mark.parametrize(
    "text", ['{"status": "running"}', '{"state": "Queued"}', "status: in progress", "Phase = building"]
)
def test_a_result_says_that_it_goes_on(text: str) -> None:
    """A status field or a status line of an ongoing kind makes a result an unfinished one."""
    assert ongoing(text)


@pytest.mark.parametrize("text", ['{"status": "done"}', '["running"]', "running late", '{"note": "running"}', ""])
def test_other_words_do_not(text: str) -> None:
    """The word alone says nothing."""
    assert not ongoing(text)


WORDS = " ".join(f"{chr(97 + i % 26)}word{chr(97 + i // 26)}" for i in range(120))


def test_near_is_noise_in_a_long_result() -> None:
    """A few letters of noise in a long text are near; too many, or none, are not."""
    assert near(WORDS + " xyzzy", WORDS + " plugh", 0.9)
    assert not near(WORDS, WORDS, 0.9)
    assert not near(WORDS, WORDS[:300], 0.9)
    assert not near("", "", 0.9)
    ids = "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    assert not near(f"{WORDS} id {ids[0]}", f"{WORDS} id {ids[1]}", 0.9)
    assert near("a" + WORDS * 40 + "b", "c" + WORDS * 40 + "d", 0.9)


def test_progress_is_never_near() -> None:
    """Digits that move, a log that grows, a tail that slides and a state that changes are progress."""
    lines = [f"step {chr(97 + i % 26)}{chr(97 + i // 26)} is finished now" for i in range(60)]
    assert not near(WORDS + " 41", WORDS + " 42", 0.9)
    assert not near("\n".join(lines[:50]), "\n".join(lines[:52]), 0.9)
    assert not near("\n".join(lines[:50]), "\n".join(lines[2:52]), 0.9)
    assert not near(json.dumps({"log": WORDS, "state": "a"}), json.dumps({"log": WORDS, "state": "b"}), 0.9)
    assert not near(json.dumps([{"log": WORDS, "step": "a"}]), json.dumps([{"log": WORDS, "step": "b"}]), 0.9)
    assert near(json.dumps({"log": WORDS + "xyz"}), json.dumps({"log": WORDS + "abc"}), 0.9)
    assert near("x\n" + "\n".join(lines) + "p", "x\n" + "\n".join(lines) + "q", 0.9)
    repeated = "same line here\n" * 40
    assert near(repeated + "alpha", repeated + "gamma", 0.9)
