"""Init systems for tests: a program that answers as it is told, one that only remembers, and a plan of a service."""

from collections.abc import Mapping, Sequence
from functools import partialmethod
from pathlib import Path

from deployments.cli.service.init_system import Finished, ServiceState, sign
from deployments.cli.service.service_plan import ServicePlan


def make_plan_of(folder: Path, *, environment: Mapping[str, str] | None = None):
    """A plan whose files are in `folder`."""
    return ServicePlan(
        config=folder / "serve_config.yaml",
        python="/usr/bin/python3",
        folder=folder,
        environment=environment or {},
        environment_file=folder / "service.env",
        writable=(folder / "state",),
    )


class Programs:
    """Stands for `systemctl` and the others: remembers what was run; answers by the first line that begins so."""

    def __init__(self, answers: Mapping[str, Finished | Sequence[Finished]]) -> None:
        self._answers = {key: [one] if isinstance(one, Finished) else list(one) for key, one in answers.items()}
        self.ran: list[str] = []

    def __call__(self, command: Sequence[str]) -> Finished:
        line = " ".join(command)
        self.ran.append(line)
        for begin, answers in self._answers.items():
            if line.startswith(begin):
                return answers.pop(0) if len(answers) > 1 else answers[0]
        return Finished(0, "")


class RememberedInit:
    """An init system of a test's own: it starts whatever it is told, and remembers the orders."""

    def __init__(self, folder: Path, state: ServiceState | None = None) -> None:
        self.path = folder / "units" / "x.service"
        self.orders: list[str] = []
        self._state = state or ServiceState(running=False, words="inactive")

    def write(self, plan: ServicePlan) -> str:
        return sign(" ".join(plan.command) + "\n", plan.config)

    def list_remarks(self) -> list[str]:
        return ["a remark"]

    def _note(self, order: str, *, there: bool | None = None) -> None:
        """Remember an order, for which its file must be there, or gone."""
        assert there is None or self.path.exists() is there
        self.orders.append(order)

    check, restart = partialmethod(_note, "check"), partialmethod(_note, "restart")
    start, stop = partialmethod(_note, "start", there=True), partialmethod(_note, "stop", there=True)
    forget = partialmethod(_note, "forget", there=False)

    def state(self) -> ServiceState:
        return self._state
