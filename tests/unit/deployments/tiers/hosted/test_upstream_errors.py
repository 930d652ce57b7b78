"""Refusals with a 400, a 413 or a 422: what only this tier can't do is another tier's to try, what the client got wrong
ends the walk."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.history_repair import HistoryForm
from deployments.tiers.hosted.upstream_errors import _STATUS_BY_CODE, read_complaint, translate_complaint, wants_softer
from reliability.faults import TRAITS
from reliability.types import Fault, Finish, FinishReason, Verdict
from tests.support import plays
from tests.support.tier_asking import failed, play, text_of

CONTEXT = [
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "Input length 40000 exceeds model's maximum length of 32768",
    "Prompt length (9000) exceeds the maximum length of 8192",
    "'max_tokens' is too large: 8192. This model's maximum context length is 4096 tokens and you have 9",
    # Moonshot, Moonshot again, vLLM, Bedrock, Vertex, Volcengine, SambaNova, Baidu, Zhipu.
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 271923)",
    "model max length exceeded, max length:8192",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
    "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576.",
    "Total tokens of image and text exceed max message tokens",
    "The provided prompt is 5000 tokens long, but the maximum supported sequence length is just 4096!",
    "the max input characters is 11200",
    "This model's maximum context length is 4096 tokens, but your prompt with 2 images has 5000",
    "messages token length exceeds the limit of 4096",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try a shorter prompt",
    "too many tokens: the text exceeds max tokens 4096",
    # Zhipu, SiliconFlow, SiliconFlow of prompt and answer, Qianfan, TabbyAPI, Novita, iFlytek.
    "Prompt exceeds max length",
    "length of prompt_tokens (57535) must be less than max_seq_len (32768).",
    "max_total_tokens (33802) must be less than or equal to max_seq_len (32768)",
    "Prompt tokens too long",
    "Prompt length 9500 is greater than max_seq_len 8192",
    "total token length of 140000 exceeds max_tokens 131072",
    "token total length exceeds the limit",
    "输入内容超出最大长度",
    "上下文长度超限",
]
# The answer's tokens, which no shorter prompt changes: DeepSeek, Groq, Bedrock, Cohere.
ANSWERS = [
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "The maximum tokens you requested exceeds the model limit of 32768",
    "max_tokens exceeds the limit of 8192",
    "too many tokens: max tokens must be less than or equal to 4096, the maximum output length for this model.",
]
CREDENTIALS = [
    "API key not valid. Please pass a valid API key.",
    "API key expired. Please renew the API key.",
    "Incorrect API key provided: sk-x.",
    "Your credit balance is too low to access the API.",
]
UNSUPPORTED = [
    "max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192.",
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "gemma3:1b does not support tools",
    # Of an image or a file: LM Studio, llama.cpp, vLLM, Ollama, mlx_lm.server, OpenRouter, DeepSeek, OpenAI, Anthropic.
    "'content' objects must have a 'type' field that is either 'text' or 'image_url'.",
    "unsupported content[].type",
    "Unknown part type: file",
    "qwen3-8b is not a multimodal model",
    "At most 0 image(s) may be provided in one prompt.",
    "Failed to process inputs: this model is missing data required for image input",
    "Only 'text' content type is supported.",
    "No endpoints found that support image input",
    "Failed to deserialize the JSON body: messages[1]: unknown variant `image_url`, expected `text`",
    "Invalid content type. image_url is only supported by certain models.",
    "Could not process image",
    "Prompt tokens limit exceeded: 36163 > 29652. To increase, visit https://openrouter.ai/settings/credits and",
]
MISTAKES = [
    "Invalid value: 'robot'. Supported values are: 'system', 'assistant', 'user', and 'tool'.",
    "Invalid schema for function 'f': 'strin' is not valid under any of the given schemas.",
    "Invalid schema for function 'f': api_key is not valid under any of the given schemas.",
    "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
    "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead.",
    "Invalid 'messages[0].name': string too long. Expected a string with maximum length 64, but got length 100.",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got length 200.",
    "Missing required parameter: 'messages[1].tool_call_id'.",
    "Input should be a valid list",
    "",
    # Limits of pictures, of stop sequences, of how many messages there are, of schemas, and of money.
    "Too many images in request: maximum input images is 5",
    "At most 1 image(s) may be provided in one prompt. maximum input exceeded",
    "Image input tokens exceeded",
    "input tokens: image too large, exceeds 5 MB maximum",
    "Maximum sequence length for stop is 4",
    "stop: maximum sequence length exceeded",
    "messages length should be [1, 500]",
    "message count exceeds limit 1000",
    "Total tokens exceeded your monthly quota",
    "The prompt tokens quota has been exceeded for today",
    "Invalid schema: maximum model length of 'title' is 5",
    "Unknown field max_seq_len",
    "Prompt tokens must be a list",
    "The token total is wrong",
]
# What APIs and templates say of a conversation that another one takes, and the form that they are sent then.
CONVERSATIONS = {
    HistoryForm.NO_THOUGHTS: [
        "property 'reasoning_content' is unsupported",
        "Extra inputs are not permitted: messages.1.reasoning_content",
        "Unrecognized request argument supplied: reasoning_content",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.7.content.2: Invalid signature in thinking block",
        "Invalid JSON payload received. Unknown name \"reasoning_content\" at 'contents[1]': Cannot find field.",
        "property 'messages.1.reasoning' is unsupported",
        "messages.3.annotations: Extra inputs are not permitted",
        "['body', 'messages', 1, 'assistant', 'annotations']: Extra inputs are not permitted",
        "Unknown parameter: 'messages[2].reasoning_details'.",
    ],
    HistoryForm.ONE_SYSTEM: [
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern. Expected a string",
        "Invalid 'messages[1].tool_calls[0].function.name': empty string. Expected a string with minimum length 1",
        "* GenerateContentRequest.contents[1].parts[0].function_call.name: Name cannot be empty.",
        "messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
        "Function name was a b.c but must be a-z, A-Z, 0-9, or contain underscores and dashes",
        "Tool call id was call_a1b2 but must be a-z, A-Z, 0-9, with a length of 9.",
        "Assistant message must have either content or tool_calls, but not none.",
        "Not the same number of function calls and responses",
        "messages: text content blocks must be non-empty",
        "messages.0: all messages must have non-empty content except for the optional final assistant message",
        "Invalid type for 'messages[1].content': expected a string or array of objects, but got null instead.",
        "'messages.2' : for 'role:assistant' one of these must hold: ('messages.2.content' : must be satisfied)",
        "Unable to submit request because it must include at least one parts field, which describes the prompt input.",
        "Template error: unknown test: test iterable is unknown (in <string>:99)",
        "Value is not callable: null at row 1, column 72",
        "invalid message content type: <nil>",
        "No such role: developer",
        "Invalid value: 'developer'. Supported values are: 'system', 'assistant', 'user', and 'tool'.",
        "Message has tool role, but there was no previous assistant message with a tool call!",
        "Cannot have 2 or more assistant messages at the end of the list.",
        # xAI, Vertex, Gemini; Anthropic and OpenAI of another model's ids; gateways to Responses; Zhipu, MiniMax.
        "Invalid request content: Each message must have at least one content element.",
        "Unable to submit request because it must have a text parameter. Add a text parameter and try again.",
        "Unable to submit request because at least one contents field is required.",
        "GenerateContentRequest.contents[2].parts: contents.parts must not be empty.",
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40",
        "No tool output found for function call call_a1.",
        "No tool call found for function call output with call_id call_a1.",
        "角色信息不正确",
        "Upstream request failed: [1214] Incorrect role information",
        "messages 参数非法。请检查文档。",
        "invalid params, invalid chat setting (2013)",
    ],
    HistoryForm.IN_TURN: [
        "This model does not support successive user or assistant messages (messages[1] and messages[2]).",
        "Unexpected role 'user' after role 'tool'",
        "After the (optional) system message(s), user or tool message(s) should alternate with assistant message(s).",
        "This model only supports single tool-calls at once!",
        'messages: roles must alternate, but found multiple "user" roles in a row',
    ],
    HistoryForm.NO_SYSTEM: [
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        "Please use a valid role: user, model.",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        "This model doesn't support system messages. Try again without a system message or use another model.",
    ],
}
EXPECTED = {
    Fault.CONTEXT_LENGTH: CONTEXT,
    Fault.AUTH: CREDENTIALS,
    Fault.UNSUPPORTED: UNSUPPORTED,
    Fault.REFUSED: MISTAKES + ANSWERS,
}


def fault(status: int, message: str = "", code: object = None) -> Fault:
    complaint = read_complaint({"error": {"message": message, "code": code, "type": "invalid_request_error"}})
    return translate_complaint("t", complaint, status=status).fault


@pytest.mark.parametrize("code", [None, "INVALID_ARGUMENT"])
@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(("expected", "said"), [(one, said) for one, words in EXPECTED.items() for said in words])
def test_the_words_tell_whose_limit_it_is(expected: Fault, said: str, status: int, code: object) -> None:
    """Law: what is said tells a limit of this tier, whatever the status; other refusals may be this tier's alone."""
    assert fault(status, said, code) is expected


@pytest.mark.parametrize("noun", ["image", "picture", "video", "audio", "file"])
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Too many {}s in request: maximum input {}s is 5", Fault.REFUSED),
        ("{} input tokens exceeded", Fault.REFUSED),
        ("input tokens: {} is too large, exceeds 5 MB maximum", Fault.REFUSED),
        ("At most 3 {}s, maximum input exceeded", Fault.REFUSED),
        ("prompt is too long: 210000 tokens > 200000 maximum, with 1000 {} tokens", Fault.CONTEXT_LENGTH),
        ("maximum context length is 4096 tokens. You sent 5000 tokens and 3 {}s, too many {}s", Fault.CONTEXT_LENGTH),
        ("Total tokens of {} and text exceed max message tokens", Fault.CONTEXT_LENGTH),
    ],
)
def test_the_limit_of_an_attachment_is_none_of_the_context(said: str, expected: Fault, noun: str) -> None:
    """Law: no agent condenses its conversation for too many pictures; a prompt too long with them is too long."""
    assert fault(400, said.replace("{}", noun)) is expected


@pytest.mark.parametrize("said", CREDENTIALS)
@given(
    before=st.text(max_size=20),
    behind=st.text(max_size=20),
    change=st.sampled_from([str.lower, str.upper, str.title, lambda words: words.replace("k", "\u212a")]),
    form=st.sampled_from(["whole", "parts", "call"]),
    place=st.integers(0, 40),
)
def test_a_clients_words_say_nothing_of_the_credentials(said, before, behind, change, form, place) -> None:
    """Law: words that an upstream quotes from the request are no refusal of our credentials: they feed no breaker, and
    another tier is asked, also where they stand in parts of a text or are escaped in a call's arguments.
    The same words of the upstream's own are one."""
    words = f"{before}{change(said)}{behind}"
    arguments = "".join(f"\\u{ord(char):04x}" if char.isalpha() and char.isascii() else char for char in change(said))
    call = {"function": {"name": "f", "arguments": '{"q": "' + arguments + '"}'}}
    content: Any = [{"type": "text", "text": words[:place]}, {"type": "text", "text": words[place:]}]
    message = {"whole": {"content": words}, "parts": {"content": content}, "call": {"tool_calls": [call]}}[form]
    asked = {"messages": [{"role": "user", **message}]}
    complaint = read_complaint({"error": {"message": f"Invalid value: '{words}'"}})
    write = json.dumps(asked, ensure_ascii=False).encode

    assert translate_complaint("t", complaint, status=400, write_asked=write).fault is not Fault.AUTH
    assert fault(400, said) is Fault.AUTH


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, "JSON schema conversion failed:\nPattern must start with '^' and end with '$'"),
        (400, "Failed to parse grammar"),
        (500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"),
        (402, "This request requires more credits, or fewer max_tokens. You requested up to 32000 tokens."),
        (402, "Prompt tokens limit exceeded: 36163 > 29652. To increase, visit https://openrouter.ai/settings/credits"),
    ],
)
def test_what_one_request_asks_is_not_the_tiers_health(status: int, said: str) -> None:
    """Law: where the refusal names what this request asks, it feeds no breaker, whatever its status."""
    found = fault(status, said)

    assert found is Fault.UNSUPPORTED
    assert TRAITS[found].verdict is Verdict.IGNORED


@given(st.sampled_from([400, 413, 422]), st.sampled_from(sorted(_STATUS_BY_CODE)))
def test_a_code_says_more_than_the_status(status: int, code: str) -> None:
    """Law: where the code of a 400, 413 or 422 names another refusal, it is that one."""
    named = _STATUS_BY_CODE[code]
    if 400 < named < 500:
        assert fault(status, "no", code) is fault(named, "no", code)


@given(st.sampled_from([400, 422]), st.sampled_from(["timeout", "timeout_error"]) | st.integers(500, 599))
def test_a_code_makes_no_refusal_an_upstream_that_broke(status: int, code: object) -> None:
    """Law: who refuses is well, whatever number stands in the body."""
    assert fault(status, "no", code) is Fault.REFUSED


def test_codes_in_use() -> None:
    """Groq says a full minute with 413, gateways a model that they don't have with 400. A plain 413 is about length,
    and a tier that holds more is tried."""
    tpm = "Request too large for model `llama` on tokens per minute (TPM): Limit 6000, please reduce your message size"
    assert fault(413, tpm, "rate_limit_exceeded") is Fault.OVERLOADED
    assert fault(400, "model 'foo' not found", "model_not_found") is Fault.UNAVAILABLE
    assert fault(400, "no", "invalid_api_key") is Fault.AUTH
    assert fault(400, "no", 400) is Fault.REFUSED
    assert fault(400, "no", "tokens_too_long") is Fault.CONTEXT_LENGTH
    assert fault(400, "Tokens per minute limit exceeded", "token_quota_exceeded") is Fault.OVERLOADED
    assert fault(402, "Prompt tokens limit") is fault(402, "Insufficient credits") is Fault.AUTH
    assert fault(413, "Payload Too Large") is fault(413) is Fault.CONTEXT_LENGTH


@pytest.mark.parametrize(("form", "said"), [(form, said) for form, all_ in CONVERSATIONS.items() for said in all_])
@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_refused_conversation_is_asked_for_in_a_softer_form(form: HistoryForm, said: str, status: int) -> None:
    """Law: a refusal of roles, of what says nothing, or of how calls stand, is this tier's limit and no mistake."""
    complaint = read_complaint({"error": {"message": said}})

    assert wants_softer(status, complaint) is form
    assert fault(status, said) is Fault.UNSUPPORTED


def test_the_name_of_a_declared_tool_is_the_requests_mistake() -> None:
    """Law: no form of the conversation mends a tool that the provider refuses."""
    said = {"message": "Invalid 'tools[0].function.name': string does not match pattern"}

    assert wants_softer(400, read_complaint({"error": said})) is None


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "WORDS"}}},
        {"error": {"message": "Provider returned error", "metadata": {"raw": '{"error": {"message": "WORDS"}}'}}},
        {"error": {"message": "Provider returned error", "metadata": {"raw": '{"message": "WORDS", "code": "3230"}'}}},
        {"error": {"message": "Provider returned error", "metadata": {"raw": [{"error": {"message": "WORDS"}}]}}},
        {"object": "error", "message": {"detail": [{"loc": ["body"], "msg": "WORDS"}]}},
        {"message": {"message": "WORDS"}},
    ],
)
def test_what_a_gateway_hands_on_is_read(body: dict[str, Any]) -> None:
    """Law: the reason counts wherever it stands: OpenRouter hands its provider's body on, Mistral nests its own."""
    said = json.loads(json.dumps(body).replace("WORDS", "Conversation roles must alternate"))

    assert wants_softer(400, read_complaint(said)) is HistoryForm.IN_TURN
    assert "must alternate" in translate_complaint("t", read_complaint(said), status=400).message


KEYS = st.sampled_from(["error", "message", "metadata", "raw", "detail", "code", "type"])
VALUES = st.none() | st.text() | st.integers()


@given(st.recursive(VALUES, lambda inner: st.dictionaries(KEYS, inner) | st.lists(inner)))
def test_any_body_is_read(body: Any) -> None:
    """Law: whatever an upstream answers, there is a fault."""
    assert translate_complaint("t", read_complaint(body), status=400).fault


REFUSED_CALL = {
    "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
}


@pytest.mark.parametrize("frame", [True, False])
@pytest.mark.parametrize(
    ("written", "answers"),
    [
        ('<function=get_weather>{"city": "Paris"}</function>', True),
        ('get_weather(city="Paris")', True),
        ("Tool use failed: JSON does not match the expected schema for tool calls", False),
        ("", False),
        (None, False),
    ],
)
def test_what_an_upstream_can_t_read_as_a_call_is_the_answer(upstream, written, answers, frame) -> None:
    """Law: Groq refuses what a model wrote with a 400 that holds it: that is read here, or asked for again, as from any
    other tier; its own words are a refusal."""
    body = {"error": REFUSED_CALL | {"failed_generation": written}}
    sent = [plays.Head(headers=plays.SSE), plays.Send(b"event: error\n" + plays.frame(body))]
    events = play(upstream, tuple(sent) if frame else plays.whole(json.dumps(body).encode(), status_code=400))

    if answers:
        assert text_of(events) == written
        assert events[-1] == Finish(reason=FinishReason.TOOL_CALLS)
    else:
        assert failed(events).fault is Fault.REFUSED
