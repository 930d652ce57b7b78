"""Async tests that are played on a stage: a world, a pool, a loop of virtual time."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

Test = Callable[..., Any]


def staged(play: Callable[..., Any], *fixtures: str, parts: int = 0) -> Callable[[Test], Test]:
    """Play an async test: `play` is given these fixtures and the test, which takes `parts` of the stage first."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**named: Any) -> None:
            given = [named.pop(name) for name in fixtures]
            play(*given, lambda *stage: test(*stage, **named))

        own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in fixtures]
        others = [each.replace(kind=each.KEYWORD_ONLY) for each in inspect.signature(test).parameters.values()][parts:]
        run.__signature__ = inspect.Signature([*own, *others])  # type: ignore[attr-defined]
        return run

    return decorate
