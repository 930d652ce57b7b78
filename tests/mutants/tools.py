"""Small sabotages of tool calling: (file, old text, new text, the law that it breaks).

Each old text stands exactly once in its file, and the tests of tool calling must fail with each new one.
"""

from __future__ import annotations

_ROOM = "reliability/tools/"

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        _ROOM + "toolbox.py",
        "            found[key] = None if key in found else tool\n",
        "            found[key] = tool\n",
        "a name that two tools answer to is no name",
    ),
    (
        _ROOM + "schema.py",
        'and known and not value.startswith("#"):',
        'and known and value.startswith("http:"):',
        "a remote reference is refused, never followed",
    ),
    (
        _ROOM + "references.py",
        "    if depth > HEIGHT_MAX:\n",
        "    if depth > HEIGHT_MAX * 1_000:\n",
        "a reference that leads back to itself is the client's mistake",
    ),
    (
        _ROOM + "schema.py",
        '        return _nullable(new) if node.get("nullable") is True else new\n',
        "        return new\n",
        "nullable means that null is fine",
    ),
    (
        _ROOM + "patterns.py",
        "(closed.unbounded or _alike(closed))",
        "closed.unbounded > 1",
        "a pattern that may backtrack without end is not asserted",
    ),
    (
        _ROOM + "patterns.py",
        "        return len(text) > self.chars_max or self",
        "        return self",
        "long strings are matched only while that is cheap",
    ),
    (
        _ROOM + "literal.py",
        '        raise Unreadable("a number beyond what a double holds", 0)\n',
        "        return 0.0\n",
        "a number is never changed",
    ),
    (
        _ROOM + "literal.py",
        "    if len(found) < len(pairs) and any(",
        "    if len(found) > len(pairs) and any(",
        "a key that is given twice with two values is refused: one of them would be lost",
    ),
    (
        _ROOM + "literal.py",
        "            if lone & _OPEN_MEANING or not all(",
        "            if lone & _OPEN_MEANING or not any(",
        "a string that mixes lone backslashes with escapes has two readings",
    ),
    (
        _ROOM + "literal.py",
        "        if match is None or not _AFTER_NUMBER.match(self.text, match.end()):",
        "        if match is None:",
        "an expression is no number",
    ),
    (
        _ROOM + "literal.py",
        "        if depth > DEPTH_MAX or self._values > VALUES_MAX:",
        "        if self._values > VALUES_MAX:",
        "depth is bounded",
    ),
    (
        _ROOM + "text.py",
        " or not harmless_after(after):\n",
        ":\n",
        "text that may be data is not taken off",
    ),
    (
        _ROOM + "shapes.py",
        "    if not setting.marked and not known:\n",
        "    if not setting.marked and not calls:\n",
        "bare JSON is a call only if it names a declared tool",
    ),
    (
        _ROOM + "shapes.py",
        "or not _known_keys(value, [*names, *arguments]):",
        "or False:",
        "keys that no call has are not dropped",
    ),
    (
        _ROOM + "payloads.py",
        "if not _complete(value.value) or any(_holds_object(call.arguments) for call in calls):",
        "if not _complete(value.value):",
        "a lost brace that may belong inside the arguments is not guessed",
    ),
    (
        _ROOM + "payloads.py",
        "if not _complete(value.value) or any(",
        "if any(",
        "a call that was cut before its arguments is not a call without arguments",
    ),
    (
        _ROOM + "envelope.py",
        "    while not closed and (place := _next(text, end)) >= 0:\n",
        "    while False and (place := _next(text, end)) >= 0:\n",
        "no call of several in one envelope is dropped",
    ),
    (
        _ROOM + "markup.py",
        '    if kinds is None or "string" in kinds:\n',
        "    if kinds is None:\n",
        "text stays text where the schema allows a string",
    ),
    (
        _ROOM + "markup.py",
        "        if _PARAMETER.search(text, opened.end(), closed.start()) or _FUNCTION_END.search(\n",
        "        if _FUNCTION_END.search(\n",
        "a parameter doesn't swallow the next one",
    ),
    (
        _ROOM + "extract.py",
        "            self.at = found.end  # data, and no place to look for calls in\n",
        "            self.at = start + 1\n",
        "an object inside data is data",
    ),
    (
        _ROOM + "extract.py",
        "        self.malformed.append(Malformed(raw=self.text[start:end], reason=reason, format=format))\n",
        "        return\n",
        "what looks like a call and can't be read is reported",
    ),
    (
        _ROOM + "extract.py",
        "            self.fuel -= max(bad.at - start, ATTEMPT_CHARS)\n",
        "            self.fuel -= 0\n",
        "readings that fail are paid for, so work is linear",
    ),
    (
        _ROOM + "harmony.py",
        '        return self.recipient is None and self.channel == "analysis"\n',
        '        return self.channel == "analysis"\n',
        "a recipient makes a call on every channel",
    ),
    (
        _ROOM + "repair.py",
        '    if kinds is None or "string" in kinds:\n        return found\n',
        "    if kinds is None:\n        return found\n",
        "a string that the schema allows is not decoded",
    ),
    (
        _ROOM + "repair.py",
        "    if len(words) == 1:\n",
        "    if words:\n",
        "a word with two likenesses is not guessed",
    ),
    (
        _ROOM + "repair.py",
        "    return new < old\n",
        "    return True\n",
        "null on a required field is not dropped",
    ),
    (
        _ROOM + "check.py",
        "        calls=() if violations else calls,\n",
        "        calls=calls,\n",
        "an invalid call is never delivered",
    ),
    (
        _ROOM + "check.py",
        "    if tool is not None and tool.name != raw.name:\n",
        "    if tool is not None and tool.name == raw.name.lower():\n",
        "a mended name is on record",
    ),
    (
        _ROOM + "check.py",
        "        if mended.repairs:\n",
        "        if mended.repairs and mended.errors:\n",
        "what is delivered is the mended value",
    ),
    (
        _ROOM + "choice.py",
        "    if parallel is False and len(names) + unread > 1:\n",
        "    if parallel is False and len(names) > 2:\n",
        "parallel_tool_calls is obeyed",
    ),
    (
        _ROOM + "choice.py",
        "        if choice.may is not None and name not in choice.may:\n",
        "        if choice.may and name not in choice.may:\n",
        "tool_choice none forbids every call",
    ),
    (
        _ROOM + "ids.py",
        "            id, n = _fresh(taken | reserved, new_id, n)\n",
        "            id, n = _fresh(reserved, new_id, n)\n",
        "no id is given twice in a conversation",
    ),
    (
        _ROOM + "text.py",
        "        if not text[whole.end :].strip(_SPACE):\n",
        "        if not text[whole.end :].strip():\n",
        "delivered arguments are JSON to a strict reader",
    ),
    (
        _ROOM + "text.py",
        "    if before.strip(_SPACE) or after.strip(_SPACE):\n",
        "    if before.strip() or after.strip():\n",
        "what is taken off from around a value is recorded",
    ),
    (
        _ROOM + "plausible.py",
        "    return not any(short in said.casefold() for said in conversation)\n",
        "    return True\n",
        "a word that somebody said is no placeholder",
    ),
    (
        _ROOM + "plausible.py",
        "    if not tool.required or any(not _blank(value) for value in arguments.values()):\n",
        "    if not tool.required:\n",
        "one blank string among others is no empty call",
    ),
    (
        _ROOM + "complaints.py",
        '        yield from (((*path, key), "is required") for key in wanted if key not in got)\n',
        '        yield path, "is required"\n',
        "a violation names the missing field",
    ),
    (
        _ROOM + "correct.py",
        "    return separator.join(found)\n",
        "    return parts[0]\n",
        "the corrective message lists everything",
    ),
    (
        _ROOM + "ladder.py",
        "CONSTRAINED_FROM = 1\n",
        "CONSTRAINED_FROM = 2\n",
        "from the second re-ask on a grammar is used",
    ),
]
