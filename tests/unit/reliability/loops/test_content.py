"""What a message says, and who said it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import content
from reliability.loops.content import NUMBER_MAX, Who, classify_speaker, read_order, read_own_text, text_of


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
0 It failed 10 times. Why?
0 Why did it run 10 times?
0 Don't call it 10 times.
0 It was called 10 times already.
0 The last 10 runs are red.
0 The file has 20 lines; fix it
0 Read chapter 10 of the book.
0 a picture of 1920 x 1080
0 It is due at ten, per sei persone
12 a dozen times
6 6x, please
12 zehnmal, nein: zwölf Mal
12 doce veces
6 按六次
25 二十五次
0 10 times faster, 3 times a day, 100 times the size, 6x9, normal, 2026 times
0 Look at all 12 of them.
"""


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_read_however_it_is_written(order: str) -> None:
    """Law: over numbers in figures and words, and the words for what is repeated."""
    forms = [f"{ten} {word}" for ten in TENS for word in REPEATED.split("|")]
    assert [form for form in forms if read_order(order.format(form)).times != 10] == []


@pytest.mark.parametrize("row", FOREIGN.strip().split("\n"))
def test_other_orders_are_read_and_reports_are_none(row: str) -> None:
    """In eleven languages; a comparison, a rate, and what tells of the past, asks why or forbids it order nothing."""
    number, _, request_text = row.partition(" ")
    assert read_order(request_text).times == int(number)


@pytest.mark.parametrize(("request_text", "number"), [
    ("press Down 12 times", 12), ("add six apples to the cart", 6), ("create 8 tickets", 8),
    ("Insert twenty-five rows", 25), ("drücke zwölfmal nach unten", 12), ("añade ocho manzanas", 8),
    ("ajoute quinze lignes", 15), ("two dozen? no: a dozen", 12),
    ("look at issue #41 on port 8080, version 3.12, at 12:30", 0),
    ("Fix the build.", 0),
])  # fmt: skip
def test_the_number_of_a_request_is_read(request_text: str, number: int) -> None:
    """Digits and words count, in four languages; what only names something doesn't."""
    assert read_order(request_text).number == number


UNITS = "euros|dollars|GB|GiB|minutes|hour|days|word|bit|percent|MB of RAM|seconds"
MEASURES = (
    "Send Anna {} {}.", "Create {} {} of it.", "Add {} {} to the plan and mail Bob.", "Generate {} {} and post it",
)  # fmt: skip
NAMED = "room|ticket|issue|invoice|page|line|chapter|task|step|error|build|seat"
NAMES = ("Close {} {}.", "Fix {} {}: the service is down", "Pay {} {} please.", "Look at {} {}, then stop")
TOLD = (
    "I've tried this {} times already. Please fix the test.", "You did this {} times, stop it.",
    "The function is called {} times, it should be called once.", "The loop runs {} times and then hangs.",
    "I've seen this crash {} times.", "But it {} times said no",
)  # fmt: skip
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


#: What is so, what it is about, and who it is for: each beside an order of one thing.
FACTS = """
We have {} employees. | The server has {} users. | There are {} failing tests. | The file has {} lines.
Our API serves {} customers. | I have {} unread mails. | I live at number {}. | He is number {} on the list.
Our team of {} people is stuck. | Wir haben {} Mitarbeiter. | Das Büro hat {} Drucker. | Nous avons {} employés.
Tenemos {} empleados. | Hay {} errores. | Users have created {} tickets. | They open {} tickets. | I turned {}.
"""
ABOUT = """
when it falls under {} | if it is above {} | for {} people | about the {} errors | with priority {} | at {}, please
that the {} boxes have arrived | in channel {} | to account {} | on floor {} | of the {} offers | for the {} users
, we have {} printers | , the office has {} users | sobald er unter {} fällt | für {} Leute | um {} | auf {}
quand il passe sous {} | pour {} personnes | cuando baje de {} | para {} personas
"""
ONE = ("Create a ticket", "Buy a stock", "Set the volume", "Send a message", "Kaufe eine Aktie", "Achète une action",
       "Compra una acción", "Book a table", "Please open an issue", "I want a table", "Order pizza")  # fmt: skip
DEEDS = """
Create | Please create | Add | Order | Buy me | I'd like | I want you to send | Can you get us | We need
Go there and buy | First open the list, then add | Add the usual and | Put | Water the next | You must make
Erstelle | Bitte bestelle mir | Ich brauche | Achète | Commande-moi | Je voudrais | Crea | Quiero | Compra
"""


def split_row(rows: str) -> list[str]:
    return [part.strip() for row in rows.strip().split("\n") for part in row.split("|")]


@pytest.mark.parametrize("many", ["7", "60", "150", "twelve"])
def test_only_a_number_that_is_ordered_counts(many: str) -> None:
    """Law: over facts, circumstances and orders of one thing, in four languages: a number that stands beside the order,
    or says when, where, for whom or about what, lets no deed be done twice; one that a verb of doing leads counts."""
    facts = [form.format(fact.format(many), one) for one in ONE for fact in split_row(FACTS) for form in ("{} {}.",)]
    about = [f"{one} {part.format(many)}.".replace(" ,", ",") for one in ONE for part in split_row(ABOUT)]
    assert [text for text in (*facts, *about) if read_order(text).number > 1] == []
    number = read_order(f"Press it {many} times").times
    deeds = [f"{deed} {many} {thing}" for deed in split_row(DEEDS) for thing in ("apples.", "new tickets, please")]
    deeds += [f"{deed} one pear, {many} apples and a fig." for deed in ("Buy", "Please order", "Add")]
    assert [text for text in deeds if read_order(text).number != number] == []
    assert read_order(f"{many} apples, please").number == number


@given(st.text(max_size=80))
def test_any_request_has_a_number_within_bounds(text: str) -> None:
    """Law: every text is read, and no number is larger than the bound."""
    assert 0 <= read_order(text).number <= NUMBER_MAX
    assert 0 <= read_order(text).times <= NUMBER_MAX


SAMPLES = ("Take {} samples of the sensor", "Run {} trials", "Please collect {} data points.", "Give it {} tries",
          "Give me {} coin flips", "Do {} soil moisture samples", "Record {} more samples",
          "Do {} timed runs of ./bench")  # fmt: skip


@pytest.mark.parametrize("number", [6, 10, 20])
def test_a_series_is_ordered_by_its_number(number: int) -> None:
    """Law: over wordings: samples, trials and timed runs are done so often, and what two of them come to; a number of
    what is only there is none."""
    assert [form for form in SAMPLES if read_order(form.format(number)).times != number] == []
    both = ("Do {} warmup runs and {} timed runs", "Do {} runs plus {} more runs", "Run {} trials and run {} trials")
    assert [form for form in both if read_order(form.format(5, number)).times != 5 + number] == []
    assert read_order(f"Press A 5 times, then press B {number} times").times == number
    there = ("Train on {} samples.", "The study had {} trials", "Read the file with {} data points", "Use {} samples")
    assert [form for form in there if read_order(form.format(number)).times] == []


FILES = "\n".join(f"src/file{number}.ts" for number in range(300))
REMINDER = f"<system-reminder>\nDo it 40 times. {FILES}\n</system-reminder>"
DETAILS = f"<environment_details>\n{FILES}\n</environment_details>"


@pytest.mark.parametrize("frame", [f"{REMINDER}\n%s", f"<task>\n%s\n</task>\n{DETAILS}", f"%s\n{DETAILS}{REMINDER}"])
def test_an_order_is_read_beside_what_a_harness_adds(frame: str) -> None:
    """Law: neither the length of a harness's elements nor their figures change what the user orders."""
    assert read_order(frame % "Click it 10 times.").times == 10
    assert read_order(frame % "Click it.").times == 0
    assert content.drop_elements(frame % "a <system-reminder> b").count("a <system-reminder> b") == 1
