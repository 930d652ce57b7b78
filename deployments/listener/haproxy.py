"""HAProxy's configuration: what Ray Serve writes, and what this server changes in it before HAProxy reads it.

    Ray: haproxy.cfg ──▶ haproxy_on_loopback.sh ──▶ rewrite(text, limits) ──▶ haproxy.cfg.loopback ──▶ HAProxy

Ray writes the file anew and starts HAProxy anew whenever a Router comes or goes, each time through the script, so the
changes outlive every reload. What they are:

    pages      HAProxy's own pages, statistics and metrics, go: they ask for no key, and Ray binds them to all
               interfaces, whatever `http_options.host` is. (`/metrics` of the server has the figures, with a key.) The
               frontends stay as they are: whether they may be open is `deployments/api/access.py`'s business. Where a
               later Ray names its sections otherwise, they are all bound to loopback.
    admin      The admin socket has mode 600. Ray opens it to every user (666), and through it any of them can send
               requests to a server of their own.
    log        The access log goes. Ray sends a line for each request, with its path, as a datagram to port 514 of this
               machine: to any process that has taken that port, and from a socket that HAProxy binds to all interfaces.
               A target that RAY_SERVE_HAPROXY_LOG_TARGET names stays.
    splice     Ray's `splice-request` goes: HAProxy 2.8 then doesn't see a client leave whose body came in a packet of
               its own (any HTTP library's), and the tier would go on for nobody. Measured 2026-11-22: with it the
               Router hears of it at the request's end; without it after less than a millisecond.
    slow       a request's head, and its body as far as a buffer holds it, come within `header_s`, and only then is
               there anything for the Router to do. A client that reads nothing of what is sent for `unread_s` is cut
               off (Ray's flag for `timeout client`, set in `deployments/cli/serve_command.py`): HAProxy closes its
               connection to the Router, the tier stops and the grant is settled with what was used. That clock doesn't
               run while the client waits for the server: tried with a server that is silent for twice as long, before
               its headers and after them. The client's send buffer is small, so that a slow reader is seen to
               read: with a bound of 3 s a reader of 3 kB/s is served, hence one of 150 B/s with 60 s.
    crowds     of the connections that there may be, one address has at most three quarters; beyond, its next ones are
               closed unread. All of this machine's clients are one address, so it must be the larger part, and the
               rest stays for the other addresses.
    errors     HAProxy's own answers are JSON of OpenAI's shape with the status that is meant. Ray makes every 502, 503
               and 504 a 500, and before the app is up every path is a 404; here that is a 503 with a `Retry-After`.

What must never happen: a text of a client's in one of the answers. They are constants.

HAProxy 2.8 answers a request that it can't parse (400) and a head that comes too slowly (408) with pages of HTML that
are a part of the program: no option changes them. A head over 64 KiB and under the buffer's 96 gets a 431; with a
larger one HAProxy can't parse on.

Measured 2026-11-23, 2 vCPU AMD EPYC Linux, `python -m loadtests.slow_clients PORT --clients 4300`, all of one address:
before these changes 4,300 were left after 30 s and a bystander got one answer in that time; with them none after 13 s,
and a bystander waited 13 ms (median), at most 50 ms.

A connection that dribbles its head holds what it has sent, at most one buffer: 8,192 x 3/4 full ones are 576 MiB, for
`header_s` seconds.

This file is also a program, which the script runs once for each start of HAProxy: `python haproxy.py IN > OUT`. So it
imports nothing but Python's own library: 40 ms at best (2026-11-23, 2 vCPU AMD EPYC Linux, `python -I -S haproxy.py
FILE`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BUFFER_BYTES",
    "HEADER_BYTES_MAX",
    "OWN_ERRORS",
    "WRAPPER",
    "Limits",
    "OwnError",
    "limits_of",
    "read_seconds",
    "rewrite",
]

WRAPPER = Path(__file__).with_name("haproxy_on_loopback.sh")  # what Ray starts in HAProxy's place

# What a head may have; browsers send cookies of 60 KB. Node and most proxies draw the line at 8 to 32.
HEADER_BYTES_MAX = 65_536
BUFFER_BYTES = 98_304
# The kernel doubles it. Larger, and a slow reader's progress would be seen too seldom.
SEND_BUFFER_BYTES = 16_384
SOURCES_MAX = 100_000
SOURCE_FORGOTTEN_S = 60
HEADER_S, UNREAD_S = 10.0, 60.0
FRONTENDS = ("http_frontend", "grpc_frontend")
PAGES = (("frontend", "prometheus"), ("listen", "stats"))
TABLE = "mlx_stack_sources"
DEFAULT_LOG = "127.0.0.1:514"  # Ray's default


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`header_s` for the head of a request; `of_one` connections for one address."""

    header_s: float = HEADER_S
    of_one: int = 3072


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnError:
    """One of HAProxy's own answers. `code` and `type` are those of `deployments/errors.py`."""

    status: int
    code: str
    type: str
    message: str
    retry_after_s: int | None = None

    def body(self) -> str:
        """Write the JSON."""
        error = {"message": self.message, "type": self.type, "param": None, "code": self.code}
        return json.dumps({"error": error})

    def words(self) -> str:
        """Write the rest of a line of HAProxy's, after the status. Neither a message nor JSON has
        an apostrophe."""
        headers = "hdr x-should-retry false" if self.retry_after_s is None else f"hdr retry-after {self.retry_after_s}"
        return f"content-type application/json string '{self.body()}' {headers}"


INVALID, SERVER = "invalid_request_error", "server_error"
UNREADABLE = "this is no HTTP request that can be read: look at its request line, its headers and its Content-Length"
SLOW = "the request came too slowly: send its headers and its body without a pause"
LARGE = f"the headers are over {HEADER_BYTES_MAX} bytes: send fewer or shorter ones (cookies, as a rule)"
STARTING = "the server is starting, or its Router is: ask again in a few seconds; GET /ready says when it can answer"
ENDED = "the Router ended while it had the request; another one is started within seconds: ask again"
LATE = "the Router did not answer in time"

STARTING_ERROR = OwnError(status=503, code="server_starting", type=SERVER, message=STARTING, retry_after_s=5)
LARGE_ERROR = OwnError(status=431, code="headers_too_large", type=INVALID, message=LARGE)
NO_ROUTE = OwnError(status=404, code="not_found", type=INVALID, message="there is no app under this path")
# What HAProxy answers by itself, by the status that it gives it.
OWN_ERRORS = (
    OwnError(status=400, code="invalid_request", type=INVALID, message=UNREADABLE),
    OwnError(status=408, code="request_timeout", type=INVALID, message=SLOW, retry_after_s=1),
    OwnError(status=500, code="internal_error", type=SERVER, message="an error inside the server", retry_after_s=5),
    OwnError(status=502, code="server_restarting", type=SERVER, message=ENDED, retry_after_s=2),
    STARTING_ERROR,
    OwnError(status=504, code="timeout", type="timeout_error", message=LATE, retry_after_s=5),
)


def limits_of(environ: Mapping[str, str]) -> Limits:
    """Read the limits that the environment asks for (`serve.env`, `deployments/cli/serve_command.py`).

    Raises:
        ValueError: one line that names the variable.
    """
    of_one = environ.get("MLX_STACK_CONNECTIONS_OF_ONE", "")
    if of_one and not (of_one.isascii() and of_one.isdigit() and int(of_one) > 0):
        raise ValueError(f"MLX_STACK_CONNECTIONS_OF_ONE: a whole number of connections is needed, not {of_one!r}")
    header_s = read_seconds(environ, "MLX_STACK_HEADER_S", HEADER_S)
    return Limits(header_s=header_s, of_one=int(of_one)) if of_one else Limits(header_s=header_s)


def read_seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    """Read the seconds that a variable of the environment holds, `default` where it isn't set.

    Raises:
        ValueError: one line that names the variable.
    """
    text = environ.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", text) or not float(text):
        raise ValueError(f"{name}: seconds are needed (over 0, under 100000), not {text!r}")
    return float(text)


def rewrite(text: str, limits: Limits) -> str:
    """Rewrite Ray's configuration with this server's changes."""
    routed = re.search(r"^ *use_backend ", text, re.MULTILINE) is not None
    lines: list[str] = []
    section: tuple[str, ...] = ("",)
    for line in text.splitlines():
        if re.match("[a-z]", line):
            section = tuple(line.split()[:2])
            lines += [] if section in PAGES else [line, *_add_first_lines(section, limits)]
        elif section not in PAGES:
            lines += _change_line(line, section, routed)
    return "\n".join([*lines, *_make_sources_table()]) + "\n"


def _add_first_lines(section: tuple[str, ...], limits: Limits) -> Iterator[str]:
    """Yield what is added at the beginning of a section."""
    if section[0] == "global":
        yield f"    tune.sndbuf.client {SEND_BUFFER_BYTES}"
    if section[0] == "defaults":
        yield f"    timeout http-request {round(limits.header_s * 1000)}ms"
        # A connection that was opened ahead and never used is closed without a word.
        yield "    option http-ignore-probes"
        yield from (f"    http-error status {error.status} {error.words()}" for error in OWN_ERRORS)
    if section == ("frontend", "http_frontend"):
        yield "    option http-buffer-request"
        yield f"    tcp-request connection track-sc0 src table {TABLE}"
        yield f"    tcp-request connection reject if {{ sc0_conn_cur({TABLE}) gt {limits.of_one} }}"
        too_large = f"{{ req.hdrs,length gt {HEADER_BYTES_MAX} }}"
        yield f"    http-request return status {LARGE_ERROR.status} {LARGE_ERROR.words()} if {too_large}"


def _change_line(line: str, section: tuple[str, ...], routed: bool) -> list[str]:
    """Return a line of Ray's: as it is, changed, or none."""
    words = line.split()
    if words[:1] == ["bind"] and not (section[0] == "frontend" and section[-1] in FRONTENDS):
        return [re.sub(r"bind +(\*|0\.0\.0\.0|\[::\]|::)?:", "bind 127.0.0.1:", line, count=1)]
    if words[:2] == ["stats", "socket"]:  # whoever may write there sends requests, and their keys, to another server
        return [re.sub(r" mode +[0-7]+", "", line) + " mode 600"]
    if section == ("global",) and words[:2] == ["log", DEFAULT_LOG]:
        return []
    if words[:2] == ["option", "splice-request"] or words[:1] == ["errorfile"]:
        return []
    if words[:2] == ["timeout", "http-request"]:
        return []
    if section == ("backend", "default_backend") and words[:2] == ["http-request", "return"]:
        error = NO_ROUTE if routed else STARTING_ERROR
        return [f"    http-request return status {error.status} {error.words()}"]
    return [line]


def _make_sources_table() -> list[str]:
    """Write the table of who has how many connections."""
    return [
        f"backend {TABLE}",
        f"    stick-table type ipv6 size {SOURCES_MAX} expire {SOURCE_FORGOTTEN_S}s store conn_cur",
    ]


if __name__ == "__main__":
    sys.stdout.write(rewrite(Path(sys.argv[1]).read_text(encoding="utf-8"), limits_of(os.environ)))
