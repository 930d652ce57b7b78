"""What each configuration key changes: `tests/unit/deployments/config/test_app_config_effects.py` walks all of them."""
