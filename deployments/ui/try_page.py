"""`/ui/try`: a small chat with tools against any tier, to see a nudge or a repair happen.

The page's script asks `/ui/try/ask` as a client asks `/v1/chat/completions`: the request's way, budget and report are
those of any other. The person at the page plays the tools. Three examples make the server act.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Caller
from deployments.api.responses import error_response
from deployments.errors import ApiError
from deployments.ui.page_auth import NotSignedIn, Visit
from deployments.ui.page_context import PageContext, show_page
from reliability.loops.thresholds import LoopConfig

Chat = Callable[[Request, Caller], Awaitable[Response]]
_TOOLS = """[
  {"type": "function", "function": {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
      "type": "object",
      "properties": {"city": {"type": "string"}},
      "required": ["city"],
      "additionalProperties": false
    }
  }}
]"""
_FUNCTION = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}


def _list_examples(loops: LoopConfig) -> list[dict[str, Any]]:
    """List the examples, each with its label and its messages."""
    return [
        {"label": "Repair a tool call", "messages": [_ask("What is the weather in Oslo? Call get_weather.")]},
        {"label": "Nudge a loop", "messages": _repeat(loops.duplicate_threshold)},
        {"label": "Escalate a loop", "messages": _repeat(loops.break_threshold)},
    ]


def _ask(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def _repeat(count: int) -> list[dict[str, Any]]:
    """Return a conversation in which an agent has made the same call `count` times, each with the same result."""
    messages = [_ask("What is the weather in Oslo?")]
    for number in range(count):
        call = {"id": f"call-{number}", "type": "function", "function": _FUNCTION}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "error: no such city"})
    return messages


class TryPage:
    """The page. `chat` answers a chat completion of a caller who is known already."""

    def __init__(self, context: PageContext, chat: Chat) -> None:
        self._context, self._chat = context, chat

    def routes(self) -> list[Route]:
        return [Route("/try", self._context.look(self.show)), Route("/try/ask", self.ask, methods=["POST"])]

    async def show(self, request: Request, visit: Visit) -> Response:
        tiers = self._context.overview.tiers
        examples = _list_examples(self._context.overview.config().reliability.loop_detection)
        return show_page(request, visit, "try.html", tiers=tiers, tools=_TOOLS, examples=examples)

    async def ask(self, request: Request) -> Response:
        """Answer what the page asks; errors as the API has them, since a script reads them."""
        try:
            visit = await self._context.visits.take_call(request)
            return await self._chat(request, visit.caller)
        except NotSignedIn:
            return error_response(ApiError("invalid_api_key", "sign in first"))
        except ApiError as error:
            return error_response(error)
