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
from deployments.tiers.mlx.prompt_cache.prompt_cache import PromptCache, PromptKey, PromptReuse
from tests.unit.deployments.tiers.mlx.prompt_cache.test_segment_folder import common

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
        most = max(0, min(common(held, wanted), len(wanted) - 1))
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
    def test_another_keys_entries_change_nothing(self, puts, wanted):
        """Law: what `take`, `holds` and `count_usable` tell one key is the same with and without what another put."""
        both, alone = store(), store()
        for tokens, owner, stiff in puts:
            both.put(tokens, Held(tuple(tokens), stiff), PromptReuse(owner=owner))
            if owner == "a":
                alone.put(tokens, Held(tuple(tokens), stiff), PromptReuse(owner=owner))

        assert both.take(wanted, "a") == alone.take(wanted, "a")
        assert both.holds(wanted, "a") == alone.holds(wanted, "a")
        assert both.count_usable(wanted, "a") == alone.count_usable(wanted, "a")
        assert both.take(wanted, "c") == (None, 0)

    @given(st.lists(st.integers(0, 1), max_size=12), st.lists(st.integers(0, 1), max_size=12))
    def test_shared_prompts_count_in_blocks(self, held: list[int], wanted: list[int]) -> None:
        """Law: where keys share, reuse is a whole number of blocks: a guess within a block shows nothing."""
        with mock.patch.object(prompt_cache, "_BLOCK_TOKENS", 4):
            cache = PromptCache(Rows(), bytes_max=10**6, shared=True)
        cache.put(held, Held(tuple(held)), PromptReuse(owner="a"))
        most = common(held, wanted)

        assert cache.take(wanted, "b")[1] == max(0, min(most, len(wanted) - 1)) // 4 * 4


# Two agents with helpers, one of which has a helper itself, and two sessions that name each other.
PARENTS = {"m": None, "a": "m", "b": "m", "c": "a", "n": None, "h": "n", "x": "y", "y": "x"}
HALF = 6


def reuse_of(session: str, key: str = "k") -> PromptReuse:
    parent = PARENTS[session]
    return PromptReuse(owner=key, session=(key, session), parent=None if parent is None else (key, parent))


def put_for(cache: PromptCache, session: str, row: Sequence[int], *, stiff: bool = False, key: str = "k") -> bool:
    """Put a session's row; return whether all of it is served now."""
    cache.put(row, Held(tuple(row), stiff), reuse_of(session, key))
    return cache.holds(row, key)


class TestHelpers:
    """A session waits for its helpers: what they put doesn't cost it its own prompt."""

    @given(st.lists(st.tuples(st.sampled_from(sorted(PARENTS)), rows, st.booleans()), max_size=40))
    def test_no_helper_evicts_its_parent_s_last_prompt(self, puts: list[tuple[str, list[int], bool]]) -> None:
        """Law: as long as what serves a parent's last prompt is held, and takes half of the cache at most, no entry of
        a helper makes it shorter, whatever else is there; the cache keeps its bounds, and knows of no session whose
        entry is gone."""
        cache = PromptCache(Rows(), bytes_max=2 * HALF * TOKEN_BYTES, entries_max=6)
        served: dict[str, PromptKey] = {}
        for session, tokens, stiff in puts:
            parent = PARENTS[session]
            key = served.get(parent or "")
            waits = key is not None and key.length <= HALF and parent != session
            now = cache.put(tokens, Held(tuple(tokens), stiff), reuse_of(session))
            if waits and key is not None:
                assert any(key.begins(held) for held in cache._entries)
            if now is not None:
                served[session] = now
            served = {name: key for name, key in served.items() if cache.get(key) is not None}

            assert cache.nbytes == sum(map(Rows().nbytes, cache._entries.values())) <= 2 * HALF * TOKEN_BYTES
            assert len(cache) <= 6
            assert len(cache._last) <= 6
            assert all(last.key in cache._entries for last in cache._last.values())

    @given(st.lists(st.tuples(st.sampled_from("mnx"), rows, st.booleans()), max_size=20))
    def test_without_helpers_the_oldest_goes_as_ever(self, puts: list[tuple[str, list[int], bool]]) -> None:
        """Law: sessions that help none change nothing of what is kept, and in which order it goes."""
        named, plain = (PromptCache(Rows(), bytes_max=12 * TOKEN_BYTES, entries_max=4) for _ in range(2))
        for session, tokens, stiff in puts:
            named.put(tokens, Held(tuple(tokens), stiff), PromptReuse(owner="k", session=("k", session)))
            plain.put(tokens, Held(tuple(tokens), stiff), PromptReuse(owner="k"))

        assert list(named._entries.items()) == list(plain._entries.items())

    def test_memory_that_is_needed_elsewhere_takes_the_helpers_first(self) -> None:
        """Law: a helper's entry is older than its parent's, and a helper's helper's older than both."""
        cache = store(bytes_max=20 * TOKEN_BYTES)
        for session, row in (("m", [1] * 4), ("a", [2] * 4), ("c", [3] * 4)):
            assert put_for(cache, session, row)
        held = []
        for bytes_max in (12, 8, 4, 0):
            cache.shrink(bytes_max * TOKEN_BYTES)
            held.append([row for row in (1, 2, 3) if cache.holds([row] * 4, "k")])

        assert held == [[1, 2, 3], [1, 2], [1], []]

    def test_a_parent_that_never_returns_goes_like_any_other(self) -> None:
        """Law: once its helpers rest, a parent's entry goes when all that was put later fills the cache; a helper that
        comes then finds nothing to keep, and a session that comes anew has what it had."""
        cache = store(bytes_max=12 * TOKEN_BYTES)
        put_for(cache, "m", [1] * 4)
        for row in (2, 3, 4):
            put_for(cache, "a", [row] * 4)
        assert cache.holds([1] * 4, "k")
        for row in (5, 6, 7):
            put_for(cache, "n", [row] * 4)
        assert not cache.holds([1] * 4, "k")
        assert put_for(cache, "a", [2] * 12)

    def test_of_a_helper_s_prompt_that_is_too_long_the_beginning_is_kept(self) -> None:
        """Law: what doesn't fit next to the waiting parent is left out: the end of what can be cut, else all of it."""
        for stiff, kept in ((False, 8), (True, 0)):
            cache = store(bytes_max=12 * TOKEN_BYTES)
            put_for(cache, "m", [1] * 4)
            put_for(cache, "a", [2] * 50, stiff=stiff)

            assert (cache.count_usable([1] * 5, "k"), cache.count_usable([2] * 60, "k")) == (4, kept)
            cache.shrink(4 * TOKEN_BYTES)
            assert cache.holds([1] * 4, "k")

    def test_a_parent_that_leaves_its_helpers_no_half_waits_for_none(self) -> None:
        """Law: a helper has half of the cache at least: a parent's larger entry goes as ever."""
        cache = store(bytes_max=12 * TOKEN_BYTES)
        put_for(cache, "m", [1] * 7)
        assert put_for(cache, "a", [2] * 6)
        assert not cache.holds([1] * 7, "k")

    def test_a_helper_that_continues_its_parent_s_prompt_keeps_it(self) -> None:
        """Law: an entry that takes the place of a parent's, since it begins with it, stands for it."""
        cache = store(bytes_max=12 * TOKEN_BYTES)
        put_for(cache, "m", [1] * 4)
        put_for(cache, "a", [1] * 5)
        for row in (2, 3, 4):
            put_for(cache, "b", [row] * 4)

        assert cache.holds([1] * 4, "k")

    def test_many_sessions_with_one_prompt_are_bounded(self) -> None:
        """Law: of any number of sessions that one entry serves as many are known as there may be entries."""
        cache = PromptCache(Rows(), bytes_max=12 * TOKEN_BYTES, entries_max=4)
        for session in ("m", *range(3), "m", *range(3, 6)):
            cache.put([1] * 4, Held((1,) * 4), PromptReuse(owner="k", session=("k", str(session))))
        assert len(cache._last) == 4
        for row in (2, 3, 4):
            put_for(cache, "a", [row] * 4)
        assert cache.holds([1] * 4, "k")

    def test_another_key_s_helper_keeps_nothing(self) -> None:
        """Law: a parent is a session of the helper's own API key, also where keys share their prompts."""
        for shared in (False, True):
            with mock.patch.object(prompt_cache, "_BLOCK_TOKENS", 1):
                cache = PromptCache(Rows(), bytes_max=12 * TOKEN_BYTES, shared=shared)
            put_for(cache, "m", [1] * 4)
            for row in (2, 3, 4):
                put_for(cache, "a", [row] * 4, key="other")

            assert not cache.holds([1] * 4, "k")
