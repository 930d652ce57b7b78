"""Chains of tiers for the doctor."""

from deployments.config.app_config import AppConfig, load

TIER = {"kind": "scripted", "script": []}


def config(**escalation: object) -> AppConfig:
    """A chain of three tiers, with these settings of its escalation."""
    tiers = {"fast": TIER, "standard": TIER, "premium": {"kind": "hosted", "preset": "openrouter"}}
    return load(
        {"tiers": tiers, "reliability": {"escalation": {"chain": ["fast", "standard", "premium"]} | escalation}}
    )
