"""A Router is killed, and its client repeats the request: it gets the whole answer from its start, and pays it once.

Real Ray and real sockets: the Router's replica is killed with -9 in the middle of an answer, and the repeat goes to the
one that Serve starts in its place.
"""

import json
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.contract.test_faults import processes
from tests.support import scripts
from tests.support.client_load import PATIENT, Ledger
from tests.support.serving import Deploy, Server, until

pytestmark = pytest.mark.ray

APP = "repeated"
WORDS = 300
READ = 100  # words that the client has read when the Router dies
WORD_S = 0.01
DEADLINE_S = 15.0  # the call of a dead Router stays open so long
FAR_TOKENS = 64
PROMPT_TOKENS_MAX = 64
# Not one like the other: an answer that repeats itself is stopped. Each is one token to the tier.
TEXT = " ".join(f"w{number}" for number in range(WORDS))
ASKED = [{"role": "user", "content": "Tell me a long story."}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": ASKED},
    "messages": {"messages": ASKED, "max_tokens": 2 * WORDS},
    "responses": {"input": "Tell me a long story."},
}


@pytest.fixture(scope="module")
def server(deploy_on_ray: Deploy) -> Server:
    args = {
        "tiers": {"slow": {"kind": "scripted", "script": [{"token_delay_s": WORD_S, "answer": TEXT}]}},
        "reliability": {"escalation": {"chain": ["slow"]}, **scripts.UNBOUNDED},
        "server": {"timeouts": PATIENT, "deadline_s": DEADLINE_S},
    }
    return deploy_on_ray(args, APP)


def kill_router() -> None:
    (process,) = processes(f"ServeReplica:{APP}:Router")
    os.kill(process.pid, signal.SIGKILL)


def read_piece(frame: dict[str, Any]) -> str:
    """Read the text of one frame, in whichever dialect."""
    if frame.get("type") == "content_block_delta":
        return str(frame["delta"].get("text", ""))
    if frame.get("type") == "response.output_text.delta":
        return str(frame["delta"])
    return "".join(choice["delta"].get("content") or "" for choice in frame.get("choices", []))


def stream(
    server: Server, route: str, headers: dict[str, str], then: Callable[[], None] | None = None
) -> tuple[str, dict[str, Any], httpx.Headers]:
    """Stream one answer, and do `then` in the middle of it; return its text, its report and its headers.

    Raises:
        httpx.HTTPError: no answer came, or its connection broke.
    """
    text, report = "", {}
    body = {"model": "slow", "stream": True, **BODIES[route]}
    with httpx.stream("POST", f"{server.url}/v1/{route}", json=body, headers=headers, timeout=60.0) as got:
        got.raise_for_status()
        for line in got.iter_lines():
            if not line.startswith("data: {"):
                continue
            frame = json.loads(line[6:])
            text += read_piece(frame)
            report = frame.get("mlx_stack") or report
            if then is not None and len(text.split()) >= READ:
                then, _ = None, then()
        return text, report, got.headers


def ask_again(ask: Callable[[], Any]) -> Any:
    """Ask until a Router is there again, as a client's retries do."""

    def attempt() -> Any:
        try:
            return ask()
        except httpx.HTTPError:
            return None

    return until(attempt, "the repeated request is answered")


@pytest.mark.parametrize(
    "route", ["messages", *(pytest.param(route, marks=pytest.mark.nightly) for route in BODIES if route != "messages")]
)
def test_the_repeat_of_a_killed_stream_is_the_whole_answer(server: Server, route: str) -> None:
    """Law: under the same name the repeat brings the text from its first word to its last, without what stood being
    written again; a third request is told the same, by no tier; and the books hold the answer once."""
    session = f"repeated-{route.split('/')[0]}"
    headers = {"Idempotency-Key": f"story-{session}", "x-mlx-stack-session": session}
    ask_again(lambda: stream(server, "chat/completions", {}))
    with pytest.raises(httpx.HTTPError):
        stream(server, route, headers, kill_router)

    text, report, _ = ask_again(lambda: stream(server, route, headers))
    ledger = Ledger(server, session)
    spent = until(ledger.settled, "no call is open", wait_s=120.0)["spent_tokens"]
    again, _, told = stream(server, route, headers)

    assert text == TEXT
    assert report["continued"]
    assert again == TEXT
    assert told["Idempotent-Replayed"] == "true"
    assert until(ledger.settled, "no call is open")["spent_tokens"] == spent
    assert WORDS <= spent <= WORDS + 2 * PROMPT_TOKENS_MAX + FAR_TOKENS


def test_an_sdk_repeats_by_itself(server: Server) -> None:
    """Law: the openai client, as it is, gets its whole answer over the death of a Router; so does one that streams and
    asks again."""
    ask_again(lambda: stream(server, "chat/completions", {}))
    client = server.client(max_retries=8)
    killer = threading.Timer(READ * WORD_S, kill_router)
    killer.start()
    answer = client.chat.completions.create(model="slow", messages=ASKED)
    killer.join()

    assert answer.choices[0].message.content == TEXT
