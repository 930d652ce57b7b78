"""What an upstream says of itself, wherever the words stand."""

import json
from itertools import product

import pytest

from deployments.tiers.hosted.upstream_state import find_own_fault
from reliability.faults import TRAITS
from reliability.types import Fault, Verdict
from tests.support.refusal_places import BODIES, BROKEN, LATE
from tests.support.tier_asking import failed, play
from tests.support.upstream import Upstream

BOTOCORE = "An error occurred ({}) when calling the ConverseStream operation (reached max retries: 8): "
# Bedrock's, from its own API, botocore and gateways.
THROTTLED = [
    "Too many tokens, please wait before trying again.",
    "Too many tokens per day, please wait before trying again.",
    "Too many requests, please wait before trying again.",
    "429: " + BOTOCORE.format("ThrottlingException") + "Too many tokens, please wait before trying again.",
    BOTOCORE.format("throttlingException") + "Your request rate is too high.",
]
# LM Studio's.
GONE = {
    "Model is unloaded.": Fault.SERVER_ERROR,
    "The model has crashed without additional information. (Exit code: 18446744072635812000)": Fault.SERVER_ERROR,
    'Failed to load model "gpt-oss-20b". Error: Error loading model.': Fault.SERVER_ERROR,
    "No models loaded. Please load a model in the developer page or use the 'lms load' command.": Fault.UNAVAILABLE,
}
# Of the request, in words that come near.
TOO_LONG = [
    "Too many tokens in the prompt",
    "too many tokens: size limit exceeded by 1234 tokens. Try using shorter or fewer inputs.",
    BOTOCORE.format("ValidationException") + "Input is too long for requested model.",
]
REFUSED = [
    "Invalid 'tools': the model is unloaded by `unload`",
    "No models loaded this schema",
    "The tool has crashed without additional information",
    "Failed to load model settings",
]


@pytest.mark.parametrize(("said", "place"), list(product(THROTTLED, BODIES | BROKEN | LATE)))
def test_a_throttle_is_no_prompt_that_is_too_long(upstream: Upstream, said: str, place: str) -> None:
    """Law: where an upstream has too much to do, no agent condenses its conversation for it, whatever it counts."""
    fault = failed(play(upstream, (BODIES | BROKEN | LATE)[place](said))).fault

    assert fault is Fault.OVERLOADED


@pytest.mark.parametrize(("said", "place"), list(product(TOO_LONG, BODIES | BROKEN | LATE)))
def test_a_prompt_that_is_too_long_is_no_throttle(upstream: Upstream, said: str, place: str) -> None:
    """Law: the words of a limit of the prompt stay one."""
    fault = failed(play(upstream, (BODIES | BROKEN | LATE)[place](said))).fault

    assert fault is Fault.CONTEXT_LENGTH


@pytest.mark.parametrize(("said", "place"), list(product(GONE, BODIES)))
def test_a_model_that_is_gone_is_no_mistake_of_the_request(upstream: Upstream, said: str, place: str) -> None:
    """Law: LM Studio's 400 for a model that it has lost is a fault of the tier, which is asked once more or left."""
    assert failed(play(upstream, BODIES[place](said))).fault is GONE[said]


@pytest.mark.parametrize(("said", "place"), list(product(REFUSED, BODIES)))
def test_a_request_that_is_refused_is_no_tier_that_is_unwell(upstream: Upstream, said: str, place: str) -> None:
    """Law: words that come near say nothing of the tier."""
    assert failed(play(upstream, BODIES[place](said))).fault is Fault.REFUSED


@pytest.mark.parametrize("said", [*GONE, *THROTTLED, "Incorrect API key provided: sk-x."])
@pytest.mark.parametrize("status", [400, 422])
def test_no_quoted_words_open_a_breaker(said: str, status: int) -> None:
    """Law: the same words, quoted from the request, feed no breaker."""
    asked = json.dumps({"messages": [{"role": "user", "content": f"What is {said.upper()}?"}]}).encode()
    fault = find_own_fault(status, f"Invalid value: '{said}'", lambda: asked)

    assert fault is not None
    assert TRAITS[fault].verdict is Verdict.IGNORED
