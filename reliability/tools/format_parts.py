"""What several rows of the table of call formats share: what a name is, and a call in its plainest forms.

`formats.py` has the table. The calls are examples: each is a call of `search` with {"query": "x"}.
"""

from __future__ import annotations

__all__ = ["ELEMENTS_CALL", "GEMMA_CALL", "INVOKE_CALL", "JSON_CALL", "NAME", "PARAMETERS_CALL"]

NAME = r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}+"

JSON_CALL = '{"name": "search", "arguments": {"query": "x"}}'
PARAMETERS_CALL = '{"name": "search", "parameters": {"query": "x"}}'
ELEMENTS_CALL = "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>"
INVOKE_CALL = '<invoke name="search">\n<parameter name="query">x</parameter>\n</invoke>'
GEMMA_CALL = 'call:search{query:<|"|>x<|"|>}'
