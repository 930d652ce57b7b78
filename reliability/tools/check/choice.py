"""`tool_choice` and `parallel_tool_calls`: what the client allows, in one value.

`parse_choice` reads every form that clients send (a word, OpenAI's two object forms, a list of allowed
tools) and gives `BadTools` for what can't be meant, for a 400. `find_breaches` says what an answer did against
it; nothing is dropped to make it fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliability.tool_calls import Flaws, Violation, join
from reliability.tools.schema.toolbox import BadTools, ToolBox


@dataclass(frozen=True, slots=True)
class Choice:
    """`must`: at least one call. `may`: the tools that may be called; None means all of them, empty none."""

    must: bool = False
    may: tuple[str, ...] | None = None


_WORDS = {"auto": Choice(), "none": Choice(may=()), "required": Choice(must=True), "any": Choice(must=True)}


def parse_choice(value: Any, box: ToolBox) -> Choice | BadTools:
    """Parse the client's choice; without one it is `auto` where tools are declared, and `none` where
    there are none."""
    if value is None:
        return _WORDS["auto" if box.tools else "none"]
    if isinstance(value, str):
        if value not in _WORDS:
            return BadTools("/tool_choice", f"must be one of {', '.join(_WORDS)}, or an object that names a tool")
        choice = _WORDS[value]
        return BadTools("/tool_choice", "no tools are declared") if choice.must and not box.tools else choice
    if not isinstance(value, Mapping):
        return BadTools("/tool_choice", "must be a word or an object")
    if value.get("type") == "allowed_tools":
        inner = value.get("allowed_tools", value)
        if not isinstance(inner, Mapping):
            return BadTools("/tool_choice/allowed_tools", "must be an object")
        tools = inner.get("tools")
        if not isinstance(tools, list) or not all(isinstance(tool, Mapping) for tool in tools):
            return BadTools("/tool_choice/allowed_tools/tools", "must be an array of tools")
        return _parse_named(tools, box, must=inner.get("mode") == "required")
    return _parse_named([value], box, must=True)


def _parse_named(tools: Sequence[Mapping[str, Any]], box: ToolBox, *, must: bool) -> Choice | BadTools:
    names: list[str] = []
    for tool in tools:
        function = tool.get("function")
        name = (function if isinstance(function, Mapping) else tool).get("name")
        if not isinstance(name, str) or name not in box.by_name:
            return BadTools(join("tool_choice", "function", "name"), "names no declared tool")
        names.append(name)
    return Choice(must=must, may=tuple(names))


def find_breaches(names: Sequence[str], choice: Choice, parallel: bool | None, unread: int = 0) -> list[Violation]:
    """Find what the calls of an answer do against the client's choice. `names` are the tools called,
    `unread` the calls without a name."""
    found: list[Violation] = []
    if choice.must and not names and not unread:
        wanted = f"call {' or '.join(choice.may)}" if choice.may else "call a tool"
        found.append(
            Violation(Flaws.TOOL_CHOICE, "/tool_choice", f"the request wants you to {wanted}, and no tool was called")
        )
    for i, name in enumerate(names):
        if choice.may is not None and name not in choice.may:
            only = f"only {', '.join(choice.may[:8])} may be called" if choice.may else "no tool may be called"
            found.append(Violation(Flaws.TOOL_CHOICE, join(i, "name"), only, name))
    if parallel is False and len(names) + unread > 1:
        found.append(
            Violation(
                Flaws.PARALLEL, "/parallel_tool_calls", f"only one call at a time is allowed, not {len(names) + unread}"
            )
        )
    return found
