"""Which model families at OpenRouter go on behind an assistant message of their own: how a tier is asked for the rest
of a broken answer where `tiers.NAME.continues` says nothing.

OpenRouter passes a last assistant message on to whichever provider it chooses, so a family is in the table only where
all who serve it honour it, as far as anybody wrote down. Read in 2026-11, with the date of each source:

    anthropic/claude-3*        Anthropic's page "Prefill Claude's response" (its example is Sonnet 4.5; never with
    anthropic/claude-*-4       thinking); its providers at OpenRouter, tested: Anthropic, Bedrock (2025-09) and Vertex
      ... claude-*-4.5         (2025) in rentry.org/or-prefill
    google/gemini-2.0-flash*   AI Studio and Vertex at OpenRouter, tested (rentry.org/or-prefill, 2025); `gemini-2.`
    google/gemini-2.5-flash*   goes on (pipecat 5821, 2026-09), 2.5 Flash takes it (LibreChat agents 323, 2026-07)

Everything else is asked by an anchor, which any model can try. Known of the rest:

    anthropic/claude-*-4.6 and later   a 400: Anthropic's migration guide; at OpenRouter too (lobehub 16916, 2026-07)
    google/gemini-2.5-pro, gemini-3*   2.5 Pro always thinks; of the later ones more and more answer 400 (LibreChat
                                       agents 323 and 412, 2026-07 and 08)
    openai/*                           not honoured at OpenRouter (rentry.org/or-prefill, 2025); begins anew (tldw 735)
    mistralai/*                        gives the answer back from its start (rentry.org/or-prefill, 2025), and a short
                                       one can't be told from a rest; Mistral's own API wants `prefix: true`
    deepseek/*, qwen/*, meta-llama/*   it depends on the provider: of those that serve DeepSeek V3.1 only DeepSeek, of
                                       Qwen's not Alibaba, Llama 4 not at Cerebras (rentry.org/or-prefill, 2025-09)

What must never happen: a guess. What isn't known to be honoured is not in the table; `doctor --ask` finds out.
"""

from __future__ import annotations

import re

from deployments.tiers.hosted.continuing import Continues

OPENROUTER = "openrouter.ai"
_DATED = r"(-\d{8})?"
_VARIANT = r"(:(?!thinking)[a-z-]+)?"  # `:free`, `:nitro`; whoever thinks can't be prefilled
_HONOURED = tuple(
    re.compile(family + _VARIANT, re.IGNORECASE)
    for family in (
        r"anthropic/claude-3[.-][a-z0-9.-]+",
        rf"anthropic/claude-(opus|sonnet|haiku)-4([.-][15])?{_DATED}",
        r"google/gemini-2\.[05]-flash(-lite)?(-\d{3})?",
    )
)


def choose_continues(host: str | None, model: str) -> Continues:
    """Choose how the model behind this host is asked for the rest of an answer."""
    at_openrouter = host is not None and host.lower() == OPENROUTER
    return "prefill" if at_openrouter and any(one.fullmatch(model) for one in _HONOURED) else "anchor"
