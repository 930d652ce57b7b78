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
        "    return _Way.FIRST if node is conversation.newest and not node.gone else _Way.FORK\n",
        "    return _Way.FIRST\n",
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
        "reliability/sessions/trail.py",
        '    words = " ".join(_shorten(turn.text.rpartition("</think>")[2]).split())\n',
        '    words = " ".join(_shorten(turn.text).split())\n',
        "reasoning is no part of an answer",
    ),
    (
        "reliability/loops/kept.py",
        "    return kept[:again]\n",
        "    return kept\n",
        "a request that is sent again counts once",
    ),
    (
        "reliability/loops/kept.py",
        "    if shown.spoken or not kept:\n",
        "    if not kept:\n",
        "a user who speaks re-arms",
    ),
    (
        "reliability/loops/kept.py",
        '    return "\\n".join([text[:HEAD_CHARS], *pieces, text[-TAIL_CHARS:]])\n',
        '    return "\\n".join([text[:HEAD_CHARS], text[-TAIL_CHARS:]])\n',
        "of a long result every piece counts",
    ),
    (
        "reliability/loops/kept.py",
        "    older = [each.turn for each in before[: known[0] if known else end]]\n",
        "    older = [each.turn for each in before[:end]]\n",
        "what is shown and kept counts once",
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
