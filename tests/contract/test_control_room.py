"""The control room in a real browser, on the real server: what happens is shown, and what is ordered is done."""

import re
import statistics
import threading
import time
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import httpx
import pytest

from tests.support import scripts
from tests.support.agent import Agent
from tests.support.browser import NEEDS_CHROMIUM, Visitor, chromium, find_faults, open_visitor  # noqa: F401
from tests.support.http_asking import WEATHER_TOOLS, Outcome, ask, report_of, user
from tests.support.matrices import take_turns
from tests.support.serving import Server, until

pytestmark = NEEDS_CHROMIUM

KEY = "sk-boss-0123456789abcdef0123"
MENDED = [{"raw": f"```\n{scripts.WEATHER}\n```"}]
BAD = [{"tool_call": {"name": "get_weather", "arguments": {"town": "Paris"}}}]
SPENT = {"prompt_tokens": 9_000, "completion_tokens": 100}
PAGES = ("/", "/ui/requests", "/ui/sessions", "/ui/incidents", "/ui/tiers", "/ui/memory", "/ui/evaluations", "/ui/try")
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 720}


def rules(name: str) -> list[dict[str, Any]]:
    weak = [
        {"when": {"last_user": "mend"}, "answer": MENDED},
        {"when": {"transcript": "bad one"}, "answer": BAD},
        {"when": {"last_user": "spend"}, "answer": "spent", "usage": SPENT},
        {"when": {"last_user": "down"}, "answer": [{"status": 500}]},
        {"when": {"last_user": "cut"}, "answer": [{"text": "half an answer "}, {"cut": True}]},
    ]
    talk = {"when": {"last_user": "talk"}, "token_delay_s": 0.05, "answer": "word " * 2_000}
    return [*(weak if name == "fast" else []), talk, scripts.CALLS, {"answer": f"Hello from {name}."}]


def args(**server: Any) -> dict[str, Any]:
    budget = {"per_session": 8_000, "policy": "hard_stop", "max_output_tokens": 4_000}
    tiers = {name: scripts.scripted(*rules(name)) for name in scripts.TWO}
    return scripts.graph(tiers, server=server, token_budget=budget)


@pytest.fixture(scope="module")
def server(deploy):
    return deploy(args(), "room")


@pytest.fixture
def visitor(chromium, server):  # noqa: F811
    """Somebody on this machine. Whatever they did, no page complained, and nothing came from elsewhere."""
    with open_visitor(chromium, server.url) as one:
        yield one
    assert one.complaints == []
    assert one.elsewhere == []


def asked(server: Server, text: str, session: str = "") -> Outcome:
    headers = {"X-MLX-Stack-Session": session} if session else {}
    return ask(server, user(text), stream=False, tools=WEATHER_TOOLS, headers=headers)


def go_round(server: Server, session: str) -> Outcome:
    """An agent that repeats itself until it is nudged."""
    return Agent(server, "round and round", False, options={"headers": {"X-MLX-Stack-Session": session}}).run(3)[-1]


def spend_all(server: Server, session: str) -> Outcome:
    asked(server, "spend", session)
    return asked(server, "hello", session)


# What may become of a request, and the word for it in its report: the outcome, or a mark.
HAPPENINGS: dict[str, tuple[Callable[[Server, str], Outcome], Callable[[dict[str, Any]], str]]] = {
    "mended": (lambda server, session: asked(server, "mend it", session), lambda _: "mended"),
    "escalated": (lambda server, session: asked(server, "bad one", session), itemgetter("escalation_reason")),
    "looped": (go_round, lambda report: f"loop {report['loop']}"),
    "over budget": (spend_all, itemgetter("outcome")),
    "cut": (lambda server, session: asked(server, "cut", session), itemgetter("escalation_reason")),
}


def read_timeline(visitor: Visitor, server: Server, outcome: Outcome) -> str:
    report_of(server, outcome)
    page = visitor.go(f"/ui/requests/by-id/{outcome.request_id}")
    return page.locator("main").inner_text()


def test_what_ends_appears_by_itself_and_what_runs_while_it_runs(visitor, server):
    """On a page that nobody touches: a request while it runs, in its tier and in the list, and then with its end."""
    page = visitor.go("/")
    page.wait_for_selector("body[data-live]")
    ended = asked(server, "hello", "seen-live")
    page.wait_for_selector(f'[data-piece="finished"] a[title="{ended.request_id}"]')

    stop = threading.Event()
    talking = threading.Thread(target=talk, args=(server, "seen-running", stop))
    talking.start()
    try:
        page.wait_for_selector('[data-piece="running"] >> text=seen-running')
        page.wait_for_selector("#tier-fast .here li")
    finally:
        stop.set()
        talking.join()
    page.wait_for_selector('[data-piece="running"] >> text=No request is running')
    page.wait_for_selector('[data-piece="finished"] tr:has-text("seen-running"):has-text("client left")')


def test_a_page_without_news_says_so(chromium, server):  # noqa: F811
    """And no longer that all is well; once the server is there again, so is what it says."""
    with open_visitor(chromium, server.url) as one:
        one.page.route("**/ui/events", lambda asked: asked.abort())
        page = one.go("/")
        page.wait_for_selector('[data-piece="pulse"] >> text=no news from the server')
        one.page.unroute("**/ui/events")
        page.wait_for_selector('[data-piece="pulse"] >> text=all tiers can answer')


def talk(server: Server, session: str, stop: threading.Event) -> None:
    """A client that listens until it has heard enough, and leaves."""
    body = {"model": "auto", "messages": user("talk"), "stream": True}
    url, headers = f"{server.url}/v1/chat/completions", {"X-MLX-Stack-Session": session}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60.0) as stream:
        for _ in stream.iter_lines():
            if stop.is_set():
                return


def test_whatever_becomes_of_a_request_appears_within_a_second(visitor, server):
    """On a page that nobody touches, with what became of it. The middle of five counts: the cores have more to do."""
    page = visitor.go("/")
    page.wait_for_selector("body[data-live]")
    times_s = []
    for name, (happen, word) in HAPPENINGS.items():
        outcome = happen(server, f"live {name}")
        ended_s = time.monotonic()
        row = page.locator('[data-piece="finished"] tr', has=page.locator(f'a[title="{outcome.request_id}"]'))
        row.wait_for()
        times_s.append(time.monotonic() - ended_s)
        assert word(report_of(server, outcome)).replace("_", " ") in row.inner_text()

    assert statistics.median(times_s) <= 1.0


@pytest.mark.parametrize("name", HAPPENINGS)
def test_each_step_of_a_timeline_is_an_attempt_of_the_report(visitor, server, name):
    """In its order: the tier, what was wrong, the tokens; and the headers that the client got."""
    outcome = HAPPENINGS[name][0](server, f"told {name}")
    report = report_of(server, outcome)
    told = read_timeline(visitor, server, outcome)
    steps = visitor.page.locator(".step").all_inner_texts()

    assert len(steps) == len(report["attempts"])
    for step, attempt in zip(steps, report["attempts"], strict=True):
        assert step.startswith(attempt["tier"])
        assert (attempt["fault"] or attempt["flaw"] or "good").replace("_", " ") in step
        if attempt["usage"]:
            assert f"{attempt['usage']['prompt_tokens']:,} prompt tokens" in step
    for header, value in outcome.trail.items():
        assert f"X-MLX-Stack-{header}: {value}" in told


def test_a_loop_and_a_spent_budget_are_told(visitor, server):
    """The repeated tool with how often, and the window that is full; the session shows both."""
    assert "A loop: get_weather, 3 times" in read_timeline(visitor, server, go_round(server, "goes-round"))
    visitor.page.get_by_role("link", name="goes-round").click()
    visitor.page.wait_for_selector("text=Loops")

    refused = spend_all(server, "spends")
    assert refused.status == 400
    assert "budget" in read_timeline(visitor, server, refused)
    visitor.page.get_by_role("link", name="spends").click()
    visitor.page.wait_for_selector("text=9,100 of 8,000 tokens")


def test_filters_narrow_without_a_new_page(visitor, server):
    """By what happened; the address says so, and opened anew it shows the same."""
    away, plain = asked(server, "down"), asked(server, "hello")
    report_of(server, away)
    report_of(server, plain)
    page = visitor.go("/ui/requests")
    page.get_by_label("What happened").select_option("server_error")
    page.wait_for_url("**mark=server_error**")
    found = page.locator("#found")

    assert found.locator(f'a[title="{away.request_id}"]').count() == 1
    assert found.locator(f'a[title="{plain.request_id}"]').count() == 0
    assert not re.search(r"\dT\d\d:", found.inner_text()), "moments are in the reader's own zone"
    page.reload()
    assert page.locator(f'#found a[title="{plain.request_id}"]').count() == 0


def test_filtered_incidents_stay_filtered_in_the_chart_and_over_time(visitor, server):
    """One kind is chosen: the list has no other, the chart has no other, and a longer look back keeps the choice."""
    for text in ("down", "mend it"):
        report_of(server, asked(server, text))
    page = visitor.go("/ui/incidents")
    page.locator('select[name="kind"]').select_option("repair")
    page.get_by_role("link", name="Without filters").wait_for()
    page.get_by_role("link", name="month").click()
    page.wait_for_url("**span=month**")
    page.wait_for_selector("#found .u-legend >> text=repair")

    assert page.locator('select[name="kind"]').input_value() == "repair"
    assert set(page.locator("#found .scroll td:nth-child(2)").all_inner_texts()) == {"repair"}
    assert page.locator("#found .u-legend tr").count() == 2, "time, and the one kind"
    page.get_by_role("link", name="Without filters").click()
    page.wait_for_selector("#found .u-legend >> text=fault")


def test_an_order_is_asked_about_first(visitor, server):
    """Cancelled, nothing happens; confirmed, the tier is kept off, and comes back by the next order."""
    page = visitor.go("/ui/tiers")
    page.get_by_role("button", name="Isolate fast").click()
    page.get_by_role("button", name="Cancel").click()
    assert page.get_by_role("button", name="Isolate fast").is_visible()

    page.get_by_role("button", name="Isolate fast").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("button", name="Restore fast").wait_for()
    assert asked(server, "hello").header("Tier") == "standard"
    page.get_by_role("button", name="Restore fast").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_role("button", name="Isolate fast").wait_for()
    until(lambda: asked(server, "hello").header("Tier") == "fast", "the tier answers again")


def test_the_small_chat_shows_a_repair_and_plays_a_tool(visitor):
    """Asked like any client: the mended call, the person's result, and the way to its timeline."""
    page = visitor.go("/ui/try")
    page.get_by_text("Tools", exact=True).click()
    page.get_by_label("give it these tools").check()
    page.get_by_label("You").fill("mend it")
    page.get_by_role("button", name="Ask").click()
    page.get_by_text(re.compile(r'get_weather\(\{"city": ?"Paris"\}\)')).wait_for()
    page.wait_for_selector("text=mended: literal")
    page.get_by_role("button", name="Send the results").wait_for()
    page.get_by_role("link", name="its timeline").first.click()
    page.wait_for_selector("text=Mended: literal")


@pytest.mark.parametrize(("path", "scheme", "size"), take_turns(PAGES, ("light", "dark"), (DESK, PHONE)))
def test_no_page_has_a_serious_fault_for_those_who_need_aid(chromium, server, path, scheme, size):  # noqa: F811
    """By axe, at a phone's width and at a desk's, in light and in dark; and it fits."""
    asked(server, "bad one")
    with open_visitor(chromium, server.url, color_scheme=scheme, viewport=size) as visitor:
        page = visitor.go(path)
        faults = find_faults(page)
        wider = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")

    assert faults == []
    assert not wider
    assert visitor.complaints == []
    assert visitor.elsewhere == []


def test_with_keys_an_admin_s_key_opens_it(chromium, deploy, tmp_path):  # noqa: F811
    """Signed in by the form; signed out, the pages are closed again. The API takes no cookie."""
    keys = scripts.write_keys(tmp_path, {"boss": KEY}, boss={"admin": True})
    server = deploy(args(api_keys_file=keys), "keyed_room")
    with open_visitor(chromium, server.url) as visitor:
        page = visitor.go("/ui/tiers")
        page.get_by_label("API key").fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Tiers").wait_for()
        live = visitor.go("/")
        live.wait_for_selector("body[data-live]")
        assert visitor.context.request.get(f"{server.url}/v1/reliability/tiers").status == 401
        live.get_by_role("button", name="Sign out").click()
        live.get_by_label("API key").wait_for()
        visitor.go("/ui/requests")
        live.get_by_label("API key").wait_for()
        assert visitor.complaints == []
