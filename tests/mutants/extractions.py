"""Small sabotages of how calls are read from text, in the form of `loops.py`."""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        "reliability/tools/extract/literal.py",
        '        raise Unreadable("a number beyond what a double holds", 0)\n',
        "        return 0.0\n",
        "a number is never changed",
    ),
    (
        "reliability/tools/extract/literal.py",
        "    if len(found) < len(pairs) and any(",
        "    if len(found) > len(pairs) and any(",
        "a key that is given twice with two values is refused: one of them would be lost",
    ),
    (
        "reliability/tools/extract/literal.py",
        "            if lone & _OPEN_MEANING or not all(",
        "            if lone & _OPEN_MEANING or not any(",
        "a string that mixes lone backslashes with escapes has two readings",
    ),
    (
        "reliability/tools/extract/literal.py",
        "        if match is None or not _AFTER_NUMBER.match(self.text, match.end()):",
        "        if match is None:",
        "an expression is no number",
    ),
    (
        "reliability/tools/extract/literal.py",
        "        if depth > DEPTH_MAX or self._values > VALUES_MAX:",
        "        if self._values > VALUES_MAX:",
        "depth is bounded",
    ),
    (
        "reliability/tools/extract/text.py",
        " or not is_harmless_after(after):\n",
        ":\n",
        "text that may be data is not taken off",
    ),
    (
        "reliability/tools/extract/shapes.py",
        "    if not setting.explicit and not known:\n",
        "    if not setting.explicit and not calls:\n",
        "bare JSON is a call only if it names a declared tool",
    ),
    (
        "reliability/tools/extract/shapes.py",
        "or not _has_only_known_keys(value, [*names, *arguments]):",
        "or False:",
        "keys that no call has are not dropped",
    ),
    (
        "reliability/tools/extract/payloads.py",
        "not holds_arguments or any(_holds_object(call.arguments) for call in calls)",
        "not holds_arguments",
        "a lost brace that may belong inside the arguments is not guessed",
    ),
    (
        "reliability/tools/extract/payloads.py",
        "not holds_arguments or any(",
        "any(",
        "a call that was cut before its arguments is not a call without arguments",
    ),
    (
        "reliability/tools/extract/payloads.py",
        " and means_call(content, setting.box)",
        "",
        "data that a stray closer stands behind is an answer",
    ),
    (
        "reliability/answer/judgement.py",
        "if found.unended and finish.reason is FinishReason.LENGTH else found",
        "if False else found",
        "a list of calls that the token limit has cut is refused",
    ),
    (
        "reliability/tools/extract/sections.py",
        "if not CLOSER.match(text, at):",
        "if False:",
        "of a call that was cut behind an argument, others may be missing",
    ),
    (
        "reliability/tools/extract/envelope.py",
        "    while not closed and (place := _find_next(text, end)) >= 0:\n",
        "    while False and (place := _find_next(text, end)) >= 0:\n",
        "no call of several in one envelope is dropped",
    ),
    (
        "reliability/tools/extract/typing_text.py",
        '    if kinds is None or "string" in kinds:\n',
        "    if kinds is None:\n",
        "text stays text where the schema allows a string",
    ),
    (
        "reliability/tools/extract/markup.py",
        "_FUNCTION_END.search(text, at, bound), _PARAMETER.search(text, at, bound)\n",
        "_FUNCTION_END.search(text, at, bound), None\n",
        "a parameter doesn't swallow the next one",
    ),
    (
        "reliability/tools/extract/scanner.py",
        "            self.at = found.end  # data, and no place to look for calls in\n",
        "            self.at = start + 1\n",
        "an object inside data is data",
    ),
    (
        "reliability/tools/extract/settling.py",
        "        self.malformed.append(Malformed(raw=self.text[start:end], reason=reason, format=format))\n",
        "        return\n",
        "what looks like a call and can't be read is reported",
    ),
    (
        "reliability/tools/extract/scanner.py",
        "            self.fuel -= max(bad.at - start, ATTEMPT_CHARS)\n",
        "            self.fuel -= 0\n",
        "readings that fail are paid for, so work is linear",
    ),
    (
        "reliability/tools/extract/harmony.py",
        '        return self.recipient is None and self.channel == "analysis"\n',
        '        return self.channel == "analysis"\n',
        "a recipient makes a call on every channel",
    ),
    (
        "reliability/tools/extract/text.py",
        "        if not text[value.end :].strip(_SPACE):\n",
        "        if not text[value.end :].strip():\n",
        "delivered arguments are JSON to a strict reader",
    ),
    (
        "reliability/tools/extract/text.py",
        "    if before.strip(_SPACE) or after.strip(_SPACE):\n",
        "    if before.strip() or after.strip():\n",
        "what is taken off from around a value is recorded",
    ),
    (
        "reliability/tools/extract/typing_text.py",
        "text = text[opened.end() : ",
        "text = text[0 : ",
        "the line break behind an opening tag is layout",
    ),
    (
        "reliability/tools/extract/typing_text.py",
        'None if rest.strip(" \\t") else rest',
        "None if rest else rest",
        "the indentation of a closing tag is layout",
    ),
]
