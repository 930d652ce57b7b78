"""A command has options, and what stands by itself."""

from __future__ import annotations

from deployments.cli.completion.completion_words import Argument, Command


def test_an_argument_is_an_option_or_stands_by_itself():
    """Every one is one of the two."""
    option = Argument(names=("-n", "--lines"), means="lines", help="", takes=True, optional=False)
    own = Argument(names=(), means="request", help="", takes=True, optional=False, asks="requests")
    command = Command(name="why", help="", arguments=(option, own))

    assert command.options == ("-n", "--lines")
    assert command.own == (own,)
