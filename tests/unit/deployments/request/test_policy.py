"""What the configuration says about one request."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.config.app_config import RouterConfig, ServerConfig
from deployments.errors import ApiError
from deployments.request import policy
from deployments.request.policy import READ_LOCALLY, chain_for, chain_of, hold_of, limits_of, note_unread
from deployments.tiers.mlx.mlx_tier import _NEUTRAL
from deployments.tiers.mlx.sampling import _BOUNDS
from reliability.confidence import Calibration, ModelCalibration
from reliability.config import ReliabilityConfig, StreamingConfig
from reliability.tools import ToolBox
from reliability.types import ChatRequest, Hold
from tests.support.judgements import BOX
from tests.support.run_values import request_of


def test_only_mlx_tiers_are_asked_for_a_grammar():
    """The ladder's constrained re-ask is for the kind of tier that decodes here; a hosted one can't be made to."""
    config = RouterConfig(reliability=ReliabilityConfig(), server=ServerConfig())
    kinds = {"fast": "mlx", "standard": "scripted", "longctx": "mlx", "premium": "hosted"}

    assert limits_of(config, kinds=kinds).grammars == {"fast", "longctx"}
    assert limits_of(config).grammars == frozenset()


SAID = [
    {"role": "assistant", "content": "I have changed the file as you said."},
    {"role": "user", "content": "continue"},
]


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("held", ["tool_calls", "all"])
def test_a_conversation_that_repeats_itself_is_held(count, held):
    """A text that has left can't be taken back, so the answer that may be the third of its kind waits until it has been
    judged; every other one streams."""
    reliability = ReliabilityConfig(streaming=StreamingConfig(hold=Hold(held)))
    config = RouterConfig(reliability=reliability, server=ServerConfig())
    request = request_of("", messages=({"role": "user", "content": "Change it."}, *SAID * count))
    expected = policy.build_expected(config, request, ToolBox())

    assert hold_of(config, expected, stream=True) is (Hold.ALL if count >= 2 else Hold(held))
    assert hold_of(config, expected, stream=False) is Hold.ALL
    off = replace(expected, loops=None)
    assert hold_of(config, off, stream=True) is Hold(held)
    forced = replace(off, forced=BOX.tools[0])
    assert hold_of(config, forced, stream=True) is Hold.ALL


SHARES = {"fast": 0.13, "standard": 0.44, "longctx": 0.59}


@pytest.mark.parametrize(("least", "ready", "start"), [
    (0.25, {"standard"}, "standard"), (0.25, {"longctx"}, "standard"), (0.25, set(), "fast"), (0.25, {"fast"}, "fast"),
    (0.5, {"premium"}, "standard"), (0.0, {"standard"}, "fast"),
])  # fmt: skip
def test_who_is_seldom_right_is_not_asked_for_calls(least, ready, start):
    """Law: a request with tools begins behind the tiers whose calls would nearly all be in doubt, where one there is
    ready; a request without tools, and one that names its tier, begin as they do."""
    config = config_with({"claude-*": "auto"})
    confidence = config.reliability.escalation.confidence.model_copy(update={"min": least})
    escalation = config.reliability.escalation.model_copy(update={"confidence": confidence})
    config = config.model_copy(update={"reliability": config.reliability.model_copy(update={"escalation": escalation})})
    known = {tier: ModelCalibration(right=Calibration(share=share)) for tier, share in SHARES.items()}

    def begin(model: str, **fields: Any) -> str:
        return chain_of(config, TIERS, model, request_of("Do it.", **fields), known.get, ready.__contains__)[0]

    tools = ({"type": "function", "function": {"name": "f"}},)
    assert begin("auto", tools=tools) == begin("claude-opus-4", tools=tools) == start
    assert begin("auto", tools=()) == begin("fast", tools=tools) == "fast"


def config_with(aliases: dict[str, str]) -> RouterConfig:
    return RouterConfig(reliability=ReliabilityConfig(), server=ServerConfig(aliases=aliases))


TIERS = ("fast", "standard", "longctx", "premium")


@pytest.mark.parametrize(
    ("aliases", "model", "starts_at"),
    [
        ({}, "claude-sonnet-4-6", "fast"),
        ({}, "gpt-4o-mini", "fast"),
        ({"claude-*": "longctx"}, "claude-opus-5", "longctx"),
        ({"claude-*": "longctx", "claude-haiku*": "standard"}, "claude-haiku-4-5", "standard"),
        ({"claude-haiku*": "standard", "claude-*": "longctx"}, "claude-haiku-4-5", "standard"),
        ({"claude-*": "longctx", "claude-haiku-4-5": "premium"}, "claude-haiku-4-5", "premium"),
        ({"*": "standard"}, "whatever", "standard"),
        ({"*": "standard"}, "longctx", "longctx"),
        ({"*": "standard"}, "auto", "fast"),
        ({"fast": "premium"}, "fast", "premium"),
    ],
)
def test_a_name_is_an_alias_a_tier_or_the_pattern_that_says_most_of_it(aliases, model, starts_at):
    """Just this name goes first, then tiers and `auto`, then the longest pattern, whatever their order; agents' own
    names begin at the head of the chain where nobody says otherwise."""
    assert chain_for(config_with(aliases), TIERS, model)[0] == starts_at


@pytest.mark.parametrize("model", ["gpt", "claude", "my-claude-3", "llama-3"])
def test_other_names_are_unknown(model):
    """A 404 that lists what there is."""
    with pytest.raises(ApiError, match="there is no model") as refused:
        chain_for(config_with({"mine-*": "fast"}), TIERS, model)

    assert refused.value.status == 404


def start_config(*rules: dict[str, Any], enabled: bool = True) -> RouterConfig:
    escalation = {"chain": list(TIERS), "start_at": list(rules), "enabled": enabled}
    return RouterConfig.model_validate({"reliability": {"escalation": escalation}})


def asking(tools: int = 0, messages: int = 1, text: str = "hi") -> ChatRequest:
    function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    said = ({"role": "user", "content": text},) * messages
    return request_of("", messages=said, tools=({"type": "function", "function": function},) * tools)


@pytest.mark.parametrize(
    ("rule", "fitting", "other"),
    [
        ({"tools_min": 2}, asking(tools=2), asking(tools=1)),
        ({"messages_min": 3}, asking(messages=3), asking(messages=2)),
        ({"prompt_bytes_min": 5_000}, asking(text="x" * 5_000), asking(text="x" * 100)),
        ({"tools_min": 1, "messages_min": 2}, asking(tools=1, messages=2), asking(tools=1)),
    ],
)
def test_a_request_starts_where_a_rule_says(rule, fitting, other):
    """With all that the rule names; others start at the head, and so does whoever names a tier."""
    config = start_config({"tier": "longctx"} | rule)

    assert chain_of(config, TIERS, "auto", fitting)[0] == "longctx"
    assert chain_of(config, TIERS, "auto", other) == chain_for(config, TIERS, "auto")
    assert chain_of(config, TIERS, "fast", fitting) == chain_for(config, TIERS, "fast")


def test_the_first_rule_that_fits_counts():
    """In the order of the configuration; without escalation none does."""
    rules = (
        {"tier": "premium", "tools_min": 9},
        {"tier": "longctx", "tools_min": 1},
        {"tier": "standard", "tools_min": 1},
    )

    assert chain_of(start_config(*rules), TIERS, "auto", asking(tools=2))[0] == "longctx"
    assert chain_of(start_config(*rules), TIERS, "auto", asking(tools=9))[0] == "premium"
    assert chain_of(start_config(*rules, enabled=False), TIERS, "auto", asking(tools=9)) == ("fast",)


def test_a_rule_needs_a_feature():
    """One that fits everything is a mistake: the chain says that."""
    with pytest.raises(ValueError, match="start_at: a rule needs"):
        start_config({"tier": "longctx"})


KINDS = {"fast": "mlx", "standard": "scripted", "premium": "hosted"}


@pytest.mark.parametrize("chain", [("fast",), ("standard",), ("fast", "premium"), ("premium",)])
@pytest.mark.parametrize(
    ("extra", "noted"),
    [
        ({}, ""),
        (
            {"web_search_options": {}, "moderation": {"model": "m"}, "made_up": 0},
            "web_search_options, moderation, made_up",
        ),
        ({"web_search_options": None}, ""),
        (dict.fromkeys(READ_LOCALLY | policy.WORDLESS, 1), ""),
    ],
)
def test_fields_that_only_hosted_tiers_read_are_noted(chain, extra, noted):
    """Law: where a tier that isn't hosted may answer, a note names the fields that it can't act on. Those it reads,
    those that change no words, and null leave none, and nothing does where all tiers are hosted."""
    request = request_of("x", extra=extra)
    wanted = (f"only hosted tiers read: {noted}",) if noted and chain != ("premium",) else ()

    assert note_unread(request, chain, KINDS) == wanted
    assert note_unread(replace(request, route="/embeddings"), chain, KINDS) == ()


def test_what_an_mlx_tier_reads_is_listed():
    """Law: no field that an `mlx` tier acts on, or refuses, is called one of hosted tiers."""
    own = {name for name, _, _ in _BOUNDS} - {"temperature", "top_p"}

    assert own | _NEUTRAL.keys() <= READ_LOCALLY
