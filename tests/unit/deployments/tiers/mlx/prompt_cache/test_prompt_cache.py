"""Prompts computed before: what is reused is right, as much as can be, and within its bytes.

The caches here are plain values that say which tokens they hold; `Rows` is what a model's library would do with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deployments.tiers.mlx.prompt_cache import prompt_cache
from deployments.tiers.mlx.prompt_cache.prompt_cache import PromptCache

TOKEN_BYTES = 10


@dataclass(frozen=True)
class Held:
    """A cache of these tokens; `stiff` ones can't be cut back."""

    tokens: tuple[int, ...]
    stiff: bool = False


class Rows:
    """What can be done with them."""

    def nbytes(self, cache: Held) -> int:
        return TOKEN_BYTES * len(cache.tokens)

    def is_trimmable(self, cache: Held) -> bool:
        return not cache.stiff

    def copy_shortened(self, cache: Held, tokens: int) -> Held:
        assert tokens == 0 or not cache.stiff
        return Held(cache.tokens[: len(cache.tokens) - tokens], cache.stiff)

    def cut(self, cache: Held, tokens: int) -> Held:
        assert not cache.stiff
        return Held(cache.tokens[:tokens])


def store(*rows: Sequence[int], stiff: bool = False, bytes_max: int = 10**6) -> PromptCache:
    made = PromptCache(Rows(), bytes_max=bytes_max)
    for row in rows:
        made.put(row, Held(tuple(row), stiff))
    return made


SYSTEM, TURN_1, TURN_2 = [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7]
# Few tokens, so that rows begin alike often.
rows = st.lists(st.integers(0, 2), max_size=8)


class Machine(RuleBasedStateMachine):
    """Any order of calls; what was put is remembered beside the cache."""

    BYTES_MAX = 12 * TOKEN_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.cache = PromptCache(Rows(), bytes_max=self.BYTES_MAX, entries_max=4)
        self.put_rows: list[Held] = []

    @rule(tokens=rows, stiff=st.booleans())
    def put(self, tokens: list[int], stiff: bool) -> None:
        held = Held(tuple(tokens), stiff)
        self.put_rows.append(held)
        self.cache.put(tokens, held)

    @rule(tokens=rows)
    def take(self, tokens: list[int]) -> None:
        """What comes back holds exactly the beginning that it says, never all, and was put by somebody."""
        cache, count = self.cache.take(tokens)
        assert (cache is None) == (count == 0)
        if cache is not None:
            assert 0 < count < len(tokens)
            assert cache.tokens == tuple(tokens[:count])
            assert any(held.tokens[:count] == cache.tokens for held in self.put_rows)

    @rule(tokens=st.lists(st.integers(0, 2), min_size=13, max_size=20))
    def put_too_large(self, tokens: list[int]) -> None:
        self.put(tokens, False)
        assert self.cache.holds(tokens[:12])

    @rule(bytes_max=st.integers(0, 200))
    def shrink(self, bytes_max: int) -> None:
        self.cache.shrink(bytes_max)
        assert self.cache.nbytes <= bytes_max

    @invariant()
    def bounded(self) -> None:
        assert self.cache.nbytes == sum(map(Rows().nbytes, self.cache._entries.values()))
        assert self.cache.nbytes <= self.BYTES_MAX
        assert len(self.cache) <= 4


TestMachine = Machine.TestCase


class TestReuse:
    @given(rows, rows, st.booleans())
    def test_as_much_as_can_be(self, held: list[int], wanted: list[int], stiff: bool) -> None:
        """Law: with one entry, what is reused is the longest common beginning, less one token where that is all;
        of an entry that can't be cut back, all or nothing."""
        common = next((i for i, (a, b) in enumerate(zip(held, wanted, strict=False)) if a != b), None)
        most = min(len(held), len(wanted)) if common is None else common
        most = max(0, min(most, len(wanted) - 1))
        expected = most if not stiff or most == len(held) else 0
        assert store(held, stiff=stiff).take(wanted)[1] == expected


class TestKeeping:
    def test_what_a_longer_entry_serves_is_dropped(self) -> None:
        """Law: of rows that begin alike the longest is enough where it can be cut back; checkpoints stay where not."""
        assert len(store(SYSTEM, TURN_1, TURN_2)) == 1
        assert len(store(TURN_2, TURN_1, SYSTEM)) == 1
        assert len(store(SYSTEM, TURN_1, TURN_2, stiff=True)) == 3

    def test_what_is_used_stays(self) -> None:
        """Law: the entry used longest ago goes first, and use is a hit as well as a put."""
        cache = store([1, 1], [2, 2], bytes_max=5 * TOKEN_BYTES)
        assert cache.take([1, 1, 5])[1] == 2
        cache.put([3, 3], Held((3, 3)))
        assert [cache.take([row, row, 5])[1] for row in (1, 2, 3)] == [2, 0, 2]

    def test_what_is_too_large_is_not_kept(self) -> None:
        """Law: an entry over the bound that can't be cut is left out and costs the others nothing."""
        cache = store([1], list(range(50)), bytes_max=5 * TOKEN_BYTES, stiff=True)
        assert (cache.take([1, 2])[1], len(cache)) == (1, 1)

    def test_of_what_is_too_large_the_beginning_is_kept(self) -> None:
        """Law: of an entry over the bound that can be cut as many tokens are kept as fit; where none fit, none."""
        assert store(list(range(50)), bytes_max=5 * TOKEN_BYTES + 1).take(list(range(50)))[1] == 5
        assert store(list(range(50)), bytes_max=TOKEN_BYTES - 1).take(list(range(50))) == (None, 0)

    def test_it_knows_what_it_holds(self) -> None:
        """Law: `holds` is true where every row that begins so would reuse all of it."""
        assert store(TURN_1).holds(SYSTEM)
        assert not store(TURN_1, stiff=True).holds(SYSTEM)
        assert not store(SYSTEM).holds(TURN_1)


class TestOwners:
    """An entry serves the API key that sent it, and no other."""

    @given(st.lists(st.tuples(rows, st.sampled_from("ab"), st.booleans()), max_size=8), rows)
    def test_another_keys_entries_change_nothing(
        self, puts: list[tuple[list[int], str, bool]], wanted: list[int]
    ) -> None:
        """Law: what `take`, `holds` and `count_usable` tell one key is the same with and without what another put."""
        both, alone = store(), store()
        for tokens, owner, stiff in puts:
            both.put(tokens, Held(tuple(tokens), stiff), owner)
            if owner == "a":
                alone.put(tokens, Held(tuple(tokens), stiff), owner)

        assert both.take(wanted, "a") == alone.take(wanted, "a")
        assert both.holds(wanted, "a") == alone.holds(wanted, "a")
        assert both.count_usable(wanted, "a") == alone.count_usable(wanted, "a")
        assert both.take(wanted, "c") == (None, 0)

    @given(st.lists(st.integers(0, 1), max_size=12), st.lists(st.integers(0, 1), max_size=12))
    def test_shared_prompts_count_in_blocks(self, held: list[int], wanted: list[int]) -> None:
        """Law: where keys share, reuse is a whole number of blocks: a guess within a block shows nothing."""
        with mock.patch.object(prompt_cache, "BLOCK_TOKENS", 4):
            cache = PromptCache(Rows(), bytes_max=10**6, shared=True)
        cache.put(held, Held(tuple(held)), "a")
        common = next((i for i, (a, b) in enumerate(zip(held, wanted, strict=False)) if a != b), None)
        most = min(len(held), len(wanted)) if common is None else common

        assert cache.take(wanted, "b")[1] == max(0, min(most, len(wanted) - 1)) // 4 * 4
