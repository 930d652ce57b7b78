"""Which hosts mean this machine: the one rule for listening, for peers, for proxies and for what leaves the machine."""

import ipaddress
import tracemalloc

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from deployments.config.loopback import _CONTAINER_HOSTS, is_loopback, is_own, is_own_page

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))

addresses = st.one_of(
    st.ip_addresses(v=4),
    st.ip_addresses(v=6),
    st.ip_addresses(network="127.0.0.0/8"),
    st.ip_addresses(v=4).map(lambda address: ipaddress.IPv6Address(f"::ffff:{address}")),
    st.sampled_from([ipaddress.ip_address(text) for text in ("::1", "::", "0.0.0.0", "::ffff:127.0.0.1")]),
)


def spellings(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[str]:
    """The same address as it may stand in a configuration, a peer's address and a URL."""
    bare = [str(address), address.exploded, str(address).upper()]
    return [*bare, *(f"[{text}]" for text in bare)] if address.version == 6 else bare


@given(addresses)
@example(ipaddress.ip_address("::1"))
@example(ipaddress.ip_address("::ffff:127.0.0.1"))
@example(ipaddress.ip_address("127.1.2.3"))
@example(ipaddress.ip_address("0.0.0.0"))
@example(ipaddress.ip_address("::"))
def test_an_address_is_loopback_by_its_network_in_every_spelling(address):
    """Two networks are loopback and no other address is: bare, in full, in capitals, mapped, and an IPv6 one in the
    brackets of a URL. `[::1]` was loopback for what leaves the machine, and none for listening."""
    meant = getattr(address, "ipv4_mapped", None) or address
    expected = any(meant.version == network.version and meant in network for network in LOOPBACK)

    assert {text: is_loopback(text) for text in spellings(address)} == dict.fromkeys(spellings(address), expected)


@given(
    addresses, st.sampled_from(["{}:8000", "[{}]:8000", "[{}", "[{}x", "{}]", "[[{}]]", " {}", "{} ", "{}/8", "//{}"])
)
@example(ipaddress.ip_address("::1"), "[{}]:8000")
@example(ipaddress.ip_address("::1"), "[{}")
@example(ipaddress.ip_address("::1"), "[{}x")
def test_what_is_more_or_less_than_a_host_is_none(address, form):
    """A port, half a bracket, a space: it may be read as another host elsewhere, so nobody is let in for it, and a
    prompt that would go there leaves the machine. Half a bracket was loopback for what leaves the machine."""
    assume(form != "{}:8000" or address.version == 4)  # behind a bare IPv6 address it is no port

    assert not is_loopback(form.format(address))


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "LocalHost"])
def test_localhost_is_a_name_of_this_machine(name):
    """In any case."""
    assert is_loopback(name)


@pytest.mark.parametrize(
    "name",
    [None, "", "LOCALHOST.", "localhost.", "[localhost]", "localhost.example.org", "127.1", "[127.0.0.1]", "0x7f.0.0.1",
     "2130706433", "localho\u017ft", "::127.0.0.1"],
)  # fmt: skip
def test_nothing_else_means_this_machine(name):
    """With a dot behind it `localhost` is looked up in the DNS, past /etc/hosts (glibc 2.36); what a resolver says may
    change between the question and the call."""
    assert not is_loopback(name)


@given(st.text())
def test_any_text_is_a_host_or_not(text):
    """No text raises; what is no address of this machine is not loopback."""
    assert is_loopback(text) in (True, False)
    assert not is_loopback(text + ".example.org")


@given(st.from_regex(r"([a-z0-9-]{1,8}\.){0,3}internal", fullmatch=True), st.sampled_from(["", ":8000"]))
@example("host.docker.internal", ":8000")
@example("docker.internal", "")
@example("x.host.docker.internal", "")
def test_a_name_under_internal_is_a_container_s_host_or_another_s(name, port):
    """Companies and clouds give such names to their machines; only those that container programs define mean ours."""
    assert is_own(name + port) == is_own(f"http://{name}{port}") == (name in _CONTAINER_HOSTS)


@pytest.mark.parametrize("reader", [is_own, is_own_page, is_loopback])
@pytest.mark.parametrize("form", ["http://{}", "{}:8000", "{}.localhost"])
def test_no_long_host_is_kept(reader, form):
    """Law: whatever `Host` and `Origin` a stranger sends, what is kept of them is small, and none is this machine."""
    tracemalloc.start()
    assert not any(reader(form.format(f"{number}" + "x" * 60_000)) for number in range(300))
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert kept_bytes < 1_000_000  # Python itself caches some
