"""`models`: what is said of what is here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.inventory import inventory


@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=4), used=st.sets(st.integers(0, 3)))
def test_every_folder_is_listed_once_and_the_sum_is_theirs(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], used: set[int]
) -> None:
    """Law: whatever stands in the cache, made or unfinished, or in a folder of the configuration, is one entry with all
    of its bytes, and is said to be unused where no tier uses it."""
    root = tmp_path_factory.mktemp("cache")
    folders = [root / "models" / (f".m{n}.part-x" if n % 2 else f"m{n}") for n in range(len(sizes))]
    for folder, size in zip(folders, sizes, strict=True):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x" * size)
        (folder / "config.json").write_text("{}")
    named = [(f"t{n}", f"path:{folders[n]}") for n in used if n < len(folders)]
    lines = list(inventory(named, cache_dir=root))

    assert len(lines) == len(folders) + 1
    assert lines[-1].endswith("in all")
    for n, folder in enumerate(folders):
        (line,) = (one for one in lines if one.endswith(f"in {folder}"))
        assert ("unfinished" in line) == bool(n % 2)
        assert (f"used by t{n};" in line) == (n in used)


def test_what_a_cut_fetch_has_left_is_listed(tmp_path):
    """Law: parts that wait for the next fetch take room, so they are named with their bytes."""
    parts = tmp_path / "downloads" / "gguf-1"
    parts.mkdir(parents=True)
    (parts / "001.part").write_bytes(b"x" * 2_000_000)
    first, total = inventory([], cache_dir=tmp_path)

    assert first.split("\n")[0].strip() == "2 MB  unfinished download: gguf-1"
    assert total.strip() == "2 MB  in all"
