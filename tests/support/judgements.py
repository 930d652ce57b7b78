"""Answers, and the judgement on them with one tool declared."""

from typing import Any

from reliability.answer.judgement import expect, judge
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, ToolBox, build_toolbox
from reliability.types import CallDelta, Event, Finish, FinishReason
from tests.support.renderings import schema_of, tool

TOOLS = [tool("search", schema_of({"q": "cats"}))]
BOX = build_toolbox(TOOLS)
assert isinstance(BOX, ToolBox)
USER: list[dict[str, Any]] = [{"role": "user", "content": "find cats"}]
STOP = Finish(reason=FinishReason.STOP)


def wanted(messages: list[dict[str, Any]] = USER, **keys: Any) -> Any:
    defaults = {"id_seed": "r", "checks": CheckConfig(), "loops": LoopConfig()}
    return expect(messages, BOX, **(defaults | keys))


def ruled(held: list[Event], finish: Finish = STOP, *, sent: str = "", committed: bool = False, **keys: Any) -> Any:
    return judge(wanted(**keys), held, finish, sent=sent, text_committed=committed, attempt=0)


def native(arguments: str, name: str = "search", index: int = 0) -> CallDelta:
    return CallDelta(index=index, id=f"c{index}", name=name, arguments=arguments)


GOOD = '{"q": "cats"}'


def lapped(laps: int, result: str = "none") -> list[dict[str, Any]]:
    call = {"name": "search", "arguments": GOOD}
    out = list(USER)
    for lap in range(laps):
        out.append({"role": "assistant", "tool_calls": [{"id": f"l{lap}", "type": "function", "function": call}]})
        out.append({"role": "tool", "tool_call_id": f"l{lap}", "content": result})
    return out
