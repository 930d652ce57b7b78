"""What `model: auto` means on every machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.models.catalog import _ROWS, ROLES, choose
from deployments.models.sources import DEFAULT_SOURCE, parse_source

GIB = 1 << 30
MEMORY = st.integers(1 * GIB, 1024 * GIB)


class TestChoose:
    @given(st.sampled_from([*ROLES, "mine"]), MEMORY)
    def test_every_machine_gets_a_source_and_a_reason(self, role: str, memory_bytes: int) -> None:
        """Law: for every role and size the choice is a valid source with a reason."""
        for platform, machine in (("darwin", "arm64"), ("darwin", "x86_64"), ("linux", "x86_64"), ("linux", "aarch64")):
            choice = choose(role, platform, machine, memory_bytes)
            assert parse_source(choice.source).kind == ("hf" if machine == "arm64" else "pypi")
            assert choice.why

    @given(st.sampled_from(ROLES), MEMORY)
    def test_without_metal_it_is_the_default(self, role: str, memory_bytes: int) -> None:
        """Law: elsewhere than on Apple silicon it is the pinned default."""
        assert choose(role, "linux", "x86_64", memory_bytes).source == DEFAULT_SOURCE

    def test_the_branch_is_said_not_to_be_pinned(self) -> None:
        """Law: a choice that follows a moving branch says so."""
        assert "not pinned" in choose("fast", "darwin", "arm64", 64 * GIB).why

    def test_more_memory_never_means_a_smaller_model(self) -> None:
        """Law: for fast and standard the weights grow with the memory."""
        for column in (0, 1):
            sizes = [models[column].weight_mb for _, models in sorted(_ROWS)]
            assert sizes == sorted(sizes)

    def test_the_three_fit_together_into_half_the_memory(self) -> None:
        """Law: on the smallest machine of each row the three tiers leave half of the memory alone."""
        for floor_gib, models in _ROWS:
            assert sum(model.weight_mb for model in models) * 1e6 <= max(floor_gib, 8) * GIB / 2

    def test_long_context_is_long(self) -> None:
        """Law: from 12 GiB on, longctx holds at least as much as every other tier of the row."""
        for floor_gib, models in _ROWS:
            if floor_gib >= 12:
                assert models[2].context_tokens == max(model.context_tokens for model in models)
