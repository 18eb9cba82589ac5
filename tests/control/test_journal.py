"""The journal: whatever kills its writer, what was acknowledged is there, in order, and the rest is
said.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from thetahat.control import journal as module
from thetahat.control.journal import Journal
from thetahat.control.journal_format import HEAD, MAGIC, MARKER, Damage, frames
from thetahat.errors import MalformedInput, RefusedForSafety, StorageError, UsageError

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
KILLS, SLOW_KILLS = 4, 24
RECORDS = 200  # more than a file of a journal with a limit holds


def python(code: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=ENVIRONMENT)


def filled(path: Path, count: int = 6, **options: object) -> Path:
    with Journal(path, **options) as journal:
        for k in range(count):
            assert journal.append("sample", 0.1 * k, q=np.array([k, np.nan, -0.0]), speed=1.5 * k)
    return path


# -- what goes in comes out ------------------------------------------------------------------------

SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.text(max_size=20),
    st.floats(allow_nan=False, allow_infinity=False),
)
ARRAY = st.lists(st.floats(), max_size=6).map(np.array)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["sample", "gate", "größe"]),
            st.floats(),
            st.dictionaries(st.sampled_from("abc"), SCALAR | ARRAY),
        ),
        max_size=12,
    )
)
def test_records_come_out_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, records: list
) -> None:
    path = tmp_path_factory.mktemp("journal") / "x.journal"
    for part in (records[:5], records[5:]):  # written by two, one after the other
        with Journal(path) as journal:
            for kind, t, values in part:
                assert journal.append(kind, t, **values)
    found = list(Journal.read(path))
    assert [r.kind for r in found] == [kind for kind, _, _ in records]
    assert all(a.number < b.number for a, b in pairwise(found))
    for record, (_, t, values) in zip(found, records, strict=True):
        exact = all(isinstance(value, float | np.ndarray) for value in values.values())
        assert record.t == t or np.isnan(record.t)
        assert list(record.values) == list(values)
        for name, value in values.items():
            if exact:
                assert np.array_equal(np.asarray(record.values[name]), value, equal_nan=True)
            elif isinstance(value, np.ndarray):
                assert record.values[name] == [
                    x if np.isfinite(x) else None for x in value.tolist()
                ]
            else:
                assert record.values[name] == value
    report = Journal.report(path)
    assert (
        report.records,
        report.torn_bytes,
        report.damaged_bytes,
        report.missing,
        report.lost,
    ) == (len(records), 0, 0, 0, 0)


def test_the_report_says_what_is_held(tmp_path: Path) -> None:
    path = filled(tmp_path / "deep" / "er" / "a.journal")
    with Journal(path) as journal:
        journal.append("gate", 0.7, open=True, reason="R² 0.97 ≥ 0.95")
    report = Journal.report(path)
    assert report.kinds == {"sample": 6, "gate": 1}
    assert (report.first_t, report.last_t) == (0.0, 0.7)
    assert report.bytes == path.stat().st_size
    assert "7 records from t = 0 to 0.7 s (6 sample, 1 gate)" in str(report)
    assert "no records" in str(Journal.report(filled(tmp_path / "empty.journal", 0)))


# -- death at any byte -----------------------------------------------------------------------------


def test_a_file_cut_at_any_byte_holds_every_whole_record_and_takes_more(tmp_path: Path) -> None:
    data = filled(tmp_path / "whole.journal").read_bytes()
    with (tmp_path / "whole.journal").open("rb") as file:
        ends = [end for end, _, payload in frames(file, len(MAGIC)) if payload[:1] == b"N"]
    for cut in range(len(data) + 1):
        path = tmp_path / f"{cut}.journal"
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert len(list(Journal.read(path))) == whole
        report = Journal.report(path)
        kept = max(
            [
                len(MAGIC) if cut >= len(MAGIC) else 0,
                *(end for end in _all_ends(data) if end <= cut),
            ]
        )
        assert (report.records, report.torn_bytes, report.damaged_bytes) == (whole, cut - kept, 0)
        if cut % 7 == 0 or cut < 30:
            with Journal(path) as journal:
                assert journal.dropped_bytes == (cut - kept if cut >= len(MAGIC) else 0)
                assert path.stat().st_size == max(kept, len(MAGIC)), (
                    "the torn tail is gone before anything is added"
                )
                assert journal.append("sample", 9.0, q=np.array([7.0, 8.0, 9.0]), speed=1.0)
            after = list(Journal.read(path))
            assert len(after) == whole + 1
            assert np.array_equal(after[-1].values["q"], [7.0, 8.0, 9.0])
            assert Journal.report(path).torn_bytes == Journal.report(path).missing == 0


def _all_ends(data: bytes) -> list[int]:
    at, found = len(MAGIC), []
    while at < len(data):
        at += HEAD.size + HEAD.unpack_from(data, at)[1]
        found.append(at)
    return found


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_flipped_byte_costs_the_record_it_is_in_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = filled(tmp_path_factory.mktemp("journal") / "x.journal", 12)
    content = bytearray(path.read_bytes())
    ends = _all_ends(bytes(content))
    at = data.draw(
        st.integers(ends[0], len(content) - 1)
    )  # behind the layout, which all records need
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    hit = next(k for k, end in enumerate(ends) if at < end)
    expected = [k for k in range(12) if k != hit - 1]  # frame 0 is the layout
    assert [round(r.t * 10) for r in Journal.read(path)] == expected
    report = Journal.report(path)
    size = ends[hit] - ends[hit - 1]
    assert (report.torn_bytes, report.damaged_bytes) == (
        (size, 0) if hit == len(ends) - 1 else (0, size)
    )


def test_frames_are_found_again_across_blocks_of_garbage(tmp_path: Path) -> None:
    data = filled(tmp_path / "a.journal").read_bytes()
    garbage = (MARKER + b"\xff" * 9) * 130_000  # more than a block, full of markers that are none
    path = tmp_path / "b.journal"
    path.write_bytes(data[: len(MAGIC)] + garbage + data[len(MAGIC) :])
    assert len(list(Journal.read(path))) == 6
    assert Journal.report(path).damaged_bytes == len(garbage)
    with path.open("rb") as file:
        assert [d for d in frames(file, len(MAGIC)) if isinstance(d, Damage)] == [
            Damage(len(MAGIC), len(garbage))
        ]


WRITER = """
import os, numpy as np
from thetahat.control.journal import Journal
journal = Journal({path!r}, max_bytes={max_bytes})
x = np.arange(7.0)
k = {start}
while True:
    if k % 50 == 3:
        done = journal.append("decision", float(k), reason="because", index=k)
    else:
        done = journal.append("sample", float(k), q=x + k, dq=x, tau=x)
    os.write(1, b"%d\\n" % k)
    k += 1
"""


@pytest.mark.parametrize("kills", [KILLS, pytest.param(SLOW_KILLS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("max_bytes", [None, 20_000])
def test_kill_9_at_any_moment_loses_no_acknowledged_record(
    tmp_path: Path, max_bytes: int | None, kills: int
) -> None:
    """One journal, killed again and again; each writer tells through a pipe what was acknowledged,
    and the next goes on from there.
    """
    path, rng, start, kill = tmp_path / "run.journal", np.random.default_rng(0), 0, 0
    while kill < kills or start < RECORDS:
        child = python(WRITER.format(path=str(path), max_bytes=max_bytes, start=start))
        assert child.stdout.readline()  # it runs
        time.sleep(rng.uniform(0.0, 0.03))
        child.send_signal(signal.SIGKILL)
        told = child.stdout.read().split(b"\n")
        child.wait(60)
        acknowledged = max([start, *(int(line) for line in told[:-1])])  # the last line may be cut
        found = list(Journal.read(path))
        indices = [round(r.t) for r in found]
        assert indices == list(range(len(indices))), f"kill {kill}: every one once, and in order"
        assert indices[-1] >= acknowledged
        assert Journal.report(path).missing == 0
        for record in found[-20:]:
            assert record.kind == "decision" or np.array_equal(
                record.values["q"], np.arange(7.0) + record.t
            )
        start, kill = indices[-1] + 1, kill + 1
    assert (len(Journal.report(path).files) > 1) == (max_bytes is not None)


# -- one writer ------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    with Journal(path) as journal:
        journal.append("sample", 0.0, q=np.zeros(2))
        with pytest.raises(
            RefusedForSafety,
            match=r"a\.journal is being written by another process.*choose another file",
        ) as refused:
            Journal(path)
        assert refused.value.exit_code == 7
        code = f"""
from thetahat.control.journal import Journal
try:
    Journal({str(path)!r})
except Exception as error:
    print(error.exit_code, len(list(Journal.read({str(path)!r}))))
"""
        assert python(code).communicate()[0].split() == [b"7", b"1"]
        assert journal.append("sample", 1.0, q=np.zeros(2))
    with Journal(path) as journal:
        assert journal.append("sample", 2.0, q=np.zeros(2))
    assert [r.t for r in Journal.read(path)] == [0.0, 1.0, 2.0]


# -- a disk that is full ---------------------------------------------------------------------------

FULL = """
import resource, signal, time, numpy as np
from thetahat.control import journal as module
module.RETRY = 0.0
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
answers, worst = [], 0.0
try:
    with module.Journal({path!r}) as journal:
        for k in range(200):
            if k == 100:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            answers.append(journal.append("sample", float(k), q=np.arange(7.0) + k))
        assert journal.failed and journal.lost == answers.count(False)
except Exception as error:
    print(error.exit_code, answers.index(False), answers.count(False), str(error))
"""


def test_a_full_disk_stops_no_one_and_is_told_at_the_end(tmp_path: Path) -> None:
    """The kernel itself cuts the write (RLIMIT_FSIZE), then room comes back."""
    path = tmp_path / "full.journal"
    out = python(FULL.format(path=str(path))).communicate()[0].decode()
    code, first, lost, message = out.split(maxsplit=3)
    assert code == "6"
    assert "full.journal lost records from number" in message
    assert 10 < int(first) < 100
    assert int(lost) == 100 - int(first)
    found = list(Journal.read(path))
    samples = [int(r.t) for r in found if r.kind == "sample"]
    assert samples == [*range(int(first)), *range(100, 200)], "what was acknowledged is there"
    report = Journal.report(path)
    assert (report.lost, report.kinds["gap"], report.torn_bytes, report.damaged_bytes) == (
        int(lost),
        1,
        0,
        0,
    )
    assert all(
        np.array_equal(r.values["q"], np.arange(7.0) + r.t) for r in found if r.kind == "sample"
    )


def test_attempts_on_a_full_disk_are_rare_and_a_layout_that_never_arrived_is_declared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls, full = os.pwrite, [], [True]

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        calls.append(len(data))
        if full[0]:
            if len(calls) % 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data[: len(data) // 2], offset)
        return real(fd, data, offset)

    journal = Journal(tmp_path / "a.journal")
    monkeypatch.setattr(module.os, "pwrite", pwrite)
    monkeypatch.setattr(module, "RETRY", 0.05)
    start = time.monotonic()
    answers = []
    while time.monotonic() - start < 0.3:
        answers.append(journal.append("sample", 1.0, q=np.ones(3)))
    assert not any(answers)
    assert len(answers) > 100
    assert len(calls) <= 10
    full[0] = False
    time.sleep(0.06)
    assert journal.append("sample", 2.0, q=np.ones(3))
    journal.close()
    gap, sample = Journal.read(tmp_path / "a.journal")
    assert (gap.kind, gap.values["lost"]) == ("gap", len(answers))
    assert (sample.t, sample.values["q"].tolist()) == (2.0, [1.0, 1.0, 1.0])
    assert journal.failed
    assert journal.error.exit_code == 6


# -- files -----------------------------------------------------------------------------------------


def test_files_are_set_aside_and_the_oldest_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    for part in range(3):
        with Journal(path, max_bytes=4096, keep=3) as journal:
            for k in range(100):
                journal.append("sample", float(100 * part + k), q=np.zeros(20))
    report = Journal.report(path)
    assert len(report.files) == 4
    assert report.files[-1] == "a.journal"
    assert report.bytes < 4 * (4096 + 400)
    times = [r.t for r in Journal.read(path)]
    assert times == [float(k) for k in range(300 - len(times), 300)]
    assert report.missing == 0
    assert report.first_number > 0
    whole = filled(tmp_path / "b.journal", 300, max_bytes=4096)
    assert len(list(Journal.read(whole))) == 300


def test_what_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("two years of work")
    for call in (Journal, Journal.report, lambda p: list(Journal.read(p))):
        with pytest.raises(MalformedInput, match=r"thesis\.txt is no journal"):
            call(path)
    assert path.read_text() == "two years of work"
    with Journal(tmp_path / "free.journal"):
        pass  # the refusal above holds no lock on anything


def test_refusals_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"nothing\.journal is not there"):
        Journal.report(tmp_path / "nothing.journal")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be opened"):
        Journal(tmp_path / "file" / "a.journal")
    for options, words in (
        ({"sync": "often"}, "sync is 'often'"),
        ({"max_bytes": 10}, "max_bytes is 10"),
        ({"keep": -1}, "keep is -1"),
    ):
        with pytest.raises(UsageError, match=words):
            Journal(tmp_path / "a.journal", **options)
    journal = Journal(tmp_path / "a.journal", sync="disk")
    assert journal.append("sample", 0.0, q=np.zeros(1))
    with pytest.raises(UsageError, match="too large for a journal"):
        journal.append("sample", 0.0, q=np.zeros(3_000_000))
    assert journal.append("sample", 1.0, q=np.zeros(1))
    journal.close()
    journal.close()
    with pytest.raises(UsageError, match="is closed"):
        journal.append("sample", 0.0)
