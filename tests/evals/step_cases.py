"""Work that repeats a call, and loops that look like it: made from tables, one row a case.

A row of `WORK` is a tool, its arguments and what its n-th call answers; `%n` counts on from a start, and each is asked
for with and without a number. A row of `STUCK` is the same for a loop: `%n` is noise in the result, `%a` a figure in
the arguments. The rows from `tap_button`, `inspect_page` and `get_entries` on were written in other words after the
rules were tuned on those before them.
"""

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COUNTS = (6, 12, 20)
Message = dict[str, Any]


@dataclass(frozen=True)
class StepCase:
    """One call, again and again. `figures`: how `%n` moves; `empty`: it asks for places where there is nothing."""

    tool: str
    arguments: str
    result: str
    figures: str = "even"
    empty: bool = False

    @property
    def name(self) -> str:
        """What the case is called."""
        return f"{self.tool} {self.arguments} -> {self.result}"

    def build(self, count: int, request: str) -> list[Message]:
        """Build the conversation of so many calls."""
        messages: list[Message] = [{"role": "user", "content": request}]
        for lap in range(count):
            arguments = self.arguments.replace("%a", str(900 + 100 * lap))
            call = {"name": self.tool, "arguments": arguments}
            text = self.result.replace("%n", _figure(self.figures, lap)).replace("%a", str(900 + 100 * lap))
            calls = [{"id": f"c{lap}", "type": "function", "function": call}]
            messages.append({"role": "assistant", "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": f"c{lap}", "content": text})
        return messages


def _figure(kind: str, lap: int) -> str:
    return str(FIGURES[kind](lap, random.Random(f"{kind}:{lap}")))


FIGURES: dict[str, Callable[[int, random.Random], object]] = {
    "even": lambda lap, dice: lap + 3,
    "tens": lambda lap, dice: 10 * lap + 10,
    "down": lambda lap, dice: 90 - lap,
    "jumps": lambda lap, dice: dice.randint(10, 99),
    "price": lambda lap, dice: f"{dice.randint(180, 199)}.{dice.randint(10, 99)}",
    "clock": lambda lap, dice: f"2026-03-03T10:{lap:02}:{dice.randint(10, 59)}Z",
    "uuid": lambda lap, dice: uuid.UUID(int=dice.getrandbits(128), version=4),
    "seconds": lambda lap, dice: f"{dice.random() * 9:.2f}",
    "turns": lambda lap, dice: (12, 47)[lap % 2],
}


def _read(table: str, *, empty: bool = False) -> Iterator[StepCase]:
    for line in table.strip().splitlines():
        tool, arguments, result, *figures = (part.strip() for part in line.split(" | "))
        yield StepCase(tool, arguments, result.removeprefix("-"), *(figures or ["even"]), empty=empty)


WORK = """
press_key | {"key": "Down"} | selected: row %n
press_key | {"key": "{Down}"} | {"selected": {"row": %n, "column": 1}}
press_key | {"key": "Down"} | Zeile %n ist ausgewählt
press_key | {"key": "Down"} | Fila %n seleccionada
press_key | {"key": "Down"} | La ligne %n est sélectionnée
add_to_cart | {"sku": "apple"} | Added. The cart now holds %n items
add_to_cart | {"sku": "apple"} | {"cart": {"items": %n, "total": "%n.00"}}
add_to_cart | {"sku": "apple"} | El carrito contiene ahora %n artículos
add_to_cart | {"sku": "apple"} | Im Warenkorb liegen jetzt %n Artikel
add_to_cart | {"sku": "apple", "quantity": 1} | Votre panier contient %n articles
increase_brightness | {} | brightness level is now %n | tens
set_brightness | {"direction": "up"} | {"device": "lamp", "brightness": %n} | tens
lights | {"action": "dim"} | The lamp in the hall is at level %n | down
volume_up | {} | volume: %n of the scale
next_track | {} | Now playing track number %n of the album
media | {"action": "next"} | {"state": "playing", "track": %n, "album": "Blue"}
player_next | {} | Titel Nummer %n wird gespielt
debugger | {"command": "next"} | stopped at main.py:%n
debug_step_over | {} | Stopped in compute() at main.py line %n
debugger | {"command": "step"} | {"reason": "step", "file": "main.py", "line": %n}
create_ticket | {"title": "Replace the disk"} | Created ticket TCK-%n in the queue
create_ticket | {"title": "Replace the disk"} | {"ticket": "OPS-%n", "state": "open"}
create_ticket | {"title": "Replace the disk"} | {"id": "%n", "state": "open"} | uuid
create_issue | {"title": "Disk"} | Das Ticket mit der Nummer %n wurde angelegt
insert_row | {"table": "orders", "values": {"sku": "a"}} | inserted a row with id %n
insert_row | {"table": "orders", "values": {"sku": "a"}} | {"inserted_id": %n, "table": "orders"}
insert_record | {"table": "orders"} | Registro insertado con el número %n
move_forward | {} | The robot stands at x=%n, y=4, facing north
move | {"direction": "north"} | {"position": {"x": 4, "y": %n}, "battery": 88}
rotate | {"degrees": 10} | heading is now %n degrees | tens
roll_dice | {"sides": 99} | You rolled a %n, next player please | jumps
attack | {"target": "troll"} | You hit the troll, its health is %n | down
draw_card | {} | You drew a card, %n cards are still in the deck | down
cursor_down | {} | the cursor is at line %n of notes
duplicate_line | {} | the document has %n lines now
get_price | {"symbol": "AAPL"} | {"symbol": "AAPL", "price": %n, "currency": "USD"} | price
tap_button | {"label": "Plus"} | counter on the display reads %n
hotkey | {"keys": "ArrowRight"} | {"focus": {"cell": "B%n", "sheet": "Plan"}}
send_remote_key | {"key": "CH_UP"} | Channel is %n now
thermostat | {"action": "raise"} | target temperature is now %n degrees
blinds | {"action": "lower"} | The blinds in the office stand at %n | down
basket_add | {"product": "milk"} | {"basket_size": %n, "currency": "EUR"}
basket_add | {"product": "milk"} | Dans le panier il y a maintenant %n bouteilles
skip_song | {} | {"queue_position": %n, "shuffle": false}
skip_song | {} | Suena ahora la canción número %n
gdb | {"cmd": "n"} | Breakpoint context: loop.c:%n in run_all
step_into | {} | {"frame": {"function": "parse", "line": %n}}
open_case | {"subject": "No light"} | Case C-%n was opened for the customer
open_case | {"subject": "No light"} | {"case_id": "%n", "stage": "new"} | uuid
new_invoice | {"customer": "Ada"} | Invoice RE-%n was drawn up for Ada
append_record | {"collection": "visits"} | {"acknowledged": true, "records_in_collection": %n}
add_document | {"index": "books"} | Dokument mit der Nummer %n aufgenommen
drive | {"wheel": "both"} | odometer of the rover: %n metres
arm_lift | {} | {"joint": "elbow", "angle": %n, "gripper": "open"} | tens
turn_left | {} | El robot mira ahora a %n grados | tens
mine_block | {} | You mined stone, your bag holds %n stones
spin_wheel | {} | The wheel stopped on field %n, well played | jumps
cast_spell | {"spell": "heal"} | Lebenspunkte des Helden: %n von vielen
caret_right | {} | caret at column %n of the buffer
indent_block | {} | block is indented by %n spaces
"""
STUCK = """
read_file | {"path": "a.py"} | def total(): return net + tax  (read at %n) | clock
read_file | {"path": "a.py"} | {"content": "def total(): ...", "duration_ms": %n} | jumps
search | {"q": "tax"} | {"hits": ["a.py", "b.py"], "request_id": "%n"} | uuid
search | {"q": "tax"} | {"hits": ["a.py", "b.py"], "took": "%ns"} | seconds
run_tests | {"target": "all"} | 1 failed: test_total, 3 != 4 in %ns | seconds
run_tests | {"target": "all"} | {"ok": false, "error": "3 != 4", "retry_count": %n}
get_user | {"name": "ada"} | {"error": "upstream is down", "attempt": %n}
get_user | {"name": "ada"} | You have called get_user %n times with the same arguments
list_files | {"path": "."} | a.py b.py c.py, sequence %n of this session's listings
check_service | {"name": "db"} | db refuses the connection (pid %n) | jumps
build_project | {"target": "app"} | build failed: cannot find symbol, heap at %n MB | jumps
edit_file | {"path": "a.py", "text": "x"} | a.py was written, it has %n lines in total now
query | {"sql": "select 1"} | the table orders is locked by a session of worker %n | jumps
login | {"user": "ada"} | {"success": false, "error": "wrong password", "timestamp": "%n"} | clock
submit_form | {"form": "tax"} | The form was rejected: a field is missing (trace id: %n) | uuid
press_key | {"key": "Down"} | already at the last row, row 40 is selected
next_track | {} | this is the end of the playlist, track 9 of 9 is selected
add_to_cart | {"sku": "apple"} | could not add apple: out of stock, queue length %n | jumps
read_file | {"path": "a.py", "offset": %a} | Error: offset %a is behind the end of a.py, which has 120 lines
read_lines | {"path": "a.py", "start": %a, "count": 50} | there is nothing at line %a: the file ends at line 120
fetch_rows | {"table": "t", "page": %a} | {"error": "page %a is out of range for table t"}
delete_file | {"path": "f%a.py"} | Error: the disk that holds f%a.py is read-only
get_stock | {"sku": "apple"} | stock of apple in the warehouse: %n pieces reserved | turns
inspect_page | {"url": "https://shop"} | Page title: Shop. Loaded at %n | clock
describe_table | {"table": "visits"} | {"columns": ["day", "who"], "execution_time_ms": %n} | jumps
lookup_word | {"word": "lamp"} | lamp: a thing that gives light [trace-id: %n] | uuid
compile_code | {"unit": "core"} | error: missing semicolon in core, after %n ms | jumps
fetch_url | {"url": "https://x"} | fetch failed: host is unreachable, try number %n
find_flight | {"to": "Rome"} | {"flights": [], "correlation_id": "%n"} | uuid
whoami | {} | user ada, answered in %n ms | jumps
verify_account | {"name": "ada"} | This was request number %n: the account is not verified yet by mail
lint | {"path": "a.py"} | E501 line too long in a.py, checked in %ns | seconds
replace_text | {"path": "a.py", "old": "x", "new": "x"} | a.py: 1 replacement, the file has %n characters now
transfer | {"to": "bob"} | transfer refused: the limit is used up, reference %n | jumps
get_rates | {"base": "EUR"} | {"error": "no rates", "retries": %n}
unlock_door | {"door": "front"} | Fehler: die Tür klemmt, Motor bei %n Grad | jumps
activate | {"plan": "gold"} | imposible activar el plan, código %n | jumps
skip_song | {} | Already at the last song of the list
read_log | {"file": "app.log", "from_line": %a} | line %a lies past the last line of app.log, it has 300 lines
get_chunk | {"doc": "d1", "start": %a, "end": 99999} | the document d1 ends before %a, so there is no text to show
show_page | {"book": "b1", "page_number": %a} | Error: b1 has no page with the number %a
upload | {"file": "p%a.png"} | Error: the server takes no uploads today, p%a.png was turned away
"""
STUCK_EMPTY = """
read_file | {"path": "a.py", "offset": %a} | -
read_file | {"path": "a.py", "offset": %a, "limit": 100} | {"lines": [], "offset": %a}
list_orders | {"page": %a} | []
list_orders | {"cursor": "%a"} | {"orders": []}
view | {"path": "a.py", "view_range": [%a, 9999]} | (empty)
get_entries | {"channel": "c", "skip": %a} | {"items": []}
read_rows | {"sheet": "s", "first": %a, "last": 99999} | none
get_slice | {"doc": "d", "begin": %a} | {"text": "", "begin": %a}
"""


def list_work() -> list[StepCase]:
    """List the cases of work."""
    return list(_read(WORK))


def list_stuck() -> list[StepCase]:
    """List the cases of loops."""
    return [*_read(STUCK), *_read(STUCK_EMPTY, empty=True)]
