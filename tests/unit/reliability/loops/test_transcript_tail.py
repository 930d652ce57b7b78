"""Where the user's last own message is."""

from collections.abc import Callable

import pytest

from reliability.loops.transcript import MESSAGES_MAX, _ConversationTail, read_request
from tests.support.conversation import USER, Message, ask, said, told, user
from tests.support.counted_work import measure_growth

FENCE = "```bash\nls\n```"


def start(*messages: Message) -> int:
    return _ConversationTail(messages).find_start(64)


@pytest.mark.parametrize(("words", "starts"), [
    ("You have {} steps left.", 1), ("Step {} of 20.", 1), ("It is 10:0{}.", 1), ("Go to work, please.", 1),
    ("And order {}?", 10), ("Now read chapter {}.", 10),
])  # fmt: skip
def test_what_a_harness_says_again_is_not_the_users(words: str, starts: int) -> None:
    """A message that another one repeats, but for what a harness counts, is not where reading starts; one that names
    another thing by its number is the user's own."""
    laps = [m for n in range(3) for m in (ask("f"), told("x"), user(words.format(n)))]
    assert start(USER, *laps) == starts


def test_a_result_of_a_call_in_the_text_is_not_the_users() -> None:
    """Behind a call that stands in the text the user message is its result; behind talk it is the user's."""
    assert start(USER, said(FENCE), user("a.py b.py")) == 1
    assert start(USER, said("I see."), user("a.py b.py")) == 3
    assert start(USER, ask("f"), told("x"), said(FENCE), user("Thanks. Now the other one.")) == 5


def test_what_is_glued_behind_the_newest_report_is_none_of_it() -> None:
    """A text agent's newest report may carry rules that the earlier ones have lost."""
    report = "The block failed to match line 7 of a.py!"
    laps = [m for n in (7, 8) for m in (said(FENCE), user("I updated the files."), said("Ok."), user(report))]
    messages = (USER, *laps[:-1], user(f"{report}\n\n# Rules\nWrite blocks."))
    assert start(*messages) == 1
    assert _ConversationTail(messages).read_report(len(messages) - 1) == report


def test_a_screen_behind_a_result_is_the_results() -> None:
    """An image alone is the user's own only where no result stands before it."""
    image = user([{"type": "image_url", "image_url": {"url": "data:x"}}])
    assert start(USER, ask("f"), told("x"), image) == 1
    assert start(USER, said("Show me."), image) == 3


def test_reading_back_is_bounded() -> None:
    """No more than the newest messages are looked at."""
    assert start(*[said("x") for _ in range(3 * MESSAGES_MAX)]) >= MESSAGES_MAX


ORDER = "Click it 10 times."


@pytest.mark.parametrize(("between", "last", "kept"), [
    ("Shall I begin?", "Yes, with the defaults.", f"{ORDER}\n"), ("**Which one?**", "The blue one.", f"{ORDER}\n"),
    ("I clicked it.", "Now mend the build.", ""),
])  # fmt: skip
def test_an_answer_to_a_question_takes_nothing_back(between: str, last: str, kept: str) -> None:
    """Law: what the user ordered holds while the model's questions are answered, and no longer."""
    messages = (user(ORDER), said(between), user(last))
    assert _ConversationTail(messages).find_request(3) == kept + last


@pytest.mark.parametrize("where", ["{item}{rules}", "{rules}{item}{rules}", "{rules}{item}"])
@pytest.mark.parametrize("size", [10, 500, 1_950, 2_500, 30_000])
def test_a_message_is_compared_whole(size: int, where: str) -> None:
    """Law: two messages are the same only where all their words are, however long they are and wherever they differ;
    what a harness counts, wherever it stands, makes no other message."""
    rules, items = "Judge it by the rules. " * (size // 20), ("The lamp broke.", "Great value.")

    def start_behind(write: Callable[[int], str], laps: int = 6) -> int:
        return start(USER, *[m for n in range(laps) for m in (said("Good."), user(write(n)))])

    assert start_behind(lambda n: where.format(rules=rules, item=items[n % 2]), 2) == 5
    assert start_behind(lambda n: where.format(rules=rules, item=f" Item {n}. ")) == 13
    assert start_behind(lambda n: f"Step {n + 8}. {rules} {12 - n} steps left.") == 1
    count = "Step {}/50. It is 2026-03-30 12:0{}. "
    assert start_behind(lambda n: where.format(rules=rules, item=count.format(n + 8, n))) == 1


@pytest.mark.parametrize("words", ["hi", "Read file {}.", "go on"])
def test_messages_in_a_row_are_looked_at_a_few_times_each(words: str) -> None:
    """Law: twice as many messages of the user in a row, behind one answer or none, are twice the work."""

    def prepare(size: int) -> Callable[[], object]:
        row = [user(words.format(n)) for n in range(size)]
        return lambda: (start(*row), start(said("Well."), *row), read_request(row))

    assert measure_growth(prepare, 150) <= 2.2
