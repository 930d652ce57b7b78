"""The client of the commands for operators, over TLS."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deployments.cli.server_client import NotAnswered, ServerClient
from deployments.config import ConfigError


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
    client.close()


def test_certificates_that_are_not_there_are_one_line(monkeypatch):
    """And only where they are asked for."""
    monkeypatch.setenv("SSL_CERT_FILE", "/none.pem")
    with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
        ServerClient("https://127.0.0.1:1", {})
    for host in ("127.0.0.1", "192.0.2.1"):
        ServerClient(f"http://{host}:1", {}).close()
