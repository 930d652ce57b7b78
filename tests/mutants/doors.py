"""Small sabotages of what stands between a model and its client: pressure, replicas, the listener.

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
        "return _enter_level(pressure, rank - 1, below[0] if below else pressure.source, now_ns)",
        "return _enter_level(pressure, 0, below[0] if below else pressure.source, now_ns)",
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
    # logprobs
    (
        "reliability/answer/logprobs.py",
        "while self._waiting and self._left_bytes < self._text_bytes:",
        "while self._waiting and self._left_bytes <= self._text_bytes:",
        "a token is never told before its first byte has left",
    ),
    (
        "reliability/answer/logprobs.py",
        "        if self._text_head.ended:\n            self._trim()\n",
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
        "    status = _resolve_status(status, complaint)\n",
        "",
        "a code says more than a 400",
    ),
    (
        "deployments/tiers/hosted/upstream_errors.py",
        "named not in _SAYS_LITTLE and named < 500 else status",
        "named not in _SAYS_LITTLE else status",
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
        "deployments/config/loopback.py",
        "        return ipaddress.IPv6Address(host[1:-1])\n",
        "        return ipaddress.ip_address(host)\n",
        "an address is loopback in every spelling",
    ),
    (
        "deployments/config/loopback.py",
        'if host.startswith("[") and host.endswith("]"):',
        'if host.startswith("["):',
        "half a bracket makes no host",
    ),
    (
        "deployments/config/loopback.py",
        "    return (mapped or address).is_loopback\n",
        "    return (mapped or address).is_private\n",
        "no other network is loopback",
    ),
]
