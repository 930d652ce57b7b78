"""Where the server listens, on loopback or for others too, and which hosts mean this machine.

`is_loopback` is the one answer for all who ask: the host to listen on, a peer's address, a tier's URL (what leaves the
machine is cloud) and whether a proxy could reach it. What is doubtful is not loopback.

Ray Serve's proxy listens on `http_options.host` for every app of the instance, and its default in a
config file is all interfaces. Serve tells no app, but its controller knows, and everything that
runs under Serve can ask it: the builder of `serve run` and `serve deploy` (a task that the
controller starts), and a replica in its constructor, in `__serve_build_asgi_app__` and in
`reconfigure` (in this order). Serve has no public call for it; `find_serving_host` reads what its
client got when it connected, and refuses to guess where that is no longer there.

Measured 2026-11-22, ray 2.60.0, 2 vCPU AMD EPYC Linux, `serve run` with `host: 0.0.0.0` and a builder and a replica
that write down what they see: the right host in all four places, in the default, direct-ingress and HAProxy modes;
31 to 41 ms in the builder, 3 to 5 ms in the constructor, and nothing after that. The peer's address reaches the app as
the ASGI scope's `client` in the default and direct-ingress modes. In HAProxy mode it is HAProxy's own 127.0.0.1, so
there the address of a request proves nothing and only the host counts. Where the peer is on loopback, uvicorn puts
the address of its `X-Forwarded-For` in its place (also in HAProxy mode); from other peers it ignores the header, unless
`FORWARDED_ALLOW_IPS` says otherwise.

What must never happen: a host that another machine can reach, or be, taken for this one.
"""

from __future__ import annotations

import functools
import ipaddress
from urllib.parse import urlsplit

from deployments.config import ConfigError

__all__ = ["find_serving_host", "is_loopback", "is_own", "is_own_page"]


# By these a container calls the machine that it runs on: Docker and Podman (both know the first), Podman
# (docs.podman.io, `podman run --add-host`), Lima and Colima (lima-vm.io/docs/config/network/user), OrbStack.
CONTAINER_HOSTS = frozenset(
    {"host.docker.internal", "host.containers.internal", "host.lima.internal", "host.orb.internal"}
)


@functools.lru_cache(maxsize=1024)  # asked with each request, mostly of one address
def is_loopback(host: str | None) -> bool:
    """Tell whether only this machine can reach, or be, `host`: 127.0.0.0/8, ::1 (also mapped, and
    in the brackets of a URL), `localhost`.

    None (no address is known) is not, and no other name: what a resolver says may change between the question and the
    call. `localhost.` is such a name: with the dot it is looked up in the DNS, past /etc/hosts."""
    if host is None:
        return False
    try:
        address = _address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address. Only an IPv6 one may stand in brackets."""
    if host.startswith("[") and host.endswith("]"):
        return ipaddress.IPv6Address(host[1:-1])
    return ipaddress.ip_address(host)


@functools.lru_cache(maxsize=1024)
def is_own(named: str) -> bool:
    """Tell whether a `Host` or `Origin` header names this machine, or nobody ("").

    So do loopback's addresses and names, and those of `CONTAINER_HOSTS`. Any other name may be another machine's, or
    become ours by a DNS answer: one under `.internal` too, which companies and clouds give to their machines. Nor does
    this machine's own hostname count: in a local network anyone may claim it."""
    return not named or _is_local(_parse_host(named)) or _parse_host(named) in CONTAINER_HOSTS


@functools.lru_cache(maxsize=1024)
def is_own_page(origin: str) -> bool:
    """Tell whether an `Origin` is a web page that this machine serves, by loopback's addresses and names."""
    return "//" in origin and _is_local(_parse_host(origin))


def _is_local(host: str) -> bool:
    return is_loopback(host) or host.endswith(".localhost")


def _parse_host(named: str) -> str:
    """Parse the host of an origin or a `Host` header; "" where there is none."""
    try:
        return urlsplit(named if "//" in named else f"//{named}").hostname or ""
    except ValueError:
        return ""


def find_serving_host() -> str | None:
    """Find the host that Serve's proxies listen on; None where no Serve runs yet, so that nothing
    listens.

    Raises:
        ConfigError: Serve runs and doesn't say; where nobody knows, nothing may be served.
    """
    import ray  # not with the module: who only asks about a host needs no Ray

    if not ray.is_initialized():
        return None
    try:
        from ray.serve.context import _get_global_client

        client = _get_global_client(raise_if_no_controller_running=False)
        # "" stands for a host that Serve doesn't name: it is not loopback, and not None either.
        return None if client is None else str(client.http_config.host or "")
    except Exception as error:
        words = f"can't find out where Ray Serve listens ({type(error).__name__}); configure API keys"
        raise ConfigError(f"server.api_keys_file: {words}") from error
