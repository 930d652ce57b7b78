"""Which hosts mean this machine: one answer for all who ask.

`is_loopback` tells it of the host to listen on, a peer's address, a tier's URL (what leaves the machine is cloud) and
whether a proxy could reach it. Invariant: a host that another machine can reach, or be, is never taken for this one; in
doubt it is not loopback.
"""

from __future__ import annotations

import functools
import ipaddress
from urllib.parse import urlsplit

# By these a container calls the machine that it runs on: Docker and Podman (both know the first), Podman
# (docs.podman.io, `podman run --add-host`), Lima and Colima (lima-vm.io/docs/config/network/user), OrbStack.
_CONTAINER_HOSTS = frozenset(
    {"host.docker.internal", "host.containers.internal", "host.lima.internal", "host.orb.internal"}
)


_HOST_CHARS_MAX = 253  # of a name in the DNS


def is_loopback(host: str | None) -> bool:
    """Tell whether only this machine can reach, or be, `host`: 127.0.0.0/8, ::1 (also mapped, and in the brackets of a
    URL), `localhost`. No other name is: what a resolver says may change. `localhost.` is looked up in the DNS."""
    return host is not None and len(host) <= _HOST_CHARS_MAX and _is_loopback(host)


@functools.lru_cache(maxsize=1024)  # asked with each request, mostly of one address
def _is_loopback(host: str) -> bool:
    try:
        bracketed = host.startswith("[") and host.endswith("]")  # as only an IPv6 address may stand
        address = ipaddress.IPv6Address(host[1:-1]) if bracketed else ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_own(named: str) -> bool:
    """Tell whether a `Host` or `Origin` header names this machine, or nobody (""): loopback's addresses and names, and
    `_CONTAINER_HOSTS`. Any other name may be another machine's, or become ours by a DNS answer: one under `.internal`
    too, and this machine's own hostname, which anyone in a local network may claim."""
    return not named or _is_local(_parse_host(named)) or _parse_host(named) in _CONTAINER_HOSTS


def is_own_page(origin: str) -> bool:
    """Tell whether an `Origin` is a web page that this machine serves, by loopback's addresses and names."""
    return "//" in origin and _is_local(_parse_host(origin))


def _is_local(host: str) -> bool:
    return is_loopback(host) or host.endswith(".localhost")


def _parse_host(named: str) -> str:
    if len(named) > 2 * _HOST_CHARS_MAX:  # `urlsplit` keeps what it has read
        return ""
    try:
        return urlsplit(named if "//" in named else f"//{named}").hostname or ""
    except ValueError:
        return ""
