"""Texts that repeat themselves: runaways as models write them, and honest ones that look like them."""

import json
import random

from tests.support.written_calls import prose

LEAD = "I begin with words of my own. "

HONEST = {
    "zeros": "0,0,0,0,0,0,0,0,0,0,0,0\n" * 1_000,
    "matrix": ("0.0, " * 10 + "\n") * 600,
    "blank image": "data:image/png;base64," + "A" * 20_000,
    "divider": "-" * 3_000,
    "board": '<div class="cell empty"></div>\n' * 400,
    "nulls": "null, " * 3_000,
    "truth table": "True, False, " * 1_000,
    "pad": "x" + " " * 2_000 + "y",
    "tests": "".join(f"def test_{i}():\n    assert add({i}, 1) == {i + 1}\n\n" for i in range(300)),
    "inserts": "".join(f"INSERT INTO users (id, name) VALUES ({i}, 'user{i}');\n" for i in range(400)),
    "records": json.dumps([{"id": i, "name": f"user{i}", "active": True} for i in range(400)], indent=1),
    "yaml": "".join(f"- name: web-{i}\n  image: nginx:1.25\n  ports: [80]\n" for i in range(400)),
    "yaml of names": "".join(
        f"- name: {a}{b}{c}\n  image: nginx:1.25\n  ports: [80]\n"
        for a in "abcdefgh"
        for b in "abcdefg"
        for c in "abcdef"
    ),
    "toml": "".join(f'[[worker]]\nname = "w{i}"\nhost = "worker.internal"\nenabled = true\n' for i in range(250)),
    "ini": "".join(f"[worker{i}]\nhost = worker.internal\nenabled = true\n\n" for i in range(300)),
    "log": "".join(f"2026-03-0{i % 9 + 1} 12:00:{i % 60:02} INFO request {i} took {i % 7} ms\n" for i in range(300)),
    "hexdump": "".join(f"{i * 16:08x}  " + "00 " * 16 + " |" + "." * 16 + "|\n" for i in range(300)),
    "table": "| id | name | state |\n|---|---|---|\n" + "".join(f"| {i} | user{i} | fine |\n" for i in range(300)),
    "bottles": "".join(
        f"{i} bottles of beer on the wall, {i} bottles of beer. Take one of them down and pass it around, then there "
        f"are {i - 1} bottles of beer on the wall.\n"
        for i in range(99, 0, -1)
    ),
    "pages": "".join(
        f"I have read page {i} of 120 and there was nothing on it that the question asks for. " for i in range(1, 100)
    ),
    "cases": "".join(f"For n = {i} the sum is {i * (i + 1) // 2}, which is {i % 3} modulo 3. " for i in range(1, 200)),
}


def paragraph(chars: int, seed: int) -> str:
    """Sentences of so many characters in which nothing repeats for long."""
    dice = random.Random(seed)
    words = ["".join(dice.choice("abcdefghijklmnoprstuvw") for _ in range(dice.randint(2, 9))) for _ in range(chars)]
    text = ""
    while len(text) < chars:
        text += " ".join(dice.choice(words) for _ in range(dice.randint(6, 14))).capitalize() + ". "
    return text[: chars - 1].rstrip().ljust(chars)


def vary(chars: int, copies: int, *, counter: bool, words: bool) -> str:
    """A paragraph again and again, each time with the next number before it, or with two other words in it."""
    dice, parts = random.Random(chars), paragraph(chars, chars).split(" ")
    written = []
    for copy in range(copies):
        new = list(parts)
        if words:
            new[len(new) // 3], new[2 * len(new) // 3] = dice.choice(prose(20).split()), f"{dice.choice(parts)}"
        written.append(" ".join([*([f"Step {copy + 1}:"] if counter else []), *new]))
    return " ".join(written)
