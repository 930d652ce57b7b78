"""A command that asks a running server: by its URL or that of the configuration, with the key of the environment.

What must never happen: a traceback where the server is away or refuses. One line says what is wrong, and what to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from deployments.listener.listening import is_loopback

__all__ = ["KEY", "NotAnswered", "ServerClient"]

KEY = "MLX_STACK_API_KEY"
ASK_S = 15.0
HINTS = {401: f" (the key is read from {KEY})", 403: f" (the key in {KEY} is no admin's)"}


class NotAnswered(Exception):
    """There is no answer to show. The message is one line."""


class ServerClient:
    """The server at `url`, without `/v1`. `transport`: how it is reached, where that isn't the network. `ask_s`: for
    how long."""

    def __init__(
        self,
        url: str,
        environ: Mapping[str, str] = os.environ,
        transport: httpx.BaseTransport | None = None,
        ask_s: float = ASK_S,
    ) -> None:
        self.url = url
        key = environ.get(KEY, "")
        own = is_loopback(urlsplit(url).hostname)
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=ask_s,
            transport=transport,
            trust_env=not own,  # a proxy can't reach our loopback
        )

    def get(self, path: str, **params: Any) -> Any:
        """Ask for one thing below `/v1/reliability`.

        Raises:
            NotAnswered: the server is away, or refuses.
        """
        given = {name: value for name, value in params.items() if value is not None}
        try:
            answer = self._http.get(f"/v1/reliability/{path}", params=given)
            body = answer.json()
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise NotAnswered(
                f"no server answers at {self.url} ({reason}): start one with mlx-stack-serve serve"
            ) from None
        except ValueError:
            raise NotAnswered(f"what answers at {self.url} is no MLX Stack Serve (HTTP {answer.status_code})") from None
        if answer.status_code != 200:
            said = body.get("error", {}).get("message", f"HTTP {answer.status_code}") if isinstance(body, dict) else ""
            raise NotAnswered(f"the server at {self.url} says: {said}{HINTS.get(answer.status_code, '')}")
        return body

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()
