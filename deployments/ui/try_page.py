"""`/ui/try`: a small chat with tools against any tier, to see a nudge or a repair happen.

The page's script asks `/ui/try/ask` as a client asks `/v1/chat/completions`, and gets the same answer: the way of the
request, its budget and its report are those of any other one. What a tool returns, the person at the page says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Caller
from deployments.api.responses import error_response
from deployments.errors import ApiError
from deployments.ui.desk import Desk
from deployments.ui.visits import NotSignedIn, Visit

__all__ = ["Chat", "TryPage"]

Chat = Callable[[Request, Caller], Awaitable[Response]]
TOOLS = """[
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


class TryPage:
    """The page. `chat` answers a chat completion of a caller who is known already."""

    def __init__(self, desk: Desk, chat: Chat) -> None:
        self._desk, self._chat = desk, chat

    def routes(self) -> list[Route]:
        """List them, below `/ui`."""
        return [Route("/try", self._desk.look(self.show)), Route("/try/ask", self.ask, methods=["POST"])]

    async def show(self, request: Request, visit: Visit) -> Response:
        """Show the page."""
        tiers = self._desk.overview.tiers
        return self._desk.show(request, visit, "try.html", tiers=tiers, tools=TOOLS)

    async def ask(self, request: Request) -> Response:
        """Answer what the page asks; errors as the API has them, since a script reads them."""
        try:
            visit = await self._desk.visits.take_call(request)
            return await self._chat(request, visit.caller)
        except NotSignedIn:
            return error_response(ApiError("invalid_api_key", "sign in first"))
        except ApiError as error:
            return error_response(error)
