"""Small sabotages of what makes two calls or results the same, in the form of `loops.py`."""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
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
        "    return letters >= LETTERS_MIN and ",
        "    return ",
        "a text that is but figures is content",
    ),
    (
        "reliability/loops/comparison/near.py",
        " >= threshold and not _continues(a, b)\n",
        " >= threshold\n",
        "a log that goes on is progress",
    ),
    (
        "reliability/loops/comparison/near.py",
        "        if _collect_states(value_a) != _collect_states(value_b):\n",
        "        if False:\n",
        "a phase that moves on is progress",
    ),
    (
        "reliability/loops/comparison/near.py",
        "or same(older, newer):\n",
        "or False:\n",
        "a result that equals the one before is not nearly the same",
    ),
    (
        "reliability/loops/comparison/errors.py",
        '    if value.get("error") or any(',
        '    if "error" in value or any(',
        "`error: null` is no failure",
    ),
    (
        "reliability/loops/comparison/movement.py",
        "    if words & (_REPETITIONS - _LAPS if step else _REPETITIONS) or (_ORDINAL.match(behind) and not step):\n"
        "        return Movement.NOTHING\n",
        "",
        "a counter of the repetitions is no progress",
    ),
    (
        "reliability/loops/comparison/movement.py",
        "    if failed or len(laps) < 2",
        "    if len(laps) < 2",
        "in a failure nothing counts as progress",
    ),
    (
        "reliability/loops/comparison/movement.py",
        "    turns = min(moves) < 0 < max(moves)\n",
        "    turns = False\n",
        "what goes up and down tells nothing",
    ),
    (
        "reliability/loops/comparison/movement.py",
        "told[Movement.DRIFT] > (0 if step else told[Movement.NOTHING])",
        "told[Movement.DRIFT] > 0",
        "a drift among noise is chance",
    ),
    (
        "reliability/loops/comparison/movement.py",
        "    if told[Movement.PROGRESS]:\n        return Movement.PROGRESS\n",
        "",
        "a way to an end is progress",
    ),
    (
        "reliability/loops/comparison/call_normalization.py",
        '_COMMENT.sub("", text) if "#" in text',
        'text if "#" in text',
        "a comment makes no other command",
    ),
    (
        "reliability/loops/comparison/call_normalization.py",
        "    if len(remarks) < len(kept):\n",
        "    if True:\n",
        "a remark that is all there is says what is asked",
    ),
    (
        "reliability/loops/comparison/call_normalization.py",
        "about in (_About.ENTITY, _About.HANDLE, _About.CODE) else",
        "about is None else",
        "an id is what is asked for",
    ),
    (
        "reliability/loops/comparison/call_normalization.py",
        "    if sum(map(str.isalpha, text[:SAID_CHARS])) < SAID_LETTERS_MIN:\n        return False\n",
        "",
        "an acknowledgement says nothing of what was asked",
    ),
]
