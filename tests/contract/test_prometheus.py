"""A real Prometheus scrapes a real server: it can read all of it, and every alert and every panel finds its series."""

import contextlib
import json
import re
import shutil
import subprocess
from typing import Any

import httpx
import pytest
import yaml

from deployments.config.free_port import free_port
from tests.support import scripts
from tests.support.agent import Agent
from tests.support.http_asking import WEATHER_TOOLS, ask, user
from tests.support.repository import ROOT
from tests.support.serving import ends_with_family, until

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on this machine (apt-get install prometheus)"),
]

FOLDER = ROOT / "deployments/examples/grafana"
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
PANELS = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
NAMES = set(re.findall(r"\b(?:ray_)?mlx_stack_\w+", " ".join([*EXPRESSIONS, *(rule["expr"] for rule in RULES)])))
# Only a tier that costs money counts it.
PAID = {"ray_mlx_stack_cost_usd_total"}
# As Python writes it and not as JSON: that is mended.
LITERAL = [{"raw": f"```\n{scripts.WEATHER}\n```"}]


@pytest.fixture(scope="module")
def server(deploy_on_ray):
    made = scripts.args(scripts.TWO)
    made["tiers"]["fast"]["script"].insert(0, {"when": {"last_user": "mend"}, "answer": LITERAL})
    made["reliability"]["token_budget"] = {"per_hour": 1_000_000}
    return deploy_on_ray(made, "prometheus")


class Prometheus:
    """The real program, asked as Grafana asks it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **params: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=params, timeout=30.0).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def find_health(self) -> list[tuple[str, str]]:
        """How each of its targets was at the last look."""
        try:
            return [(one["health"], one["lastError"]) for one in self.get("targets")["activeTargets"]]
        except httpx.TransportError:
            return []


@pytest.fixture
def prometheus(server, tmp_path):
    """Started with the files of the repository; only the address differs, and how often it looks."""
    assert PROMETHEUS is not None
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    origin, _, prefix = server.url.removeprefix("http://").partition("/")
    job |= {"metrics_path": f"/{prefix}/metrics", "static_configs": [{"targets": [origin]}]}
    config["global"] = {"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "1s"}
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(FOLDER / "alerts.yaml", tmp_path)
    at = f"127.0.0.1:{free_port()}"
    options = [f"--web.listen-address={at}", "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([PROMETHEUS, *options], cwd=tmp_path, stdout=log, stderr=log)
    with ends_with_family(process):
        yield Prometheus(f"http://{at}")


def test_every_alert_and_every_panel_finds_its_series(server, prometheus):
    """After a fault, a repair and a loop: nothing that it scrapes is wrong, each rule is evaluated, each expression of
    the dashboard is answered, and each series that they name is there."""
    ask(server, user("fast:500"), stream=False)
    ask(server, user("fast:break"), stream=True)
    ask(server, user("mend"), stream=False, tools=WEATHER_TOOLS)
    Agent(server, "the weather, again and again", False).run(4)

    until(lambda: prometheus.find_health() == [("up", "")], "it has scraped the server")
    with contextlib.suppress(AssertionError):  # what is missing says more
        until(lambda: not find_missing(prometheus), "all that is counted is there")
    assert find_missing(prometheus) == set()
    rules = until(lambda: find_evaluated(prometheus), "the rules are evaluated")

    assert {rule["name"]: rule["health"] for rule in rules} == {rule["alert"]: "ok" for rule in RULES}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
    for expression in EXPRESSIONS:
        prometheus.get("query", query=expression)
    assert prometheus.get("query", query="count(mlx_stack_tier_state == 1)")["result"][0]["value"][1] == "2"
    assert prometheus.get("query", query="scrape_samples_post_metric_relabeling")["result"][0]["value"][1] != "0"


def find_missing(prometheus: Prometheus) -> set[str]:
    return NAMES - PAID - set(prometheus.get("label/__name__/values"))


def find_evaluated(prometheus: Prometheus) -> list[Any]:
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    return rules if rules and all(rule["health"] != "unknown" for rule in rules) else []
