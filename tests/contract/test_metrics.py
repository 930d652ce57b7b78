"""The metrics as Ray's Prometheus endpoint shows them, and the lines as Ray Serve writes them."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from reliability.attempt import Attempt
from reliability.types import Fault
from tests.support.serving import until

pytestmark = pytest.mark.ray

SAMPLE = re.compile(r"^(ray_mlx_stack_\w+?)(?:_total|_bucket|_sum|_count)?\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Our labels; Ray adds its own to each sample.
OURS = {"tier", "outcome", "fault", "flaw", "reason", "mark", "kind"}
REPORT_ATTEMPT: dict[str, Any] = {
    "tier": "fast",
    "ran": True,
    "fault": "server_error",
    "flaw": None,
    "elapsed_ms": 600,
    "ttft_ms": 100,
    "usage": {"prompt_tokens": 7, "completion_tokens": 11},
    "cost_usd": 0.25,
}
REPORT: dict[str, Any] = {
    "request_id": "r",
    "session": "s",
    "outcome": "answered",
    "tier": "standard",
    "escalated_from": "fast",
    "escalation_reason": "server_error",
    "retries": 1,
    "loop": "nudged",
    "repairs": ["name"],
    "attempts": [REPORT_ATTEMPT, REPORT_ATTEMPT | {"tier": "standard", "fault": None}],
    "total_ms": 1300,
    "overhead_ms": 2,
}
ATTEMPTS = (Attempt(tier="fast", ran=True, fault=Fault.SERVER_ERROR), Attempt(tier="standard", ran=True))
FAMILIES = {
    *("requests", "attempts", "escalations", "repairs", "loops", "tokens", "cost_usd"),
    *("ttft_ms", "inter_token_ms", "overhead_ms", "request_ms"),
}


Sample = tuple[str, dict[str, str], float]


@pytest.fixture(scope="module")
def counting(serve_port: int) -> Any:
    """A replica that counts and logs the reports that it is sent."""
    from ray import serve

    from deployments.reports.account import RequestMetrics
    from deployments.telemetry import log_request

    class Counting:
        def __init__(self) -> None:
            self._metrics = RequestMetrics()

        def __call__(self, report: dict[str, Any]) -> None:
            self._metrics.count(report, ATTEMPTS)
            log_request(report)

    app = serve.deployment(Counting).options(ray_actor_options={"num_cpus": 0}).bind()
    yield serve.run(app, name="counting", route_prefix="/counting", logging_config={"encoding": "JSON"})
    serve.delete("counting")


def scraped() -> list[Sample]:
    """Our samples on the Prometheus endpoint of this node: name, labels, value."""
    import ray

    (node,) = ray.nodes()
    text = httpx.get(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics", timeout=30).text
    return [(name, dict(LABEL.findall(labels)), float(value)) for name, labels, value in SAMPLE.findall(text)]


def of(application: str) -> list[Sample]:
    samples = ((name.removeprefix("ray_mlx_stack_"), labels, value) for name, labels, value in scraped())
    return [sample for sample in samples if sample[1].get("application") == application]


def ours(samples: list[Sample], family: str) -> dict[tuple[tuple[str, str], ...], float]:
    """The samples of a counter, by our labels."""
    return {
        tuple(sorted((k, v) for k, v in labels.items() if k in OURS)): value
        for name, labels, value in samples
        if name == family
    }


def test_every_metric_is_on_the_endpoint(counting):
    """What a replica counted is there in numbers, under its labels."""
    for report in (REPORT, REPORT, REPORT | {"outcome": "timeout", "tier": None}):
        counting.remote(report).result(timeout_s=30)

    def exported() -> list[Sample]:
        samples = of("counting")
        whole = {name for name, _, _ in samples} == FAMILIES and sum(ours(samples, "requests").values()) == 3
        return samples if whole else []

    samples = until(exported, "all are exported")

    assert ours(samples, "requests") == {
        (("outcome", "answered"), ("tier", "standard")): 2,
        (("outcome", "timeout"), ("tier", "none")): 1,
    }
    assert ours(samples, "escalations") == {(("reason", "server_error"), ("tier", "fast")): 3}
    assert ours(samples, "tokens")[("kind", "completion"), ("tier", "fast")] == 33
    assert ours(samples, "cost_usd")[(("tier", "fast"),)] == 0.75
    assert ours(samples, "repairs") == {(("kind", "name"),): 3}
    assert ours(samples, "loops") == {(("mark", "nudged"),): 3}


def test_a_line_is_json_with_its_request(counting):
    """Ray Serve's own log file of the replica: one object a line, our fields in it beside Ray's."""
    import ray

    counting.remote(REPORT | {"session": "made-up-session", "request_id": "r-json"}).result(timeout_s=30)
    folder = Path(ray._private.worker._global_node.get_logs_dir_path()) / "serve"

    def written() -> dict[str, Any] | None:
        text = "".join(path.read_text() for path in folder.glob("replica_counting_*.log"))
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return next((line for line in lines if line.get("event") == "request" and line["tier"] == "standard"), None)

    line = until(written, "the line is written")

    assert (line["outcome"], line["retries"], line["reason"]) == ("answered", 1, "server_error")
    assert {"request_id", "application", "deployment", "replica", "levelname"} <= line.keys()
    assert "made-up-session" not in json.dumps(line)
