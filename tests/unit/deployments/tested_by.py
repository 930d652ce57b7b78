"""Modules without a test file of their own, and the file that tests each of them."""

TESTED_BY: dict[str, str] = {
    "deployments/config/config_errors.py": "tests/unit/deployments/config/test_app_config.py",
    "deployments/config/tier_config.py": "tests/unit/deployments/config/test_app_config.py",
    "deployments/cli/commands.py": "tests/unit/deployments/test_main.py",
    "deployments/app/router_parts.py": "tests/contract/test_chat.py",
    "deployments/config/free_port.py": "tests/unit/deployments/cli/test_preflight.py",
    "deployments/request/interfaces.py": "tests/unit/deployments/request/test_drive.py",
    "deployments/app/router.py": "tests/contract/test_chat.py",
    "deployments/request/delivery.py": "tests/unit/deployments/request/test_attempt.py",
    "deployments/request/run_record.py": "tests/unit/deployments/request/test_drive.py",
    "deployments/api/dialect.py": "tests/unit/deployments/api/test_exchange.py",
    "deployments/evaluate/tasks/confined_tests.py": "tests/unit/deployments/evaluate/tasks/test_bounded_tests.py",
    "deployments/memory/plan.py": "tests/unit/deployments/memory/test_nodes.py",
    "deployments/memory/lease.py": "tests/unit/deployments/memory/test_view.py",
    "deployments/memory/room.py": "tests/mac/test_memory.py",
    "deployments/state/records.py": "tests/unit/deployments/state/test_actor.py",
    "deployments/state/transaction.py": "tests/unit/deployments/state/test_journal.py",
    "deployments/ui/page_context.py": "tests/unit/deployments/ui/test_page_auth.py",
    "deployments/tiers/scripted/player.py": "tests/unit/deployments/tiers/scripted/test_script.py",
    "deployments/tiers/mlx/warm_up.py": "tests/unit/deployments/tiers/mlx/test_scheduler.py",
}
