"""The small chat: it asks as a client does, in the name of whoever has signed in."""

from __future__ import annotations

from tests.support.room_rig import Rig, browse, find_token
from tests.unit.deployments.ui.test_visits import AGENT, KEYED, OWN, sign_in

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}


def test_what_it_asks_is_asked_in_the_visitor_s_name(tmp_path):
    """The body goes on untouched, and the answer comes back."""
    rig = Rig(tmp_path, KEYED)
    with browse(rig) as client:
        sign_in(client)
        token = find_token(client.get("/ui/try").text)
        answer = client.post("/ui/try/ask", json=BODY, headers=OWN | {"x-csrf-token": token})

    assert answer.json() == {"choices": []}
    ((name, body),) = rig.asked
    assert name == "boss"
    assert b'"hi"' in body


def test_nobody_else_can_ask_by_it(tmp_path):
    """Neither without the token nor with an API key: errors have the API's form, since a script reads them."""
    rig = Rig(tmp_path, KEYED)
    with browse(rig) as client:
        refused = client.post("/ui/try/ask", json=BODY, headers=OWN | {"authorization": f"Bearer {AGENT}"})
        sign_in(client)
        unsigned = client.post("/ui/try/ask", json=BODY, headers=OWN)

    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (unsigned.status_code, unsigned.json()["error"]["code"]) == (403, "forbidden")
    assert rig.asked == []
