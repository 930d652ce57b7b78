"""What each architecture must do on the engine: a check for each aspect. A check raises `Difference`."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from unittest import mock

from deployments.tiers.mlx.decoding import generators
from deployments.tiers.mlx.decoding.lookup import DraftPolicy, Guess, Offer
from deployments.tiers.mlx.job_builder import JobBuilder
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.prompt_cache.prompt_cache import PromptReuse
from reliability.types import CallDelta, ChatRequest, Failed, Fault, Text
from tests.support.model_configs import TOKENS
from tests.support.model_configs import compare as compare_layout
from tests.support.tier_asking import ask
from tests.zoo.families import Family
from tests.zoo.rig import CHUNK_TOKENS, TOLERANCE, Asked, Difference, Stage, compare, make_prompt

SLACK_TOKENS = 32  # fewer aren't written to disk
SCHEMA = {"type": "object", "properties": {"n": {"enum": [7, 8, 42]}}, "required": ["n"], "additionalProperties": False}
JSON = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "go", "parameters": SCHEMA}}


@dataclasses.dataclass
class Specimen:
    """A configuration's model, what is expected of its family, and a folder for what it writes."""

    name: str
    family: Family
    loaded: Loaded
    folder: Path

    @cached_property
    def stage(self) -> Stage:
        """The batch of all checks that don't need one of their own."""
        return Stage(self.loaded)

    def prompt(self, tokens: int, of: str) -> list[int]:
        """Make a prompt that no other check has: `of`."""
        return make_prompt(tokens, f"{self.name} {of}")

    def require(self, name: str, found: object, wanted: object) -> None:
        """Raise `Difference` where a fact isn't as it is expected; of a range, where it isn't in it."""
        if found != wanted and not (isinstance(wanted, range) and found in wanted):
            raise Difference(f"{name}: {found}, expected {wanted}")


def check_decoding(one: Specimen) -> None:
    """It starts on the generator that is expected, and its answer is plain mlx-lm's; a changed prompt's isn't."""
    stage, prompt = one.stage, one.prompt(40, "alone")
    one.require("shared steps", stage.batch._sharing, one.family.sharing)
    shared = one.family.sharing
    one.require("batched as alone", stage.loaded.batched_as_alone, shared is not generators.Sharing.NONE)
    warned = "one at a time" in str(stage.loaded.warning)
    one.require("a warning of it", warned, shared is not generators.Sharing.ALL)
    one.require("a cache that can be cut", stage.loaded.cuttable, one.family.cuts)
    one.require("draft tokens", isinstance(stage.batch._generator, generators._LookupGenerator), one.family.drafts)
    answer = stage.answer(prompt)
    stage.check(answer)
    prompt[-9] = prompt[-9] % 200 + 7
    if compare(one.loaded.model, prompt, answer.tokens, answer.logprobs) <= TOLERANCE:
        raise Difference("another prompt makes no difference, so this proves nothing")


def check_batching(one: Specimen) -> None:
    """Answers that begin together or later, next to an aborted one and after a failed step, are what they are alone."""
    stage = one.stage
    answers = [stage.ask(one.prompt(tokens, f"batch {tokens}"), 12) for tokens in (9, 20)]
    stage.run(3)
    answers += [stage.ask(one.prompt(tokens, f"batch {tokens}"), 12) for tokens in (70, 45, 7)]
    stage.run(4)
    stage.abort(answers[0])
    stage.run(3)
    stage.batch.recover(Failed(fault=Fault.SERVER_ERROR, message="a failed step"))
    stage.run()
    one.require("tokens of the others", [len(answer.tokens) for answer in answers[1:]], [12] * 4)
    stage.check(*answers)


def check_reuse(one: Specimen) -> None:
    """The next turn, another end behind a checkpoint, and a prompt that was left half-way: each reuses what it can."""
    stage, prompt = one.stage, one.prompt(100, "reuse")
    first = stage.answer(prompt, reuse=PromptReuse(checkpoints=[40]))
    turn = stage.answer([*prompt, *first.tokens, *one.prompt(20, "turn")])
    edit = stage.answer([*prompt[:60], prompt[60] % 200 + 7, *one.prompt(30, "edit")])
    half = one.prompt(100, "half")
    left = stage.ask(half)
    stage.run(3)
    stage.abort(left)
    again = stage.answer(half)
    stage.check(first, turn, edit, again)
    one.require("cached for the next turn", turn.cached_tokens, range(107, 109))
    one.require("cached for the edit", edit.cached_tokens, 60 if one.family.cuts else 40)
    one.require("cached of what was left", again.cached_tokens, range(2 * CHUNK_TOKENS, 100))


def check_disk(one: Specimen) -> None:
    """A successor finds on disk what memory would have: the next turn, and another end behind a checkpoint."""
    prompt, disk = one.prompt(130, "disk"), one.folder / "prompts"
    stage = Stage(one.loaded, disk=disk)
    first = stage.answer(prompt, reuse=PromptReuse(checkpoints=[100]))
    turn, edit = [*prompt, *first.tokens, *one.prompt(20, "disk turn")], [*prompt[:110], *one.prompt(30, "disk edit")]
    for tokens, held in ((turn, 130), (edit, 110 if one.family.cuts else 100)):
        stage.batch.prompts.close(10.0)
        stage, least = Stage(one.loaded, disk=disk), held if one.family.stored else 0
        answer = stage.answer(tokens)
        stage.check(answer)
        one.require("cached from disk", answer.cached_tokens, range(least - SLACK_TOKENS, least + 9) if least else 0)


def check_resuming(one: Specimen) -> None:
    """An answer that another model has begun goes on within its last word, which is spelled and not sent again."""
    begun = "It is not the critic who cou"
    answer, text = _ask(one.stage, ask("Go on.", begun=begun, max_tokens=8))
    one.stage.check(answer)
    one.require("sent again", text.startswith("cou"), False)


def check_guesses(one: Specimen) -> None:
    """With draft tokens, right and wrong ones, two sequences of different length get what they get without."""
    if not one.family.drafts:
        return
    prompts = [one.prompt(tokens, f"guess {tokens}") for tokens in (30, 9)]
    plain = [one.stage.answer(prompt, 24) for prompt in prompts]
    known = [[*answer.prompt, *answer.tokens] for answer in plain]
    with mock.patch.object(generators, "PromptLookup", partial(Oracle, known)):
        stage = Stage(one.loaded)
        stage.batch._policy = stage.batch._generator._policy = Eager()
        drafted = [stage.ask(prompt, 24) for prompt in prompts]
        stage.run()
    stage.check(*plain, *drafted)
    one.require("the tokens", [answer.tokens for answer in drafted], [answer.tokens for answer in plain])
    made = stage.batch._generator
    one.require("right guesses", made.right_tokens, range(1, made.guessed_tokens))


def check_grammar(one: Specimen) -> None:
    """Under a grammar, JSON and a call are what was asked for, and the allowed tokens are weighed as without it."""
    stage = Stage(one.loaded, ends=True)
    blank = {str(token): -100 for token in one.loaded.tokenizer.encode(" \t\r\n", add_special_tokens=False)}
    for wanted in ({"response_format": JSON}, {"tools": (TOOL,), "tool_choice": "required"}):
        request = ask("How many?", max_tokens=120, extra={"logit_bias": blank}, **wanted)
        answer, text = _ask(stage, request)
        stage.check(answer)
        calls = [event for event in answer.events if isinstance(event, CallDelta)]
        made = json.loads("".join(call.arguments for call in calls) if request.tools else text)
        one.require("the number", made["n"] in (7, 8, 42), True)


def check_layout(one: Specimen) -> None:
    """What is counted for a sequence, before the model is loaded and by the engine, is what its caches take."""
    needs, real = compare_layout(one.name)
    for counted in (needs, one.stage.batch._budget.layout.sequence_bytes(TOKENS)):
        one.require("hundredths of the bytes that are counted", round(100 * counted / real), range(90, 111))


def check_windows(one: Specimen) -> None:
    """A prompt that is as long as a window, or longer by one or by several chunks, is read as it is at once."""
    one.stage.check(*(one.stage.answer(one.prompt(tokens, f"window {tokens}"), 20) for tokens in (16, 17, 70)))


def _ask(stage: Stage, request: ChatRequest) -> tuple[Asked, str]:
    job, _ = JobBuilder(stage.loaded, temperature=None, reasoning_tokens_max=None).build(request, print)
    answer = stage.add(job)
    stage.run()
    return answer, "".join(event.text for event in answer.events if isinstance(event, Text))


class Eager(DraftPolicy):
    """Reads as many draft tokens as there are, whatever that costs."""

    def choose_count(self, offers: Sequence[Offer]) -> int:
        return max((one.count for one in offers), default=0)


class Oracle:
    """Stands in for `Lookup`: guesses up to three tokens of a known sequence, and a wrong one."""

    def __init__(self, known: Sequence[list[int]], tokens: Sequence[int]) -> None:
        self._known, self._text = known, list(tokens)

    def append(self, token: int) -> None:
        self._text.append(token)

    def find(self, count: int) -> Guess | None:
        place = len(self._text)
        line = next((line for line in self._known if line[:place] == self._text), [])[place:]
        right, wrong = line[: place % 4], [token % 200 + 7 for token in line[place % 4 :][:1]]
        return Guess([*right, *wrong][:count], 9) if line else None


ASPECTS: dict[str, Callable[[Specimen], None]] = {
    "decoding": check_decoding,
    "batching": check_batching,
    "reuse": check_reuse,
    "disk": check_disk,
    "resuming": check_resuming,
    "guesses": check_guesses,
    "grammar": check_grammar,
    "layout": check_layout,
    "windows": check_windows,
}
