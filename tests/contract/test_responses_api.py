"""`POST /v1/responses` on a real server, with the real openai client."""

from typing import Any

import openai
import pytest
from pydantic import BaseModel

from tests.support import scripts
from tests.support.http_asking import WEATHER_TOOLS

WEATHER: Any = {"type": "function", **WEATHER_TOOLS[0]["function"]}


@pytest.fixture(scope="module")
def server(deploy):
    args = scripts.args(scripts.TWO)
    knows: Any = {"when": {"tool_result": "sunny", "transcript": "weather"}, "answer": "{{tool_result}}, turn {{turn}}"}
    made: Any = {"when": {"last_user": "as json"}, "answer": '{"name": "Paris", "people": 2}'}
    args["tiers"]["fast"]["script"][:0] = [knows, made]
    return deploy(args, "responses")


def test_the_last_event_has_the_report(server):
    """The report of the request stands beside the fields of the last event."""
    with server.client() as client:
        last = list(client.responses.create(model="auto", input="hi", stream=True))[-1]

    assert (last.type, last.mlx_stack["tier"]) == ("response.completed", "fast")


def test_a_conversation_goes_on(server):
    """`previous_response_id` brings the conversation along: the tier sees what was asked, called and answered before,
    and the session is the first one's."""
    with server.client() as client:
        first = client.responses.with_raw_response.create(model="auto", input="weather", tools=[WEATHER])
        (call,) = [item for item in first.parse().output if item.type == "function_call"]
        given: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
        second = client.responses.with_raw_response.create(
            model="auto", input=given, previous_response_id=first.parse().id
        )

    assert second.parse().previous_response_id == first.parse().id
    assert second.headers["x-mlx-stack-session"] == first.headers["x-mlx-stack-session"]
    assert second.parse().output_text == "sunny, turn 2"


def test_a_stored_response_is_read_listed_and_deleted(server):
    """What was answered is read again as it was; its input is listed; once deleted it is gone, and can't be gone on
    from."""
    with server.client() as client:
        made = client.responses.create(model="auto", input="hi", instructions="Be good.")
        read = client.responses.retrieve(made.id)
        (item,) = client.responses.input_items.list(made.id).data
        client.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError, match="not found"):
            client.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError, match=f"Previous response with id '{made.id}' not found") as caught:
            client.responses.create(model="auto", input="more", previous_response_id=made.id)

    assert read == made
    assert (item.role, item.content[0].text) == ("user", "hi")
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


class City(BaseModel):
    """What an answer is parsed into."""

    name: str
    people: int


def test_an_answer_is_parsed(server):
    """`text_format` asks for a schema, and the client makes an object of the answer."""
    with server.client() as client:
        parsed = client.responses.parse(model="auto", input="as json", text_format=City)

    assert parsed.output_parsed == City(name="Paris", people=2)


def test_the_input_is_listed_in_pages(server):
    """The newest first, or the oldest, from any item on, so many at a time."""
    texts = [f"text {number}" for number in range(5)]
    with server.client() as client:
        made = client.responses.create(model="auto", input=[{"role": "user", "content": text} for text in texts])
        items = client.responses.input_items
        down = [item.content[0].text for item in items.list(made.id, limit=2)]
        up = [item.content[0].text for item in items.list(made.id, limit=2, order="asc")]
        with pytest.raises(openai.BadRequestError):
            items.list(made.id, after="nobody")
        with pytest.raises(openai.BadRequestError):
            items.list(made.id, limit=0)

    assert (down, up) == (texts[::-1], texts)
