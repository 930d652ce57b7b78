"""The Router's own part of a request that reads what is stored: whom it counts for, and for how long."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.api.access import Access
from deployments.api.api_keys import ApiKey, digest
from deployments.api.openai_responses import stored_responses
from deployments.api.openai_responses.item_ids import make_tag, name_response
from deployments.api.openai_responses.stored_record import write_record
from tests.support.bare_router import build_app

LARGE = b'{"x":"%b"}' % (b"x" * 100_000)
KEYS = Access(tuple(ApiKey(name=name, sha256=digest(name * 32), admin=True) for name in "ab"))
RESPONSE = f"/v1/responses/{name_response(make_tag())}"
AT = "/v1/reliability"
LISTS = (f"{AT}/requests", f"{AT}/sessions", f"{AT}/incidents")
READ = (RESPONSE, f"{RESPONSE}/input_items", *LISTS, f"{AT}/requests/r", f"{AT}/sessions/s")
SLOTS = 12


class Shelf:
    """A state that has one large row of everything."""

    async def recall_responses(self, *_: Any) -> list[Any]:
        size, record = write_record(b'[{"id":"i",%b]' % LARGE[1:], LARGE)
        return [SimpleNamespace(size=size, record=record)]

    async def browse(self, _: Any) -> list[dict[str, Any]]:
        return [{"id": 1, "used_s": 1.0, "x": "x" * 100_000}]

    async def find_keys(self, *_: Any) -> list[str]:
        return ["a"]

    async def report(self, *_: Any) -> dict[str, Any]:
        return {"x": "x" * 100_000}

    session = report


@pytest.mark.parametrize("path", READ, ids=range(len(READ)))
async def test_what_is_read_and_not_taken_is_bounded_by_key(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Law: a request that reads what is stored counts for its key until the client has taken the answer, and so do the
    bytes that a list or a stored response may have. 240 lists that no client took held 600 MiB of a Router, and 400
    requests that waited to read a stored response kept another key's chat waiting for 12 s."""
    monkeypatch.setattr(stored_responses, "WAIT_S", 0.01)
    app, taken = build_app(KEYS, Shelf(), SLOTS), asyncio.Event()

    async def get(key: str, client_reads: asyncio.Event | None = None) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            if client_reads and sum(len(each.get("body", b"")) for each in sent) > 65_536:
                await client_reads.wait()  # as uvicorn does
            sent.append(message)

        headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + key.encode() * 32)]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "client": ("127.0.0.1", 1)}
        await app({**scope, "headers": headers}, asyncio.Event().wait, send)
        return int(sent[0]["status"])

    crowd = [asyncio.create_task(get("a", taken)) for _ in range(40)]
    served = 8 if path in (*LISTS, RESPONSE, READ[1]) else SLOTS
    refused: list[int] = []
    for done in asyncio.as_completed(crowd, timeout=20):
        refused.append(await done)
        if len(refused) == len(crowd) - served:
            break
    assert refused == [429] * (len(crowd) - served)
    assert await get("b") == 200
    taken.set()
    assert sorted(await asyncio.gather(*crowd)) == [200] * served + refused
    assert await get("a") == 200
