"""What the name of a tool says that it does.

The verb decides: the first known word behind the server's name (`mcp__ci__`). What stands behind it makes no other tool
of it: `create_test_user` creates, `get_order_status` looks, `buy_now` waits for nothing. A name without a verb says
what is looked at: `job_status`. Some verbs are nouns, too (`NOUNS`): before what is asked about them and behind a verb
they say nothing. `run` and `execute` say no more than that something is done.
"""

from __future__ import annotations

import re
from itertools import pairwise

from reliability.loops.comparison.volatile_fields import keep_by_name, phrase_set, word_set, words_of

#: Words of tools that do something else with other arguments, and words that say nothing beside these.
SHELLS = word_set(
    "bash shell sh terminal command cmd console powershell python ipython jupyter code repl browser computer"
)
_RUNS = word_set("run execute exec")
GENERIC = SHELLS | _RUNS
FILLERS = word_set(
    "tool tools use call action step task job input in on the local remote session interactive interpreter execution "
    "eval evaluate sandbox container docker script snippet cell notebook js javascript node typescript sql graphql cli "
    "navigate goto"
)
STEPS = word_set(
    "press key keys hotkey keypress click tap swipe scroll step next continue resume move turn go forward back "
    "backward backwards up down left right add increment increase decrement decrease raise lower advance rotate undo "
    "redo jump walk zoom tab enter drag skip play roll draw n s c fin stepi nexti"
)
#: Verbs of tools that only look, the plainest of them first; those that also check or work something out.
_GETS = word_set("get read fetch find lookup describe retrieve")
LOOKS = _GETS | word_set("list ls search show view query cat grep glob inspect")
_CHECKS = LOOKS | word_set(
    "check look count is has test validate lint verify compile analyze calculate compute help whoami ping diagnose "
    "explain summarize monitor"
)
#: These, and what is looked at.
READS = _CHECKS | word_set("status state tests info logs price prices quote output")
#: What is run to see whether it is right.
_CHECKED = word_set("build pipeline ci pytest benchmark suite linter typecheck checks")
#: Verbs of tools that change the world, those that do anything, and which of them are nouns, too.
CHANGES = word_set(
    "send submit transfer post create pay purchase buy publish cancel delete remove add insert upload deploy start "
    "stop restart trigger reply invite approve merge charge refund withdraw deposit register subscribe notify email "
    "mail order book place issue spawn launch print schedule"
)
DOES = CHANGES | word_set(
    "set put update reset change edit replace write patch save apply make new append clear move rename copy open close "
    "assign mark toggle enable disable kill terminate generate build record draft reserve rent grant import export "
    "press click tap swipe hover fill drag draw roll skip allocate provision mint attach detach accept reject confirm "
    "hire redeem give"
)
NOUNS = word_set(
    "order book post reply email mail transfer deploy upload charge refund deposit merge purchase issue print schedule "
    "build record draft grant import export run execute"
)
_FIRST = word_set("poll wait await sleep watch scroll tail")
_LAST = _FIRST | word_set("polling progress")
_CLOCKS = word_set("clock now datetime")
_TIMES = _CLOCKS | word_set("time date current world local utc the")
#: Verbs that wait for nothing, whatever their name ends in.
SETTLES = CHANGES | (DOES - STEPS)
_VERBS = _CHECKS | DOES | _FIRST | {"next"}
_KNOWN = _VERBS | READS | GENERIC
#: A tool with such a word does more than look.
LEADS = DOES | _FIRST | word_set("next run execute")
_LINKS = word_set("and or then")
#: A noun before these is no verb.
_ASKED = (READS | _LAST) - {"test"}
#: Where a client writes the server's name before the tool's: `mcp__ci__watch_run`, `ci.watch_run`.
_SERVER = re.compile(r"^(?:mcp_[^\W_]+_(?=[^\W_])|.*(?:__|[./:])(?=\w))")
_PAIRS = phrase_set(
    "job status|task status|build status|run status|process status|command status|deployment status|deploy status"
    "|pipeline status|workflow status|read output|get output|bash output|task output|command output|process output"
    "|shell output|terminal output|get result|fetch result|await result|page down|page up|scroll down|scroll up"
    "|next page|previous page|prev page|load more|read more|fetch more|show more|current time|write stdin|wait for"
)
_THOUGHTS = word_set(
    "think thinking thought thoughts reflect reflection sequentialthinking ponder brainstorm scratchpad"
)
_NOTES = phrase_set(
    "update plan|update todo|update todos|write plan|write todo|write todos|set plan|set todo|set todos|manage plan"
    "|manage todo|manage todos|revise plan|revise todo|revise todos|todo write|todo update|todos write|todos update"
    "|plan write|plan update|report progress|task progress|task tracker"
)


@keep_by_name
def split_tool(name: str) -> tuple[str, ...]:
    """Split a tool's own name into words, with the server's where its own says nothing."""
    own = words_of(_SERVER.sub("", name))
    return own if not _KNOWN.isdisjoint(own) else words_of(name.removeprefix("mcp_"))


@keep_by_name
def find_verb(name: str) -> str:
    """Return the word that says what a tool does: its first known verb, or what it looks at; "" where none is known."""
    words = split_tool(name)
    if not (_RUNS.isdisjoint(words[:1]) or _CHECKED.isdisjoint(words)):
        return "test"
    verb = next((word for word in words if word in _VERBS), "")
    linked = [second for first, second in pairwise(words) if first in _LINKS and second in LEADS]
    if linked:
        return verb if verb in DOES else linked[0]
    if verb in NOUNS:
        behind = words[words.index(verb) + 1 :]
        asked = [word for word in behind[-1:] if word in _ASKED] or [word for word in behind[:1] if word in _GETS]
        return asked[0] if asked else verb
    return verb or next((word for word in words if word in READS), "")


def names_look(name: str) -> bool:
    """Return whether the name of a tool says that it only looks."""
    verb, verbs = find_verb(name), [word for word in split_tool(name) if word in LOOKS or word in LEADS]
    asks = verb in _GETS or (verb not in LEADS and LOOKS.issuperset(verbs[:1]))
    return bool(verbs) and asks and (LEADS - NOUNS).isdisjoint(verbs)


@keep_by_name
def polls_by_name(name: str) -> bool:
    """Return whether the name itself says that the tool waits, pages or tells the time."""
    words, own, verb = words_of(name), words_of(_SERVER.sub("", name)), find_verb(name)
    pairs = [first for first, second in pairwise(words) if f"{first} {second}" in _PAIRS]
    if pairs or not own or verb in SETTLES:
        return bool(pairs) and (verb in pairs or verb not in SETTLES)
    tells_time = own[-1] in _CLOCKS and (verb in READS or _TIMES.issuperset(own))
    return tells_time or own[-1] in _LAST or own[0] in _FIRST


@keep_by_name
def takes_notes(name: str) -> bool:
    """Return whether a tool of this name only takes notes of what the model thinks or plans."""
    words = words_of(name)
    return not _THOUGHTS.isdisjoint(words) or not _NOTES.isdisjoint(map(" ".join, pairwise(words)))
