"""Work on one thing after another that only a number names: rooms, users, ports, places of a map."""

import pytest

from reliability.loops import LoopConfig, Stage, read_order
from reliability.loops.thresholds import LoopLimits
from tests.support.conversation import USER, acted, quiet, stages

REPORT = "The room is clean, the minibar is filled, and the last guest has checked out."
UP = '{"status":"UP","components":{"db":{"status":"UP"},"disk":{"status":"UP"}}}'
#: A tool, what it is called with about the n-th thing, and what it answers about each.
WORK = [
    ("get_room", {"room": "%"}, REPORT),
    ("read_lamp", {"lamp": "%"}, {"power": "off", "firmware": "up to date", "group": "garden"}),
    ("label_issue", {"issue": "%", "label": "bug"}, [{"name": "bug", "description": "Something doesn't work"}]),
    ("process_batch", {"batch": "%"}, f"The batch was processed: {REPORT} {REPORT}"),
    ("dig", {"x": "%", "y": 64, "z": -20}, "A block of stone was dug out, and lies in your bag now."),
    ("guess_number", {"guess": "%"}, "Too low! Try again with a higher number."),
    ("bash", {"command": "curl -s localhost:%"}, UP),
    ("bash", {"command": "redis-cli hgetall user:%"}, UP),
    (
        "bash",
        {"command": "psql -c 'select plan from users where id = %'"},
        "     plan     \n---------\n premium, paid each year\n(1 row)",
    ),
]


def call_with(arguments, number):
    """The arguments about the thing of this number."""
    return {
        key: number if value == "%" else value.replace("%", str(number)) if isinstance(value, str) else value
        for key, value in arguments.items()
    }


@pytest.mark.parametrize("case", WORK, ids=lambda case: f"{case[0]} {next(iter(case[1].values()))}")
def test_one_thing_after_another_is_work(case):
    """Law: calls about ever other things that only a number names are no loop, though each brings the same result."""
    tool, arguments, result = case
    laps = [m for n in range(20) for m in acted(tool, call_with(arguments, 7001 + 3 * n), result)]
    assert quiet([USER, *laps])


@pytest.mark.parametrize("case", WORK, ids=lambda case: f"{case[0]} {next(iter(case[1].values()))}")
def test_the_same_things_again_are_a_loop(case):
    """Law: a model that comes back to the same four things, in any order, is nudged and then broken."""
    tool, arguments, result = case
    numbers = (11, 12, 13, 14, 12, 14, 11, 13, 12, 11, 14, 13)
    found = stages([USER, *(m for n in numbers for m in acted(tool, call_with(arguments, n), result))])
    assert found.index(Stage.WARN) < found.index(Stage.BREAK) < len(numbers)


def test_calls_about_numbers_come_to_an_end():
    """Law: a model that only counts on is nudged at three times a poll's repetition, and broken at three times that."""
    config = LoopConfig(poller_duplicate_threshold=4, poller_break_threshold=6)
    laps = [m for n in range(20) for m in acted("get_room", {"room": 101 + n}, REPORT)]
    found = stages([USER, *laps], config)
    assert (found.index(Stage.WARN) + 1, found.index(Stage.BREAK) + 1) == (12, 18)


def test_the_same_thing_behind_many_is_counted_alone():
    """Law: what was asked about others before is no repetition of what is asked about one again and again."""
    numbers = [*range(101, 109), 108, 108, 108, 108]
    found = stages([USER, *(m for n in numbers for m in acted("get_room", {"room": n}, REPORT))])
    assert (found.index(Stage.WARN), found.index(Stage.BREAK)) == (9, 11)


@pytest.mark.parametrize("result", ["Error: the room can't be reached, its lock is offline", {"error": "no such room"}])
def test_failures_keep_their_limits(result):
    """Law: calls that fail alike are nudged and broken as before, whatever number they name."""
    found = stages([USER, *(m for n in range(14) for m in acted("get_room", {"room": 101 + n}, result))])
    assert Stage.WARN in found[:5]
    assert Stage.BREAK in found[:12]


def test_limits_move_behind_things():
    """Each further thing counts once; a limit that is switched off stays off, and none is later than the last."""
    assert LoopLimits(3, 5).behind(4, LoopLimits(30, 60)) == (6, 8)
    assert LoopLimits(3, 5).behind(90, LoopLimits(30, 60)) == (30, 60)
    assert LoopLimits(0, 5).behind(4, LoopLimits(30, 0)) == (0, 5)


ORDERS = """
Dammi 7 lattine | Lancia 7 dadi | Quero 7 latas | Geef me 7 blikjes | Ge mig 7 burkar | Daj mi 7 puszek
Дай мне 7 банок | Giv mig 7 dåser | Anna minulle 7 tölkkiä | Dej mi 7 plechovek | Adj 7 dobozt | Cho tôi 7 lon
Beri saya 7 kaleng | Дай мені 7 банок | Dă-mi 7 cutii | Δώσε μου 7 κουτιά | תן לי 7 פחיות | أعطني 7 علب
コーラを7本ください | 콜라 7캔 주세요 | 给我7罐可乐 | 来七罐可乐 | 投掷7个骰子
Ponme 7 latas | Bitte sieben Dosen | Show me 7 tips | Tell me 7 jokes
"""
NONE = """
Compra un biglietto per 7 persone | Boek een tafel voor 7 personen | Köp en biljett för 7 personer
Kup bilet dla 7 osób | Купи билет для 7 человек | 我们有7台打印机 | 打开第7个文件 | 有7个错误 | 第7回を開いて
문제가 7개 있어 | 7个月后提醒我 | 7人のテーブルを予約して | Tell me what the 7 users do | Show ticket 7
"""


def test_a_number_is_ordered_in_many_languages():
    """Law: over 20 languages, a number of things that are to be given or done is read; one that names a thing, or says
    for whom, when, or that there are so many, is none."""
    ordered, none = (
        [part.strip() for part in rows.replace("\n", "|").split("|") if part.strip()] for rows in (ORDERS, NONE)
    )
    assert [text for text in ordered if read_order(text).number != 7] == []
    assert [text for text in none if read_order(text).number > 1 or read_order(text).times] == []
