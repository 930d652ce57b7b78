"""Edits that fail, whatever the agent calls them, quotes or says."""

import re
from itertools import chain

import pytest

from reliability.loops import Stage
from reliability.loops.comparison.call_normalization import ECHO, mask_echoes
from reliability.loops.comparison.error_reading import read_failure
from reliability.loops.comparison.findings import SeenCall, Turn, dumps, has_failed
from tests.support.conversation import USER, Message, acted, judge_laps, quiet

WORDS = [
    "total", "count", "name", "path", "size", "user", "node", "edge", "line", "word", "page", "form", "item", "list",
]  # fmt: skip
#: A tool, how it is told of the old text, and how it answers: `{old}` is that text, `{n}` a figure of its own.
PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ class A:\n{minus}\n+    return None\n*** End Patch"
BLOCK = "------- SEARCH\n{old}\n=======\npass\n+++++++ REPLACE"
EDITORS = {
    "codex": ("apply_patch", "input", PATCH), "opencode": ("edit", "oldString", "{old}"),
    "claude": ("Edit", "old_string", "{old}"), "cline": ("replace_in_file", "diff", BLOCK),
    "roo": ("apply_diff", "diff", BLOCK), "openhands": ("str_replace_editor", "old_str", "{old}"),
}  # fmt: skip
ANSWERS = (
    "apply_patch verification failed: Failed to find expected lines in /repo/a.py:\n{old}",
    "<tool_use_error>String to replace not found in file.\nString: {old}</tool_use_error>",
    "The tool execution failed with the following error:\n<error>\nThe SEARCH block:\n{old}\n...does not match "
    "anything in the file.\n</error>",
    "ERROR:\nNo replacement was performed, old_str `{old}` did not appear verbatim in /repo/a.py.",
    "No replacement was performed, old_str `{old}` did not appear verbatim in /repo/a.py.",
    "Unable to apply diff to file: /repo/a.py\n\n<error_details>\nNo sufficiently similar match found at line: {n} "
    "({n}% similar, needs 100%)\n</error_details>",
    "<error_details>\nNo sufficiently similar match found at line: {n} ({n}% similar, needs 100%)\n</error_details>",
    "oldString not found in content",
    "Some edits were produced but none of them could be applied. Read the file again.",
    "edit_existing_file failed because the string to replace was not found",
    "Claude requested permissions to write to /repo/a.py, but you haven't granted it yet.",
    "The user doesn't want to proceed with this tool use. The tool use was rejected (the new_string was NOT written).",
    "Tool execution denied by policy.",
    "No match for old_string in a.py",
    "Der Text wurde in der Datei nicht gefunden.",
    "Le texte n'existe pas: impossible de le remplacer.",
)
LENGTHS = (1, 12, 200)


def quote(word: str, lines: int) -> str:
    return "\n".join(f"    {word}_{n} = compute({n}, {word})" for n in range(lines))


def fail(editor: str, answer: str, word: str, lines: int) -> list[Message]:
    tool, key, form = EDITORS[editor]
    old = quote(word, lines)
    minus = "\n".join(f"-{line}" for line in old.split("\n"))
    told = answer.replace("{old}", old).replace("{n}", str(60 + 7 * WORDS.index(word) % 40))
    return acted(tool, {"path": "a.py", key: form.replace("{old}", old).replace("{minus}", minus)}, told)


@pytest.mark.parametrize("editor", EDITORS)
@pytest.mark.parametrize("lines", LENGTHS)
def test_edits_that_fail_end_whatever_they_quote(editor: str, lines: int) -> None:
    """Law: over editors, answers and lengths of the quoted text: edits whose answers differ in what the call said, or
    in figures, are nudged at the fourth and broken at the eleventh at the latest."""
    for answer in ANSWERS:
        if EDITORS[editor][2] != "{old}" and re.search(r"\S {old}|`", answer):
            continue  # what quotes one text within a sentence was told no more than that text
        laps = [fail(editor, answer, word, lines) for word in WORDS]
        assert judge_laps([USER], laps, 3, 4, 11) == [None, Stage.WARN, Stage.BREAK], answer


DONE = (
    "ok", "The file /repo/a.py has been updated.", "Edit applied; the linter found nothing.", "Wrote 3 lines.",
    "Edit accepted by the user, not yet committed.",
    "Success. Updated the following files:\nM a.py", "1 replacement was made.", '{"success": true}', "done",
    "The file a.py was changed, but it could not be formatted.", "The file was edited. Errors: x is not defined",
    "The file /repo/a.py has been edited. Here's the result of running `cat -n` on a snippet:\n 1\treturn not x",
    "<file>a.py</file>\nThe change was not formatted.\nWrote it.", "",
)  # fmt: skip


@pytest.mark.parametrize("editor", EDITORS)
def test_edits_that_succeed_are_work(editor: str) -> None:
    """Law: over editors and answers: ever other edits that say each time that they were done are no loop, also where
    they warn."""
    for answer in DONE:
        laps = [fail(editor, answer, word, 3) for word in WORDS]
        assert judge_laps([USER], laps, 4, 11, 14) == [None] * 3, answer


@pytest.mark.parametrize(("tool", "arguments", "answer"), [
    ("git_diff", {}, "No changes"), ("diff_files", {}, "No differences: not one."), ("list_edits", {}, "nothing yet"),
    ("str_replace_editor", {"command": "view"}, "# nothing here, not even a name"),
    ("show_patch", {}, "No matches"), ("get_replacements", {}, "Not any: it is the same."),
    *(("get_figure", {}, told) for told in ("Error rate: 0.0%", "Failed: 0", "Failed: 2", "Error count: 0")),
])  # fmt: skip
def test_what_many_looks_are_told_alike_is_an_answer(tool: str, arguments: dict[str, str], answer: str) -> None:
    """Law: a tool or an action that looks is no editor: that there is nothing is an answer, and so is a figure of
    failures, which each of many may have."""
    laps = [acted(tool, arguments | {"path": f"{word}.py"}, answer) for word in WORDS]
    assert quiet([USER, *chain(*laps)])


def test_other_errors_of_edits_are_other_errors() -> None:
    """Law: what the call hasn't said tells errors of edits apart."""
    reasons = [f"Error: the {word} is missing" for word in WORDS]
    assert quiet([USER, *[m for i, word in enumerate(WORDS) for m in fail("claude", reasons[i - 1], word, 3)]])


@pytest.mark.parametrize("mark", ["", "-", "+", " ", "    ", "- ", "+\t"])
def test_a_line_that_the_call_said_is_an_echo(mark: str) -> None:
    """Law: over a diff's marks: a line of the result that stands in the call is an echo, however long the text is; so
    many of them are one, and other lines stay."""
    for lines in LENGTHS:
        call = SeenCall("edit", dumps({"patch": "\n".join(f"{mark}value = {n}" for n in range(lines))}))
        told = "\n".join(f"value = {n}" for n in range(lines))
        assert mask_echoes(call, f"not here:\n{told}\nlook again") == f"not here:\n{ECHO}\nlook again"
        assert mask_echoes(call, "value is none\nvalues = none") == "value is none\nvalues = none"


def test_a_tool_that_is_no_editor_has_its_figures() -> None:
    """An error of a tool that may have done something is told apart by its figures."""
    failed = Turn((SeenCall("run_tests", "{}"),), ("Error: 3 tests have failed",))
    assert "3" in read_failure(failed).masked


@pytest.mark.parametrize("text", [
    "The proposal was rejected by the council.", "Able to apply it.", "The page isn't found in content.",
    "The user declined.", "user rejected the offer", "The loan was denied by policy.", "Unable to classify it.",
    "None of them could be applied: coupon", "The edit was rejected.", "Pattern not found in file",
    "access denied: none", "3 edits rejected, 2 accepted",
])  # fmt: skip
def test_words_of_refusals_within_a_content_are_no_failure(text: str) -> None:
    """Law: a refusal names the call, or who refused it."""
    assert not has_failed(text)


FIGURES = (
    "{} rate: 0.0%", "{} rate (5m): 0.4", "{}: 0", "{} jobs: 0", "{}: 0%", "{}: 0, passed: 9", "{} count = 0",
    "# {}: 0 of 9",
)  # fmt: skip


@pytest.mark.parametrize("word", ["Error", "error", "Failed", "FAILED", "Failure"])
def test_a_figure_of_failures_is_no_failure(word: str) -> None:
    """Law: over words of a failure at the beginning of a line: behind a rate, a share or a zero it is a figure that
    was asked for; behind a code, a name or words it is a failure."""
    for form in FIGURES:
        assert not has_failed(form.format(word)), form
        assert not has_failed(f"api\n{form.format(word)}"), form
    assert not has_failed("Failed: 3 of 10")
    assert not has_failed("Failed: 12")
    for form in ("{} 500", "{}: 3 tests", "{}: 0 matches were found", "{}: 0x80070005", "{} code 7"):
        assert has_failed(form.format(word)), form
    assert has_failed("Error: 404")
    assert has_failed("KeyError: 0")
    assert has_failed("Error rate limit exceeded: 429")
    assert has_failed("Error number 13: permission denied")


def test_spaces_in_what_is_looked_for_make_no_other_failure():
    """Law: an edit that fails again with other white space in its text has failed in the same way."""
    texts = [f"total = 4{' ' * n}" for n in range(12)]
    told = "No replacement was performed, old_str `{}` did not appear verbatim in a.py."
    laps = [acted("str_replace", {"path": "a.py", "old_str": text}, told.format(text)) for text in texts]
    assert judge_laps([USER], laps, 5, 12) == [Stage.WARN, Stage.BREAK]
