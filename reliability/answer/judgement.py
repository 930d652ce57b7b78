"""Is this answer good enough? The judgement on one attempt, once its last event is here.

The first check that fails is the flaw; a flawed answer still carries what could be delivered, since a loop that a
second tier repeats is delivered, marked. All calls are delivered or none. A refusal without calls is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from reliability.answer import answer_calls
from reliability.answer.answer_calls import drop_told, keep_few_counted, read_native_calls, read_stopped
from reliability.answer.answer_head import DELIMITER_MAX, PARTIAL, read_held
from reliability.answer.call_starts import CallStart, find_call_start, prepare_names
from reliability.answer.gate import TextKind
from reliability.answer.wanted_form import WantedForm, asks_for_json, find_forced_tool, judge_form, read_forced_call
from reliability.attempt import Leeway
from reliability.deferred_tools import list_texts, take_load
from reliability.loops.answer_history import ShownHistory, find_kept_loop, join_turns, read_shown
from reliability.loops.comparison.findings import Loop, Memo, Stage, Turn, choose_loop, digest
from reliability.loops.content import NO_ORDER, PersonsOrder, read_order
from reliability.loops.history import find_loop
from reliability.loops.nudges import describe_loop
from reliability.loops.session import Window, name_asked, observe
from reliability.loops.thresholds import LoopConfig
from reliability.loops.transcript import calls_turn, carries_history, read_request, read_turns
from reliability.loops.unseen_answers import Ask, find_unseen, read_ask
from reliability.sessions import name_request
from reliability.steps import Steps
from reliability.summaries import Ordered, find_ordered
from reliability.tool_calls import Uncertainty
from reliability.tools import CheckConfig, Checked, Extraction, Flaws, RawCall, Repair, ToolBox, Violation
from reliability.tools.check.calls import check_calls, id_source, ids_in
from reliability.tools.extract.envelope import may_open
from reliability.tools.extract.harmony import may_be_harmony
from reliability.tools.extract.scanner import extract_calls, is_prose, may_be_told
from reliability.tools.format_row import Place
from reliability.tools.schema.toolbox import Tool
from reliability.types import CallDelta, Event, Finish, FinishReason, Flaw, Reasoning, Refusal, Text, ToolCall

WORDS_CHARS_MAX = 200_000
_LOOPS = {Stage.WARN: Flaw.LOOP, Stage.BREAK: Flaw.CIRCUIT_BREAK}
_PROSE_BEHIND = "\n\nAnd so on."
BEHIND = "{} tool call(s) that rest on made-up results were dropped"
_LEFT_OUT = "{} tool call(s) of the answer were left out: they repeat others, or the client takes one at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the request asks of every answer to it. `checks` and `loops` are None where they are switched off. `form`:
    what its text must be; `forced`: the one tool that must be called. `loader`: the server's own tool, if it has one,
    and whether an answer `may_load` by it; `listed`: the tools of which the model may have seen only a line. `asked`
    names the request where it brings no history; then `window` is what its session was answered before. `shown`: what
    the request shows of its session. `ask`: what wants a look (see `read_ask`); `ordered`: the summary that it
    orders (see `find_ordered`). `memo`: what the loop rules have found out about `turns`; `order`: what the
    user orders."""

    toolbox: ToolBox
    id_seed: str
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    checks: CheckConfig | None = None
    form: WantedForm | None = None
    forced: Tool | None = None
    loops: LoopConfig | None = None
    order: PersonsOrder = NO_ORDER
    turns: tuple[Turn, ...] = ()
    window: Window | None = None
    asked: str = ""
    shown: ShownHistory | None = None
    ask: Ask | None = None
    ordered: Ordered | None = None
    used_ids: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    loader: str = ""
    may_load: bool = False
    listed: frozenset[str] = frozenset()
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    @property
    def wants_window(self) -> bool:
        """Whether what the session was answered before may say something of this answer."""
        return bool(self.asked or self.ask) or (self.shown is not None and not self.shown.spoken)

    @property
    def joined(self) -> tuple[Turn, ...] | None:
        """What the window has kept and what the request shows; None where that is no more than what it shows."""
        shown, window, config = self.shown, self.window, self.loops
        if config is None or shown is None or window is None or not window.kept:
            return None
        kept = window.kept
        return self.memo.once("joined", lambda: join_turns(kept, shown, self.turns, config))

    def find_loads(self, judged: Judged) -> tuple[str, ...] | None:
        """Find the tools whose definitions the model needs: those that it asks for, or has called wrongly unseen."""
        if judged.loads is not None or judged.flaw is not Flaw.TOOL_CALL_INVALID:
            return judged.loads
        return tuple(sorted(self.listed.intersection(one.tool or "" for one in judged.violations))) or None

    @property
    def declared(self) -> ToolBox:
        """The client's own tools: what is said of calls names no other."""
        if not self.loader:
            return self.toolbox
        return replace(self.toolbox, tools=tuple(tool for tool in self.toolbox.tools if tool.name != self.loader))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judgement. `events` is what may be delivered, `finish` its end; `flaw` None is a good answer. `native_calls`:
    how many calls came as calls. `raw_text` is the text as it came, `written` the same with native calls as a model
    writes them: what a re-ask may show to the model, and what never leaves for a client. `leeway`: of a flawed answer
    whose events may leave. `loads`: the tools whose definitions it asks for; then `raw_text` is without its calls."""

    events: tuple[Event, ...]
    finish: Finish
    flaw: Flaw | None = None
    detail: str = ""
    calls: tuple[ToolCall, ...] = ()
    repairs: tuple[Repair, ...] = ()
    violations: tuple[Violation, ...] = ()
    loop: Loop | None = None
    turn: Turn | None = None
    dropped_calls: int = 0
    native_calls: int = 0
    loads: tuple[str, ...] | None = None
    leeway: Leeway | None = None
    raw_text: str = field(default="", repr=False)
    written: str = field(default="", repr=False)


def expect(
    messages: Sequence[Mapping[str, Any]],
    toolbox: ToolBox,
    *,
    id_seed: str,
    tool_choice: Any = None,
    parallel_tool_calls: bool | None = None,
    checks: CheckConfig | None = None,
    loops: LoopConfig | None = None,
    form: WantedForm | None = None,
    shared: bool = False,
) -> Expected:
    """Read the request once, for all attempts on it. `shared`: its session may hold many tasks."""
    wants_json = tool_choice == "none" or form is not None
    turns = read_turns(messages, loops.turns_needed) if loops is not None else ()
    request = (turns[-1].request if turns else read_request(messages)) if toolbox.tools else ""
    asked_json = asks_for_json(request)
    if toolbox.tools and (wants_json or asked_json):
        toolbox = replace(toolbox, wants_json=wants_json, asked_json=asked_json)
    name = "" if loops is None else name_request(messages).hex()
    tools = [tool.name for tool in toolbox.tools]
    may_look = tool_choice in (None, "auto") and form is None
    return Expected(
        toolbox=toolbox,
        id_seed=id_seed,
        tool_choice=tool_choice,
        parallel_tool_calls=parallel_tool_calls,
        checks=checks,
        form=None if checks is None else form,
        forced=None if checks is None else find_forced_tool(toolbox, tool_choice),
        loops=loops,
        order=read_order(request),
        turns=turns,
        asked="" if not name or carries_history(messages) else name_asked(messages, name, shared),
        shown=None if loops is None else read_shown(messages, turns, name, loops, tools=bool(tools), shared=shared),
        ask=read_ask(messages, tools, loops) if loops is not None and may_look else None,
        ordered=find_ordered(messages) if form is None else None,
        used_ids=ids_in(messages),
        words=_collect_words(messages) if checks is not None else (),
    )


def settle_text(text: str, before: str, toolbox: ToolBox) -> TextKind:
    """Tell the gate what a candidate in the text is. `before` is the text in front of it."""
    context, begin = before + text, max(before.rfind("}"), before.rfind("\n")) + 1
    if not is_prose(context + _PROSE_BEHIND, toolbox, begin):
        return TextKind.OPEN if may_be_told(context, toolbox, begin) else TextKind.CALL
    may_begin = partial(_may_begin, toolbox)
    if not is_prose(context, toolbox, begin, may_begin=may_begin) or may_be_harmony(context) or may_open(text):
        return TextKind.OPEN  # it depends on what follows
    return TextKind.PROSE


def _may_begin(box: ToolBox, text: str, at: int) -> bool:
    """Return whether a call in any notation may begin at this place of a text that isn't complete."""
    place = Place.ANYWHERE if text[text.rfind("\n", 0, at) + 1 : at].strip() else Place.LINE
    before = text[max(0, at - DELIMITER_MAX) : at]
    found_at, _, found = find_call_start(prepare_names(box.names), text, at, place, before)
    if found_at != at or not isinstance(found, CallStart):
        return found_at == at and found == PARTIAL
    return may_open(text[at:]) or not (is_prose(text, box, at) and is_prose(text + _PROSE_BEHIND, box, at))


def judge(
    expected: Expected,
    held: Sequence[Event],
    finish: Finish,
    *,
    sent: str,
    text_committed: bool,
    attempt: int,
    told: str = "",
    stopped: Loop | None = None,
    reasoned: str = "",
    steps: Steps | None = None,
) -> Judged:
    """Judge one answer. `held`: what the gate kept; `sent`: what it let pass; `told`: what had left before it began
    anew; `text_committed`: an earlier attempt's has; `stopped`: its loop. Raises `OutOfSteps` (more than `steps`)."""
    held, text = read_held(held, begun=bool(told + sent))
    before = told if told or reasoned or any(isinstance(event, Reasoning) for event in held) else None
    cut = stopped is None and finish.reason is FinishReason.LENGTH
    found, dropped = read_stopped(sent + text, len(sent), expected.toolbox, stopped, told=before)
    found = found.refuse_list() if found.unended and cut else found
    found, native = drop_told(found, read_native_calls(held), expected.toolbox, sent + text, len(sent), told=before)
    loads, found, native = take_load(expected.loader, expected.toolbox, found, native, may_load=expected.may_load)
    found, native, counted = keep_few_counted(found, native, expected.toolbox, cut=cut)
    if loads is not None:
        said = _build_deliverable(Checked(), held, found, text_committed=text_committed)
        return Judged(events=tuple(said), finish=finish, loads=loads, raw_text=told + sent + found.text)
    copies, untold, checked, flaw, detail, turn, loop = 0, 0, Checked(), None, "", None, None
    found = read_forced_call(expected.forced, found, "" if told + sent or native else text, finish)
    if found.calls or native or not any(isinstance(event, Refusal) for event in held):
        raw, copies, untold, checked = _check_distinct(expected, (*found.calls, *native), found, finish, attempt, steps)
        found, checked = judge_form(expected.form, checked, found, "" if told + sent else text, finish, steps)
        flaw, detail = _find_flaw(checked, finish, raw, found, told + sent + found.text, text_committed=text_committed)
        turn, loop = _check_loops(expected, checked, told + sent + found.text, reasoned or found.reasoning, flaw)
        flaw, detail = (flaw, detail) if loop is None else (_LOOPS[loop.stage], describe_loop(loop))
    judged = Judged(
        events=tuple(_build_deliverable(checked, held, found, text_committed=text_committed)),
        finish=_correct_finish(finish, checked, found.behind + untold, copies + dropped + counted),
        flaw=flaw,
        detail=detail,
        calls=checked.calls,
        repairs=checked.repairs,
        violations=checked.violations,
        loop=loop,
        turn=turn,
        dropped_calls=copies + dropped + counted,
        native_calls=len(native),
        raw_text=told + sent + text,
        written=told + sent + text + answer_calls.write_native_calls(held),
    )
    return _give_leeway(judged, found, expected.toolbox, sent + text, len(sent), before)


def _give_leeway(judged: Judged, found: Extraction, box: ToolBox, text: str, sent: int, told: str | None) -> Judged:
    """Return the judgement with what may leave of a flawed answer, if anything: calls of which a value is only doubted,
    and an undeclared call, as words. It is asked for again first (`reliability.escalation.policies`)."""
    if judged.flaw is not Flaw.TOOL_CALL_INVALID or not all(one.doubt for one in judged.violations):
        return judged
    suspected = all(one.doubt is Uncertainty.SUSPECTED for one in judged.violations)
    if judged.calls:
        said = digest(*(f"{one.path} {one.message}" for one in judged.violations))
        return replace(judged, leeway=Leeway(said, suspected))
    if judged.native_calls or found.calls:
        return judged
    words = extract_calls(text, replace(box, tools=()), sent, told=told).text
    events = [event for event in judged.events if not isinstance(event, Text)]
    said = digest(" ".join(words.split()))
    return replace(judged, events=(*events, Text(words)), leeway=Leeway(said, suspected))


def _check_distinct(
    expected: Expected, calls: Sequence[RawCall], found: Extraction, finish: Finish, attempt: int, steps: Steps | None
) -> tuple[Sequence[RawCall], int, int, Checked]:
    """Check the calls, of equal ones the first, the first alone where the client takes one at a time, and of a local
    model's none that tells what one before it has yet to find. Return those, how many there were of either kind, and
    the findings."""
    raw, copies = answer_calls.collapse_calls(calls, expected.toolbox, expected.order)
    if expected.parallel_tool_calls is False and expected.checks is not None and not found.malformed:
        raw, copies = raw[:1], copies + len(raw[1:])
    checked = _check(expected, raw, found, attempt, steps)
    distinct = answer_calls.drop_equal(raw, checked.calls, expected.order)
    if len(distinct) < len(raw):  # a repair has made them equal
        raw, copies = distinct, copies + len(raw) - len(distinct)
        checked = _check(expected, raw, found, attempt, steps)
    told = raw
    if expected.checks is not None and (finish.unsure is not None or all(one.format != "native" for one in raw)):
        made = [call for turn in expected.turns for call in turn.calls]
        delivered = checked.calls or checked.doubted
        told = answer_calls.drop_untold(raw, delivered, expected.words, made, expected.toolbox)
    if len(told) < len(raw):
        checked = _check(expected, told, found, attempt, steps)
    return told, copies, len(raw) - len(told), replace(checked, calls=checked.calls or checked.doubted)


def _check(expected: Expected, raw: Sequence[RawCall], found: Extraction, attempt: int, steps: Steps | None) -> Checked:
    new_id = id_source(f"{expected.id_seed}/{attempt}")
    if expected.checks is None:
        return answer_calls.pass_unchecked(raw, expected.used_ids, new_id)
    return check_calls(
        raw,
        expected.declared,
        expected.tool_choice if expected.toolbox.tools else None,
        expected.parallel_tool_calls,
        expected.checks,
        new_id=new_id,
        used_ids=expected.used_ids,
        conversation=expected.words or None,  # an empty conversation tells nothing of what was said
        malformed=found.malformed,
        steps=steps,
    )


def _find_flaw(
    checked: Checked, finish: Finish, raw: Sequence[RawCall], found: Extraction, spoken: str, *, text_committed: bool
) -> tuple[Flaw | None, str]:
    if checked.violations:
        words = "; ".join(f"{v.path} {v.message}".strip() for v in checked.violations[:3])
        if checked.violations[0].kind is Flaws.FORM:
            return Flaw.FORM_INVALID, f"its text is not the JSON that response_format asks for: {words}"
        if finish.reason is FinishReason.LENGTH and (found.malformed or raw):
            return Flaw.TRUNCATED, f"its tool call was cut off by the token limit ({words})"
        return Flaw.TOOL_CALL_INVALID, f"its tool call is invalid: {words}"
    if checked.calls:
        return None, ""
    if finish.reason is FinishReason.TOOL_CALLS:
        return Flaw.EMPTY, "it announced tool calls and sent none"
    if text_committed:
        return Flaw.EMPTY, "it brought no call where one was open"
    if not spoken.strip() and finish.reason is FinishReason.STOP:
        return Flaw.EMPTY, "its answer is empty"
    return None, ""


def _check_loops(
    expected: Expected, checked: Checked, text: str, reasoned: str, flaw: Flaw | None
) -> tuple[Turn | None, Loop | None]:
    """Return the answer as a turn of the conversation, and the loop in which it would be one more repetition. A silent
    answer is asked for again as it is, so that its loop matters only where it breaks the circuit."""
    silent = not checked.calls and not text.strip()
    flaw = None if flaw is Flaw.TOOL_CALL_INVALID and checked.calls else flaw
    if expected.loops is None or (flaw is not None and not (flaw is Flaw.EMPTY and silent and reasoned.strip())):
        return None, None
    turn = calls_turn([(c.name, c.arguments) for c in checked.calls], reasoned if silent else text)
    window, config = expected.window, expected.loops
    loop = find_loop(expected.turns, config, turn, expected.memo)
    loop = loop or find_unseen(expected.ask, () if window is None else window.looked, turn, config)
    if window is not None:
        kept = find_kept_loop(expected.joined, config, turn)
        asked = observe(window, turn, config, expected.asked)[1] if expected.asked else None
        loop = choose_loop((loop, kept, asked))
    if flaw is not None and (loop is None or loop.stage is not Stage.BREAK):
        return None, None
    return turn, loop


def _build_deliverable(
    checked: Checked, held: Sequence[Event], found: Extraction, *, text_committed: bool
) -> list[Event]:
    """Build what would be delivered: reasoning, the text that is left, a refusal, complete calls."""
    events: list[Event] = [event for event in held if isinstance(event, Reasoning)]
    events += [Reasoning(found.reasoning)] if found.reasoning else []
    text = answer_calls.drop_empty_blocks(held, found.text) if checked.calls else found.text
    if text and not text_committed and not (checked.calls and text.isspace()):
        events.append(Text(text))
    refusal = "".join(event.text for event in held if isinstance(event, Refusal))
    events += [Refusal(refusal)] if refusal else []
    events += [
        CallDelta(index=i, id=call.id, name=call.name, arguments=call.arguments) for i, call in enumerate(checked.calls)
    ]
    return events


def _correct_finish(finish: Finish, checked: Checked, behind: int, left_out: int) -> Finish:
    """Correct the finish reason, and note the calls that were `left_out` or stood `behind` the answer's turn."""
    reason = FinishReason.TOOL_CALLS if checked.calls else finish.reason
    if not checked.calls and reason is FinishReason.TOOL_CALLS:
        reason = FinishReason.STOP
    notes = [_LEFT_OUT.format(left_out)] if left_out and checked.calls else []
    notes += [BEHIND.format(behind)] if behind else []
    if reason is finish.reason and not notes:
        return finish
    return replace(finish, reason=reason, notes=(*finish.notes, *notes))


def _collect_words(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Collect the texts of the conversation, newest first, bounded: words in them are no placeholders."""
    out: list[str] = []
    chars_left = WORDS_CHARS_MAX
    for message in reversed(messages):
        for text in list_texts(message.get("content")):
            if chars_left > 0:
                out.append(text[:chars_left])
                chars_left -= len(text)
    return tuple(out)
