"""Texts made of the pieces that matter to a reader of answers, and their cuts."""

from hypothesis import strategies as st

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1.0, "b": "é"}}\n</tool_call>'
# Texts made of the pieces that matter, so that markers, halves of markers and calls are common.
MARKS = [CALL, "<tool_call>", "</tool_call>", "<tool", "_call>", "<think>", "</think>", "<thi", "[CALL]"]
PIECES = st.sampled_from([*MARKS, "{", '{"name": 1}', "stop", "st", "op", "a", " ", "\n", "né"])
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return text, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
