"""Small sabotages of what goes on with a text that broke off, and of how an answer begins. As `walk`."""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        "reliability/escalation/policies.py",
        "        return replace(call, resume=True, nudge=False)\n",
        "        return call\n",
        "what is called after text that broke off goes on with it",
    ),
    (
        "reliability/escalation/policies.py",
        "    if seams >= limits.continuations_max or not left:\n",
        "    if not left:\n",
        "there are at most so many seams",
    ),
    (
        "reliability/escalation/policies.py",
        "any(attempt.fault is None for attempt in attempts[told[-1] + circles :])",
        "attempts[-1].fault is None",
        "a text that is complete isn't gone on with",
    ),
    (
        "reliability/escalation/policies.py",
        "    if circles:\n        return Accept(attempt=told[-1])\n",
        "",
        "a circle that nobody goes on behind is no error",
    ),
    (
        "reliability/escalation/policies.py",
        "    if _stands_in_circles(attempts):\n        return Accept(attempt=told[-1])\n",
        "",
        "a circle stays an answer, whatever the calls behind it were",
    ),
    (
        "reliability/escalation/reask.py",
        "trim_repetition(told) if circles else told",
        "told",
        "nobody is asked to write a circle on",
    ),
    (
        "reliability/loops/trim_repetition.py",
        "    return _walk_back(text, kept) or _find_end(text, kept) or kept\n",
        "    return kept\n",
        "what is written behind a circle fits its very end",
    ),
    (
        "reliability/answer/seam.py",
        "        if text.find(anchor) == len(text) - len(anchor) and not _ends_as_it_begins(anchor):\n",
        "        if True:\n",
        "an anchor stands once",
    ),
    (
        "reliability/answer/seam.py",
        "self._begins_anew(head) or self._is_opening(head)",
        "self._is_opening(head)",
        "no second beginning",
    ),
    (
        "reliability/answer/seam.py",
        "self._is_opening(head) or self._is_remark(head)",
        "False",
        "a remark about the text is no rest of it",
    ),
    (
        "reliability/answer/seam.py",
        "return self._trusted and _begins_unit(end, start) and self._stands_once",
        "return self._trusted",
        "an echo counts only where it stands once",
    ),
    (
        "deployments/request/delivery.py",
        "        opened.undelivered = len(begun) - len(opened.delivered) - sum(map(len, opened.sent))\n",
        "",
        "what the gate holds of a begun text isn't said twice",
    ),
    (
        "reliability/escalation/reask.py",
        "must_speak=not failed_text.strip()",
        "must_speak=False",
        "who said nothing has to say something",
    ),
    (
        "reliability/answer/turn_start.py",
        '        return "" if text.strip() else text\n',
        "        return text\n",
        "marks alone are no answer",
    ),
]
