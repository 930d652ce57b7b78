"""`python -m tests.sim.links.costs`: what the state actor costs in CPU time, and how long it takes to come back."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.incarnations import Driver, Item, StepRequest, ask, done, life, settled, tight

ROUNDS = 7


def least_s(work: Callable[[], object]) -> float:
    """The least CPU time of several runs: what else the machine does only adds to it."""
    costs = []
    for _ in range(ROUNDS):
        began_s = time.process_time()
        work()
        costs.append(time.process_time() - began_s)
    return min(costs)


def per_request(folder: Path, together: int) -> float:
    """CPU seconds for a request, of which so many come in the same two steps."""
    driver, count = Driver(life(folder), limits=tight(10**9)), 200

    def work() -> None:
        for _ in range(count // together):
            requests: tuple[StepRequest, ...] = tuple(ask(session=f"s{n}") for n in range(together))
            grants = driver.granted(*requests)
            items: list[Item] = []
            for n, grant in enumerate(grants):
                items += [settled(grant), done(f"r{n}", f"s{n}", incidents=n % 10 == 0)]
            driver.put(*items)

    work()
    return least_s(work) / count


def coming_back(folder: Path, sessions: int, events: int) -> tuple[float, float]:
    """CPU seconds of a snapshot with so many sessions, and of a new life with so many events after it."""
    driver = Driver(life(folder), limits=tight(10**9))
    for start in range(0, sessions, 200):
        grants = driver.granted(*(ask(session=f"s{n}") for n in range(start, start + 200)))
        driver.put(*(settled(grant) for grant in grants))
    actor = driver.actor
    snapshot_s = least_s(lambda: actor._write_snapshot(actor._digest, actor._config))
    for _ in range(events // 2):
        driver.put(*(settled(grant) for grant in driver.granted(ask())))
    back_s = least_s(lambda: life(folder))
    assert life(folder).stats()["sessions"] == max(1, sessions)
    return snapshot_s, back_s


def main() -> None:
    with tempfile.TemporaryDirectory() as room:
        for together in (1, 10, 50):
            cost = per_request(Path(room) / str(together), together)
            print(f"{together:3} requests in two steps: {1e6 * cost:5.0f} us a request")
        for sessions, events in ((0, 3_900), (10_000, 2), (10_000, 3_900)):
            snapshot_s, back_s = coming_back(Path(room) / f"{sessions}-{events}", sessions, events)
            words = f"{sessions:6} sessions, {events:4} events"
            print(f"{words}: snapshot {1e3 * snapshot_s:4.0f} ms, a new life {1e3 * back_s:4.0f} ms")


if __name__ == "__main__":
    main()
