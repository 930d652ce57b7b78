"""Calls as models write them into their text, and the loop that is found in an answer."""

import random
import re

from reliability.loops import Loop, Scan, finish, step

CALLS = [
    '[TOOL_REQUEST]\n{{"name": "get", "arguments": {{"n": {n}}}}}\n[END_TOOL_REQUEST]\n',
    '<tool_call>\n{{"name": "get", "arguments": {{"n": {n}}}}}\n</tool_call>\n',
    '<tool_call>{{"name": "get", "arguments": {{"n": {n}}}}}\n',
    '<|channel|>commentary to=functions.get <|constrain|>json<|message|>{{"n": {n}}}<|call|>',
    '<|start|>assistant<|channel|>commentary to=functions.get<|message|>{{"n": {n}}}<|end|>',
    "⏺ Get: number {n}\n",
]


_QUERY = re.compile(r"(?<![\w'-])x(?![\w'-])|(?<=')x(?=')")


def write_query(example: str, query: str) -> str:
    """An example of the table of call formats, with another query than `x`."""
    return _QUERY.sub(query, example)


def read(text: str) -> Loop | None:
    return finish(step(Scan(), text)[0])[1]


def prose(words: int, seed: int = 3) -> str:
    dice = random.Random(seed)
    some = "the model looks at one more file and then decides what it is to do next with care"
    return " ".join(dice.choice(some.split()) for _ in range(words))
