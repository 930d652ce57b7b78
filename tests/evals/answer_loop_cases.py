"""Repetition inside one answer, made: no recorded run shows it, real models do.

Each case is a text, a piece of reasoning, or the arguments of a native call, with the number of characters after which
it must have been stopped; None for what is honest and must never be.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from reliability.answer.call_scan import CallScan, step_calls
from reliability.loops import open_scan, step
from tests.support.repeating_texts import HONEST, LEAD, paragraph, vary

PIECE = 7
LISTS = ("tests", "inserts", "records", "log", "hexdump", "table")


@dataclass(frozen=True)
class AnswerCase:
    """One answer, and how it is read. `most`: the characters after which it must have been stopped."""

    name: str
    text: str
    stop: Callable[[str], int | None]
    most: int | None

    def find(self) -> int | None:
        """After how many characters it is stopped."""
        return self.stop(self.text)


def stop_text(text: str) -> int | None:
    """The same for a text, or for reasoning: they have the same detector."""
    scan = open_scan(calls=True)
    for at in range(0, len(text), PIECE):
        scan, loop = step(scan, text[at : at + PIECE])
        if loop is not None:
            return at + PIECE
    return None


def stop_call(arguments: str) -> int | None:
    """The same for the arguments of a native call."""
    scan = CallScan()
    for at in range(0, len(arguments), PIECE):
        scan, loop = step_calls(scan, 0, "" if at else "write", arguments[at : at + PIECE])
        if loop is not None:
            return at + PIECE
    return None


def stop_written_call(arguments: str) -> int | None:
    """The same for a call in the text."""
    return stop_text(f'<tool_call>\n{{"name": "write", "arguments": {arguments}}}\n</tool_call>')


def stop_equal_calls(call: str) -> int | None:
    """How many of 64 equal calls have begun when the reading ends."""
    scan = CallScan()
    for index in range(64):
        scan, loop = step_calls(scan, index, "read", call)
        if loop is not None:
            return index + 1
    return None


def _write(text: str) -> str:
    return json.dumps({"path": "a.txt", "content": text})


ANSWER_CASES = [
    *(
        AnswerCase(f"period {chars}", LEAD + paragraph(chars, chars) * 20, stop_text, len(LEAD) + 7 * chars)
        for chars in (520, 600, 800, 1_500, 3_000, 4_000)
    ),
    *(
        AnswerCase(
            f"period {chars}{', a counter' * counter}{', two words' * words}",
            LEAD + vary(chars, 20, counter=counter, words=words),
            stop_text,
            len(LEAD) + (13 if words else 8) * (chars + 12),
        )
        for chars in (600, 1_500, 3_000)
        for counter, words in ((True, False), (False, True), (True, True))
    ),
    *(
        AnswerCase(f"{how}: {name}", arguments, stop, most)
        for how, stop in (("native", stop_call), ("in the text", stop_written_call))
        for name, arguments, most in (
            ("105,000 equal characters", '{"text": "' + "a" * 105_000, 41_000),
            ("105,000 characters of one line", '{"text": "' + "the same line again. " * 5_000, 2_100),
            ("one line 42 times", _write("        self.assertEqual(result, expected)\n" * 42), 1_800),
            ("a paragraph", _write(paragraph(600, 1) * 20), 8_000),
            ("white space", '{"a": 1,' + " \n" * 600, 1_100),
            ("brackets", '{"a": ' + "[" * 2_000, 1_100),
        )
    ),
    AnswerCase("one emoji", "Well done! " + "\U0001f600" * 3_000, stop_text, 500),
    AnswerCase("honest, bare: equal rows", "name,qty\n" + "apple,1\n" * 60, stop_text, None),
    AnswerCase("honest, bare: equal instructions", "section .text\n" + "    nop\n" * 64, stop_text, None),
    AnswerCase("64 equal native calls", '{"path": "a.py"}', stop_equal_calls, 4),
    *(AnswerCase(f"honest, native: {name}", _write(text), stop_call, None) for name, text in HONEST.items()),
    *(
        AnswerCase(f"honest, in the text: {name}", _write(text), stop_written_call, None)
        for name, text in HONEST.items()
    ),
    *(AnswerCase(f"honest, fenced: {name}", f"```\n{HONEST[name]}", stop_text, None) for name in LISTS),
    *(
        AnswerCase(f"honest, bare: {name}", HONEST[name], stop_text, None)
        for name in (*LISTS, "bottles", "pages", "cases")
    ),
]
