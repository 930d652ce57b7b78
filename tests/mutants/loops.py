"""Small sabotages of the loop detection: (file, old text, new text, the law that it breaks).

Each old text stands exactly once in its file, and the tests of loop detection must fail with each new one.
"""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        "reliability/loops/history.py",
        "    if 0 < limit <= count:\n",
        "    if 0 < limit < count:\n",
        "the circuit breaks at the threshold, not one repetition later",
    ),
    (
        "reliability/loops/history.py",
        "    return Stage.WARN if 0 < warn <= count else None\n",
        "    return Stage.WARN if warn <= count else None\n",
        "a threshold of 0 or less is off",
    ),
    (
        "reliability/loops/history.py",
        "// period + (self.candidate is not None)",
        "// period",
        "the answer about to leave counts as the newest repetition",
    ),
    (
        "reliability/loops/history.py",
        "if result is None or other is None or not test(",
        "if result is not None and other is not None and not test(",
        "an unknown result equals nothing",
    ),
    (
        "reliability/loops/history.py",
        "        exact = self.polls_at(older) and self.polls_at(newer)\n",
        "        exact = False\n",
        "the results of polls are compared as they are",
    ),
    (
        "reliability/loops/history.py",
        "        return self.key_of(self.candidate.calls) == self.key(self.size - period)\n",
        "        return True\n",
        "another call than the one that would start the repetition is free",
    ),
    (
        "reliability/loops/history.py",
        "range(1, config.max_period + 1)",
        "range(1, config.max_period)",
        "cycles of every period up to the longest are found",
    ),
    (
        "reliability/loops/history.py",
        "        strike=2 if _has_recurred(history, period, count) else 1,\n",
        "        strike=1,\n",
        "the second strike is told from the first",
    ),
    (
        "reliability/loops/history.py",
        "    if candidate is None or not candidate.calls:\n        found",
        "    if candidate is None:\n        found",
        "three equal texts in a row are a loop",
    ),
    (
        "reliability/loops/history.py",
        "    return [turn for turn in turns[last + 1 :] if turn.calls]\n",
        "    return [turn for turn in turns if turn.calls]\n",
        'a bare "continue" re-arms the rules for calls',
    ),
    (
        "reliability/loops/history.py",
        "    if len(names) != 1 or is_generic_tool(turn.calls[0].name):\n",
        "    if len(names) != 1:\n",
        "failing pages of a browser are no loop",
    ),
    (
        "reliability/loops/history.py",
        "    limit = 2 * limit if _LOOKUP.search(text) else limit\n",
        "",
        '"not found" breaks at twice the limit',
    ),
    (
        "reliability/loops/comparison/canonical.py",
        "json.dumps(value, sort_keys=True,",
        "json.dumps(value, sort_keys=False,",
        "key order says nothing",
    ),
    (
        "reliability/loops/comparison/canonical.py",
        'unicodedata.normalize("NFC", value)\n',
        "value\n",
        "composed and decomposed letters are the same",
    ),
    (
        "reliability/loops/content.py",
        "    if text.startswith(NOTICE) or _is_wrapped(text):\n",
        "    if _is_wrapped(text):\n",
        "our own nudge doesn't re-arm",
    ),
    (
        "reliability/loops/content.py",
        "    if len(theirs) < len(parts) and not text.strip():\n",
        "    if not parts:\n",
        "a tool result in a user-role message is not the user",
    ),
    (
        "reliability/loops/transcript.py",
        "    elif not _is_cleared(text):\n",
        "    else:\n",
        "a cleared result is unknown",
    ),
    (
        "reliability/loops/transcript.py",
        "    for turn in reversed(turns):\n",
        "    for turn in turns:\n",
        "a reused id belongs to the newest call",
    ),
    (
        "reliability/loops/comparison/same_result.py",
        "                found = self.compare_values(a[key], b[key], key, live, depth)\n",
        "                found = self.compare_values(a[key], b[key], key, False, depth)\n",
        "the duration of what still goes on is a reading",
    ),
    (
        "reliability/loops/comparison/same_result.py",
        "        shared = 0 if a or b else 1\n",
        "        shared = 1\n",
        "a volatile field that stands alone is the content",
    ),
    (
        "reliability/loops/comparison/same_result.py",
        "            content = content or int(_has_content(masked))\n",
        "            content = 1\n",
        "a naked moment that stands alone is the content",
    ),
    (
        "reliability/loops/comparison/volatile_fields.py",
        "    return unit in _WHOLE_UNITS and whole and newer > older\n",
        "    return False\n",
        "whole seconds that grow are an age",
    ),
    (
        "reliability/loops/comparison/volatile_fields.py",
        "    if not words or is_reading(key):\n",
        "    if not words:\n",
        "`updated_at` and `eta` are readings",
    ),
    (
        "reliability/loops/comparison/near.py",
        "        _only_digits_differ(a, b) or ",
        "        ",
        "results that differ in digits only are progress",
    ),
    (
        "reliability/loops/comparison/near.py",
        "_continues(older.strip(), newer.strip()) or ",
        "",
        "a log that goes on is progress",
    ),
    (
        "reliability/loops/comparison/near.py",
        " or _states_differ(older, newer, parse)\n",
        "\n",
        "a phase that moves on is progress",
    ),
    (
        "reliability/loops/history.py",
        "    count = history.count_repetitions(period, history.has_near_results, config.break_threshold)\n",
        "    count = 0\n",
        "the same call with results that are nearly the same breaks",
    ),
    (
        "reliability/loops/history.py",
        "        found.append(_find_same_error(history))\n",
        "",
        "the same error under any arguments is a loop",
    ),
    (
        "reliability/loops/comparison/near.py",
        "or same(older, newer):\n",
        "or False:\n",
        "a result that equals the one before is not nearly the same",
    ),
    (
        "reliability/loops/polling.py",
        "    if polls_by_name(call.name, declared) or _waits(call):\n",
        "    if polls_by_name(call.name, declared):\n",
        "a command that sleeps, an empty one and `action: poll` are polls",
    ),
    (
        "reliability/loops/polling.py",
        "    return words[-1] in _LAST or words[0] in _FIRST or not _PAIRS.isdisjoint(pairwise(words))\n",
        "    return False\n",
        "a tool may say by its name that it waits or pages",
    ),
    (
        "reliability/loops/polling.py",
        "    return result is not None and is_ongoing(result.text)\n",
        "    return False\n",
        "a result that says it is running makes the call a poll",
    ),
    (
        "reliability/loops/comparison/errors.py",
        '    if value.get("error") or any(',
        '    if "error" in value or any(',
        "`error: null` is no failure",
    ),
    (
        "reliability/loops/in_answer.py",
        "    end = len(text) - len(text) % BLOCK\n",
        "    end = len(text)\n",
        "the outcome doesn't depend on how the stream was cut",
    ),
    (
        "reliability/loops/in_answer.py",
        "        seen = _scan_block(seen, block, written)\n"
        "        if seen.loop is not None:\n            return None\n",
        "        seen = _scan_block(seen, block, written)\n",
        "a loop stands, whatever follows it in the same piece",
    ),
    (
        "reliability/loops/in_answer.py",
        "    if not (fenced or 2 * letters < signs or _STRUCTURE.search(first_line + unit)):\n",
        "    if True:\n",
        "tables, lists and fences repeat by nature",
    ),
    (
        "reliability/loops/in_answer.py",
        "            fenced = not fenced\n",
        "            fenced = True\n",
        "a fence that is closed is closed",
    ),
    (
        "reliability/loops/written.py",
        "KEPT = REPEATS - 1\n",
        "KEPT = 1\n",
        "the first two copies of a call are kept",
    ),
    (
        "reliability/loops/written.py",
        "    if times >= REPEATS:\n",
        "    if times > REPEATS:\n",
        "the third equal call in one answer is a loop",
    ),
    (
        "reliability/loops/session.py",
        "    kept = tuple(old for old in window.answers if not (request and old.request == request))\n",
        "    kept = window.answers\n",
        "an answer to the same request counts once",
    ),
    (
        "reliability/loops/session.py",
        "        while len(self._windows) > self._sessions_max:\n",
        "        while not self._windows:\n",
        "the sessions are bounded",
    ),
    (
        "reliability/loops/judge.py",
        "    return threshold > 0 and count > 0 and count % threshold == 0\n",
        "    return threshold > 0 and count >= threshold\n",
        "the judge is asked once per so many calls",
    ),
    (
        "reliability/loops/judge.py",
        "    if not config.enabled or detected is not None or not acted:\n",
        "    if not config.enabled or not acted:\n",
        "the judge takes only what no rule has detected",
    ),
    (
        "reliability/loops/nudge.py",
        '    return f"{NOTICE} {loop.key}] {_describe(loop)}{_quote(loop)} {_advise(loop)}"\n',
        '    return f"{NOTICE}] {_describe(loop)}{_quote(loop)} {_advise(loop)}"\n',
        "a nudge names its streak",
    ),
]
