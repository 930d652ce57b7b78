"""The tier kind `scripted`: deterministic answers and faults, as a stand-in for slow or broken models."""
