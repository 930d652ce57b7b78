"""ONE table of the formats in which models write their calls as text: a row per family.

    examples  a call of `search` with {"query": "x"}, as the family writes it, in each of its forms
    opens     regular expressions of what says that a call begins; how it is read follows from `reader`
    closes    what ends it
    holds     what the gate holds until it is known whether it opens a call (`Start`); None: `opens`, as they are
    reader    who reads it (`extract/` has the readers); None: nobody, it is only known as a repetition
    place     where `opens` counts: anywhere, or only where a line begins
    named     `opens` stands behind a name: `search[ARGS]{...}`
    explicit  `opens` says by itself that this is a call; where it doesn't, only a declared name does
    endless   no `closes` is missed at the end
    compared  what begins a call that the loop check compares with the others of the same answer
    writes    the opener and the closer with which this server writes a call itself

The rows are written down in two files and joined here, in order: the envelopes (`format_envelopes.py`), then the
notations (`format_notations.py`). What rows of both share stands in `format_parts.py`, what a row is made of in
`format_row.py`. Of two rows of one `place` that open at the same spot, extraction takes the first.

An *envelope* stands around calls. Models mix envelopes up (a wrong special token, a missing one), so any opener of
one goes with any closer, and any notation may stand between: what counts is what is written there.

Who reads it: the gate (`reliability.answer.call_starts`), which sees a text in pieces; the extraction, which sees all
of it; the loop check inside an answer (`reliability.loops.written`); the grammar
(`deployments.tiers.mlx.grammar.lark`), which writes the form of the first row. `delimiters.py` has the table's
expressions, compiled. What a model only thinks is no call: `format_reasoning.py` has the marks of reasoning.

The expressions in `holds` (and in `opens` where they are held as they are) are rows of single characters and sets of
characters, each with at most a `?` or `{n,m}` behind it, so that `delimiters.beginnings` can say of a cut text whether
it may still become one. White space and names are bounded; delimiters are compared without case, words to the
letter.

What must never happen: a call in a streamed answer that is none in the complete one, or the other way round, or a
part of a call that leaves as text. A word that begins a call is held, and belongs to it, where a line or a sentence
begins (`Place`): to hold it everywhere would delay each "a" and "to" of ordinary prose. In the middle of a sentence it
is a word of the sentence, streamed or not, and the call behind it is a call.
"""

from __future__ import annotations

from reliability.tools.format_envelopes import ENVELOPES, HERMES
from reliability.tools.format_notations import NOTATIONS
from reliability.tools.format_parts import DSML
from reliability.tools.format_row import Format

__all__ = ["CALL_FORMATS", "FRAME_FENCE", "FRAME_TAG", "HERMES", "INNER_CLOSES", "SPEECH_ENDS"]

CALL_FORMATS: tuple[Format, ...] = (*ENVELOPES, *NOTATIONS)

# What may frame a call without being a delimiter: a code fence, or any tag that is closed behind it.
FRAME_FENCE = r"`{3,8}[\w+.#-]{0,32}"
FRAME_TAG = r"<\|?[A-Za-z][\w:-]{0,40}\|?>"
# What closes a part of a call: with nothing like a call before it, it is lost.
INNER_CLOSES = tuple(
    rf"</{space}{name}>"
    for space in ("", r"\w{1,32}:", DSML)
    for name in ("parameter", "param", "function", "invoke", "arg_key", "arg_value")
)
# What ends whatever a model says, a call or not.
SPEECH_ENDS = (r"<\|call\|>", r"<\|eom_id\|>", r"<\|eot_id\|>", r"<\|im_end\|>", r"<\|end\|>", r"<\|return\|>")
