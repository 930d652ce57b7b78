"""Modules without a test file of their own, and the file that tests each of them."""

TESTED_BY: dict[str, str] = {
    "reliability/config.py": "tests/unit/deployments/config/test_app_config.py",
    "reliability/steps.py": "tests/unit/reliability/tools/schema/test_validator_bounds.py",
    "reliability/attempt.py": "tests/unit/reliability/escalation/test_policies.py",
    "reliability/thinking.py": "tests/unit/deployments/tiers/test_thought_watch.py",
    "reliability/types.py": "tests/unit/reliability/escalation/test_policies.py",
    "reliability/tools/format_envelopes.py": "tests/unit/reliability/tools/test_formats.py",
    "reliability/tools/format_notations.py": "tests/unit/reliability/tools/test_formats.py",
    "reliability/tools/format_row.py": "tests/unit/reliability/tools/test_formats.py",
    "reliability/answer/call_starts.py": "tests/unit/reliability/answer/test_gate.py",
    "reliability/answer/wrapping.py": "tests/unit/reliability/answer/test_seam.py",
    "reliability/tools/extract/delimiter_search.py": "tests/unit/reliability/tools/extract/test_scanner.py",
    "reliability/tools/extract/pythonic.py": "tests/unit/reliability/tools/extract/test_scanner.py",
}
