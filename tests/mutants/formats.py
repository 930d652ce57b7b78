"""Small sabotages of how calls in a text are found, whole and streamed: (file, old text, new text, the law).

Each old text stands exactly once in its file, and the tests of the gate and of the formats must fail with each new one.
"""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        "reliability/answer/gate.py",
        "if kind is TextKind.PROSE or (kind is TextKind.OPEN and not named):",
        "if kind is not TextKind.CALL:",
        "a tag or a named candidate stays held",
    ),
    (
        "reliability/answer/gate.py",
        "            if gate.mode is Mode.HELD:\n                return _hold_event(gate, event), ()\n",
        "",
        "text after a held call stays held",
    ),
    (
        "reliability/answer/gate.py",
        "items = self.items if 0 < self.count == len(self.items) else self.items[: self.count]",
        "items = self.items",
        "gates are values",
    ),
    (
        "reliability/answer/gate.py",
        "escaped, pos = pos == limit, pos + 1",
        "escaped, pos = False, pos + 1",
        "a backslash at a cut still escapes",
    ),
    (
        "reliability/answer/gate.py",
        "asked = replace(body, until=Until.ASKED, ask_at=2 * body.chars)",
        "asked = replace(body, until=Until.ASKED, ask_at=0)",
        "questions cost linear time",
    ),
    (
        "reliability/answer/gate.py",
        "            if _find_char_before(text, at, spot.start(), body.last) in _BEFORE_STRING:\n"
        "                quote = char\n",
        "            quote = char\n",
        "an apostrophe is no string",
    ),
    (
        "reliability/answer/gate.py",
        "find_call_start(rules.names, text, at, gate.place, gate.before, fenced=gate.fenced)",
        "find_call_start(rules.names, text, at, Place.ANYWHERE, gate.before, fenced=gate.fenced)",
        "a name at the start of a line is seen though the line's end came before it",
    ),
    (
        "reliability/answer/gate.py",
        "    if body.until is Until.ASKED:\n        at =",
        "    if False:\n        at =",
        "a delimiter that is prose takes no call along that begins behind it",
    ),
    (
        "reliability/answer/gate.py",
        "            text, at = gate.tail + text[at:], 0\n",
        "            text, at = gate.tail + text, 0\n",
        "nothing is lost, and nothing said twice",
    ),
    (
        "reliability/answer/starts.py",
        "        return PARTIAL if len(text) - at <= DELIMITER_MAX and self.partial.match(text, at) else None\n",
        "        return None\n",
        "a delimiter that is cut in two is still one",
    ),
    (
        "reliability/answer/call_starts.py",
        "        if text[match.end()] == before:\n            return None\n",
        "",
        "a delimiter in quotes delays nothing",
    ),
    (
        "reliability/answer/call_starts.py",
        "    if match.end() == len(text) and _may",
        "    if match.end() > len(text) and _may",
        "a name that is cut in two is still a name",
    ),
    (
        "reliability/answer/call_starts.py",
        'Place.LINE if char == "\\n" else Place.SENTENCE',
        "Place.SENTENCE",
        "a name counts at the start of every line",
    ),
    (
        "reliability/answer/call_starts.py",
        "        found = _pick_first(_find_in_frame(known, _TAGS, text, at, Place.SENTENCE), found)\n",
        "        pass\n",
        "a tag around a call is held with it",
    ),
    (
        "reliability/answer/call_starts.py",
        "known.folded if place is Place.LINE else known.exact, text, at)",
        "known.folded, text, at)",
        "behind a sentence a name counts to the letter",
    ),
    # the formats of calls
    (
        "reliability/tools/format_envelopes.py",
        '        opens=(r"<\\|python_tag\\|>",),\n',
        '        opens=(r"<\\|python_tags\\|>",),\n',
        "every row is read",
    ),
    (
        "reliability/tools/format_envelopes.py",
        '        holds=(Start(r"functools\\[\\s{0,8}\\{", place=Place.SENTENCE),),\n',
        "        holds=(),\n",
        "the gate holds what a row opens with",
    ),
    (
        "reliability/tools/format_row.py",
        "return tuple(Start(opener) for opener in self.opens) if self.holds is None else self.holds",
        "return self.holds or ()",
        "what opens a call is held unless the row says otherwise",
    ),
    (
        "reliability/tools/formats.py",
        '        found = rf"(?:{some}\\Z|{piece[0]}{found})"\n',
        '        found = rf"(?:\\Z|{piece[0]}{found})"\n',
        "a beginning is one wherever it is cut",
    ),
    (
        "reliability/tools/extract/delimiter_search.py",
        "    if start in (at, kept) or begins_sentence(text, start):\n",
        "    if True:\n",
        "a whole answer says the same as a streamed one",
    ),
    (
        "reliability/tools/extract/scanner.py",
        "            self.at = max(self.at, bad.at)  # a row of openers is looked at once\n",
        "            pass\n",
        "a row of openers costs linear time",
    ),
    (
        "reliability/tools/extract/shapes.py",
        "    if not _JSON_BEGINS.match(text, start):\n        return False\n",
        "",
        "braces in the prose before a call spoil nothing",
    ),
    (
        "reliability/tools/extract/envelope.py",
        "is_harmless_before(before) and (_fits_line(before) or not inline):",
        "is_harmless_before(before):",
        "a mark in the middle of a line opens a call in that line only",
    ),
    (
        "reliability/tools/extract/settling.py",
        "        pieces = [piece[max(0, self.sent - at) :] for at, piece in self._pieces[:count]]\n",
        "        pieces = [piece for at, piece in self._pieces[:count]]\n",
        "what has left is not said again",
    ),
    (
        "reliability/tools/extract/harmony.py",
        '    inside = text.count("{", 0, delimiter.start()) > text.count("}", 0, delimiter.start())\n',
        '    inside = "{" in text[: delimiter.start()]\n',
        "braces in the prose before it hide no Harmony message",
    ),
    (
        "reliability/tools/extract/typing_text.py",
        '_BREAK = re.compile(r"\\r?\\n")\n',
        '_BREAK = re.compile(r"\\n")\n',
        "the line ends of Windows frame a parameter, too",
    ),
    (
        "reliability/loops/written.py",
        "        elif ending is not None and _is_outer(opener, ending):\n",
        "        elif False:\n",
        "an envelope around an envelope is no call",
    ),
    (
        "reliability/answer/equal_calls.py",
        "    if kept is None:\n",
        "    if True:\n",
        "a copy that was broken off spoils none of the calls before it",
    ),
    (
        "reliability/answer/judgement.py",
        "read_stopped(sent + text, len(sent), expected.toolbox, stopped, thought=thought)\n",
        "read_stopped(text, 0, expected.toolbox, stopped, thought=thought)\n",
        "an answer is judged the same however much of it has left",
    ),
    (
        "reliability/answer/gate.py",
        "Stopped(rules, row=found.row, chars=found.end - start, rest=text[found.end :])",
        "Stopped(rules, row=None, chars=found.end - start, rest=text[found.end :])",
        "what stands behind an opener in the answer is reasoning",
    ),
    (
        "reliability/answer/thoughts.py",
        "        keep = len(text) if last else keep\n        kept = len(text[:keep].rstrip())\n",
        "        kept = 0\n",
        "reasoning in the text leaves as it comes",
    ),
    (
        "reliability/tools/format_reasoning.py",
        "    return stands_in_code(text, at) or _stands_in_string(text, at)",
        "    return False",
        "a mark in code or in a string of data is data",
    ),
    (
        "reliability/answer/call_starts.py",
        "            found = None if fenced else found\n",
        "",
        "a mark in a code block is code",
    ),
    (
        "reliability/tools/extract/settling.py",
        "        if closer is None and not begins_sentence(self.text, opener.start):\n            return\n",
        "        if closer is None:\n            return\n",
        "a call in reasoning that isn't closed is none",
    ),
    (
        "reliability/tools/extract/settling.py",
        "            self.calls, self.malformed, self.kept, self.given = [], [], 0, None\n",
        "",
        "a call in reasoning that the prompt has opened is none",
    ),
    (
        "reliability/tools/format_reasoning.py",
        "    return not apart or begins_sentence(text, start)",
        "    return True",
        "a closer of reasoning in the middle of a sentence is a word",
    ),
    (
        "reliability/tools/extract/envelope.py",
        "        return begins_line or begins_sentence(text, start)",
        "        return True",
        "a sentence that ends with an opener is prose",
    ),
    (
        "reliability/tools/extract/envelope.py",
        "    return _looks_like_calling(text[max(begin, start - NEAR_CHARS) : start], box)",
        "    return False",
        "a closer behind a declared name was meant",
    ),
    (
        "reliability/tools/extract/typing_text.py",
        "return framed, () if expected else (RepairKind.LAYOUT,)\n",
        "return framed, ()\n",
        "a line break that may have been the value's is taken off with a note",
    ),
    (
        "reliability/tools/extract/markup.py",
        "    if any(key not in found.found for key in tool.required):",
        "    if False:",
        "tags without a required parameter are a broken call",
    ),
    (
        "reliability/tools/extract/shapes.py",
        "not (setting.last and _fits(given, tool))",
        "not setting.last",
        "data under a tool's name is data where it isn't the tool's arguments",
    ),
    (
        "reliability/tools/extract/pythonic.py",
        "not value.value.keys() <= known.keys()",
        "False",
        "an object is all arguments only where its keys are the parameters",
    ),
    (
        "reliability/answer/call_starts.py",
        "        if found is None and self.heads.may_become_another(text, at):",
        "        if False:",
        "a mark that begins like another one waits",
    ),
    (
        "deployments/tiers/template_check.py",
        "    return not found.malformed and _are_right(",
        "    return True or _are_right(",
        "a model whose calls can't be read is said",
    ),
]
