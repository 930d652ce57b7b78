"""A hub on loopback: one repository, answered as huggingface_hub's client asks it, with ranges, large files compressed
for clients that take that, and connections that break after so many bytes."""

import gzip
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tests.support.loopback import LoopbackHandler, LoopbackServer

NAME = "org/name"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(LoopbackServer):
    """`breaks_after`: the bytes that a large file's connection carries before it ends, or, with `stalls`, before it
    carries no more; None: all. `served_bytes` counts those of large files, `asked` all requests."""

    def __init__(self, files: Mapping[str, bytes], large: set[str]) -> None:
        super().__init__(_Handler)
        self.files, self.large = dict(files), large
        self.breaks_after: int | None = None
        self.stalls = False
        self.served_bytes = self.asked = 0

    def describe(self) -> dict[str, Any]:
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
            | self._point_to(name, "sha256")
            for name, content in self.files.items()
        ]
        return {"id": NAME, "sha": COMMIT, "siblings": siblings, "private": False, "gated": False}

    def list_tree(self) -> list[dict[str, Any]]:
        return [
            {"type": "file", "path": name, "size": len(content), "oid": self.etag(name)} | self._point_to(name, "oid")
            for name, content in self.files.items()
        ]

    def _point_to(self, name: str, key: str) -> dict[str, Any]:
        """What is said of a large file beside the rest, its hash as `key`."""
        pointer = {key: self.etag(name), "size": len(self.files[name]), "pointerSize": 130}
        return {"lfs": pointer} if name in self.large else {}

    def etag(self, name: str) -> str:
        content = self.files[name]
        return hash_content(content) if name in self.large else hashlib.sha1(content).hexdigest()


def hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _Handler(LoopbackHandler):
    def get(self) -> None:
        path, hub = self.path.partition("?")[0], self.server
        hub.asked += 1
        name = path.rpartition("/")[2]
        if path.startswith(f"/api/models/{NAME}"):
            said: Any = hub.list_tree() if "/tree/" in path else hub.describe()
            self.reply(json.dumps(said).encode(), headers={"Content-Type": "application/json"})
        elif path.startswith(f"/{NAME}/resolve/") and name in hub.files:
            self._send_file(hub, name)
        else:
            self.reply(status=404)

    def _send_file(self, hub: FakeHub, name: str) -> None:
        content, status = hub.files[name], 200
        headers = {"ETag": f'"{hub.etag(name)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes="):
            content, status = content[int(asked[6:].partition("-")[0]) :], 206
        if self.command == "HEAD" or name not in hub.large:
            self.reply(content, status, headers)
            return
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            content = gzip.compress(content)
            headers["Content-Encoding"] = "gzip"
        cut = len(content) if hub.breaks_after is None else min(len(content), hub.breaks_after)
        hub.served_bytes += cut
        self.reply(content[:cut], status, {**headers, "content-length": str(len(content))})
        self.close_connection = True
        if hub.stalls:
            self.connection.recv(1)  # until the client goes away
