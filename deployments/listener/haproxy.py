"""Change the configuration of HAProxy that Ray Serve writes, before HAProxy reads it: docs/decisions/081 says why.

This file is also the program that the script runs (`python haproxy.py IN > OUT`), so it imports Python's library only.
Invariant: the answers are constants, without a client's text.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

WRAPPER = Path(__file__).with_name("haproxy_on_loopback.sh")  # what Ray starts in HAProxy's place

# What a head may have; browsers send cookies of 60 KB. Node and most proxies draw the line at 8 to 32.
HEADER_BYTES_MAX = 65_536
BUFFER_BYTES = 98_304
# The kernel doubles it. Larger, and a slow reader's progress would be seen too seldom.
_SEND_BUFFER_BYTES = 16_384
_SOURCES_MAX = 100_000
_SOURCE_FORGOTTEN_S = 60
HEADER_S, UNREAD_S = 10.0, 60.0
_OF_ONE = 3072  # connections of one address
_FRONTENDS = ("http_frontend", "grpc_frontend")
_PAGES = (("frontend", "prometheus"), ("listen", "stats"))
TABLE = "mlx_stack_sources"
# One address to listen on: neither a name nor all addresses.
_BOUND = re.compile(r"^frontend http_frontend\n(?: .*\n)*? *bind (?!0\.0\.0\.0:|:::)([\da-fA-F:.]+):\d+$", re.MULTILINE)
_DEFAULT_LOG = "127.0.0.1:514"  # Ray's default


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnError:
    """One of HAProxy's own answers, of `deployments/errors.py`."""

    status: int
    code: str
    type: str
    message: str
    retry_after_s: int | None = None

    def words(self) -> str:
        """Write the rest of a line of HAProxy's. Neither a message nor JSON has an apostrophe."""
        error = {"message": self.message, "type": self.type, "param": None, "code": self.code}
        headers = "hdr x-should-retry false" if self.retry_after_s is None else f"hdr retry-after {self.retry_after_s}"
        return f"status {self.status} content-type application/json string '{json.dumps({'error': error})}' {headers}"


_INVALID, _SERVER = "invalid_request_error", "server_error"
UNREADABLE = "this is no HTTP request that can be read: look at its request line, its headers and its Content-Length"
SLOW = "the request came too slowly: send its headers and its body without a pause"
_LARGE = f"the headers are over {HEADER_BYTES_MAX} bytes: send fewer or shorter ones (cookies, as a rule)"
_STARTING = "the server is starting, or its Router is: ask again in a few seconds; GET /ready says when it can answer"
_ENDED = "the Router ended while it had the request; another one is started within seconds: ask again"
_LATE = "the Router did not answer in time"

_STARTING_ERROR = _OwnError(status=503, code="server_starting", type=_SERVER, message=_STARTING, retry_after_s=5)
_LARGE_ERROR = _OwnError(status=431, code="headers_too_large", type=_INVALID, message=_LARGE)
_NO_ROUTE = _OwnError(status=404, code="not_found", type=_INVALID, message="there is no app under this path")
# What HAProxy answers by itself, by the status that it gives it.
_OWN_ERRORS = (
    _OwnError(status=400, code="invalid_request", type=_INVALID, message=UNREADABLE),
    _OwnError(status=408, code="request_timeout", type=_INVALID, message=SLOW, retry_after_s=1),
    _OwnError(status=500, code="internal_error", type=_SERVER, message="an error inside the server", retry_after_s=5),
    _OwnError(status=502, code="server_restarting", type=_SERVER, message=_ENDED, retry_after_s=2),
    _STARTING_ERROR,
    _OwnError(status=504, code="timeout", type="timeout_error", message=_LATE, retry_after_s=5),
)


def limits_of(environ: Mapping[str, str]) -> tuple[float, int]:
    """Read the seconds for a request's head, and the connections for one address. Raises ValueError: one line."""
    of_one = environ.get("MLX_STACK_CONNECTIONS_OF_ONE") or str(_OF_ONE)
    if not (of_one.isascii() and of_one.isdigit() and int(of_one) > 0):
        raise ValueError(f"MLX_STACK_CONNECTIONS_OF_ONE: a whole number of connections is needed, not {of_one!r}")
    return read_seconds(environ, "MLX_STACK_HEADER_S", HEADER_S), int(of_one)


def read_seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    """Read the seconds that a variable of the environment holds. Raises ValueError: one line that names it."""
    text = environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", text) or not float(text):
        raise ValueError(f"{name}: seconds are needed (over 0, under 100000), not {text!r}")
    return float(text)


def _rewrite(text: str, header_s: float = HEADER_S, of_one: int = _OF_ONE) -> str:
    routed = re.search(r"^ *use_backend ", text, re.MULTILINE) is not None
    if bound := _BOUND.search(text):  # Router and proxy listen there as well, and only there
        text = re.sub(r"^( *server \S+) 127\.0\.0\.1:", rf"\1 {bound[1]}:", text, flags=re.MULTILINE)
    lines: list[str] = []
    section: tuple[str, ...] = ("",)
    for line in text.splitlines():
        if re.match("[a-z]", line):
            section = tuple(line.split()[:2])
            lines += [] if section in _PAGES else [line, *_add_first_lines(section, header_s, of_one)]
        elif section not in _PAGES:
            lines += _change_line(line, section, routed)
    table = f"    stick-table type ipv6 size {_SOURCES_MAX} expire {_SOURCE_FORGOTTEN_S}s store conn_cur"
    return "\n".join([*lines, f"backend {TABLE}", table]) + "\n"


def _add_first_lines(section: tuple[str, ...], header_s: float, of_one: int) -> Iterator[str]:
    if section[0] == "global":
        yield f"    tune.sndbuf.client {_SEND_BUFFER_BYTES}"
    if section[0] == "defaults":
        yield f"    timeout http-request {round(header_s * 1000)}ms"
        yield "    option http-ignore-probes"  # a connection that was never used is closed without a word
        yield from (f"    http-error {error.words()}" for error in _OWN_ERRORS)
    if section == ("frontend", "http_frontend"):
        yield "    option http-buffer-request"
        yield f"    tcp-request connection track-sc0 src table {TABLE}"
        yield f"    tcp-request connection reject if {{ sc0_conn_cur({TABLE}) gt {of_one} }}"
        yield f"    http-request return {_LARGE_ERROR.words()} if {{ req.hdrs,length gt {HEADER_BYTES_MAX} }}"


def _change_line(line: str, section: tuple[str, ...], routed: bool) -> list[str]:
    words = line.split()
    if words[:1] == ["bind"] and not (section[0] == "frontend" and section[-1] in _FRONTENDS):
        return [re.sub(r"bind +(\*|0\.0\.0\.0|\[::\]|::)?:", "bind 127.0.0.1:", line, count=1)]
    if words[:2] == ["stats", "socket"]:  # whoever may write there sends requests, and their keys, to another server
        return [re.sub(r" mode +[0-7]+", "", line) + " mode 600"]
    if words[:2] in (["option", "splice-request"], ["timeout", "http-request"]) or words[:1] == ["errorfile"]:
        return []
    if section == ("global",) and words[:2] == ["log", _DEFAULT_LOG]:
        return []
    if section == ("backend", "default_backend") and words[:2] == ["http-request", "return"]:
        return [f"    http-request return {(_NO_ROUTE if routed else _STARTING_ERROR).words()}"]
    return [line]


if __name__ == "__main__":
    sys.stdout.write(_rewrite(Path(sys.argv[1]).read_text(encoding="utf-8"), *limits_of(os.environ)))
