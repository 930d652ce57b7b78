"""Meters and readings: which differences between two results count."""

import json
from typing import Any

import pytest

from reliability.loops.comparison.same_result import is_same_result

METERS: list[tuple[str, Any, Any]] = [
    ("duration_ms", 12, 340), ("durationMs", 340, 12), ("duration", 1.25, 0.5), ("took", "12ms", "1.3 s"),
    ("elapsed", "0:00:03.2", "0:00:01.9"), ("execution_time", 0.1, 0.9), ("responseTime", 55, 54), ("total_ms", 5, 7),
    ("duration_seconds", 12, 11),
    ("timestamp", "2026-03-03T10:00:01Z", "2026-03-03T10:00:09.123+01:00"),
    ("createdAt", 1_760_000_000, 1_760_000_101), ("ts", 1_760_000_000.5, 1_760_000_101.25),
    ("date", "Tue, 03 Mar 2026 10:00:01 GMT", "Tue, 03 Mar 2026 10:00:05 GMT"),
    ("request_id", "a", "b"), ("traceId", 17, 18),
    ("id", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("id", "msg_0a1b2c3d4e5f", "msg_9a8b7c6d5e4f"), ("execution_count", 3, 4), ("pid", 71, 9_333),
    ("nonce", "abc", "xyz"), ("timestamp_ms", 1_760_000_000_123, 1_760_000_000_999), ("time", 0.12, 0.93),
    ("time", "12 ms", "15 ms"),
    ("server_time", "2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("transactionId", 5, 6), ("shellId", 23, 24),
]  # fmt: skip
READINGS: list[tuple[str, Any, Any]] = [
    ("count", 1, 2), ("percent", 10, 20), ("id", 17, 18), ("order_id", "W17", "W18"), ("duration", "one way", "return"),
    ("duration", True, False), ("duration_seconds", 11, 12), ("timeout_ms", 100, 200), ("remaining_ms", 100, 50),
    ("eta", "2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("updated_at", "2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("last_seen", 1_760_000_000, 1_760_000_001), ("next_run_time", "10:00:01", "10:00:02"),
    ("time", "noon", "midnight"), ("timestamp", 3, 4), ("time", 3, 4), ("ok", True, False), ("ok", True, 1),
    ("7", 1, 2), ("note", "line 4", "line 5"), ("request_id", "a", None),
]  # fmt: skip


@pytest.mark.parametrize(("key", "a", "b"), METERS)
def test_a_meter_beside_content_is_ignored(key: str, a: Any, b: Any) -> None:
    """Two results that differ in a meter only are the same, wherever it stands; alone, it is the content."""
    assert is_same_result(json.dumps({"found": "three", key: a}), json.dumps({key: b, "found": "three"}))
    assert is_same_result(json.dumps([{"found": [{key: a}]}]), json.dumps([{"found": [{key: b}]}]))
    assert is_same_result(json.dumps({"found": "three", key: a}), json.dumps({"found": "three"}))
    assert not is_same_result(json.dumps({key: a}), json.dumps({key: b}))
    assert not is_same_result(json.dumps({"found": "three", key: a}), json.dumps({"found": "four", key: b}))


@pytest.mark.parametrize(("key", "a", "b"), READINGS)
def test_a_reading_counts(key: str, a: Any, b: Any) -> None:
    """Two results that differ in anything else are not the same."""
    assert not is_same_result(json.dumps({"found": "three", key: a}), json.dumps({"found": "three", key: b}))


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
    ("403, host id: " + "aB3/" * 18 + "Qz8=", "403, host id: " + "z+X4" * 18 + "aa1="),
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
    ("1\n<shellId: 23 completed with exit code 0>", "1\n<shellId: 24 completed with exit code 0>"),
    ('host - [03/Mar/2026:10:00:01 +0000] "GET /"', 'host - [03/Mar/2026:10:00:07 +0000] "GET /"'),
    ("on 3/3/2026, 10:00:01 AM: none", "on 3/3/2026, 10:05:01 AM: none"),
    ("[1] 12345\nok", "[1] 12388\nok"),
    ("wrote /tmp/tmpk_xyzabc", "wrote /tmp/tmpqrsabcde"),
    ("dump 20260303T100001Z", "dump 20260303T100501Z"),
    ("saved to /tmp/run-81/out.txt", "saved to /tmp/run-93/out.txt"),
]
TEXT_READINGS = [
    ("progress 10%", "progress 20%"), ("SyntaxError, line 4", "SyntaxError, line 5"),
    ("3 passed in 0.35s", "4 passed in 0.35s"), ("still waiting, 12.5s", "still waiting, 13.5s"),
    ("ETA: 12.5s", "ETA: 11.5s"),
    ("last modified 2026-03-03 10:00:01", "last modified 2026-03-03 10:00:05"),
    ("updated_at: 2026-03-03T10:00:01Z", "updated_at: 2026-03-03T10:00:05Z"),
    ("web-1  Running  0  12s", "web-1  Running  0  15s"), ("2026-03-03T10:00:01Z", "2026-03-03T10:00:02Z"),
    ("Tue Mar  3 10:00:01 UTC 2026", "Tue Mar  3 10:00:02 UTC 2026"),
    ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("arrives in 5 min", "arrives in 4 min"), ("one\ntwo", "one\ntwo\nthree"), ("6.0", "8.0"), ("[1, 2", "[1, 3"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), TEXT_METERS)
def test_a_meter_in_a_text_is_ignored(a: str, b: str) -> None:
    """Texts that differ in meters only are the same; as a field of JSON as well."""
    assert is_same_result(a, b)
    assert is_same_result(json.dumps({"output": a, "n": 1}), json.dumps({"output": b, "n": 1}))


@pytest.mark.parametrize(("a", "b"), TEXT_READINGS)
def test_any_other_difference_counts(a: str, b: str) -> None:
    """Texts that differ in a reading, or that are nothing but a naked meter, are not the same."""
    assert not is_same_result(a, b)
