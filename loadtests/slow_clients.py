"""Slow clients against a running server: how long they stay, and what a bystander observes of them.

    python -m loadtests.slow_clients PORT [--clients 4300] [--wait 60] [--model fast]

All clients and the bystander come from one address. The clients are of five kinds, in equal parts: a request line, a
header, headers, a chunked body and a counted body, each of which goes on by a few bytes a second and never ends. The
bystander asks for short chat completions all the while, on a connection of its own each time.

What must never happen: a word to another machine. The server is the one on 127.0.0.1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sys
import threading
import time
from dataclasses import dataclass, field

from loadtests.series import quantile

POST = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
# How a client begins, and how it goes on.
KINDS = (
    ("GET /v1/mod", "a"),
    ("GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nx-a: ", "a"),
    (POST, "x-b: c\r\n"),
    (POST + "transfer-encoding: chunked\r\n\r\n", "1\r\n{\r\n"),
    (POST + "content-length: 9000000\r\n\r\n", "{"),
)
CLIENTS_MAX = 20_000
EVERY_S = 1.0
BYSTANDER_EVERY_S = 0.1
ANSWER_S = 10.0


@dataclass
class Bystander:
    """A client that asks until it is stopped. `waits_s`: of good answers; `bad`: what came of the others."""

    port: int
    model: str
    waits_s: list[float] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Ask until `stop`."""
        body = json.dumps({"model": self.model, "messages": [{"role": "user", "content": "hi"}]})
        sent = f"{POST}connection: close\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        while not self.stop.wait(BYSTANDER_EVERY_S):
            begun_s = time.monotonic()
            try:
                answer = self._ask(sent)
            except OSError as error:
                answer = repr(error).encode()
            if answer.startswith(b"HTTP/1.1 200"):
                self.waits_s.append(time.monotonic() - begun_s)
            else:
                self.bad.append(answer[:60].decode("latin-1"))

    def _ask(self, sent: bytes) -> bytes:
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S) as peer:
            peer.sendall(sent)
            while part := peer.recv(65536):
                answer += part
        return answer

    def line(self) -> str:
        """Describe what it observed."""
        p50, p99 = quantile(self.waits_s, 0.5), quantile(self.waits_s, 0.99)
        longest = max(self.waits_s, default=float("nan"))
        good = f"{len(self.waits_s)} good answers, p50 {p50:.3f} s, p99 {p99:.3f} s, longest {longest:.3f} s"
        return f"bystander: {good}; {len(self.bad)} bad {sorted(set(self.bad))}"


def connect(port: int, clients: int) -> dict[int, socket.socket]:
    """Open the slow clients; their numbers say of which kind they are."""
    crowd = {}
    for number in range(clients):
        peer = socket.socket()
        with contextlib.suppress(OSError):
            peer.connect(("127.0.0.1", port))
            peer.sendall(KINDS[number % len(KINDS)][0].encode())
            peer.setblocking(False)
            crowd[number] = peer
    return crowd


def dribble(crowd: dict[int, socket.socket]) -> None:
    """Let every client send a little more; drop those that were answered or closed."""
    for number, peer in list(crowd.items()):
        try:
            with contextlib.suppress(BlockingIOError):
                if not peer.recv(4096):
                    raise ConnectionError
            peer.send(KINDS[number % len(KINDS)][1].encode())
        except OSError:
            crowd.pop(number).close()


def main() -> int:
    """Print what became of the clients; 1 where some are left, or the bystander had a bad answer."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.slow_clients")
    parser.add_argument("port", type=int)
    parser.add_argument("--clients", type=int, default=4300)
    parser.add_argument("--wait", type=float, default=60.0)
    parser.add_argument("--model", default="fast")
    given = parser.parse_args()
    bystander = Bystander(given.port, given.model)
    thread = threading.Thread(target=bystander.run)
    thread.start()
    begun_s = time.monotonic()
    crowd = connect(given.port, min(given.clients, CLIENTS_MAX))
    opened = len(crowd)
    while crowd and time.monotonic() - begun_s < given.wait:
        dribble(crowd)
        time.sleep(EVERY_S)
    print(f"{opened} slow clients opened, {len(crowd)} left after {time.monotonic() - begun_s:.1f} s")
    bystander.stop.set()
    thread.join()
    print(bystander.line())
    for peer in crowd.values():
        peer.close()
    return 1 if crowd or bystander.bad else 0


if __name__ == "__main__":
    sys.exit(main())
