"""Small sabotages of sessions and of what they keep: (file, old text, new text, the law that it breaks)."""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    (
        "reliability/sessions/conversations.py",
        "        return _Way.RETRY if node.lost else _Way.AGAIN\n",
        "        return _Way.RETRY\n",
        "two runs that are equal to the letter go on one after the other",
    ),
    (
        "reliability/sessions/conversations.py",
        "    if node is not conversation.newest or (node.gone and not node.lost):\n",
        "    if False:\n",
        "who was gone on from is left to the one that was",
    ),
    (
        "reliability/sessions/conversations.py",
        "            if fresh and begin.lost and begin.gone == trail.whole:\n",
        "            if fresh:\n",
        "a run that begins as another one did is new",
    ),
    (
        "reliability/sessions/conversations.py",
        "            node.lost = node.gone == trail.whole\n",
        "            node.lost = False\n",
        "a first request that got no answer may be sent again",
    ),
    (
        "reliability/sessions/conversations.py",
        '    return digest_parts(key.encode("utf-8", "surrogatepass"), trail.owner)\n',
        "    return digest_parts(trail.owner)\n",
        "two keys never share",
    ),
    (
        "reliability/sessions/conversations.py",
        "        if len(conversation.nodes) > NODES_MAX:\n",
        "        if not conversation.nodes:\n",
        "each conversation keeps a few answers",
    ),
    (
        "reliability/sessions/conversations.py",
        "    FIRST = 0  # nobody has yet\n    RETRY = 1  # as one did that got no answer\n",
        "    RETRY = 0\n    FIRST = 1\n",
        "a rerun takes nothing of a refused run",
    ),
    (
        "reliability/sessions/conversations.py",
        "    return _Way.LEFT if node.gone else _Way.FIRST\n",
        "    return _Way.FORK if node.gone else _Way.FIRST\n",
        "who got no answer waits for another request",
    ),
    (
        "reliability/sessions/conversations.py",
        "False, -conversation.used_ns if way is _Way.RETRY else -place\n",
        "False, conversation.used_ns if way is _Way.RETRY else -place\n",
        "a retry is of the run that was refused last",
    ),
    (
        "reliability/sessions/conversations.py",
        "added if added > 0 else SHRUNK, ",
        "0, ",
        "of two equal runs one may be a lap ahead",
    ),
    (
        "reliability/sessions/conversations.py",
        "conversation.used_ns < begun_ns, place\n",
        "False, place\n",
        "a rerun takes nothing of a run that was left",
    ),
    (
        "reliability/sessions/conversations.py",
        "            if len(ways) == 1 or rank[0] is not _Way.LEFT or digest in exact:\n                return found\n",
        "            return found\n",
        "several that wait for another request are nobody's",
    ),
    (
        "reliability/sessions/conversations.py",
        '        yield _of(scope, b"front", seen.front, seen.said)\n',
        '        yield _of(scope, b"front", seen.front, seen.words)\n',
        "behind a message all of an answer counts",
    ),
    (
        "reliability/sessions/trail.py",
        '    text = _say_plainly(turn) if turn.calls else ""\n',
        '    text = ""\n',
        "who writes the same block with other words is another",
    ),
    (
        "reliability/sessions/trail.py",
        '    return " ".join(_shorten(turn.text.rpartition("</think>")[2]).split())\n',
        '    return " ".join(_shorten(turn.text).split())\n',
        "reasoning is no part of an answer",
    ),
    (
        "reliability/loops/answer_history.py",
        "    return kept[:again]\n",
        "    return kept\n",
        "a request that is sent again counts once",
    ),
    (
        "reliability/loops/answer_history.py",
        "    if shown.spoken or not kept:\n",
        "    if not kept:\n",
        "a user who speaks re-arms",
    ),
    (
        "reliability/loops/answer_history.py",
        '    return "\\n".join([text[:HEAD_CHARS], *pieces, text[-TAIL_CHARS:]])\n',
        '    return "\\n".join([text[:HEAD_CHARS], text[-TAIL_CHARS:]])\n',
        "of a long result every piece counts",
    ),
    (
        "reliability/loops/answer_history.py",
        "    older = [each.turn for each in before[: known[0] if known else end]]\n",
        "    older = [each.turn for each in before[:end]]\n",
        "what is shown and kept counts once",
    ),
    (
        "reliability/loops/answer_history.py",
        "RETRIES_MAX = 4\n",
        "RETRIES_MAX = 40\n",
        "a text agent whose requests are equal to the letter is ended at last",
    ),
    (
        "reliability/loops/answer_history.py",
        "RETRIES_MAX = 4\n",
        "RETRIES_MAX = 0\n",
        "a request that is sent again a few times is no loop",
    ),
    (
        "deployments/state/windows.py",
        "        self._chars -= chars\n",
        "",
        "what goes is no longer counted",
    ),
    (
        "deployments/api/session.py",
        "    if not isinstance(value, str) or (name := value.strip()).lower() in NOTHING:\n",
        "    if not isinstance(value, str) or not (name := value.strip()):\n",
        "a name that says nothing is passed over",
    ),
]
