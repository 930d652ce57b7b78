"""Loop detection: who does the same again, and gets the same again, is warned, helped, and at last stopped.

Four parts, and none of them keeps anything between two calls except what it is handed:

- **History** (`transcript` → `history`): the request's own messages are the state. `read_turns` reads them,
  `find_loop` judges them together with the answer that is about to leave. WARN asks for a `nudge`, BREAK
  breaks the circuit. A new user message or a changed result re-arms at once, so that a loop never makes a
  conversation unusable.
- **Answer** (`in_answer`, `cycles`, `written`): one answer while it decodes. `step` takes its text chunk by chunk. (Its
  native calls: `reliability.answer.call_scan`.)
- **Session** (`session`, `kept`): for clients that send no history, a bounded window of fingerprints, and for those
  whose history shrinks the answers with their results; and `LoopDetector`.
- **Judge** (`judge`): what no rule can detect is counted, and shown to another model. Off by default.

What must never happen: a verdict that depends on ids, on key order or on how a stream was cut; a poller that
is stopped for waiting; a detector that raises on what a client or a model has written.
"""

from reliability.loops.answer_history import Kept, ShownHistory, find_kept_loop, join_turns, keep_answer, read_shown
from reliability.loops.comparison.findings import Kind, Loop, Result, SeenCall, Stage, Turn
from reliability.loops.comparison.memo import Memo
from reliability.loops.history import find_loop
from reliability.loops.in_answer import Scan, finish, open_scan, step, truncate
from reliability.loops.judge import (
    JudgeRequest,
    StuckCase,
    Trouble,
    find_case,
    injection,
    judge_request,
    read_suggestion,
)
from reliability.loops.nudge import nudge
from reliability.loops.session import LoopDetector, LoopStatus, Window, observe
from reliability.loops.thresholds import JudgeConfig, LoopConfig
from reliability.loops.transcript import answer_turn, calls_turn, carries_history, read_turns
from reliability.loops.trim_repetition import trim_repetition
from reliability.loops.written import find_repeated_calls

__all__ = [
    "JudgeConfig",
    "JudgeRequest",
    "Kept",
    "Kind",
    "Loop",
    "LoopConfig",
    "LoopDetector",
    "LoopStatus",
    "Memo",
    "Result",
    "Scan",
    "SeenCall",
    "ShownHistory",
    "Stage",
    "StuckCase",
    "Trouble",
    "Turn",
    "Window",
    "answer_turn",
    "calls_turn",
    "carries_history",
    "find_case",
    "find_kept_loop",
    "find_loop",
    "find_repeated_calls",
    "finish",
    "injection",
    "join_turns",
    "judge_request",
    "keep_answer",
    "nudge",
    "observe",
    "open_scan",
    "read_shown",
    "read_suggestion",
    "read_turns",
    "step",
    "trim_repetition",
    "truncate",
]
