"""Modules without a test file of their own, and the file that tests each of them."""

from __future__ import annotations

TESTED_BY: dict[str, str] = {
    "deployments/app.py": "tests/unit/deployments/test_config_effects.py",
    "deployments/config_tiers.py": "tests/unit/deployments/test_config.py",
    "deployments/dialects.py": "tests/contract/test_dialects.py",
    "deployments/port.py": "tests/unit/deployments/cli/test_doctor.py",
    "deployments/ports.py": "tests/unit/deployments/request/test_drive.py",
    "deployments/router.py": "tests/contract/test_chat.py",
    "deployments/api/admin.py": "tests/contract/test_incidents.py",
    "deployments/api/dialect.py": "tests/unit/deployments/api/test_exchange.py",
    "deployments/api/openai_responses/stored_routes.py": "tests/contract/test_responses_api.py",
    "deployments/api/openapi/schemas.py": "tests/unit/deployments/api/openapi/test_openapi_document.py",
    "deployments/graph/replica_counts.py": "tests/contract/test_sleeping.py",
    "deployments/memory/lease.py": "tests/unit/deployments/memory/test_view.py",
    "deployments/memory/node_report.py": "tests/unit/deployments/memory/test_monitor.py",
    "deployments/running/driver.py": "tests/e2e/test_stops.py",
    "deployments/running/keeper.py": "tests/e2e/test_stops.py",
    "deployments/running/supervisor.py": "tests/e2e/test_stops.py",
    "deployments/state/records.py": "tests/unit/deployments/state/test_actor.py",
    "deployments/state/transaction.py": "tests/unit/deployments/state/test_journal.py",
    "deployments/tiers/hosted/endpoint.py": "tests/unit/deployments/tiers/hosted/test_hosted_tier.py",
    "deployments/tiers/mlx/starting.py": "tests/unit/deployments/tiers/mlx/test_batch.py",
}
