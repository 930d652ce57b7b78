"""Does this host name mean this machine? The one answer for proxies, for local-only requests and for listening."""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback"]


def is_loopback(host: str) -> bool:
    """True for `localhost` and for addresses of the loopback interface, however they are written.

    A name that only resolves to loopback here is not one: what a resolver says may change between the question and
    the call. Neither is 0.0.0.0, which is every interface.
    """
    name = host.strip().removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name.casefold() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
