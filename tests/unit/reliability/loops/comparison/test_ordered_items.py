"""Things that are tried one after another, each of which fails alike."""

from itertools import chain

import pytest

from reliability.loops import Stage
from reliability.loops.content import read_order
from tests.support.conversation import Message, acted, judge_laps, stages, user

NAMES = [
    "anna", "bert", "carl", "dora", "emil", "fritz", "gina", "hans", "ines", "jana", "karl", "lena", "mona", "nils",
    "otto", "paul", "quin", "rosa", "sven", "tina",
]  # fmt: skip
#: A tool, its argument, how a thing is written in it, and the answer.
CHECKS = (
    ("http_get", "path", "/admin/{}", '{"error":"forbidden","status":403}'),
    ("get_user", "name", "{}", '{"error":"user not found"}'),
    ("ping", "host", "srv-{}", "Error: host unreachable"),
    ("check_url", "address", "https://x.org/{}", "Error: 404 Not Found"),
    ("validate_config", "file", "conf/{}.yaml", "Error: missing required key 'version'"),
    ("run_test", "file", "t/{}.py", "FAILED: fixture 'db' is unavailable"),
    ("apply_coupon", "code", "{}-10", "Error: coupon expired"),
    ("resolve", "name", "{}.internal", "Error: NXDOMAIN"),
    ("delete_branch", "name", "f/{}", "Error: branch has unmerged changes"),
)
TOOLS = [case[0] for case in CHECKS]


def attempt(check: tuple[str, str, str, str], names: list[str], **more: object) -> list[list[Message]]:
    tool, key, form, answer = check
    return [acted(tool, {key: form.format(name), **more}, answer) for name in names]


@pytest.mark.parametrize("check", CHECKS, ids=TOOLS)
def test_what_was_named_is_tried_to_its_end(check: tuple[str, str, str, str]) -> None:
    """Law: over tools, and lists in the request or in a result: each thing that was named may fail alike, and what
    comes behind the list, or comes again, is nudged and broken as soon as any loop."""
    listed = [check[2].format(name) for name in NAMES]
    sources = [
        [user(f"Look at {', '.join(listed)} and report.")],
        [user("Report, please.\n" + "\n".join(f"- {item}" for item in listed))],
        [user("Look at what the list names."), *acted("read_list", {}, "\n".join(listed))],
        [user("Look at what the list names."), *acted("list_dir", {}, {"names": [x.upper() for x in listed]})],
        [user("Report."), *acted("read_list", {}, "\n".join(f"{n}. [x]({x})" for n, x in enumerate(listed, 1)))],
    ]
    again = attempt(check, [*NAMES, *NAMES[::-2]])
    guessed = attempt(check, [*NAMES, *(f"{name}-{name}" for name in NAMES)])
    for before in sources:
        assert judge_laps(before, again, 4, 6, 12, 20) == [None] * 4, before
        assert Stage.BREAK in judge_laps(before, again, 25, 30), before
        assert Stage.WARN in judge_laps(before, guessed, 23, 24), before
        assert Stage.BREAK in judge_laps(before, guessed, 26, 31), before


ORDERS = (
    "Check every one of them in the inventory.", "Validate each item and report.", "Check all the things.",
    "Which of these are still free?", "Try them one by one.", "It must reject them all.", "Run each test on its own.",
    "Prüfe alle Einträge.", "Teste jede Adresse.", "Vérifie chaque adresse.", "Comprueba todas las rutas.",
    "检查每个地址。",
)  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=TOOLS)
def test_each_of_many_has_the_limits_of_a_poll(check: tuple[str, str, str, str]) -> None:
    """Law: over orders in some languages: where each of many is to be tried and nobody has named them, new ones that
    fail alike have the limits of a poll; one and the same, whatever else changes, hasn't."""
    laps = attempt(check, [*NAMES, *(f"{name}-2" for name in NAMES)])
    tool, key, form, answer = check
    same = [acted(tool, {key: form.format("anna"), "timeout": n, "description": f"try {n}"}, answer) for n in range(9)]
    for order in ORDERS:
        assert judge_laps([user(order)], laps, 4, 6, 10, 12, 20) == [None] * 5, order
        assert judge_laps([user(order)], laps, 11, 21) == [Stage.WARN, Stage.BREAK], order
        assert Stage.BREAK in judge_laps([user(order)], same, 5, 6), order


@pytest.mark.parametrize("number", ["30", "thirty", "25"])
def test_so_many_as_are_ordered_are_tried(number: str) -> None:
    """Law: where a number of things is to be checked, none of so many is nudged or broken, and no more than two
    behind them."""
    laps = attempt(CHECKS[0], [f"{name}{n}" for n in range(2) for name in NAMES])
    most = read_order(f"check {number} routes").each
    for order in ("Check that these {} admin routes answer 403.", "Check which of the {} routes are open.",
                  "Try at least {} candidates.", "Verify {} pages and report."):  # fmt: skip
        before = [user(order.format(number))]
        assert judge_laps(before, laps, 4, 6, most) == [None] * 3
        assert judge_laps(before, laps, most + 2, most + 3) == [Stage.WARN, Stage.BREAK]


def test_what_nobody_named_is_guessed() -> None:
    """Law: ever new names that nobody told, the same name in ever new folders, and ever other texts of an edit end as
    soon as any loop, also where all is to be done."""
    request = [user("Fix main.py."), *acted("list_dir", {}, "main.py\nREADME.md")]
    error = "Error: permission denied"
    for form in ("{}.py", "src/{}/index.ts", "src/{}/main.py", "/{}/README.md"):
        laps = [acted("read_file", {"path": form.format(name)}, error) for name in NAMES]
        found = stages([*request, *chain(*laps[:7])])
        assert Stage.WARN in found[:6]
        assert Stage.BREAK in found
    edits = [acted("edit", {"path": "main.py", "old": name}, "Error: it is read-only") for name in NAMES]
    for order in ("Check all the files: " + ", ".join(NAMES), "Fix main.py."):
        assert Stage.BREAK in stages([user(order), *chain(*edits[:7])])


@pytest.mark.parametrize(("text", "each"), [
    ("Check these 20 admin routes.", 20), ("Check twenty-one pages", 21), ("The 20 tests failed yesterday.", 0),
    ("Wait every 5 minutes", 0), ("Fix the bug.", 0), ("Do it each time.", 0), ("Fix all lint errors", 1),
    ("Is that all?", 0), ("Check for 20 seconds.", 0), ("Check page 20.", 0), ("That's all this is.", 0),
])  # fmt: skip
def test_orders_of_each_are_read(text: str, each: int) -> None:
    """A number of things counts behind a verb of checking; times and names don't."""
    assert read_order(text).each == each
