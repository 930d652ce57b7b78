"""What is completed is what the parser knows."""

from __future__ import annotations

from deployments.__main__ import HELP, build_parser
from deployments.cli.completion.shell_completion import list_commands
from deployments.state.incident_record import IncidentKind


def test_all_that_the_parser_knows_is_completed():
    """Each command, in the order of the help; what is for the program itself is not."""
    commands = {one.name: one for one in list_commands(build_parser())}

    assert list(commands) == list(HELP)
    assert "--checked" not in commands["serve"].options
    assert "--values" not in commands["completion"].options


def test_all_kinds_of_incidents_are_words_of_it():
    """A new kind is offered as soon as there is one."""
    (command,) = (one for one in list_commands(build_parser()) if one.name == "incidents")
    (kind,) = (one for one in command.arguments if "--kind" in one.names)

    assert set(kind.words) == set(IncidentKind)
