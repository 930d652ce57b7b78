"""What is evaluated: who may be asked, and nothing that leaves the machine unless it is said."""

from __future__ import annotations

from pathlib import Path

from deployments.config import load
from deployments.evaluate.evaluation_plan import Settings
from deployments.evaluate.evaluation_target import NO_CLOUD, OwnTarget, UrlTarget

CONFIG = load(
    {
        "tiers": {"fast": {"kind": "mlx"}, "premium": {"kind": "hosted", "preset": "openrouter"}},
        "reliability": {"escalation": {"chain": ["fast", "premium"]}},
    }
)


def test_tiers_that_are_elsewhere_are_left_out_unless_it_is_asked_for():
    """They cost money, and what is asked would leave the machine."""
    assert OwnTarget(Path("x"), CONFIG, cloud=False).find_obstacles() == {"premium": NO_CLOUD}
    assert OwnTarget(Path("x"), CONFIG, cloud=True).find_obstacles() == {}


def test_a_chain_of_one_is_no_chain():
    """Where only one of its tiers may answer, there is nothing to go on to."""
    target = OwnTarget(Path("x"), CONFIG, cloud=False)
    variants = {phase.variant for phase in target.plan(["fast"], {}, Settings())}
    both = {phase.variant for phase in target.plan(["fast", "premium"], {}, Settings())}

    assert variants == {"none", "layers", "constrain", "unchecked"}
    assert both - variants == {"chain"}


def test_a_model_that_is_named_is_asked_though_the_server_lists_others():
    """`--model`; where none is named, all that the server lists."""

    def name_models(target: UrlTarget) -> set[str]:
        return {cell.model for phase in target.plan(["a", "b"], {}, Settings()) for cell in phase.cells} - {"rules"}

    assert name_models(UrlTarget("http://h", "", ["b"], cloud=False)) == {"b"}
    assert name_models(UrlTarget("http://h", "", [], cloud=False)) == {"a", "b"}
