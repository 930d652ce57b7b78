"""Every page: under its policy, without a script or a style in it, without a text that isn't escaped."""

import re
from html.parser import HTMLParser

import pytest

from deployments.ui.page_context import _POLICY, ASSETS
from tests.support.room_rig import Rig, attempt, browse

EVIL = "<script>alert(1)</script>\"'&"
FAILED = [attempt(flaw="loop", detail=EVIL), attempt("standard", at_ms=600)]
PAGES = [
    *("/", "/ui/", "/ui/requests", "/ui/requests/1", "/ui/requests/999", "/ui/sessions", "/ui/incidents", "/ui/tiers"),
    *("/ui/memory", "/ui/evaluations", "/ui/try", "/ui/sign-in", "/ui/nothing"),
    "/ui/sessions/%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%27&",
]


@pytest.fixture
def rig(tmp_path) -> Rig:
    """One request has ended whose client has named everything as badly as it could."""
    made = Rig(tmp_path, incidents={"keep_text": True})
    told = {"at": 1.8e9, "kind": "loop", "tier": "fast", "session": EVIL, "key": "", "request_id": EVIL}
    told |= {"reason": "loop", "attempt": 0, "evidence": {"answer": EVIL, "laps": 3, "loop": "calls", "tools": [EVIL]}}
    made.finish(EVIL, (told,), session=EVIL, notes=[EVIL], attempts=FAILED, loop="nudged")
    return made


class Seen(HTMLParser):
    """What a browser would run or fetch of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.inline: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in given) else []
        if tag in ("script", "img", "link"):
            self.fetched.append(given.get("src") or given.get("href") or "")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_holds_no_script_no_style_and_nothing_from_elsewhere(rig, path):
    """The policy would refuse them, and so there are none; what a client said is text."""
    with browse(rig) as client:
        answer = client.get(path)
    seen = Seen()
    seen.feed(answer.text)

    assert answer.status_code == (404 if "nothing" in path or "999" in path else 200)
    assert answer.headers["content-security-policy"] == _POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert seen.inline == []
    assert [address for address in seen.fetched if not address.startswith("/ui/assets/")] == []
    assert "<script>alert" not in answer.text


def test_every_file_is_sent_to_be_kept(rig):
    """Under an address that changes with any file; licences are among them, others than these are not there."""
    with browse(rig) as client:
        at = re.search(r'href="(/ui/assets/[0-9a-f]{12})/room.css"', client.get("/").text)
        assert at is not None
        for name, media in ASSETS.items():
            answer = client.get(f"{at[1]}/{name}")
            assert answer.headers["content-type"].startswith(media)
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["content-security-policy"] == _POLICY  # a picture may be opened as a page
            assert answer.content
        assert client.get(f"{at[1]}/nothing.js").status_code == 404


def test_the_policy_lets_nothing_in():
    """No word of it opens a door for scripts or styles in the page, or for other hosts."""
    assert "unsafe" not in _POLICY
    assert "http" not in _POLICY
    assert {part.split()[0]: part.split()[1:] for part in _POLICY.split("; ")}["default-src"] == ["'none'"]
