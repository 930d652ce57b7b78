"""Small sabotages of what stands between a model and its client: pressure, replicas, the gate, the listener.

Each entry is (file, old text, new text, law); the old text stands in the file exactly once.
"""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    # pressure
    (
        "reliability/memory/pressure.py",
        "if held < rank and now_ns - pressure.held_ns < config.calm_ns:",
        "if held < rank - 9 and now_ns - pressure.held_ns < config.calm_ns:",
        "no flapping",
    ),
    (
        "reliability/memory/pressure.py",
        "if held >= rank and now_ns - pressure.called_ns < config.latch_ns:",
        "if held >= rank:",
        "every latch times out",
    ),
    (
        "reliability/memory/pressure.py",
        "return _at(pressure, rank - 1, below[0] if below else pressure.source, now_ns)",
        "return _at(pressure, 0, below[0] if below else pressure.source, now_ns)",
        "it leaves one level at a time",
    ),
    (
        "reliability/memory/pressure.py",
        "(rank < 0 or called == _CRITICAL or rising >= config.warn_readings)",
        "(rank < 0 or rising >= config.warn_readings)",
        "critical at once",
    ),
    (
        "reliability/memory/pressure.py",
        "return pressure.level if now_ns < pressure.fresh_until_ns else Level.UNKNOWN",
        "return pressure.level",
        "silence is unknown for every reader",
    ),
    (
        "reliability/memory/pressure.py",
        "if name in known and now_ns < known[name][1] + config.stale_ns",
        "if name in known",
        "a source that fell silent stops counting",
    ),
    (
        "reliability/memory/replicas.py",
        "        if free_bytes < 0:\n            break\n",
        "        if free_bytes < -1:\n            break\n",
        "the memory is never exceeded",
    ),
    (
        "reliability/memory/replicas.py",
        "        free_bytes -= max(0, demand.replica_bytes)\n        if free_bytes < 0:\n            break\n",
        "        if free_bytes < max(0, demand.replica_bytes):\n            continue\n"
        "        free_bytes -= max(0, demand.replica_bytes)\n",
        "more memory never means fewer replicas",
    ),
    (
        "reliability/memory/replicas.py",
        "if (level is not Level.NORMAL or budget_bytes is None) and held > now:",
        "if level is Level.WARN and held > now:",
        "in the dark nothing grows",
    ),
    # gate
    (
        "reliability/answer/gate.py",
        "if kind is TextKind.PROSE or (kind is TextKind.OPEN and not named):",
        "if kind is not TextKind.CALL:",
        "a tag or a named candidate stays held",
    ),
    (
        "reliability/answer/gate.py",
        "            if gate.mode is Mode.HELD:\n                return _holding(gate, event), ()\n            if not",
        "            if not",
        "text after a held call stays held",
    ),
    (
        "reliability/answer/gate.py",
        "items = self.items if len(self.items) == self.count else self.items[: self.count]",
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
        "asked = replace(body, kind=Kind.OPEN_ENDED, ask_at=2 * body.chars)",
        "asked = replace(body, kind=Kind.OPEN_ENDED, ask_at=0)",
        "questions cost linear time",
    ),
    (
        "reliability/answer/gate.py",
        "            if _char_before(text, at, spot.start(), body.last) in _BEFORE_STRING:\n"
        "                quote = char\n",
        "            quote = char\n",
        "an apostrophe is no string",
    ),
    (
        "reliability/answer/gate.py",
        'return Gate(gate.rules, line_start=waiting[-1] == "\\n"), stop, waiting',
        "return Gate(gate.rules, line_start=False), stop, waiting",
        "a name at the start of the line behind a candidate is seen",
    ),
    (
        "reliability/answer/call_starts.py",
        "return PARTIAL if any(marker.startswith(rest) for marker in MARKERS) else None",
        "return None",
        "a tag that is cut in two is still a tag",
    ),
    (
        "reliability/answer/call_starts.py",
        'return opening if text[colon] == ":" else None',
        "return opening",
        "a doubt ends with certainty",
    ),
    (
        "reliability/answer/call_starts.py",
        'rf"`{{1,{TICKS_MAX}}}"',
        'r"`+"',
        "what waits undecided is bounded",
    ),
    (
        "reliability/answer/call_starts.py",
        "    if at + len(rest) == len(text):\n        following",
        "    if at > len(text):\n        following",
        "a name that is cut in two is still a name",
    ),
    (
        "reliability/answer/call_starts.py",
        "            at, line_start = at + 1, True\n",
        "            at, line_start = at + 1, False\n",
        "a name counts at the start of every line",
    ),
    # logprobs
    (
        "reliability/answer/logprobs.py",
        "while self._waiting and self._left_bytes < self._text_bytes:",
        "while self._waiting and self._left_bytes <= self._text_bytes:",
        "a token is never told before its first byte has left",
    ),
    (
        "reliability/answer/logprobs.py",
        "        if self._text_head.whole:\n            self._trim()\n",
        "        self._trim()\n",
        "white space that was taken off the text is not told",
    ),
    (
        "reliability/answer/logprobs.py",
        "out, self._waiting = tuple(self._waiting), deque()",
        "out = tuple(self._waiting)",
        "no token is told twice",
    ),
    # upstreams
    (
        "deployments/tiers/hosted/upstream_errors.py",
        "    status = _meant(status, complaint)\n",
        "",
        "a code says more than a 400",
    ),
    (
        "deployments/tiers/hosted/upstream_errors.py",
        "told not in _SAYS_LITTLE and told < 500 else status",
        "told not in _SAYS_LITTLE else status",
        "a code makes no refusal a fault of the upstream",
    ),
    (
        "deployments/tiers/hosted/upstream_errors.py",
        "(incorrect|invalid) api key",
        "(incorrect|invalid)",
        "a client's mistake stays one",
    ),
    (
        "deployments/tiers/hosted/chat_chunks.py",
        "        if usage is not None or events:",
        "        if usage is not None:",
        "a count from before the words is not theirs",
    ),
    (
        "deployments/tiers/hosted/chat_chunks.py",
        "        completion = max(completion or 0, total - prompt)\n",
        "        completion = total - prompt\n",
        "a total takes nothing away",
    ),
    (
        "deployments/tiers/hosted/hosted_tier.py",
        'no connection to its server", Usage()',
        'no connection to its server", None',
        "who was not reached spent nothing",
    ),
    # listening
    (
        "deployments/listener/listening.py",
        "        return ipaddress.IPv6Address(host[1:-1])\n",
        "        return ipaddress.ip_address(host)\n",
        "an address is loopback in every spelling",
    ),
    (
        "deployments/listener/listening.py",
        'if host.startswith("[") and host.endswith("]"):',
        'if host.startswith("["):',
        "half a bracket makes no host",
    ),
    (
        "deployments/listener/listening.py",
        "    return (mapped or address).is_loopback\n",
        "    return (mapped or address).is_private\n",
        "no other network is loopback",
    ),
]
