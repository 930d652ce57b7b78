"""The client of the commands that ask a running server: over TLS, and of servers that mean no good."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import http.server
import ipaddress
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deployments.cli.server_client import NotAnswered, ServerClient
from deployments.config.config_errors import ConfigError


class Listed(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": []}')

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def certify(folder: Path) -> ssl.SSLContext:
    """A certificate of one's own for this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listed) as server:
        server.socket = certify(tmp_path).wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_certificate_of_one_s_own_is_believed_where_the_environment_names_it(url, tmp_path, monkeypatch):
    """By `SSL_CERT_FILE`, on our own machine as elsewhere; a proxy of the environment is still not asked there."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(NotAnswered, match="CERTIFICATE_VERIFY_FAILED"):
        ServerClient(url.replace("https", "HTTPS"), {}).get("sessions")

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    client = ServerClient(url, {})
    assert client.get("sessions") == {"data": []}


def test_certificates_that_are_not_there_are_one_line(monkeypatch):
    """And only where they are asked for."""
    monkeypatch.setenv("SSL_CERT_FILE", "/none.pem")
    with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
        ServerClient("https://127.0.0.1:1", {})
    for host in ("127.0.0.1", "192.0.2.1"):
        ServerClient(f"http://{host}:1", {})


def drip(peer: socket.socket, text: bytes, head: bytes = b"") -> None:
    """Send `text` a byte at a time, a little within each read's own time, for as long as the client stays."""
    peer.sendall(head)
    gone = threading.Event()
    for byte in text * 100:
        peer.sendall(bytes([byte]))
        gone.wait(0.05)


def flood(peer: socket.socket) -> None:
    """Send a body that has no end."""
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        peer.sendall(bytes(1 << 20))


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
HOSTILE: dict[str, Callable[[socket.socket], None]] = {
    "nothing within 0.5 s": lambda peer: drip(peer, HEAD),
    "nothing within 0.5 s (body)": lambda peer: drip(peer, b" ", head=HEAD + b"\r\n"),
    "its answer is over 32 MiB": flood,
    "it compresses its answer unasked": lambda peer: peer.sendall(
        HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(bytes(1 << 26))
    ),
    "Server disconnected": lambda peer: None,
    "Server disconnected (no HTTP)": lambda peer: peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 8),
}


@pytest.mark.parametrize("said", HOSTILE)
def test_an_answer_ends(said):
    """A server that drips its head or its body, sends without end, compresses, hangs up or speaks no HTTP costs one
    line, within `ask_s` and a bound of memory."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            with contextlib.suppress(OSError):
                HOSTILE[said](self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        ask_s = 0.5 if "within" in said else 30.0
        client = ServerClient(f"http://127.0.0.1:{server.server_address[1]}", {}, ask_s=ask_s)
        with pytest.raises(NotAnswered, match=said.partition(" (")[0]) as caught:
            client.get("live")
        server.shutdown()

    assert "\n" not in str(caught.value)
