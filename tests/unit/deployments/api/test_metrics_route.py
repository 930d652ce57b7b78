"""What Prometheus is told: one head for each family, the samples of every node, and gauges that it can read."""

import asyncio
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.metrics_route import STATES, MetricsRoute, _merge_families, _write_gauges
from tests.support.room_rig import Rig, browse

NODE = """# HELP ray_mlx_stack_requests_total Finished requests.
# TYPE ray_mlx_stack_requests_total counter
ray_mlx_stack_requests_total{{tier="fast",node="{node}"}} {count}
# HELP ray_node_cpu Cores.
# TYPE ray_node_cpu gauge
ray_node_cpu{{node="{node}"}} 2
# HELP ray_mlx_stack_ttft_ms First token.
# TYPE ray_mlx_stack_ttft_ms histogram
ray_mlx_stack_ttft_ms_bucket{{le="+Inf",node="{node}"}} {count}
ray_mlx_stack_ttft_ms_sum{{node="{node}"}} 7
ray_mlx_stack_ttft_ms_count{{node="{node}"}} {count}
"""
TIER: dict[str, Any] = {"name": "fast", "state": "ready", "place": 0, "breaker": "open", "isolated": False}
TIER |= {"asked": 3, "tokens_s": 12.5}
NODES = {"mac 1": {"level": "critical", "leased_bytes": 5e9, "budget_bytes": None}}
NOW = {"tiers": [TIER, TIER | {"name": "aside", "place": None, "state": "odd"}], "state_actor": "up"}
WINDOWS = {"hour": {"tokens": 80, "tokens_max": 100}, "session": {"tokens": 0, "tokens_max": 9}}


@given(st.integers(0, 6))
def test_every_node_is_in_it_and_every_family_once(nodes):
    """Ours alone; a family's samples stand below its head."""
    lines = _merge_families(NODE.format(node=n, count=n) for n in range(nodes))
    heads = [line for line in lines if line.startswith("# TYPE")]

    assert len(heads) == len(set(heads)) == (2 if nodes else 0)
    assert sum("requests_total{" in line for line in lines) == nodes
    assert sum("_bucket{" in line for line in lines) == nodes
    assert not any("cpu" in line for line in lines)


@given(st.text())
def test_any_text_of_a_node_is_merged_or_left(text):
    """A node that answers nonsense breaks nothing."""
    assert all("ray_mlx_stack_" in line for line in _merge_families([text]) if line.startswith("# TYPE"))


def test_gauges_say_how_things_stand():
    """One state and one phase of each tier, only what is shared of the budgets, and memory as numbers."""
    lines = _write_gauges(NOW | {"memory": {"nodes": NODES}}, WINDOWS, 1)

    for line in (
        'mlx_stack_tier_state{tier="fast",state="ready"} 1',
        'mlx_stack_tier_breaker{tier="fast",phase="open"} 1',
        'mlx_stack_tier_in_chain{tier="aside"} 0',
        'mlx_stack_budget_used_ratio{window="hour"} 0.8',
        'mlx_stack_memory_level{node="mac 1"} 2',
        "mlx_stack_nodes_silent 1",
    ):
        assert line in lines
    assert not any('window="session"' in line for line in lines)
    assert sum(line.endswith(" 1") and 'tier_state{tier="fast"' in line for line in lines) == 1
    assert sum('tier_state{tier="aside"' in line for line in lines) == len(STATES)


def test_a_state_actor_that_is_away_is_told(tmp_path):
    """What watches the server must hear of it just then: the rest of the figures is there, budgets are not known."""
    rig = Rig(tmp_path)
    rig.app.router.routes += MetricsRoute(rig.overview, lambda: rig.access, list).routes()
    with browse(rig) as client:
        assert "mlx_stack_state_actor_up 1" in client.get("/metrics").text
        rig.here.away = True
        rig.overview.forget()
        answer = client.get("/metrics")
        rig.here.away = False

    assert answer.status_code == 200
    assert "mlx_stack_state_actor_up 0" in answer.text
    assert 'mlx_stack_tier_state{tier="fast",state="ready"} 1' in answer.text
    assert "mlx_stack_budget_used_ratio{" not in answer.text


def test_the_state_actor_is_asked_all_at_once(tmp_path):
    """One that hangs is waited for once: Prometheus waits ten seconds, and a call to the actor may take five."""
    rig, waiting, everything = Rig(tmp_path), set(), asyncio.Event()
    call = rig.here.call

    async def answer_together(method: str, *given: Any) -> Any:
        if method in ("budget", "look"):
            waiting.add(method)
            if len(waiting) == 2:
                everything.set()
            await everything.wait()
        return await call(method, *given)

    rig.here.call = answer_together  # type: ignore[method-assign]
    rig.app.router.routes += MetricsRoute(rig.overview, lambda: rig.access, list).routes()
    with browse(rig) as client:
        text = client.get("/metrics").text

    assert "mlx_stack_state_actor_up 1" in text
    assert 'mlx_stack_budget_used_ratio{window="hour"}' in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (apt-get install prometheus)")
def test_prometheus_can_read_it(tmp_path):
    """All of it, by Prometheus' own tool, also where a name has a quote in it."""
    evil = {'a"\\\nb': NODES["mac 1"]}
    gauges = _write_gauges(NOW | {"memory": {"nodes": evil}}, WINDOWS, 0)
    text = "\n".join([*_merge_families([NODE.format(node=1, count=2)]), *gauges, ""])
    command = ["promtool", "check", "metrics"]
    out = subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    assert "error while linting" not in out.stderr + out.stdout
    assert out.returncode in (0, 3)  # 3: it would name a metric otherwise
