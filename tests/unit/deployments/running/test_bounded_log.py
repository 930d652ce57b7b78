"""The log of Ray's lines: nothing of the newest is lost, and it has a bound."""

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.running import bounded_log
from deployments.running.bounded_log import BoundedLog, tail


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=40))
def test_two_parts_hold_the_newest_and_no_more(tmp_path_factory, lines):
    """Each of the two is at most a part's size, and together they are the end of what was written."""
    folder = tmp_path_factory.mktemp("log")
    before, bounded_log.PART_BYTES_MAX = bounded_log.PART_BYTES_MAX, 64
    try:
        log = BoundedLog(folder / "logs" / "x.log")
        for line in lines:
            log.write(line)
    finally:
        bounded_log.PART_BYTES_MAX = before
    parts = [folder / "logs" / "x.log.1", folder / "logs" / "x.log"]
    held = b"".join(part.read_bytes() for part in parts if part.exists())

    assert all(part.stat().st_size <= 64 for part in parts if part.exists())
    assert b"".join(lines).endswith(held)
    assert len(held) >= min(len(b"".join(lines)), 24)


def test_only_its_owner_reads_it(tmp_path):
    """Requests' ids and sessions' digests stand in it."""
    BoundedLog(tmp_path / "logs" / "x.log").write(b"x")

    assert (tmp_path / "logs" / "x.log").stat().st_mode & 0o077 == 0


def test_a_log_that_cant_be_written_ends_no_server(tmp_path):
    """It is a log."""
    (tmp_path / "logs").write_text("a file is in the way")
    BoundedLog(tmp_path / "logs" / "x.log").write(b"x")

    assert tail(tmp_path / "logs" / "x.log") == ""


def test_its_end_can_be_read(tmp_path):
    """Whatever bytes are in it."""
    (tmp_path / "x").write_bytes(b"a" * 100_000 + b"two\xff\n")

    assert tail(tmp_path / "x").endswith("two\N{REPLACEMENT CHARACTER}\n")
