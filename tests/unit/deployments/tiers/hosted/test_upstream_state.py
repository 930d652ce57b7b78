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
# Of the request, in words that come near.
TOO_LONG = [
    "Too many tokens in the prompt",
    "too many tokens: size limit exceeded by 1234 tokens. Try using shorter or fewer inputs.",
    BOTOCORE.format("ValidationException") + "Input is too long for requested model.",
]
# LM Studio's, and what comes near.
GONE = [
    "Model is unloaded.",
    "The model has crashed without additional information. (Exit code: 18446744072635812000)",
    'Failed to load model "gpt-oss-20b". Error: Error loading model.',
]
EMPTY = ["No models loaded. Please load a model in the developer page or use the 'lms load' command."]
REFUSED = [
    "Invalid 'tools': the model is unloaded by `unload`",
    "No models loaded this schema",
    "The tool has crashed without additional information",
    "Failed to load model settings",
]
EVERYWHERE = BODIES | BROKEN | LATE
SAID = [
    *((Fault.OVERLOADED, *one) for one in product(THROTTLED, EVERYWHERE)),
    *((Fault.CONTEXT_LENGTH, *one) for one in product(TOO_LONG, EVERYWHERE)),
    *((Fault.SERVER_ERROR, *one) for one in product(GONE, BODIES)),
    *((Fault.UNAVAILABLE, *one) for one in product(EMPTY, BODIES)),
    *((Fault.REFUSED, *one) for one in product(REFUSED, BODIES)),
]


@pytest.mark.parametrize(("fault", "said", "place"), SAID)
def test_what_an_upstream_says_of_itself_is_its_fault(upstream: Upstream, fault: Fault, said: str, place: str) -> None:
    """Law: where an upstream has too much to do, no agent condenses its conversation for it; a model that it has lost
    is a fault of the tier; words that come near say nothing of it."""
    assert failed(play(upstream, EVERYWHERE[place](said))).fault is fault


@pytest.mark.parametrize("said", [*GONE, *EMPTY, *THROTTLED, "Incorrect API key provided: sk-x."])
@pytest.mark.parametrize("status", [400, 422])
def test_no_quoted_words_open_a_breaker(said: str, status: int) -> None:
    """Law: the same words, quoted from the request, feed no breaker."""
    asked = json.dumps({"messages": [{"role": "user", "content": f"What is {said.upper()}?"}]}).encode()
    fault = find_own_fault(status, f"Invalid value: '{said}'", lambda: asked)

    assert fault is not None
    assert TRAITS[fault].verdict is Verdict.IGNORED
