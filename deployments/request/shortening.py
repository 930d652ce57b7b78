"""A prompt that no tier can hold, made shorter: the policy `context: shorten`, and compaction.

The oldest results of tools are replaced by stubs, down to half of the largest context that refused the prompt, so that
the next turns find room and the same prefix. How many bytes a token has is known only to the tiers: four are assumed
first, and two where that wasn't enough.
"""

from __future__ import annotations

from dataclasses import replace

from deployments.request.run_record import Run
from reliability.answer.estimate import prompt_bytes
from reliability.context_edits import ClearResults, clear_results
from reliability.escalation.refusals import figure
from reliability.types import Fault

BYTES_A_TOKEN = (4, 2)
ANSWER_SHARE = 4  # of the context, at most, is left for the answer


def shorten(run: Run, contexts: dict[str, int]) -> bool:
    """Shorten the prompt of a request that no tier can hold, and let it begin anew; False where that can't be done.
    `contexts`: of the tiers, as far as they are known, in tokens."""
    full = [attempt.tier for attempt in run.attempts if attempt.fault is Fault.CONTEXT_LENGTH]
    context = max((contexts[tier] for tier in full if tier in contexts), default=0)
    if not run.limits.shorten or not context or any(attempt.text_out for attempt in run.attempts):
        return False
    request = run.request
    run.whole = run.whole or request.messages
    tools_bytes = prompt_bytes((), request.tools)
    room = context - min(request.max_tokens, context // ANSWER_SHARE)
    while run.shortenings < len(BYTES_A_TOKEN):
        size = room * BYTES_A_TOKEN[run.shortenings]
        run.shortenings += 1
        rule = ClearResults(bytes_over=size, bytes_left=size // 2, keep=1)
        cleared = clear_results(run.whole, rule, tools_bytes)
        if cleared.count > run.shortened:
            run.request = replace(request, messages=cleared.messages)
            run.prompt_bytes = prompt_bytes(cleared.messages, request.tools)
            run.shortened, run.passed_over = cleared.count, len(run.attempts)
            words = f"the oldest {figure(cleared.count)} tool results were left out: no tier could hold the prompt"
            run.notes = (*(note for note in run.notes if "tool results were left out" not in note), words)
            return True
    return False
