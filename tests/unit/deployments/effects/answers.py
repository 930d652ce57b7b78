"""The effects of the keys under `loop_detection`, `tool_validation`, and `retry_strategy` and `tools` of a tier."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deployments.app.router_parts import _find_deferring
from deployments.config.app_config import AppConfig, load
from reliability.types import Flaw
from tests.support import plays
from tests.support.many_tools import TOOLS, write_call
from tests.support.small_config import BASE, REQUEST, broken, config_of, run, with_broken_fast
from tests.support.upstream import Upstream

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
WITH_TOOL = replace(REQUEST, tools=(TOOL,))


def flaw_of(path: str, value: Any, call: dict[str, Any], messages: tuple[Any, ...] = REQUEST.messages) -> Flaw | None:
    """The flaw of an answer with one call, under the base configuration with one key changed."""
    config = with_broken_fast({"tool_call": call}, path, value)
    return run(config, request=replace(WITH_TOOL, messages=messages)).attempts[0].flaw


def switch(key: str, off: Any, call: dict[str, Any]) -> Callable[[], None]:
    """A check that is on by default finds the call; switched off it doesn't."""

    def check() -> None:
        assert flaw_of("server.keepalive_s", 5, call) is Flaw.TOOL_CALL_INVALID
        assert flaw_of(f"reliability.tool_validation.{key}", off, call) is None

    return check


def lapped(calls: list[str], results: list[str] | None = None) -> tuple[Any, ...]:
    """A history in which `f` was called with these arguments, by default with the same result."""
    out: list[Any] = list(REQUEST.messages)
    for lap, arguments in enumerate(calls):
        call = {"id": f"l{lap}", "type": "function", "function": {"name": "f", "arguments": arguments}}
        out.append({"role": "assistant", "tool_calls": [call]})
        out.append({"role": "tool", "tool_call_id": f"l{lap}", "content": results[lap] if results else "same"})
    return tuple(out)


SAME = {"name": "f", "arguments": {"a": "x"}}
LAP = '{"a": "x"}'


def loop_key(key: str, value: Any, laps: int, before: Flaw | None, after: Flaw | None) -> Callable[[], None]:
    """With `laps` laps in the history the next one is `before` by default, and `after` with the key changed."""

    def check() -> None:
        assert flaw_of("server.keepalive_s", 5, SAME, lapped([LAP] * laps)) is before
        assert flaw_of(f"reliability.loop_detection.{key}", value, SAME, lapped([LAP] * laps)) is after

    return check


def text_loop(key: str, value: Any, texts: list[str], before: Flaw | None, after: Flaw | None) -> Callable[[], None]:
    """The same for texts that are alike."""

    def flaw(path: str, setting: Any) -> Flaw | None:
        history = tuple({"role": "assistant", "content": text} for text in texts[:-1])
        config = with_broken_fast({"text": texts[-1]}, path, setting)
        return run(config, request=replace(REQUEST, messages=(*REQUEST.messages, *history))).attempts[0].flaw

    def check() -> None:
        assert flaw("server.keepalive_s", 5) is before
        assert flaw(f"reliability.loop_detection.{key}", value) is after

    return check


def near_threshold() -> None:
    results = [f"{words} and then the very same long line follows again" * 12 for words in ("a b", "c d", "e f", "g h")]
    history = lapped([LAP] * 4, results)
    assert flaw_of("reliability.loop_detection.near_threshold", 0.5, SAME, history) is Flaw.CIRCUIT_BREAK
    assert flaw_of("reliability.loop_detection.near_threshold", 1.0, SAME, history) is None


def max_period() -> None:
    history = lapped(['{"a": "x"}', '{"a": "y"}'] * 2)
    assert flaw_of("reliability.loop_detection.max_period", 2, SAME, history) is Flaw.LOOP
    assert flaw_of("reliability.loop_detection.max_period", 1, SAME, history) is None


def pollers(key: str, value: Any, laps: int, after: Flaw | None) -> Callable[[], None]:
    def check() -> None:
        raw = copy.deepcopy(BASE)
        raw["tiers"]["fast"] = broken({"tool_call": SAME})
        raw["reliability"]["loop_detection"] = {"pollers": ["f"]}
        request = replace(WITH_TOOL, messages=lapped([LAP] * laps))
        before = run(load(raw), request=request).attempts[0].flaw
        raw["reliability"]["loop_detection"][key] = value
        assert before is None
        assert run(load(raw), request=request).attempts[0].flaw is after

    return check


def ignored_arguments() -> None:
    history, call = lapped(['{"a": "x", "note": "0"}', '{"a": "x", "note": "1"}']), {"a": "x", "note": "2"}
    for ignored, flaw in ((["note"], Flaw.LOOP), ([], None)):
        path = "reliability.loop_detection.ignored_arguments"
        assert flaw_of(path, ignored, {"name": "f", "arguments": call}, history) is flaw


BAD_CALL = {"tool_call": {"name": "f", "arguments": "{"}}


def max_retries() -> None:
    one = run(with_broken_fast(BAD_CALL, "reliability.tool_validation.max_retries", 1), request=WITH_TOOL)
    assert sum(a.tier == "fast" for a in one.attempts) == 2


def corrections(config: AppConfig) -> list[bool]:
    """Whether each call to `fast` was shown a correction, as a hosted tier's upstream sees it."""
    with Upstream() as upstream:
        upstream.plays("m", plays.tools(("f", "{")))
        raw = config.model_dump(mode="json", exclude_unset=True)
        own = raw["tiers"]["fast"].get("retry_strategy")
        raw["tiers"]["fast"] = {"kind": "hosted", "base_url": upstream.base_url, "model": "m"}
        raw["tiers"]["fast"] |= {"retry_strategy": own} if own else {}
        run(load(raw), request=WITH_TOOL)
        return [len(seen.body["messages"]) > 1 for seen in upstream.log]


def retry_with_correction() -> None:
    assert corrections(config_of()) == [False, True, False, False]
    assert not any(corrections(config_of("reliability.tool_validation.retry_with_correction", False)))


def retry_strategy() -> None:
    assert corrections(config_of("tiers.fast.retry_strategy", ["resample", "correct"])) == [False, False, True, True]


def deferred_tools() -> None:
    asked = write_call("load_tools", names=["tool_3"])
    tiers = {"fast": {"kind": "scripted", "script": [{"times": 1, "answer": [asked]}, {"answer": "Done."}]}}
    loads = []
    for keys in ({}, {"tools": "all"}, {"tools": "deferred"}):
        config = load(BASE | {"tiers": BASE["tiers"] | {"fast": tiers["fast"] | keys}})
        one = run(config, request=replace(REQUEST, tools=TOOLS))
        loads.append([attempt.loads for attempt in one.attempts if attempt.loads is not None])
    assert loads == [[], [], [("tool_3",)]]
    assert _find_deferring(config_of("tiers.m.tools", "deferred").tiers) == {"m"}


WORDS = "the quick brown fox jumps over the lazy dog again and again until the day is done and nobody is left to see it"
ALIKE = [WORDS, WORDS, WORDS.replace("nobody", "somebody")]
WRONG = {"name": "f", "arguments": {"a": 5}}
CHECKS: dict[str, Callable[[], None]] = {
    "enabled": switch("enabled", False, WRONG),
    "validate_schema": switch("validate_schema", False, WRONG),
    "validate_tool_names": switch("validate_tool_names", False, {"name": "nobody", "arguments": {}}),
    "validate_json": switch("validate_json", False, {"name": "f", "arguments": "{"}),
    "placeholders": switch("placeholders", [], {"name": "f", "arguments": {"a": "<your_text>"}}),
    "max_retries": max_retries,
    "retry_with_correction": retry_with_correction,
}
LOOPS: dict[str, Callable[[], None]] = {
    "enabled": loop_key("enabled", False, 2, Flaw.LOOP, None),
    "duplicate_threshold": loop_key("duplicate_threshold", 4, 2, Flaw.LOOP, None),
    "break_threshold": loop_key("break_threshold", 3, 2, Flaw.LOOP, Flaw.CIRCUIT_BREAK),
    "similarity_threshold": text_loop("similarity_threshold", 1.0, ALIKE, Flaw.LOOP, None),
    "near_threshold": near_threshold,
    "max_period": max_period,
    "pollers": loop_key("pollers", ["f"], 2, Flaw.LOOP, None),
    "poller_duplicate_threshold": pollers("poller_duplicate_threshold", 3, 2, Flaw.LOOP),
    "poller_break_threshold": pollers("poller_break_threshold", 3, 2, Flaw.CIRCUIT_BREAK),
    "ignored_arguments": ignored_arguments,
}
