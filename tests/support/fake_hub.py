"""A hub on loopback: one repository, answered as huggingface_hub's client asks it, with ranges, large files compressed
for clients that take that, and connections that break after so many bytes."""

import gzip
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAME = "org/name"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """`breaks_after`: the bytes that a large file's connection carries before it ends, or, with `stalls`, before it
    carries no more; None: all. `served_bytes` counts those of large files, `asked` all requests."""

    def __init__(self, files: Mapping[str, bytes], large: set[str]) -> None:
        self.files, self.large = dict(files), large
        self.breaks_after: int | None = None
        self.stalls = False
        self.served_bytes = self.asked = 0
        self.url = ""

    def describe(self) -> dict[str, Any]:
        """The answer to `model_info`, with the files' metadata."""
        siblings = []
        for name, content in self.files.items():
            one: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
            if name in self.large:
                one["lfs"] = {"sha256": hash_content(content), "size": len(content), "pointerSize": 130}
            siblings.append(one)
        return {"id": NAME, "sha": COMMIT, "siblings": siblings, "private": False, "gated": False}

    def list_tree(self) -> list[dict[str, Any]]:
        """The answer to `list_repo_tree`."""
        entries = []
        for name, content in self.files.items():
            one: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": self.etag(name)}
            if name in self.large:
                one["lfs"] = {"oid": hash_content(content), "size": len(content), "pointerSize": 130}
            entries.append(one)
        return entries

    def etag(self, name: str) -> str:
        content = self.files[name]
        return hash_content(content) if name in self.large else hashlib.sha1(content).hexdigest()


def hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def run_hub(files: Mapping[str, bytes], large: set[str]) -> Iterator[FakeHub]:
    """Serve the files until the block ends."""
    hub = FakeHub(files, large)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(head=True)

        def do_GET(self) -> None:
            self.answer(head=False)

        def answer(self, *, head: bool) -> None:
            path = self.path.partition("?")[0]
            hub.asked += 1
            if path.startswith(f"/api/models/{NAME}"):
                said: Any = hub.list_tree() if "/tree/" in path else hub.describe()
                self.send(json.dumps(said).encode(), {"Content-Type": "application/json"}, head=head)
                return
            name = path.rpartition("/")[2]
            if not path.startswith(f"/{NAME}/resolve/") or name not in hub.files:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_file(name, head=head)

        def send(self, content: bytes, headers: Mapping[str, str], *, head: bool, status: int = 200) -> None:
            self.send_response(status)
            for key, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            if not head:
                self.wfile.write(content)

        def send_file(self, name: str, *, head: bool) -> None:
            content, status = hub.files[name], 200
            headers = {"ETag": f'"{hub.etag(name)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
            asked = self.headers.get("Range", "")
            if asked.startswith("bytes="):
                content, status = content[int(asked[6:].partition("-")[0]) :], 206
            if "gzip" in self.headers.get("Accept-Encoding", "") and name in hub.large and not head:
                content = gzip.compress(content)
                headers["Content-Encoding"] = "gzip"
            if head or name not in hub.large:
                self.send(content, headers, head=head, status=status)
                return
            cut = len(content) if hub.breaks_after is None else min(len(content), hub.breaks_after)
            hub.served_bytes += cut
            self.send(content[:cut], {**headers, "Content-Length": str(len(content))}, head=False, status=status)
            self.close_connection = True
            if hub.stalls:
                self.connection.recv(1)  # until the client goes away

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
