"""Whether a model is on this machine: what is said, and that asking fetches nothing."""

import contextlib
from pathlib import Path

import pytest

from deployments.models.cache_folder import make_once
from deployments.models.catalog import ModelChoice, choose
from deployments.models.conversion import locate_model
from deployments.models.downloads import tell
from deployments.models.presence import await_model, look
from deployments.models.sources import ModelUnavailable, parse_source

GIB = 1 << 30
STANDARD, LONGCTX = (choose(role, "linux", "x86_64", 64 * GIB) for role in ("standard", "longctx"))


def name_of(choice: ModelChoice, cache: Path) -> str:
    return locate_model(parse_source(choice.source), cache).name


def test_what_is_missing_says_how_to_have_it(tmp_path: Path) -> None:
    """Law: the 0.5B comes by itself behind `serve`, the 1.5B by `pull` alone; each with its size and its command."""
    for choice, role, words in (
        (STANDARD, "standard", "`mlx-stack-serve serve` fetches it once it can answer"),
        (LONGCTX, "longctx", "`mlx-stack-serve pull longctx` fetches it (1.1 GB)"),
    ):
        found = look(role, choice, cache_dir=tmp_path)
        assert found.state == "missing"
        assert words in found.words
    assert not list(tmp_path.iterdir())


def test_a_machine_that_is_too_small_says_so(tmp_path: Path) -> None:
    """Law: a model that this machine can't hold is missing with that reason, and waiting doesn't help."""
    choice = choose("longctx", "linux", "x86_64", 8 * GIB)
    assert "14 GiB of memory and more, this one has 8.0" in look("longctx", choice, cache_dir=tmp_path).words
    with pytest.raises(ModelUnavailable) as caught:
        await_model("longctx", choice, lambda _: None, cache_dir=tmp_path)
    assert not caught.value.again


def test_what_a_person_named_is_the_tiers_business(tmp_path: Path) -> None:
    """Law: a source of the configuration is fetched by its tier as ever, so nobody calls it missing."""
    assert look("standard", ModelChoice("hf:org/name@main", "as configured"), cache_dir=tmp_path).state == "here"


def test_a_tier_waits_while_its_model_is_on_its_way(tmp_path: Path) -> None:
    """Law: as long as somebody fetches, the tier says how far it is; once it is there, or has failed, it goes on."""
    said: list[str] = []

    def build(folder: Path) -> None:
        with pytest.raises(StopIteration):
            await_model("standard", STANDARD, said.append, cache_dir=tmp_path, pause=pause)

    def pause(_: float) -> None:
        if len(said) == 2:
            raise StopIteration
        share("44 % of 491 MB")

    with tell(tmp_path, name_of(STANDARD, tmp_path), lambda _: None) as share:
        share("43 % of 491 MB")
        assert look("standard", STANDARD, cache_dir=tmp_path).words.startswith("not on this machine")  # nobody is at it
        make_once(tmp_path / "models", name_of(STANDARD, tmp_path), build)
    assert said == ["43 % of 491 MB", "44 % of 491 MB"]
    await_model("standard", STANDARD, said.append, cache_dir=tmp_path, pause=pause)
    assert look("standard", STANDARD, cache_dir=tmp_path).state == "here"


def test_a_failure_is_told_with_the_way_out(tmp_path: Path) -> None:
    """Law: why the last fetch ended is the tier's reason, with the command that tries again."""
    with contextlib.suppress(OSError), tell(tmp_path, name_of(STANDARD, tmp_path), lambda _: None):
        raise OSError("part 3 of 6: pip could not fetch it")
    with pytest.raises(ModelUnavailable, match=r"part 3 of 6: .*; .*`mlx-stack-serve pull standard`") as caught:
        await_model("standard", STANDARD, lambda _: None, cache_dir=tmp_path)
    assert caught.value.again
