"""What the configuration says about one request."""

from __future__ import annotations

from deployments.config import RouterConfig, ServerConfig
from deployments.request.policy import limits_of
from reliability.config import ReliabilityConfig


def test_only_mlx_tiers_are_asked_for_a_grammar():
    """The ladder's constrained re-ask is for the kind of tier that decodes here; a hosted one can't be made to."""
    config = RouterConfig(reliability=ReliabilityConfig(), server=ServerConfig())
    kinds = {"fast": "mlx", "standard": "scripted", "longctx": "mlx", "premium": "hosted"}

    assert limits_of(config, kinds=kinds).grammars == {"fast", "longctx"}
    assert limits_of(config).grammars == frozenset()
