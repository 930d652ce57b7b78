"""ONE table of what stands around a model's reasoning where an upstream leaves it in the text: thinking is no part of
the answer, and it is not acting.

    opens    what opens reasoning
    closes   what closes it, and says so by itself: without an opener it ends what the chat template has opened
    until    what closes it behind an opener of the row only, since it closes other things too
    says     what opens the answer behind it
    ends     what closes that answer
    prompts  what else opens it at the end of a prompt

What stands between an opener and its closer is reasoning; both marks are dropped, and so is white space beside them. An
opener counts where an answer or a line begins, and in a line where a sentence begins and no blank stands behind it;
elsewhere prose talks of it. Without a closer it reaches to the end. A closer without an opener ends what the chat
template has opened at the end of the prompt: all before it is reasoning, as far as it hasn't left. In quotes, in code
and in a string of data marks are talked about, and so is a closer with white space or a point on each side in the
middle of a sentence.

A call in reasoning is none. There an opener counts wherever a sentence begins, closed or not, and elsewhere where it is
closed: what may be thought doesn't act.

`MESSAGES` has families whose answers are rows of messages: their marks are looked for where an answer begins, and
behind reasoning; what follows is read by the reader of messages (`extract/harmony.py`).

The expressions are made as `Format.opens` is (`formats.py`), so that a cut text can be asked whether it ends in one.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ANSWER_MARKS", "MESSAGES", "REASONING", "REASONING_CLOSES", "REASONING_OPENS", "Thought"]

_SPACES = ("", r"\w{1,16}[:_|]")
_ENDS = ("", r":\w{1,10}")
_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning")
_CHANNEL = (r"<\|start\|>assistant<\|channel\|>", r"<\|channel\|>")
_TO = (r"<\|start\|>assistant to=", "to=")


class Thought(NamedTuple):
    """The marks of one family."""

    family: str
    opens: tuple[str, ...]
    closes: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


REASONING: tuple[Thought, ...] = (
    Thought(
        "Solar Open",
        (r"<\|think\|>",),
        (),
        (r"<\|end\|>", r"<\|/think\|>", "</think>"),
        (r"<\|begin\|>assistant", r"<\|content\|>"),
    ),
    Thought("K2", (r"<think_\w{1,10}>",), (r"</think_\w{1,10}>",)),
    Thought("Magistral, Ministral", (r"\[THINK\]",), (r"\[/THINK\]",)),
    Thought("Kimi-VL", (r"◁think▷",), (r"◁/think▷",)),
    Thought("XTML", (r"<\|think:start\|>",), (r"<\|think:end\|>",)),
    Thought(
        "Kimi K3",
        (r"<\|open\|>think<\|sep\|>",),
        (r"<\|close\|>think<\|sep\|>",),
        says=(r"<\|open\|>response<\|sep\|>",),
        ends=(r"<\|close\|>response<\|sep\|>", r"<\|close\|>message<\|sep\|>", r"<\|end_of_msg\|>"),
    ),
    Thought(
        "Command A",
        (r"<\|START_THINKING\|>",),
        (r"<\|END_THINKING\|>",),
        says=(r"<\|START_RESPONSE\|>", r"<\|START_TEXT\|>"),
        ends=(r"<\|END_RESPONSE\|>", r"<\|END_TEXT\|>"),
    ),
    Thought("Apertus", (r"<\|inner_prefix\|>",), (r"<\|inner_suffix\|>",)),
    Thought(
        "Apriel",
        (),
        (r"\[BEGIN FINAL RESPONSE\]",),
        ends=(r"\[END FINAL RESPONSE\]",),
        prompts=("Here are my reasoning steps:",),
    ),
    Thought("DeepSeek", (r"<[|｜]begin[▁_]of[▁_]thinking[|｜]>",), (r"<[|｜]end[▁_]of[▁_]thinking[|｜]>",)),
    Thought(
        "Sky",
        (r"<\|begin_of_thought\|>",),
        (r"<\|end_of_thought\|>",),
        says=(r"<\|begin_of_solution\|>",),
        ends=(r"<\|end_of_solution\|>",),
    ),
    Thought("Marin", (r"<\|start_think\|>",), (r"<\|end_think\|>",)),
    Thought("PLaMo 3", (r"<\|plamo:begin_think:plamo\|>",), (r"<\|plamo:end_think:plamo\|>",)),
    Thought("Gemma 4", (r"<\|channel>thought",), (r"<channel\|>",)),
    Thought("MedGemma", (r"<unused94>thought",), (r"<unused95>",)),
    # Last, and behind all closers: with a namespace before it `<|END_THINKING|>` would be an opener.
    Thought(
        "most models",
        tuple(rf"<\|?{space}{name}{end}\|?>" for name in _NAMES for space in _SPACES for end in _ENDS),
        tuple(rf"<\|?/{space}{name}{end}\|?>" for name in _NAMES for space in _SPACES for end in _ENDS),
    ),
)
MESSAGES: tuple[Thought, ...] = (
    Thought(
        "Harmony: gpt-oss",
        tuple(rf"{head}analysis<\|message\|>" for head in _CHANNEL),
        until=(r"<\|end\|>",),
        says=tuple(
            rf"{head}final{kind}<\|message\|>" for head in _CHANNEL for kind in ("", r" ?<\|constrain\|>\w{1,16}")
        ),
    ),
    Thought(
        "Muse",
        tuple(rf"{head}self<\|message\|>" for head in _TO),
        until=(r"<\|eom\|>",),
        says=tuple(rf"{head}{whom}<\|message\|>" for head in _TO for whom in ("user", "commentary")),
    ),
)
REASONING_OPENS = tuple(opener for row in REASONING for opener in row.opens)
REASONING_CLOSES = tuple(closer for row in REASONING for closer in row.closes)
ANSWER_MARKS = tuple(mark for row in REASONING for mark in (*row.says, *row.ends))
