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
        "    if seams < limits.continuations_max and left:\n",
        "    if left:\n",
        "there are at most so many seams",
    ),
    (
        "reliability/escalation/policies.py",
        "any(attempt.fault is None for attempt in attempts[told[-1] :])",
        "attempts[-1].fault is None",
        "a text that is complete isn't gone on with",
    ),
    (
        "reliability/answer/seam.py",
        "        if text.find(anchor) == len(text) - len(anchor):\n",
        "        if True:\n",
        "an anchor stands once",
    ),
    (
        "reliability/answer/seam.py",
        "        if self._trusted and not self._begins_anew(head):\n",
        "        if self._trusted:\n",
        "no second beginning",
    ),
    (
        "reliability/answer/seam.py",
        "(ECHO_CHARS if self._trusted else len(self._anchor))",
        "1",
        "a short repetition is the text's own",
    ),
    (
        "deployments/request/attempt.py",
        "            self.unsaid = len(self.begun) - sum(map(len, self.sent))\n",
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
        '        return "" if "<|" in text else text\n',
        "        return text\n",
        "marks alone are no answer",
    ),
]
