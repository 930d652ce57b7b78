"""The files for Prometheus and Grafana: Prometheus' own tool reads them, and plays each alert."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.reports import account
from tests.support.repository import ROOT

FOLDER = ROOT / "deployments/examples/grafana"
PROMTOOL = shutil.which("promtool")
NEEDS_PROMTOOL = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here (apt-get install prometheus)")
RULES = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
# What sets each alert off, and what doesn't: a series with its values, a minute apart.
PLAYS: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = {
    "ServerDown": ([('up{job="mlx-stack-serve"}', "0x90")], [('up{job="mlx-stack-serve"}', "1x90")]),
    "TierDown": (
        [('mlx_stack_tier_state{tier="t",state="ready"}', "0x90"), ('mlx_stack_tier_in_chain{tier="t"}', "1x90")],
        [('mlx_stack_tier_state{tier="t",state="ready"}', "0x90"), ('mlx_stack_tier_in_chain{tier="t"}', "0x90")],
    ),
    "BreakerOpen": (
        [('mlx_stack_tier_breaker{tier="t",phase="open"}', "1x90")],
        [('mlx_stack_tier_breaker{tier="t",phase="half_open"}', "1x90")],
    ),
    "BudgetNearlySpent": (
        [('mlx_stack_budget_used_ratio{window="hour"}', "0.8x90")],
        [('mlx_stack_budget_used_ratio{window="hour"}', "0.79x90")],
    ),
    "MemoryCritical": ([('mlx_stack_memory_level{node="n"}', "2x90")], [('mlx_stack_memory_level{node="n"}', "1x90")]),
    "ManyLoops": (
        [('ray_mlx_stack_loops_total{mark="nudged"}', "0+1x90")],
        [('ray_mlx_stack_loops_total{mark="nudged"}', "0+0.1x90")],
    ),
    "ManyEscalations": (
        [("ray_mlx_stack_escalations_total", "0+2x90"), ("ray_mlx_stack_requests_total", "0+10x90")],
        [("ray_mlx_stack_escalations_total", "0+1x90"), ("ray_mlx_stack_requests_total", "0+20x90")],
    ),
    "StateActorAway": ([("mlx_stack_state_actor_up", "0x90")], [("mlx_stack_state_actor_up", "1x90")]),
}


def ask_promtool(*words: str, cwd: Path = FOLDER) -> str:
    assert PROMTOOL is not None
    out = subprocess.run([PROMTOOL, *words], capture_output=True, text=True, check=False, cwd=cwd)
    assert out.returncode == 0, out.stdout + out.stderr
    return out.stdout


def list_expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


@NEEDS_PROMTOOL
def test_prometheus_can_read_its_files():
    """The configuration with the rules that it names. `tests/contract/test_prometheus.py` asks the dashboard."""
    ask_promtool("check", "config", "prometheus.yaml")


@NEEDS_PROMTOOL
@pytest.mark.parametrize("alert", PLAYS)
@pytest.mark.parametrize("set_off", [True, False])
def test_an_alert_goes_off_where_it_should(tmp_path, alert, set_off):
    """After what it is for, and not beside it."""
    series = PLAYS[alert][0 if set_off else 1]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": "85m",
                "exp_samples": [{"labels": "{}", "value": int(set_off)}],
            }
        ],
    }
    file = {"rule_files": [str(FOLDER / "alerts.yaml")], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(file))

    ask_promtool("test", "rules", "test.yaml", cwd=tmp_path)


def test_every_alert_is_played():
    """None is left out above."""
    assert {rule["alert"] for rule in RULES} == set(PLAYS)


def test_every_metric_that_is_asked_for_is_there():
    """What the files name is what the server counts, or a gauge of its route."""
    counted = set(re.findall(r'_(?:counter|histogram)\(\s*"(\w+)"', Path(account.__file__).read_text(encoding="utf-8")))
    route = (ROOT / "deployments/api/metrics_route.py").read_text(encoding="utf-8")
    asked = " ".join([*list_expressions(), *(rule["expr"] for rule in RULES)])

    for name in set(re.findall(r"ray_mlx_stack_(\w+?)(?:_total|_bucket)\b", asked)):
        assert name in counted
    for name in set(re.findall(r"\bmlx_stack_(\w+)", asked)):
        assert f'"{name}"' in route or name in ("memory_leased_bytes", "memory_budget_bytes")


def test_the_dashboard_has_what_grafana_needs():
    """Panels that don't cover one another, each with its own number, and the data source as a choice."""
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert {panel["datasource"]["uid"] for panel in panels} == {"${source}"}
    assert DASHBOARD["templating"]["list"][0]["name"] == "source"
