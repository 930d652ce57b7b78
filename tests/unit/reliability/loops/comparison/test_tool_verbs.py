"""What a tool is, by its name: the verb decides, whatever else the name says."""

import itertools
import json
import tracemalloc

import pytest

from reliability.loops import SeenCall, Stage
from reliability.loops.comparison.call_normalization import names_place
from reliability.loops.comparison.shell_commands import read_deed
from reliability.loops.comparison.tool_verbs import find_verb, names_look, polls_by_name, split_tool, takes_notes
from reliability.loops.comparison.volatile_fields import words_of
from reliability.loops.repeatable_calls import acts, changes, is_generic_tool, is_poll
from reliability.loops.revisits import looks
from tests.support.conversation import CONFIG, USER, acted, stages

FORMS = ("{}", "mcp__ci__{}", "mcp__search__{}", "code.{}", "test/{}")
#: What is done or looked at: plain, named like a look, like a shell, like a poll.
THINGS = (
    "user", "test_user", "test_case", "status_tile", "price_label", "search_worker", "info_desk",
    "logs_collector", "list_entry", "view_model", "query_card", "count_badge", "code_snippet", "terminal",
    "browser_window", "shell_script", "command", "email_draft", "watch_list_item", "discount_code",
)  # fmt: skip
CREATING = (
    "create", "start", "order", "book", "issue", "place", "print", "spawn", "add", "delete", "publish", "cancel",
)  # fmt: skip
SENDING = ("send", "email", "notify")
LOOKING = ("get", "read", "fetch", "find", "list", "search", "show")
#: What a look may be at: nouns that are deeds, too, and what is asked about them.
SEEN = (
    "order", "order_status", "post", "issue", "test_status", "deploy", "run", "purchase_status", "email_list",
    "zip_code", "build", "terminal", "refund_price", "console_messages",
)  # fmt: skip


def spell(verb: str, thing: str) -> list[str]:
    """Spell a name in each case, behind each server's name."""
    words = [verb, *thing.split("_")]
    joined = ("_".join(words), "-".join(words), words[0] + "".join(map(str.title, words[1:])), "_".join(words).upper())
    return [form.format(name) for form in FORMS for name in joined]


@pytest.mark.parametrize("verb", CREATING + SENDING)
def test_a_deed_stays_one_whatever_it_is_done_to(verb: str) -> None:
    """Law: over nouns, cases and servers: who creates, orders or sends acts and changes the world; he neither looks nor
    waits, and is no shell. What was sent to a person is sent once."""
    calls = [SeenCall(name, "{}") for thing in THINGS for name in spell(verb, thing)]
    assert [call.name for call in calls if not changes(call) or acts(call) is (verb in SENDING)] == []
    assert [call.name for call in calls if is_generic_tool(call) or looks(call) or names_look(call.name)] == []
    assert [call.name for call in calls if is_poll(call, None) or is_poll(call, '{"status": "queued"}')] == []


@pytest.mark.parametrize("verb", LOOKING)
def test_a_look_stays_one_whatever_it_is_at(verb: str) -> None:
    """Law: over nouns, cases and servers: who reads an order, a code or a test's status does nothing."""
    calls = [SeenCall(name, "{}") for thing in SEEN for name in spell(verb, thing)]
    assert [call.name for call in calls if acts(call) or changes(call) or is_generic_tool(call)] == []
    assert [call.name for call in calls if not looks(call)] == []


@pytest.mark.parametrize("name", [
    "test_runner", "run_tests", "read_logs", "run_build", "run_query", "price", "job_state",
    "order_status", "order_get_items", "issue_read", "deploy_status", "book_search",
])  # fmt: skip
def test_names_without_a_verb_say_what_is_looked_at(name: str) -> None:
    """Law: a test, a state, a price are looked at, and so is what is run to see whether it is right; `order_status`
    orders nothing."""
    assert not acts(SeenCall(name))
    assert not changes(SeenCall(name))


@pytest.mark.parametrize("name", ["get_or_create_user", "find_and_order", "fetch_and_delete", "check_then_buy"])
def test_two_verbs_do_what_the_second_does(name: str) -> None:
    """Law: who looks and then acts, acts."""
    assert acts(SeenCall(name))
    assert changes(SeenCall(name))
    assert not names_look(name)


ENDS = ("now", "watch", "poll", "progress", "clock", "wait", "task_status", "job_output")
TELLS = ("now", "clock", "get_time_now", "time_now", "current_datetime", "get_progress", "job_progress", "watch_order",
         "deploy_progress", "deploy_status", "wait_for_order", "write_stdin", "get_task_status")  # fmt: skip


def test_a_deed_waits_for_nothing_whatever_its_name_ends_in() -> None:
    """Law: over deeds, ends, cases and servers; and what tells the time, how far it is, or waits polls by its name."""
    deeds = ("buy", "pay", "create", "start", "delete", "send", "set", "update", "publish")
    named = [name for verb, end in itertools.product(deeds, ENDS) for name in spell(verb, end)]
    named += ["deploy_now", "post_now", "order_now", "deploy_and_wait"]
    assert [name for name in named if polls_by_name(name) or is_poll(SeenCall(name, '{"type": "watch"}'), None)] == []
    assert [name for name in TELLS for form in FORMS if not polls_by_name(form.format(name))] == []


@pytest.mark.parametrize("name", ["send_email", "create_event", "delete_message"])
def test_an_empty_answer_to_a_deed_is_no_empty_inbox(name: str) -> None:
    """Law: only who looks whether something has come waits for it."""
    assert not is_poll(SeenCall(name), "{}")
    assert all(is_poll(SeenCall(name), "[]") for name in ("check_inbox", "get_events", "new_messages", "email_inbox"))


GENERIC = ("bash", "run_command", "execute_bash", "python_repl", "PythonREPL", "run_in_terminal", "code_interpreter",
           "execute_sql", "browser_navigate", "local_shell", "mcp__box__exec_command", "run", "computer")  # fmt: skip
TOLD = {"create_terminal": "command", "kubectl_exec": "command", "run_js_file": "code", "browser_open": "url"}
ERRONEOUS = (
    "execute_trade", "run_query", "get_zip_code", "run_report", "place_trade", "search_code", "create_terminal",
)  # fmt: skip


def test_a_shell_says_nothing_else_or_is_told_a_command() -> None:
    """Law: a tool is a shell, a code runner or a browser where its name says no more than that, or where it gets a
    command, code or an address; a code that is no program is none."""
    assert [name for name in GENERIC for form in FORMS if not is_generic_tool(SeenCall(form.format(name)))] == []
    told = {name: SeenCall(name, json.dumps({key: "print(1)"})) for name, key in TOLD.items()}
    assert [name for name, call in told.items() if not is_generic_tool(call)] == []
    assert [name for name in ERRONEOUS if is_generic_tool(SeenCall(name, '{"code": "AB-12"}'))] == []


@pytest.mark.parametrize("name", [*ERRONEOUS, "bash"])
def test_the_same_error_of_any_tool_but_a_shell_is_a_loop(name: str) -> None:
    """Law: whatever the arguments, also where the tool's name says that it runs something."""
    laps = [acted(name, {"symbol": f"S{lap}"}, "Error: API key is invalid") for lap in range(8)]
    found = stages([USER, *itertools.chain(*laps)])
    assert (Stage.BREAK in found) is (name != "bash")


@pytest.mark.parametrize("name", ["buy_now", "purchase_now", "start_watch", "deploy_now", "post_now", "run_batch"])
def test_deeds_have_the_limits_of_deeds(name: str) -> None:
    """Law: a purchase that goes on for ever is nudged and broken, whatever it is called; so is what runs a batch."""
    warn, limit = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold
    answers = [f'{{"status": "ok", "order_id": {lap + 1000}}}' for lap in range(limit)]
    answers = ["Processed 500 rows."] * limit if name == "run_batch" else answers
    found = stages([USER, *itertools.chain(*(acted(name, {"sku": "A1"}, answer) for answer in answers))])
    assert (found.index(Stage.WARN), found.index(Stage.BREAK)) == (warn - 1, limit - 1)


@pytest.mark.parametrize("thing", THINGS)
def test_as_many_as_are_ordered_are_made(thing: str) -> None:
    """Law: "create 8" makes eight, whatever the things are called."""
    user = {"role": "user", "content": f"Create 8 {thing.replace('_', ' ')}s."}
    laps = [acted(f"create_{thing}", {}, "Created.") for _ in range(8)]
    assert set(stages([user, *itertools.chain(*laps)])) == {None}


@pytest.mark.parametrize("sql", ["INSERT INTO t DEFAULT VALUES", "update t set a = 1", "insert into t(a) values (1)"])
def test_a_query_that_writes_changes_the_world(sql: str) -> None:
    """Law: what a query tool writes is a deed; words that begin like one are not."""
    assert changes(SeenCall("run_query", json.dumps({"sql": sql})))
    assert not changes(SeenCall("web_search", '{"query": "insert into list python"}'))


READERS = [words_of, split_tool, find_verb, names_look, polls_by_name, takes_notes, names_place, read_deed]


@pytest.mark.parametrize("reader", READERS)
def test_no_long_name_is_kept(reader):
    """Law: whatever calls a client's history has, what is kept of their names is small: a name of a megabyte is read as
    its beginning is."""
    reader("read_file")  # what is built once
    tracemalloc.start()
    for number in range(20):
        reader(f"read{number}_" + "x" * 100_000)
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert kept_bytes < 100_000
