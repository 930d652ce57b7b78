"""Upstreams that refuse fields which other ones take, over real HTTP."""

import asyncio
import json
from typing import Any

import pytest

from deployments.tiers.hosted import hosted_tier as hosted_tier_module
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, read_complaint
from deployments.tiers.hosted.upstream_form import UpstreamForm
from reliability.types import Fault
from tests.support.plays import Play, Seen, good, status, whole
from tests.support.tier_asking import answer, ask, exchange, hosted_tier, text_of
from tests.support.upstream import Upstream
from tests.unit.deployments.tiers.hosted.test_field_refusals import OF_FIELDS

# What Codex, opencode and the SDKs send beside a conversation.
EXTRA: dict[str, Any] = {
    "user": "u",
    "metadata": {"a": "b"},
    "store": False,
    "prompt_cache_key": "k",
    "verbosity": "low",
    "reasoning_effort": "high",
}


def refuse(seen: Seen, fields: set[str], words: str) -> Play:
    """Refuse the first of these fields that was sent."""
    first = next((name for name in sorted(fields) if name in seen.body), None)
    return good("Fine.") if first is None else status(400, words.replace("{}", f"'{first}'"))


def notes_of(events: list[Any]) -> str:
    return " ".join(events[-1].notes)


@pytest.mark.parametrize("words", OF_FIELDS)
def test_a_field_that_changes_no_words_ends_no_session(words: str) -> None:
    """Law: what an upstream refuses of such fields, one after the other, is left out, and the report says so; the next
    request is sent without them at once."""
    told, log = exchange(lambda seen: refuse(seen, EXTRA.keys() | {"stream_options"}, words), *[ask(extra=EXTRA)] * 2)
    bodies = [seen.body for seen in log]

    assert [text_of(events) for events in told] == ["Fine."] * 2
    assert len(bodies) == len(EXTRA) + 3
    assert bodies[0].keys() - bodies[-1].keys() == EXTRA.keys() | {"stream_options"}
    assert all("takes no " + ", ".join(sorted(EXTRA)) in notes_of(events) for events in told)


def test_all_that_one_refusal_names_is_left_out_at_once() -> None:
    """Law: Mistral lists what it refuses, each field with its place."""
    detail = [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"} for name in EXTRA
    ]
    refusal = whole(json.dumps({"object": "error", "message": {"detail": detail}}).encode(), status_code=422)
    (events,), log = exchange(lambda seen: refusal if "user" in seen.body else good("Fine."), ask(extra=EXTRA))

    assert (text_of(events), len(log)) == ("Fine.", 2)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("temperature", "{} does not support 0 with this model. Only the default (1) value is supported."),
        ("temperature", "Unsupported parameter: {} is not supported with this model."),
        ("top_p", "{} is not supported with this model"),
    ],
)
def test_a_model_that_takes_no_temperature_answers_without(field: str, words: str) -> None:
    """Law: a model that reasons would refuse the request for ever; the report says that the wish has no effect."""
    (events,), _ = exchange(lambda seen: refuse(seen, {field}, words), ask(**{field: 0.2}))

    assert text_of(events) == "Fine."
    assert f"takes no {field}" in notes_of(events)


# How an API refuses one value: Groq, OpenAI, OpenAI again, FastAPI.
VALUE_WORDS = [
    "`{name}` must be one of `low`, `medium`, or `high`",
    "Unsupported value: '{name}' does not support '{value}' with this model. Supported values are: 'low' and 'high'.",
    "Invalid value: '{value}'. Supported values are: 'low', 'medium', and 'high'.",
    "['body', '{name}']: Input should be 'low', 'medium' or 'high'",
]


@pytest.mark.parametrize("words", VALUE_WORDS)
@pytest.mark.parametrize("name", ["reasoning_effort", "verbosity", "service_tier"])
def test_a_refused_value_costs_no_other_value(name: str, words: str) -> None:
    """Law: where one value of a field is refused, the field is left out with that value, at once the next time, and
    with no other one; the report names field and value."""
    values = ["high", "minimal", "high", "minimal", "low"]

    def play(seen: Seen) -> Play:
        value = seen.body.get(name)
        good_one = value in (None, "low", "medium", "high")
        return good("Fine.") if good_one else status(400, words.format(name=name, value=value), param=name)

    told, log = exchange(play, *[ask(extra={name: value}) for value in values])
    sent = [seen.body.get(name) for seen in log]

    assert [text_of(events) for events in told] == ["Fine."] * len(values)
    assert sent == ["high", "minimal", None, "high", None, "low"]
    assert [f'takes no {name} "minimal"' in notes_of(events) for events in told] == [v == "minimal" for v in values]


def test_refused_values_are_not_kept_without_end() -> None:
    """Law: whatever values clients name, what is kept of them is bounded."""
    form = UpstreamForm()
    for number in range(200):
        sent = ask(extra={"verbosity": f"{number} {'x' * 9999}"})
        form = form.learn(400, UpstreamComplaint(message="`verbosity` must be one of `low` or `high`"), sent)
        assert "verbosity" not in form.fit_fields(sent.extra)

    assert len(str(form)) < 20_000


def test_what_is_learned_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: one odd provider behind a gateway decides for an hour, not for ever, and what is learned in it has the same
    end; then the request is sent as it was asked."""
    monkeypatch.setattr(hosted_tier_module, "FORM_S", 0.8)
    refused = ["temperature", "user"]

    def play(seen: Seen) -> Play:
        return refuse(seen, {refused[0]}, OF_FIELDS[0]) if refused else good("Fine.")

    async def run(tier: HostedTier) -> None:
        await answer(tier, ask(temperature=0.2))
        await asyncio.sleep(0.5)
        refused.pop(0)
        await answer(tier, ask(temperature=0.2, extra={"user": "u"}))
        refused.pop(0)
        await asyncio.sleep(0.4)
        await answer(tier, ask(temperature=0.2, extra={"user": "u"}))
        await tier.close()

    with Upstream() as upstream:
        upstream.plays("m", play)
        asyncio.run(run(hosted_tier(upstream)))
        sent = [[name for name in ("temperature", "user") if name in seen.body] for seen in upstream.log]

    assert sent == [["temperature"], [], ["user"], [], ["temperature", "user"]]


@pytest.mark.parametrize("field", ["seed", "logit_bias", "response_format", "tools"])
def test_what_changes_the_answer_is_never_left_out(field: str) -> None:
    """Law: a field that the words of an answer depend on is another tier's to honour."""
    extra = EXTRA | {field: 1}
    (events,), log = exchange(lambda seen: refuse(seen, {field}, OF_FIELDS[0]), ask(extra=extra))

    assert events[-1].fault in (Fault.REFUSED, Fault.UNSUPPORTED)
    assert len(log) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (500, "property 'user' is unsupported"),
        (400, "the user is not supported"),
        (400, "Invalid 'user': string too long"),
        (400, ""),
    ],
)
def test_other_refusals_teach_nothing(code: int, said: str) -> None:
    """Law: only a refusal that names the field, and says that it isn't known, is one."""
    form = UpstreamForm()
    assert form.learn(code, read_complaint({"error": {"message": said}}), ask()) == form
    assert form.learn(400, UpstreamComplaint(), ask()) == form
