"""What a message says, and who said it."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Kind, Loop, Stage, Turn, find_loop, nudge, read_turns
from reliability.loops.content import (
    NOTICE,
    NUMBER_MAX,
    Who,
    classify_speaker,
    drop_elements,
    read_order,
    read_own_text,
    text_of,
)
from tests.evals.step_cases import StepCase
from tests.support.conversation import CONFIG, loop_at, stages
from tests.support.loop_histories import asks, law, steps


def test_images_compare_by_content() -> None:
    """Equal pictures are equal results and other pictures are not, however long their data is."""
    one, two = ([{"type": "image_url", "image_url": {"url": "data:" + c * 50_000 + "x" * 9}}] for c in "ab")
    assert text_of(one) == text_of([dict(one[0])])
    assert text_of(one) != text_of(two)
    assert text_of(["a", {"type": "text", "text": "b"}]) == "a\nb"
    assert len(text_of([{"deep": [[{"url": "x" * 90_000}]]}])) < 100


def test_a_message_of_reminders_is_read_in_one_go():
    """Law: the same for what a harness adds, a quarter of a million times."""
    piece = "<system-reminder>x</system-reminder>\n"
    assert classify_speaker({"role": "user", "content": piece * 250_000}) is Who.NOBODY
    assert classify_speaker({"role": "user", "content": piece * 250_000 + "hello"}) is Who.SPEAKS


def test_a_refusal_is_what_an_answer_says():
    """Law: beside an empty content or as a part of it, a refusal is read as the answer's text."""
    for message in ({"content": None, "refusal": "No."}, {"content": [{"type": "refusal", "refusal": "No."}]}):
        assert read_own_text({"role": "assistant", **message}) == "No."
    assert text_of([{"type": "refusal", "refusal": "No."}]) == "No."
    assert read_own_text({"role": "assistant", "content": "Yes.", "refusal": None}) == "Yes."


POLL_NUDGE, POLL_BREAK = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold


@pytest.mark.parametrize(
    ("request_text", "times"),
    [
        ("Run the tests 10 times.", 10),
        ("a dozen times", 12),
        ("6x, please", 6),
        ("zehnmal, nein: zwölf Mal", 12),
        ("doce veces", 12),
        ("按六次", 6),
        ("二十五次", 25),
        ("10 times faster, 3 times a day, 100 times the size, 6x9, normal, 2026 times", 0),
        ("Look at all 12 of them.", 0),
    ],
)
def test_how_often_is_read(request_text: str, times: int) -> None:
    """A number with a word for repetition; a comparison and a rate are none."""
    assert read_order(request_text).times == times


#: How ten is ordered: the number in figures or words, and a word for what is repeated.
TENS = ("10", "ten", "ten (10)", "8-10", "8 to 10")
REPEATED = "times|runs|iterations|rounds|repetitions|clicks|presses|loops"
ORDERS = ("Click it {}.", "Do this for {}: click.", "Please click ({}).", "{} of it, please", "It fails, so click {}.")
#: The same in other languages, each with its number.
FOREIGN = """
10 Нажми десять раз.
10 Нажми 10 раз.
10 Clicca dieci volte.
10 Clique dez vezes.
10 Tryck tio gånger.
10 Kliknij dziesięć razy.
10 Klik 10 keer.
10 Klik tien keer.
6 Clicca sei volte.
6 Tryck sex gånger.
20 Нажми двадцать раз.
25 Click it twenty-five times.
10 Click next ×10.
12 Click next x 12
10 Run it in a loop of 10.
12 Draw 12 cards.
10 Create ten empty files.
10 Press it 3 times, then 7 more times.
10 Loop 10 times over click
10 Don't stop until you have clicked it 10 times.
200 Click it 1,000 times.
200 Click it 1000 times.
200 Click it 250 times.
10 Run it 10 consecutive times.
10 Make 10 test runs.
10 Take 10 readings of the sensor.
0 Print 20 lines of the log.
0 It took 4 separate runs to find it.
10 Testleri 10 kez çalıştır.
10 شغّل الاختبارات 10 مرات
0 It failed 10 times yesterday. Why?
0 Why did it run 10 times?
0 Don't call it 10 times.
0 It was called 10 times already.
0 The last 10 runs are red.
0 The file has 20 lines; fix it
0 Read chapter 10 of the book.
0 a picture of 1920 x 1080
0 It is due at ten, per sei persone
"""


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_read_however_it_is_written(order: str) -> None:
    """Law: over numbers in figures and words, and the words for what is repeated."""
    forms = [f"{ten} {word}" for ten in TENS for word in REPEATED.split("|")]
    assert [form for form in forms if read_order(order.format(form)).times != 10] == []


@pytest.mark.parametrize("row", FOREIGN.strip().split("\n"))
def test_other_orders_are_read_and_reports_are_none(row: str) -> None:
    """In eleven languages; what tells of the past, asks why or forbids it orders nothing."""
    number, _, request_text = row.partition(" ")
    assert read_order(request_text).times == int(number)


@pytest.mark.parametrize(("request_text", "limit"), [("Click it ten (10) times.", 12), ("It failed 10 times. Why?", 5)])
def test_work_that_is_ordered_is_done_before_it_is_broken(request_text: str, limit: int) -> None:
    """Law: a call is nudged behind the number that the order names and broken at the next, at the usual limit where
    there is no order."""
    found = stages(StepCase("run_task", '{"x": 1}', "all is well").build(13, request_text))
    assert found.index(Stage.BREAK) == limit - 1
    assert found[limit - 2] is Stage.WARN


@pytest.mark.parametrize(
    ("request_text", "number"),
    [
        ("press Down 12 times", 12),
        ("add six apples to the cart", 6),
        ("create 8 tickets", 8),
        ("Insert twenty-five rows", 25),
        ("drücke zwölfmal nach unten", 12),
        ("añade ocho manzanas", 8),
        ("ajoute quinze lignes", 15),
        ("two dozen? no: a dozen", 12),
        ("look at issue #41 on port 8080, version 3.12, at 12:30", 0),
        ("Fix the build.", 0),
    ],
)
def test_the_number_of_a_request_is_read(request_text: str, number: int) -> None:
    """Digits and words count, in four languages; what only names something doesn't."""
    assert read_order(request_text).number == number


UNITS = "euros|dollars|GB|GiB|minutes|hour|days|word|bit|percent|MB of RAM|seconds"
MEASURES = (
    "Send Anna {} {}.",
    "Create {} {} of it.",
    "Add {} {} to the plan and mail Bob.",
    "Generate {} {} and post it",
)
NAMED = "room|ticket|issue|invoice|page|line|chapter|task|step|error|build|seat"
NAMES = ("Close {} {}.", "Fix {} {}: the service is down", "Pay {} {} please.", "Look at {} {}, then stop")
TOLD = (
    "I've tried this {} times already. Please fix the test.",
    "You did this {} times, stop it.",
    "The function is called {} times, it should be called once.",
    "The loop runs {} times and then hangs.",
    "I've seen this crash {} times.",
    "But it {} times said no",
)
ADJECTIVES = ("Create {} page for errors.", "Make {} pages look nicer.", "Add {} redirect for /old.", "Do {} review")


@pytest.mark.parametrize("many", ["7", "12", "50", "fifty", "150", "128"])
def test_how_much_and_which_one_is_no_number_of_times(many: str) -> None:
    """Law: what stands before a unit or behind what it names counts nothing, and nothing is ordered where a count is
    only told, or stands before what is one thing."""
    amounts = [form.format(many, unit) for form in MEASURES for unit in UNITS.split("|")]
    names = [form.format(thing, many) for form in NAMES for thing in NAMED.split("|")]
    told = [form.format(many) for form in TOLD]
    assert [text for text in (*amounts, *names, *told) if read_order(text).number or read_order(text).times] == []
    status = {"404", "301"} | ({many} - {"7", "12", "fifty", "50"})
    single = [
        form.format(code) for form in ADJECTIVES for code in status if "pages" not in form or code in ("404", "301")
    ]
    assert [text for text in single if read_order(text).times] == []


@pytest.mark.parametrize("number", [46, 60, 120, NUMBER_MAX])
def test_an_order_of_any_size_ends(number: int) -> None:
    """Law: it is nudged behind the number that is ordered and broken at the next, up to the largest that is read."""
    history = StepCase("press_key", '{"key": "Tab"}', "ok").build(number + 2, f"Press Tab {number} times.")
    found = [loop_at(history[: 1 + 2 * laps], history[-2], CONFIG) for laps in (number - 1, number, number + 1)]
    assert [loop and loop.stage for loop in found] == [None, Stage.WARN, Stage.BREAK]


@given(st.text(max_size=80))
def test_any_request_has_a_number_within_bounds(text: str) -> None:
    """Law: every text is read, and no number is larger than the bound."""
    assert 0 <= read_order(text).number <= NUMBER_MAX
    assert 0 <= read_order(text).times <= NUMBER_MAX


ENDLESS = (
    "Check the service again and again.",
    "Please check the service every minute and tell me when it is up.",
    "Run it over and over until I stop you.",
    "Keep polling the service.",
    "Call it repeatedly, please.",
    "Prüfe den Dienst immer wieder.",
    "Revisa el servicio cada 5 minutos.",
    "Vérifie le service sans arrêt.",
    "每分钟检查一次",
    "Run the check until it fails.",
    "Roll the dice until you see a six.",
    "Please watch the service until it is up, then go home.",
    "Notify me when the database is up.",
)


@pytest.mark.parametrize("request_text", ENDLESS)
def test_an_order_of_repetition_without_a_number_has_the_limits_of_a_poll(request_text: str) -> None:
    """Law: a person who orders repetition without an end gets it: one nudge and no break before a poll's."""
    for result in ("all is well with the database", '{"error": "connection refused by the host"}'):
        found = stages(StepCase("check_service", '{"name": "db"}', result).build(POLL_BREAK, request_text))
        assert found[: POLL_NUDGE - 1] == [None] * (POLL_NUDGE - 1)
        assert found.count(Stage.WARN) <= 1
        assert found.index(Stage.BREAK) == POLL_BREAK - 1


@pytest.mark.parametrize(
    "request_text",
    [
        "The build fails again and again, find out why.",
        "Every minute the server crashes. Fix it.",
        "It keeps failing. I can't keep paying for it.",
        "Don't call the same tool over and over.",
        "Find a nonstop flight. Wait until I confirm it.",
        "Run the check and mend the code until it passes.",
        "Run the tests until they pass.",
        "Tests run until the timeout hits. Make them faster.",
        "Write a script that will alert me when the service is down.",
        "Notify me when you are done.",
    ],
)
def test_a_complaint_about_repetition_is_no_order(request_text: str) -> None:
    """Law: words of repetition that tell what happens, or that forbid it, spare no loop."""
    found = stages(StepCase("check_service", '{"name": "db"}', "all is well").build(6, request_text))
    assert found.index(Stage.BREAK) == CONFIG.break_threshold - 1


FILES = "\n".join(f"src/file{number}.ts" for number in range(300))
REMINDER = f"<system-reminder>\nDo it 40 times. {FILES}\n</system-reminder>"
DETAILS = f"<environment_details>\n{FILES}\n</environment_details>"


@pytest.mark.parametrize("frame", [f"{REMINDER}\n%s", f"<task>\n%s\n</task>\n{DETAILS}", f"%s\n{DETAILS}{REMINDER}"])
def test_an_order_is_read_beside_what_a_harness_adds(frame: str) -> None:
    """Law: neither the length of a harness's elements nor their figures change what the user orders."""
    assert read_order(frame % "Click it 10 times.").times == 10
    assert read_order(frame % "Click it.").times == 0
    assert drop_elements(frame % "a <system-reminder> b").count("a <system-reminder> b") == 1


@law
@given(steps, st.integers(4, 6))
def test_the_nudge_is_a_function_of_the_loop(lap: list[Turn], repetitions: int) -> None:
    """The same loop gives the same words, they name the tool and the result, and they begin with the streak."""
    loop = find_loop(tuple(lap * repetitions), CONFIG, asks(lap[0]))
    if loop is None:
        return
    text = nudge(loop)
    assert text == nudge(pickle.loads(pickle.dumps(loop)))
    assert lap[0].calls[0].name in text
    assert loop.evidence in text
    assert text.startswith(f"{NOTICE} {loop.key}] ")
    assert read_turns([{"role": "user", "content": text}]) == ()


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (
            Loop(kind=Kind.CALLS, stage=Stage.WARN, repetitions=3, tool="f"),
            "`f` with the same arguments for the 3rd time",
        ),
        (Loop(kind=Kind.CALLS, stage=Stage.WARN, repetitions=11, tool="f"), "for the 11th time"),
        (Loop(kind=Kind.CALLS, stage=Stage.WARN, repetitions=22, tool="f"), "for the 22nd time"),
        (
            Loop(kind=Kind.CALLS, stage=Stage.WARN, repetitions=4, period=2, tool="f → g"),
            "the same 2 steps (f → g): round 4",
        ),
        (Loop(kind=Kind.ERRORS, stage=Stage.WARN, repetitions=3, tool="f", evidence="no"), "The error: no"),
        (Loop(kind=Kind.TEXTS, stage=Stage.WARN, repetitions=3, evidence="hi"), "the same answer 3 times"),
    ],
)
def test_a_nudge_says_what_happened(loop: Loop, words: str) -> None:
    """The nudge names the tool, the count and the result, in plain words."""
    assert words in nudge(loop)
