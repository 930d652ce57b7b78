"""Large files of the hub: fetched by ranges, and never begun anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.models.hub import BrokenOff, HubFile, count_arrived, fetch_files
from tests.support.fake_hub import COMMIT, NAME, FakeHub, hash_content, run_hub

CONTENT = bytes(range(256)) * 400


def file_of(hub: FakeHub, name: str = "model.safetensors", sha256: str = hash_content(CONTENT)) -> HubFile:
    return HubFile(url=f"{hub.url}/{NAME}/resolve/{COMMIT}/{name}", sha256=sha256, size_bytes=len(CONTENT))


def test_what_has_arrived_is_not_fetched_again(tmp_path: Path) -> None:
    """Law: over connections that break again and again, each byte is fetched once, and the whole is right."""
    with run_hub({"model.safetensors": CONTENT}, {"model.safetensors"}) as hub:
        hub.breaks_after = 30_000
        fetch_files([file_of(hub)], tmp_path, {})
        assert hub.served_bytes == len(CONTENT)
        fetch_files([file_of(hub)], tmp_path, {})
        assert hub.served_bytes == len(CONTENT)
    assert [file.name for file in tmp_path.iterdir()] == [hash_content(CONTENT)]
    assert (tmp_path / hash_content(CONTENT)).read_bytes() == CONTENT


def test_a_fetch_without_progress_ends_and_keeps_what_it_has(tmp_path: Path) -> None:
    """Law: a hub that sends no more ends the fetch in bounded tries, with the figures, and loses nothing."""
    with run_hub({"model.safetensors": CONTENT}, {"model.safetensors"}) as hub:
        part = tmp_path / f"{hash_content(CONTENT)}.mlx-stack-serve.incomplete"
        part.write_bytes(CONTENT[:50_000])
        hub.breaks_after = 0
        with pytest.raises(BrokenOff, match="50000 of 102400 bytes have arrived, and stay"):
            fetch_files([file_of(hub)], tmp_path, {})
        assert count_arrived([file_of(hub)], tmp_path) == 50_000
        hub.breaks_after = None
        fetch_files([file_of(hub)], tmp_path, {})
        assert hub.served_bytes == len(CONTENT) - 50_000


def test_a_wrong_content_is_never_used(tmp_path: Path) -> None:
    """Law: bytes whose sha256 isn't the hub's are deleted and not named as the file."""
    with run_hub({"model.safetensors": CONTENT}, {"model.safetensors"}) as hub:
        with pytest.raises(BrokenOff, match="isn't what the hub says"):
            fetch_files([file_of(hub, sha256="0" * 64)], tmp_path, {})
        assert not list(tmp_path.iterdir())
        with pytest.raises(BrokenOff, match="the hub answers 404"):
            fetch_files([file_of(hub, "absent")], tmp_path, {})
