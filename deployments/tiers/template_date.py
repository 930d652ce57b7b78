"""The date that a chat template writes, held still.

Many templates put today's date before everything else (`strftime_now`: Llama 3, gpt-oss, Granite, SmolLM3), some of
them the time too. When it changes, nothing of a conversation's prompt is what it was. transformers gives a template the
clock of the machine and no way to give it another one, so the calls in the template are replaced by what they give for
one moment; a template is compiled once for each text.

What must never happen: a template that means something else than its maker's. One that calls the clock in any other way
than with a format in quotes stays as it is.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

__all__ = ["hold_date", "read_date"]

_CLOCK = "strftime_now("
_CALL = re.compile(r"""strftime_now\(\s*("[^"\\{}]*"|'[^'\\{}]*')\s*\)""")


def read_date(tokenizer: Any, at: datetime) -> str:
    """Return what the tokenizer's template would write of this moment; empty where it writes no date, or it can't be
    told."""
    return "; ".join(at.strftime(found[1][1:-1]) for found in _CALL.finditer(_find_template(tokenizer)))


def hold_date(tokenizer: Any, at: datetime | None) -> str | None:
    """Return the tokenizer's template with the date of this moment; None where it needs no other one."""
    template = _find_template(tokenizer)
    if at is None or not template:
        return None
    return _CALL.sub(lambda found: json.dumps(at.strftime(found[1][1:-1]), ensure_ascii=False), template)


def _find_template(tokenizer: Any) -> str:
    """Find a template of which every look at the clock can be replaced; empty where there is none."""
    template = getattr(tokenizer, "chat_template", None)
    # A renderer in Python, which mlx-lm has for some models, takes no template.
    if not isinstance(template, str) or getattr(tokenizer, "_chat_template", None) is not None:
        return ""
    calls = template.count(_CLOCK)
    return template if calls and calls == len(_CALL.findall(template)) else ""
