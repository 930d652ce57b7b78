"""What stands around a model's reasoning where an upstream leaves it in the text: thinking is not acting.

A call between an opener and its closer is none. An opener counts where a line or a sentence begins, closed or not;
elsewhere only where it is closed, since prose talks of it too. A closer without an opener ends what the chat template
has opened at the end of the prompt. In quotes both are talked about, and so is a closer with white space or a point on
each side in the middle of a sentence.

The expressions are made as `Format.opens` is (`formats.py`), so that a cut text can be asked whether it ends in one.
"""

from __future__ import annotations

__all__ = ["REASONING", "REASONING_CLOSES", "REASONING_OPENS"]

_SPACES = ("", r"\w{1,16}[:_|]")
_ENDS = ("", r":\w{1,10}")
_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning")

# Openers and closers, a row per family.
REASONING: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "most models",
        tuple(rf"<\|?{space}{name}{end}\|?>" for name in _NAMES for space in _SPACES for end in _ENDS),
        tuple(rf"<\|?/{space}{name}{end}\|?>" for name in _NAMES for space in _SPACES for end in _ENDS),
    ),
    ("K2", (r"<think_\w{1,10}>",), (r"</think_\w{1,10}>",)),
    ("Magistral", (r"\[THINK\]",), (r"\[/THINK\]",)),
    ("Kimi-VL", (r"◁think▷",), (r"◁/think▷",)),
    ("XTML", (r"<\|think:start\|>",), (r"<\|think:end\|>",)),
    ("Kimi K3", (r"<\|open\|>think<\|sep\|>",), (r"<\|close\|>think<\|sep\|>",)),
    ("Command A", (r"<\|START_THINKING\|>",), (r"<\|END_THINKING\|>",)),
    ("Apertus", (r"<\|inner_prefix\|>",), (r"<\|inner_suffix\|>",)),
    ("DeepSeek", (r"<[|｜]begin[▁_]of[▁_]thinking[|｜]>",), (r"<[|｜]end[▁_]of[▁_]thinking[|｜]>",)),
    ("Sky", (r"<\|begin_of_thought\|>",), (r"<\|end_of_thought\|>",)),
    ("PLaMo 3", (r"<\|plamo:begin_think:plamo\|>",), (r"<\|plamo:end_think:plamo\|>",)),
    ("Gemma 4", (r"<\|channel>thought",), (r"<channel\|>",)),
    ("MedGemma", (r"<unused94>thought",), (r"<unused95>",)),
)
REASONING_OPENS = tuple(opener for _, opens, _ in REASONING for opener in opens)
REASONING_CLOSES = tuple(closer for _, _, closes in REASONING for closer in closes)
