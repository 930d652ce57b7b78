"""What upstreams do that are asked for the rest of an answer: sixty habits, each a small function; and texts that are
hard to join: equal rows, zeros, refrains, code, other scripts."""

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """What the upstream was asked for: `end` is what it is shown, `rest` what it would write by right, `anchor` the
    words that it is to begin with (empty where it is to continue at once)."""

    end: str
    rest: str
    anchor: str

    @property
    def exact(self) -> str:
        return self.anchor + self.rest

    @property
    def word(self) -> str:
        return self.end.split()[-1]

    @property
    def line(self) -> str:
        return self.end.splitlines()[-1]

    @property
    def sentence(self) -> str:
        return (
            re.split(r"(?<=[.!?])\s+|(?<=。)", self.end.rstrip(".!?。"))[-1] + self.end[len(self.end.rstrip(".!?。")) :]
        )


def _before(words: str) -> Callable[[Asked], str]:
    return lambda asked: words + asked.exact


def _behind(words: str) -> Callable[[Asked], str]:
    return lambda asked: asked.exact + words


def _around(opening: str, closing: str) -> Callable[[Asked], str]:
    return lambda asked: opening + asked.exact + closing


def _between(words: str) -> Callable[[Asked], str]:
    return lambda asked: asked.anchor + words + asked.rest


def _again(part: str) -> Callable[[Asked], str]:
    return lambda asked: getattr(asked, part) + asked.rest


# With these the whole is the whole, or there is an error: whatever the text, wherever it was cut.
HABITS: Mapping[str, Callable[[Asked], str]] = {
    "continues": lambda asked: asked.exact,
    "last word again": _again("word"),
    "last line again": _again("line"),
    "last sentence again": _again("sentence"),
    "all again": _again("end"),
    "anchor twice": lambda asked: asked.anchor + asked.exact,
    "anchor twice, a line between": lambda asked: asked.anchor + "\n" * bool(asked.anchor) + asked.exact,
    "begins anew": lambda asked: (
        asked.end[: max(24, len(asked.end) // 2)] + " | something else entirely" if len(asked.end) > 24 else ""
    ),
    "sure": _before("Sure! Here is the rest of the message:\n\n"),
    "certainly": _before("Certainly, continuing from where it was cut off:\n"),
    "continuing": _before("Continuing: the rest is "),
    "apology": _before("I apologize, my last message was cut off.\n\n"),
    "sorry": _before("I'm sorry, it seems that my message was cut off. "),
    "here is": _before("Here is the rest: "),
    "role": _before("Assistant: "),
    "as requested": lambda _: "As requested, here is the rest of the text, without any remark.",
    "remark": lambda _: "I'm sorry, I can't continue a message that I don't see.",
    "nothing": lambda _: "",
    "blank": lambda _: "  \n ",
    "byte order mark": _before("\ufeff"),
    "a thought": _before("<think>\nThe rest is asked for.\n</think>\n\n"),
    "an empty thought": _before("<think>\n\n</think>\n\n"),
    "a turn of ChatML": _before("<|im_start|>assistant\n"),
    "a turn ended, and another": _before("<|im_end|>\n<|im_start|>assistant\n"),
    "a turn of Llama": _before("<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "a turn of Gemma": _before("<start_of_turn>model\n"),
    "a message of Harmony": _before("<|channel|>final<|message|>"),
    "a beginning": _before("<s>"),
    "continued, in brackets": _before("(continued)\n"),
    "a title": _before("## Continuation\n\n"),
    "announced": _before("The rest of my answer:\n\n"),
    "announced in German": _before("Natürlich, hier ist der Rest der Nachricht:\n\n"),
    "announced in Chinese": _before("当然，以下是剩余部分：\n\n"),
    "let's continue": _before("Let's continue. "),
    "it appears": _before("It appears that my last response was truncated. "),
    "announced, and all again": lambda asked: (
        f"Voilà !\n\n{asked.end}{asked.rest}" if len(asked.end.lstrip()) >= 24 else ""
    ),
    "all of it twice": lambda asked: f"{asked.end}\n{asked.end}{asked.rest}" if len(asked.end.lstrip()) >= 24 else "",
}
# Anchors bound what these do; without one nobody can tell them from the model's own words.
ANCHORED: Mapping[str, Callable[[Asked], str]] = {
    "quoted": _around('"', '"'),
    "anchor quoted": lambda asked: f'"{asked.anchor}"{asked.rest}',
    "anchor quoted, typographic": lambda asked: f"“{asked.anchor}”{asked.rest}",
    "anchor quoted, with dots": lambda asked: f'"{asked.anchor}..." {asked.rest}',
    "quoted, never closed": _before('"'),
    "in backticks": _around("`", "`"),
    "in single quotes": _around("'", "'"),
    "anchor in single quotes": lambda asked: f"'{asked.anchor}'{asked.rest}",
    "quoted in backticks": _around('`"', '"`'),
    "anchor quoted in backticks": lambda asked: f'`"{asked.anchor}"`{asked.rest}',
    "in two backticks": _around("``", "``"),
    "anchor in triple quotes": lambda asked: f'"""{asked.anchor}"""{asked.rest}',
    "anchor fenced": lambda asked: f"```markdown\n{asked.anchor}\n```{asked.rest}",
    "quoted in a fence": _around('```\n"', '"\n```'),
    "fenced": _around("```\n", "\n```"),
    "fenced as text": _around("```text\n", "\n```\n"),
    "fenced by four": _around("````\n", "\n````"),
    "fenced, line ends of Windows": _around("```text\r\n", "\r\n```"),
    "trailing fence": _behind("\n```"),
    "fenced, and a remark": _around("```\n", "\n```\n\nThis is the rest of the text."),
    "fenced as text, and a ruler": _around("```text\n", "\n```\n\n---\n\nThat is all."),
    "quoted, and a remark": _around('"', '"\n\nLet me know if you need more.'),
    "quoted, typographic, and a remark": _around("“", "” (end)"),
    "quoted, with a full stop": _around('"', '".'),
    "quoted, closed otherwise": _around("“", '"'),
    "dots before": _before("..."),
    "dots around the anchor": lambda asked: f"...{asked.anchor}...{asked.rest}",
    "ellipsis before": _before("… "),
    "ellipsis around the anchor": lambda asked: f"…{asked.anchor}…{asked.rest}",
    "bold anchor": lambda asked: f"**{asked.anchor}**{asked.rest}",
    "leading space": _before(" "),
    "blank lines before": _before("\n\n"),
    "zero-width space": _before("\u200b"),
    "bullet": _before("- "),
    "numbered": _before("1. "),
    "quote block": _before("> "),
    "in capitals": lambda asked: asked.exact[:1].swapcase() + asked.exact[1:],
    "HTML-escaped": lambda asked: html.escape(asked.anchor) + asked.rest,
    "Markdown-escaped": lambda asked: re.sub(r"([*_#|`\[\]])", r"\\\1", asked.anchor) + asked.rest,
    "translated": lambda asked: asked.anchor.replace("the", "die").replace("0", "null").upper() + asked.rest,
}
# Behind no anchor these are the model's own words: they leave as they are, or there is an error.
OWN_WORDS: Mapping[str, Callable[[Asked], str]] = {
    **{name: habit for name, habit in ANCHORED.items() if name != "anchor quoted" and "anchor" not in name},
    "leading space gone": lambda asked: asked.rest.lstrip(),
    "dots between": _between("..."),
    "translated rest": lambda asked: asked.rest.upper(),
}

ROW = "| pump | open | 3.5 bar | checked |\n"
TEXTS: Mapping[str, str] = {
    "prose": "First you open the valve on the left, and then you wait until the needle stands at two. At last you "
    "close it. The pump stops by itself, unless the pressure in line two has fallen below half of its usual value.",
    "equal rows": "Here is the table that you wanted to see:\n\n| part | state | pressure | note |\n"
    "|---|---|---|---|\n" + ROW * 6 + "\nThat is all.",
    "rows alone": ROW * 7,
    "hex zeros": "".join(f"{i * 16:08x}  {'00 ' * 16}\n" for i in range(5)),
    "zeros": "00 00 00 00 00 00 00 00\n" * 8,
    "zeros in CSV": "a,b,c,d\n" + "0,0,0,0\n" * 6 + "1,0,0,0\n",
    "CSV": "id,name,price\n" + "".join(f"{i},item {i},{i}.50\n" for i in range(9)) + "9,item 9,9.50\n" * 2,
    "refrain": (
        "Row, row, row your boat, gently down the stream.\nMerrily, merrily, merrily, merrily,\nLife is but a dream.\n"
    )
    * 2
    + "Row, row, row your boat, gently down the stream.\n" * 3,
    "ha": "He laughed: " + "ha " * 30 + "and went home.",
    "equal code": "def main():\n    x = 0\n"
    + "    x = step(x, size=1, check=True)\n" * 5
    + "    return x\n\n\nmain()\n",
    "fenced code": "Use this:\n\n```python\nfor i in range(3):\n    print(i)\n    print(i)\n```\n\nIt prints twice.",
    "CJK": "今天我们去公园散步。" * 3 + "然后我们回家吃饭，吃了很多很多的饺子。谢谢谢谢你们，再见再见。",
    "emoji": "Well done 🎉🎉🎉 👩\u200d💻👩\u200d💻 and again 🎉🎉🎉 to the whole team 🇳🇴🇳🇴 of you!",
    "apostrophes": "It's the dogs' toys that don't fit, isn't it? They'd never thought of it, 'cause it's the dogs'.",
    "quotes": 'He said "go home" and she said "go home now", so they said "we go home now" and went to the house.',
    "ruler": "Title of the page\n" + "-" * 40 + "\nText below the ruler, of some length.\n" + "-" * 40 + "\n",
    "nested": '{"a": [[[1, 1], [1, 1]], [[1, 1], [1, 1]]], "b": {"c": {"d": {"e": null, "f": null}}}}',
}
