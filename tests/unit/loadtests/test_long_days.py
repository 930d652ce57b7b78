"""The table of long sessions: an agent a line, from the rows of its turns."""

from loadtests.long_days import build_table


def test_a_line_counts_turns_and_what_was_read_in_them():
    """A turn that ended badly isn't one with an answer; what was read is the sum over a turn's requests."""
    rows = [
        {"agent": "codex", "exit": 0, "requests": 2, "prompts": [100, 120], "read": [100, 20]},
        {"agent": "codex", "exit": 1, "requests": 1, "prompts": [130], "read": [10]},
        {"agent": "codex", "exit": 0, "requests": 0, "prompts": [], "read": []},
    ]
    assert build_table(rows).splitlines()[2:] == ["| codex | 2 of 3 | 3 | 130 | 10, 120 |"]
