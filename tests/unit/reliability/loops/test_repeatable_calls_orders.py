"""How many equal calls of one answer an order asks for, and from how many on they are a loop."""

import pytest

from reliability.loops.content import PersonsOrder
from reliability.loops.repeatable_calls import count_ordered, limit_copies

DOES = [
    "add_to_order", "add_to_cart", "buy_ticket", "bookSeat", "roll_dice", "open_terminal", "start_worker", "new_tab",
    "spawn_agent", "draw_card", "add_row", "ask_oracle", "create_browser_session", "dispense", "order_pizza",
]  # fmt: skip
READS = [
    "read_file", "search", "list_files", "get_weather", "check_status", "web_search", "lookup", "fetch_page", "grep",
    "bash", "terminal", "run_command", "execute_code", "browser", "edit_file", "write_file", "send_mail",
    "get_new_mail", "list_open_tabs", "find_start",
]  # fmt: skip


@pytest.mark.parametrize("number", [2, 3, 5, 200])
def test_a_number_orders_calls_of_a_tool_that_does_something(number):
    """Law: "4 tickets" orders as many calls of a tool that does something, and from one more on they are a loop; to
    read, to look, to run a command, to edit or to send the same is done once."""
    order, copies = PersonsOrder(number=number), limit_copies(PersonsOrder(number=number), [*DOES, *READS])
    assert [name for name in DOES if count_ordered(order, name) != number] == []
    assert [name for name in READS if count_ordered(order, name) != 0] == []
    assert [name for name in DOES if copies.limit(name) != max(3, number + 1)] == []
    assert {copies.limit(name) for name in READS} == {3}


def test_a_place_is_written_once():
    """Law: the same file made three times is one file."""
    assert count_ordered(PersonsOrder(number=3), "create_file", '{"path": "a.txt"}') == 0
    assert count_ordered(PersonsOrder(number=3), "create_room", '{"size": "small"}') == 3


@pytest.mark.parametrize("times", [2, 4, 12])
def test_times_order_calls_of_any_tool(times):
    """Law: "4 times" orders as many calls of any tool, whatever other number stands beside it."""
    for order in (PersonsOrder(times, times), PersonsOrder(0, times), PersonsOrder(2, times)):
        copies = limit_copies(order, [*DOES, *READS])
        for name in (*DOES, *READS):
            assert (count_ordered(order, name), copies.limit(name)) == (times, max(3, times + 1))
