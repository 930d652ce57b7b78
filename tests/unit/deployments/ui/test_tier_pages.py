"""Orders to tiers, and the levels of memory as steps."""

import psutil

from deployments.ui.tier_pages import _draw_levels
from reliability.types import TierState, TierStatus
from tests.support.room_rig import Rig, browse, find_token

OWN = {"origin": "http://127.0.0.1:8000"}


def test_an_order_is_done_and_shown_at_once(tmp_path):
    """The page that follows shows what came of it, and who is asked what is noted as an operator's act. What is no tier
    or no order is refused, with the token, too."""
    rig = Rig(tmp_path)
    with browse(rig) as client:
        token = {"x-csrf-token": find_token(client.get("/ui/tiers").text)}
        assert client.post("/ui/tiers/fast/isolate", headers=OWN | token).status_code == 303
        page = client.get("/ui/tiers").text
        assert "isolated" in page
        assert "/ui/tiers/fast/restore" in page

        answer = client.post("/ui/tiers/fast/restore", headers=OWN | token | {"hx-request": "true"})
        assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/ui/tiers")
        assert "/ui/tiers/fast/isolate" in client.get("/ui/tiers").text
        for path in ("/ui/tiers/nobody/isolate", "/ui/tiers/fast/explode"):
            assert client.post(path, headers=OWN | token).status_code == 404


def test_a_model_that_is_missing_is_offered_and_fetched(tmp_path):
    """Not as a fault, but as an order that fetches its source in another process; other tiers offer none."""
    rig = Rig(tmp_path)
    source = f"path:{tmp_path / 'nowhere'}"
    known = {"name": "standard", "kind": "mlx", "model": "auto", "source": source, "download_bytes": 491_000_000}
    rig.tiers["standard"].known = TierStatus(state=TierState.UNAVAILABLE, **known)
    with browse(rig) as client:
        home, page = client.get("/").text, client.get("/ui/tiers").text
        order = {"headers": OWN | {"x-csrf-token": find_token(page)}}
        assert client.post("/ui/tiers/fast/download", **order).status_code == 404
        assert client.post("/ui/tiers/standard/download", **order).status_code == 303
        (fetch,) = [one for one in psutil.Process().children() if source in one.cmdline()]
        assert "pull" in fetch.cmdline()
        fetch.wait(60)

    assert "Download 491.0 MB" in home
    assert "not downloaded" in page
    assert 'action="/ui/tiers/standard/download"' in page


def change(at: float, before: str, after: str, node: str = "n1") -> dict[str, object]:
    return {"at": at, "evidence": {"host": "mac", "node": node, "before": before, "after": after}}


def test_levels_are_steps_from_the_changes_to_now():
    """Before the first change a machine was where that change began; one without changes is where it is."""
    drawn = _draw_levels([change(40, "normal", "warn"), change(70, "warn", "normal")], {"mini n2": "critical"}, 100)

    assert drawn["at"] == [100 - 7 * 86_400, 40, 70, 100]
    assert {one["name"]: one["values"] for one in drawn["series"]} == {"mac n1": [1, 2, 1, 1], "mini n2": [3, 3, 3, 3]}
