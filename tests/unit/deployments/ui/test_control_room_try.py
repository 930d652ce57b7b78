"""The small chat: it asks as a client does, in the name of whoever has signed in."""

import json
from html.parser import HTMLParser

from deployments.ui.control_room import _list_examples
from reliability.loops.thresholds import LoopConfig
from tests.support.room_rig import Rig, browse, find_token
from tests.unit.deployments.ui.test_page_auth import AGENT, KEYED, OWN, sign_in

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}


def test_what_it_asks_is_asked_in_the_visitor_s_name_and_nobody_else_can_ask_by_it(tmp_path):
    """The body goes on untouched, and the answer comes back. Neither without the token nor with an API key: errors have
    the API's form, since a script reads them."""
    rig = Rig(tmp_path, KEYED)
    with browse(rig) as client:
        refused = client.post("/ui/try/ask", json=BODY, headers=OWN | {"authorization": f"Bearer {AGENT}"})
        sign_in(client)
        unsigned = client.post("/ui/try/ask", json=BODY, headers=OWN)
        assert rig.asked == []
        token = find_token(client.get("/ui/try").text)
        answer = client.post("/ui/try/ask", json=BODY, headers=OWN | {"x-csrf-token": token})

    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (unsigned.status_code, unsigned.json()["error"]["code"]) == (403, "forbidden")
    assert answer.json() == {"choices": []}
    ((name, body),) = rig.asked
    assert name == "boss"
    assert b'"hi"' in body


class Examples(HTMLParser):
    """The conversations of the page's examples."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[list[dict]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if given := dict(attrs).get("data-messages"):
            self.found.append(json.loads(given))


def test_the_examples_repeat_as_often_as_the_configuration_says(tmp_path):
    """The page carries them as they are listed: a question, a nudged loop and a broken one."""
    config = LoopConfig(duplicate_threshold=2, break_threshold=4)
    with browse(Rig(tmp_path)) as client:
        shown = Examples(client.get("/ui/try").text).found

    assert shown == [one["messages"] for one in _list_examples(LoopConfig())]
    assert [len(one["messages"]) for one in _list_examples(config)] == [1, 1 + 2 * 2, 1 + 2 * 4]
