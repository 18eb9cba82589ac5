"""300 spoiled inputs, and those that failed once: each ends with a documented exit code, one
sentence, and no file half-written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fuzz import mutations, runner
from fuzz.cases import Case, Fuzzer
from fuzz.past_failures import PAST

COUNT = 300


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    return Fuzzer(tmp_path_factory.mktemp("fuzz"))


def test_spoiled_inputs_end_as_documented(fuzzer: Fuzzer) -> None:
    bad = []
    for seed in range(COUNT):
        case = fuzzer.case(seed)
        if seed % 10 == 0:
            assert case == fuzzer.case(seed)  # a seed is all that is needed to see a case again
        ended, wrong = fuzzer.run(case, limit=runner.LIMIT)
        if wrong:
            bad.append(f"{case}: {wrong} {ended.err[-300:]}")
    assert not bad, "\n".join(bad)


def test_what_failed_once_does_not_again(fuzzer: Fuzzer) -> None:
    bad = []
    for name, past in PAST.items():
        content = past.spoil(fuzzer.contents[past.file]) if past.file else b""
        case = Case(0, tuple(past.command.split()), past.file, content)
        ended, wrong = fuzzer.run(case, limit=runner.LIMIT)
        if wrong or ended.code != past.code or not all(word in ended.err for word in past.words):
            bad.append(f"{name}: exit {ended.code}, {wrong}, {ended.err[-400:]}")
    assert not bad, "\n".join(bad)


def test_faults_are_noticed() -> None:
    """Each kind of wrong ending is one that the judge sees."""
    good = runner.Ended(3, "", "error: x; y\n", "", 0.1)
    assert runner.faults(good) == []
    assert runner.faults(runner.Ended(1, "", "error: unexpected\n", "", 0.1))
    assert runner.faults(runner.Ended(3, "", "error: a\nerror: b\n", "", 0.1))
    assert runner.faults(runner.Ended(0, '{"a": NaN}', "", "", 0.1))
    assert runner.faults(runner.Ended(3, "", "error: x\n", "thread 'x' panicked at", 0.1))
    assert runner.faults(runner.Ended(-1, "", "", "", 20.0))


def test_damage_changes_the_input() -> None:
    rng = random.Random(0)
    data = b"t,q1\n0.0,1.5\n0.1,2.5\n" * 5
    damages = (mutations.damage_bytes, mutations.damage_numbers, mutations.damage_lines)
    for damage in damages:
        assert sum(damage(data, rng) != data for _ in range(50)) > 40
