"""What each configuration key changes: `tests/test_config_effects.py` walks all of them."""
