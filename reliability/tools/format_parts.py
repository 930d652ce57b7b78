"""What several rows of the table of call formats share: what a name is, and a call in its plainest forms.

`formats.py` has the table. The calls are examples: each is a call of `search` with {"query": "x"}.
"""

from __future__ import annotations

__all__ = [
    "DSML",
    "DSML_CALL",
    "ELEMENTS_CALL",
    "GEMMA_CALL",
    "INVOKE_CALL",
    "JSON_CALL",
    "K3_CALL",
    "M3_CALL",
    "M3_TOKEN",
    "NAME",
    "PARAMETERS_CALL",
    "SPACES_OF_TAGS",
    "SUFFIX_OF_TAGS",
]

NAME = r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}+"

# Between the `<` of a tag and its name, and behind its name: `minimax:`, `longcat_`, `ifm|`, `｜DSML｜` of DeepSeek and
# `｜GCML｜` of GigaChat 3.5; `:opensource`.
DSML = r"[|｜]{1,2}[A-Z]{2}ML[|｜]{1,2} ?"
SPACES_OF_TAGS = ("", r"\w{1,32}[:_]", r"\w{1,16}\|", DSML)
SUFFIX_OF_TAGS = r":\w{1,10}"
# Kimi K3 may lose marks between the first one of its tools and its call: `<|open|>toolscall tool=`.
K3_CALL = r"<\|open\|>[a-z<>|/ \n]{0,24}call tool="
# MiniMax M3 writes this token before each of its tags.
M3_TOKEN = r"\]<\]minimax\[>\["

JSON_CALL = '{"name": "search", "arguments": {"query": "x"}}'
PARAMETERS_CALL = '{"name": "search", "parameters": {"query": "x"}}'
ELEMENTS_CALL = "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>"
INVOKE_CALL = '<invoke name="search">\n<parameter name="query">x</parameter>\n</invoke>'
GEMMA_CALL = 'call:search{query:<|"|>x<|"|>}'
DSML_CALL = (
    '<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">x</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>"
)
M3_CALL = ']<]minimax[>[<invoke name="search">\n]<]minimax[>[<query>x]<]minimax[>[</query>\n]<]minimax[>[</invoke>'
