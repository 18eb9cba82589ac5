"""Best of several: machines are noisy, and noise only ever adds time."""

from __future__ import annotations

import time
from collections.abc import Callable


def best(call: Callable[[], object], *, repeats: int = 7, at_least: float = 0.02) -> float:
    """Seconds of one call, the best of `repeats` rounds that each last at least `at_least`
    seconds.
    """
    call()
    start = time.perf_counter()
    call()
    once = max(time.perf_counter() - start, 1e-9)
    loops = max(1, int(at_least / once))
    rounds = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(loops):
            call()
        rounds.append((time.perf_counter() - start) / loops)
    return min(rounds)


def interleaved(*calls: Callable[[], object], repeats: int = 7) -> list[float]:
    """Best seconds of each call, taken in turn, so that a slow moment of the machine hits all of
    them.
    """
    results = [float("inf")] * len(calls)
    for call in calls:
        call()
    for _ in range(repeats):
        for k, call in enumerate(calls):
            results[k] = min(results[k], best(call, repeats=1))
    return results


def verdict(what: str, found: float, allowed: float | None, unit: str, missed: list[str]) -> str:
    """ "met" or "MISSED" beside a figure; what is missed is added to the list, and "" said where
    nothing is allowed or not.
    """
    if allowed is None:
        return ""
    if found <= allowed:
        return "met"
    missed.append(f"{what} took {found:.3g} {unit}, allowed are {allowed:g}")
    return "MISSED"
