"""What each configuration key changes: `tests/unit/deployments/test_config_effects.py` walks all of them."""
