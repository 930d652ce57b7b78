"""What it costs to read a refusal that quotes a client's text."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from deployments.tiers.hosted import answer_limits, field_refusals, upstream_errors, upstream_form, upstream_state
from deployments.tiers.hosted.upstream_errors import WORDS_CHARS_MAX, read_complaint
from tests.support.plays import whole
from tests.support.tier_asking import WEATHER_TOOL, answer, ask, failed, hosted_tier
from tests.support.upstream import Upstream

FORCED = ask(tools=(WEATHER_TOOL,), tool_choice="required", temperature=0.2, extra={"user": "u", "metadata": {}})
CHARS, NOISE_S = 4_000, 0.02


def list_patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """List the patterns of the modules that read refusals, and those of a field's name."""
    for module in (answer_limits, field_refusals, upstream_errors, upstream_form, upstream_state):
        for name, value in vars(module).items():
            rows = value if isinstance(value, tuple) else [value]
            for found in [row[0] if isinstance(row, tuple) else row for row in rows]:
                if isinstance(found, re.Pattern):
                    yield f"{module.__name__.rpartition('.')[2]}.{name}", found
    yield from ((f"missing {one.name}", one.value) for one in upstream_form.Missing)
    yield from ((f"name {name}", field_refusals._compile(name)) for name in ("user", "top_k", "reasoning_effort"))


PATTERNS = list(list_patterns())
_OF_CATEGORY = {"DIGIT": "1", "WORD": "w", "SPACE": " ", "NOT_SPACE": "x", "NOT_WORD": " ", "NOT_DIGIT": "x"}


def write_matches(tree: Any) -> list[str]:
    """Write texts that a parsed pattern finds, one for each of its alternatives."""
    texts = [""]
    for kind, value in tree:
        options = write_node(str(kind), value)
        texts = [texts[0] + option for option in options] + [text + options[0] for text in texts[1:]]
    return texts


def write_node(kind: str, value: Any) -> list[str]:
    """Write what a node of a parsed pattern finds."""
    if kind == "LITERAL":
        return [chr(value)]
    if kind in ("ANY", "NOT_LITERAL"):
        return ["z"]
    if kind == "IN":
        (first, given), *_ = value
        return ["z" if str(first) == "NEGATE" else write_node(str(first), given)[0]]
    if kind == "RANGE":
        return [chr(value[0])]
    if kind == "CATEGORY":
        return [_OF_CATEGORY[str(value).removeprefix("CATEGORY_")]]
    if kind == "BRANCH":
        return [text for branch in value[1] for text in write_matches(branch)]
    if kind == "SUBPATTERN":
        return write_matches(value[3])
    if kind.endswith("REPEAT"):
        return [text * max(value[0], 1) for text in write_matches(value[2])]
    return [""]


@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=[name for name, _ in PATTERNS])
def test_every_pattern_is_linear(name: str, pattern: re.Pattern[str]) -> None:
    """Law: four times as many beginnings of what a pattern looks for take four times as long to search, not sixteen."""
    for found in dict.fromkeys(write_matches(_parser.parse(pattern.pattern, pattern.flags))):
        for begun in {found[: len(found) // 2] or "a", found[:-1] or "a"}:
            short_s, long_s = (measure(pattern, (begun * chars)[:chars]) for chars in (CHARS, 4 * CHARS))

            assert long_s < 8 * short_s + NOISE_S, (name, begun)


def measure(pattern: re.Pattern[str], text: str) -> float:
    times = []
    for _ in range(2):  # the shorter one: on a busy machine either may be held up
        started = time.thread_time()
        list(pattern.finditer(text))
        times.append(time.thread_time() - started)
    return min(times)


def test_all_patterns_are_pumped() -> None:
    """Law: no module's patterns are missed."""
    assert len(PATTERNS) > 40


@pytest.mark.parametrize("quoted", ["tool_choice ", "think ", "('body', 'x' ", "max_tokens 1,000,", "when user not "])
def test_a_refusal_that_quotes_a_client_holds_nobody_up(quoted: str) -> None:
    """Law: whatever text of a client an upstream quotes, other requests wait less than a second for its refusal."""
    said = {"error": {"message": "not " + quoted * (60_000 // len(quoted)), "type": "invalid_request_error"}}

    async def measure(tier: Any) -> tuple[Any, float]:
        asked, waits = asyncio.ensure_future(answer(tier, FORCED)), [0.0]
        while not asked.done():
            started = time.thread_time()
            await asyncio.sleep(0.005)
            waits.append(time.thread_time() - started)
        await tier.close()
        return asked.result(), max(waits)

    with Upstream() as upstream:
        upstream.plays("m", whole(json.dumps(said).encode(), status_code=400))
        events, wait_s = asyncio.run(measure(hosted_tier(upstream)))

    assert failed(events).message
    assert wait_s < 1


@pytest.mark.parametrize("length", [10, WORDS_CHARS_MAX, WORDS_CHARS_MAX + 1, 64_000])
def test_of_long_words_the_ends_are_read(length: int) -> None:
    """Law: what is read of a refusal is bounded: its first words and its last, behind a trace; a short one is whole.
    A secret is taken out before, so no part of one is left at a cut."""
    secret = "s3cret" * 10
    said = ("first " + secret * (length // len(secret)) + " last").ljust(length)
    complaint = read_complaint({"error": {"message": said}}).redact(lambda text: text.replace(secret, "x" * 60))

    assert len(complaint.message) <= WORDS_CHARS_MAX + 3
    assert "s3" not in complaint.message
    assert complaint.message.startswith("first")
    assert complaint.message.rstrip().endswith("last")
    assert (length > WORDS_CHARS_MAX) or "\n…\n" not in complaint.message
