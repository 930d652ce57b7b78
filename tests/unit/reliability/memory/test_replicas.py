"""Which replicas fit the memory."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from reliability.memory.pressure import Level
from reliability.memory.replicas import Demand, replicas_that_fit

DEMANDS = st.lists(
    st.builds(
        Demand,
        name=st.just(""),
        replica_bytes=st.integers(-1, 12),
        replicas_min=st.integers(-1, 3),
        replicas_wanted=st.integers(-1, 6),
        replicas_now=st.integers(-1, 6),
        priority=st.integers(0, 2),
    ),
    max_size=5,
).map(lambda demands: [replace(d, name=f"t{n}") for n, d in enumerate(demands)])


@given(DEMANDS, st.integers(0, 60), st.sampled_from(list(Level)))
def test_the_memory_is_never_exceeded(demands: list[Demand], budget: int, level: Level) -> None:
    """The replicas that may run fit the memory together, and no tier gets more than it wants."""
    fits = replicas_that_fit(demands, budget, level)
    assert sum(f.replicas * max(0, d.replica_bytes) for f, d in zip(fits, demands, strict=True)) <= budget
    for fit, demand in zip(fits, demands, strict=True):
        assert 0 <= fit.replicas <= max(demand.replicas_wanted, demand.replicas_min, 0)
        assert fit.name == demand.name


@given(DEMANDS, st.integers(0, 60), st.integers(0, 60), st.sampled_from(list(Level)))
def test_more_memory_never_means_fewer(demands: list[Demand], less: int, more: int, level: Level) -> None:
    """With more memory no tier gets fewer replicas."""
    small = replicas_that_fit(demands, less, level)
    large = replicas_that_fit(demands, less + more, level)
    assert all(s.replicas <= b.replicas for s, b in zip(small, large, strict=True))


@given(DEMANDS, st.integers(0, 60))
def test_minimums_come_first(demands: list[Demand], spare: int) -> None:
    """Where all minimums fit every tier gets its own; where they don't, no tier grows beyond it."""
    needed = sum(max(0, d.replicas_min) * max(0, d.replica_bytes) for d in demands)
    for fit, demand in zip(replicas_that_fit(demands, needed + spare, Level.NORMAL), demands, strict=True):
        assert fit.replicas >= demand.replicas_min
    if needed:
        for fit, demand in zip(replicas_that_fit(demands, needed - 1, Level.NORMAL), demands, strict=True):
            assert fit.replicas <= max(0, demand.replicas_min)


@given(DEMANDS, st.one_of(st.none(), st.integers(0, 60)), st.sampled_from(list(Level)))
def test_only_normal_grows(demands: list[Demand], budget: int | None, level: Level) -> None:
    """Nothing grows at warn, at critical or in the dark, and critical leaves at most the minimum."""
    normal = replicas_that_fit(demands, budget, Level.NORMAL)
    for fit, free, demand in zip(replicas_that_fit(demands, budget, level), normal, demands, strict=True):
        assert fit.replicas <= free.replicas
        if level is not Level.NORMAL or budget is None:
            assert fit.replicas <= max(0, demand.replicas_now)
        if level is Level.CRITICAL:
            assert fit.replicas <= max(0, demand.replicas_min)
        wanted = max(demand.replicas_wanted, demand.replicas_min, 0)
        assert bool(fit.why) is (fit.replicas < wanted)


def test_priority_grows_first_and_is_not_overtaken() -> None:
    """Growth goes to the highest priority; a smaller tier doesn't take the room that it waits for."""
    big = Demand(name="big", replica_bytes=4, replicas_min=1, replicas_wanted=9, replicas_now=1, priority=9)
    tiny = Demand(name="tiny", replica_bytes=1, replicas_min=1, replicas_wanted=9, replicas_now=1)
    assert [f.replicas for f in replicas_that_fit([big, tiny], 16, Level.NORMAL)] == [3, 1]
    fits = replicas_that_fit([replace(tiny, priority=10), big], 16, Level.NORMAL)
    assert [f.replicas for f in fits] == [9, 1]


def test_refusals_say_why() -> None:
    """Ten replicas of 4 GB on 16 GB: four may run, and the line says so; so do the lines of the levels."""
    demand = Demand(name="fast", replica_bytes=4, replicas_min=1, replicas_wanted=10, replicas_now=2)
    lines = [replicas_that_fit([demand], 16, level)[0] for level in (Level.NORMAL, Level.WARN, Level.CRITICAL)]
    assert [line.replicas for line in lines] == [4, 2, 1]
    assert lines[0].why == "10 x 4 bytes wanted, 4 fit beside the others in 16"
    assert "warn: nothing grows" in lines[1].why
    assert "only the minimum" in lines[2].why
    assert "unknown" in replicas_that_fit([demand], None, Level.NORMAL)[0].why


def test_a_mistake_is_bounded() -> None:
    """A million replicas of nothing are not counted one by one."""
    demand = Demand(name="x", replica_bytes=0, replicas_min=10**9, replicas_wanted=10**9, replicas_now=0)
    assert replicas_that_fit([demand], 0, Level.NORMAL)[0].replicas == 1024
