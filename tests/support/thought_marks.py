"""The marks of each family's reasoning, as its models write them: opener, closer, and what stands around the answer."""

import re

from reliability.tools.format_reasoning import MESSAGES, REASONING, Thought

K3, GPT = "<|open|>response<|sep|>", "<|start|>assistant<|channel|>"
MARKS = [
    ("<think>", "</think>", "", ""),
    ("\n<think>\n", "\n</think>\n\n", "", ""),
    ("<|im_start|>assistant\n<think>", "</think>", "", ""),
    ("<THINKING>", "</THINKING>", "", ""),
    ("<seed:think>", "</seed:think>", "", ""),
    ("<mm:think>", "</mm:think>", "", ""),
    ("<longcat_think>", "</longcat_think>", "", ""),
    ("<think:opensource>", "</think:opensource>", "", ""),
    ("<reasoning>", "</reasoning>", "", ""),
    ("<think_fast>", "</think_fast>", "", ""),
    ("[THINK]", "[/THINK]", "", ""),
    ("◁think▷", "◁/think▷", "", ""),
    ("<|think:start|>", "<|think:end|>", "", ""),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>", K3, "<|close|>response<|sep|><|close|>message<|sep|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>", "", ""),
    ("<｜begin▁of▁thinking｜>", "<｜end▁of▁thinking｜>", "", ""),
    ("<|begin_of_thought|>\n", "\n<|end_of_thought|>", "\n<|begin_of_solution|>\n", "<|end_of_solution|>"),
    ("<|start_think|>", "<|end_think|>", "", ""),
    ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>", "", ""),
    ("<|channel>thought\n", "<channel|>", "", ""),
    ("<unused94>thought\n", "<unused95>", "", ""),
]
# What closes these is no mark by itself: another turn ends with it too.
ONLY_OPENED = [
    ("<|think|>", "<|end|>", "<|begin|>assistant<|content|>", ""),
    ("<|channel|>analysis<|message|>", "<|end|>", f"{GPT}final<|message|>", "<|return|>"),
    (f"{GPT}analysis<|message|>", "<|end|>", f"{GPT}final <|constrain|>json<|message|>", ""),
    ("to=self<|message|>", "<|eom|>", "<|start|>assistant to=user<|message|>", "<|eot|>"),
]
ONLY_CLOSED = [("", "[BEGIN FINAL RESPONSE]", "\n", "\n[END FINAL RESPONSE]")]
OPENED, PROMPTED = [*MARKS, *ONLY_OPENED], [*MARKS, *ONLY_CLOSED]


def row_of(opener: str, closer: str) -> Thought:
    """The row of the table that these marks are of."""
    for row in (*REASONING, *MESSAGES):
        closed = any(re.fullmatch(one, closer.strip(), re.I) for one in (*row.closes, *row.until))
        if closed and (not opener or any(re.search(rf"(?:{one})\s*\Z", opener, re.I) for one in row.opens)):
            return row
    raise AssertionError(f"{opener} {closer} are in no row")
