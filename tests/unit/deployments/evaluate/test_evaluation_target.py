"""What is evaluated: who may be asked, and nothing that leaves the machine unless it is said."""

from pathlib import Path

from deployments.config.app_config import load
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


def test_only_a_model_that_answers_is_planned():
    """One that was named and can't be asked has no cells."""
    target = UrlTarget("http://h", "", ["a", "b"], cloud=False)
    phases = target.plan(["b"], {}, Settings())

    assert {cell.model for phase in phases for cell in phase.cells} == {"rules", "b"}
