"""Loop detection: an agent that does the same again, and gets the same again, is nudged, helped, and at last stopped.

- History (`transcript`, `history`): the request's own messages are the state. `find_loop` judges them together with
  the answer that is about to leave: WARN asks for a nudge, BREAK breaks the circuit. `unseen_answers` looks at the
  requests before this one.
- Answer (`in_answer`, `long_cycles`, `written`): one answer while it decodes; native calls: `answer.call_scan`.
- Session (`session`, `answer_history`): for clients that send no history, or less and less of it; and `LoopDetector`.
- Judge (`judge`): what no rule detects is counted, and shown to another model. Off by default.

What each rule catches is in docs/decisions/010-loop-rules.md.

Invariants:
- A verdict never depends on ids, on key order or on how a stream was cut.
- A new user message or a changed result re-arms at once: a loop never makes a conversation unusable.
- The rules raise nothing, whatever a client or a model has written.
"""

from reliability.loops.answer_history import ShownHistory, find_kept_loop, join_turns, keep_answer, read_shown
from reliability.loops.comparison.findings import Kind, Loop, Memo, SeenCall, Stage, Turn, choose_loop
from reliability.loops.content import read_order
from reliability.loops.history import find_loop, find_repetition, repeats_already
from reliability.loops.in_answer import Scan, finish, open_scan, step, truncate
from reliability.loops.judge import JudgeRequest, StuckCase, find_case, injection, judge_request, read_suggestion
from reliability.loops.nudges import describe_loop, nudge
from reliability.loops.session import LoopDetector, LoopStatus, Window, keep_continued, name_asked, observe
from reliability.loops.thresholds import JudgeConfig, LoopConfig
from reliability.loops.transcript import answer_turn, calls_turn, carries_history, read_request, read_turns
from reliability.loops.unseen_answers import Ask, find_unseen, keep_looked, may_be_unseen, read_ask

__all__ = [
    "Ask", "JudgeConfig", "JudgeRequest", "Kind", "Loop", "LoopConfig", "LoopDetector", "LoopStatus", "Memo",
    "Scan", "SeenCall", "ShownHistory", "Stage", "StuckCase", "Turn", "Window", "answer_turn", "calls_turn",
    "carries_history", "choose_loop", "describe_loop", "find_case", "find_kept_loop", "find_loop",
    "find_repetition", "find_unseen", "finish", "injection", "join_turns", "judge_request", "keep_answer",
    "keep_continued", "keep_looked", "may_be_unseen", "name_asked", "nudge", "observe", "open_scan", "read_ask",
    "read_order", "read_request", "read_shown", "read_suggestion", "read_turns", "repeats_already", "step",
    "truncate",
]  # fmt: skip
