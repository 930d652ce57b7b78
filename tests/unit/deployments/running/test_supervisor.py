"""Whether the server answers where a client would ask it."""

import socket
from threading import Thread

import pytest

from deployments.running.supervisor import is_open
from tests.support.loopback import JsonServer


@pytest.mark.parametrize(("status", "is_it"), [(200, True), (204, False), (404, False), (503, False)])
def test_only_a_200_is_an_answer(status: int, is_it: bool) -> None:
    """Law: a server that is still starting, and something else on that port, isn't ours."""
    with JsonServer({"/health": (status, {})}) as server:
        assert is_open(server.url) is is_it


def test_what_speaks_no_http_is_no_answer() -> None:
    """Law: whatever else stands on the port and says what it likes, no server, and no address at all, are no answer."""
    assert not any(map(is_open, ("http://127.0.0.1:1", "http://[", "no address")))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"SSH-2.0-nobody\r\n")
                peer.recv(1024)

        thread = Thread(target=greet)
        thread.start()
        assert not is_open(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
