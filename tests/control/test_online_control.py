"""The assembled online run: the identifier sees a sample before the controller, everything is on
record, and a kill loses nothing of it.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from data_paths import ROOT
from online_run_cases import OPEN, RATE, Rig, identifier, stream, truth

import thetahat as th
from thetahat.control import journal as module
from thetahat.control.journal import Journal
from thetahat.control.loop import Cycle
from thetahat.control.online_control import OnlineControl, resume
from thetahat.errors import StorageError, UsageError
from thetahat.online.identifier import OnlineIdentifier

SLOW_KILLS = 30


def nominal_command(rig: Rig, k: int) -> np.ndarray:
    """What the nominal model alone commands for sample k."""
    _, q, dq, _ = rig.samples[k]
    return rig.make(rig.identifier.nominal)(0.0, q, dq, rig.wanted(k / RATE))


# -- the order of a cycle --------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("channel", [1, 2, 3])
def test_what_is_wrong_with_a_sample_closes_the_gate_for_this_very_cycle(
    channel: int, value: float
) -> None:
    """A number that is not finite in, and the nominal model is in charge in this cycle; the sample
    reaches no law: the last command is held.
    """
    rig = Rig()
    rig.run(OPEN)
    assert rig.controller.identified
    sample = list(rig.samples[rig.at])
    sample[channel] = sample[channel].copy()
    sample[channel][2] = value
    before = rig.written[-2]  # the last is the loop's halt
    tau = rig.online(Cycle(rig.at, rig.at / RATE, 0.0, False, 0), tuple(sample))
    assert not rig.controller.identified
    assert rig.controller.robot is rig.identifier.nominal
    assert np.array_equal(tau, before)


def test_a_stall_and_a_dead_channel_fall_back_in_their_cycle() -> None:
    rig = Rig()
    rig.run(OPEN)
    tau = rig.online(Cycle(rig.at, rig.at / RATE, 0.3, True, 0), rig.samples[rig.at])
    assert not rig.controller.identified
    assert np.array_equal(tau, nominal_command(rig, rig.at))
    rig = Rig()
    rig.run(OPEN)
    at = rig.at
    for k in range(at, at + 60):
        t, q, dq, tau = rig.samples[k]
        rig.samples[k] = (t, q, dq, np.array([tau[0], rig.samples[at][3][1], *tau[2:]]))
    for k in range(at, at + 60):
        rig.online(Cycle(k, k / RATE, 0.0, False, 0), rig.samples[k])
        assert rig.controller.identified == rig.identifier.gate.open, (
            "the gate of this cycle, not of the last"
        )
    assert not rig.controller.identified


def test_cycles_without_a_sample_are_told_to_the_identifier() -> None:
    rig = Rig()
    at = round(OPEN * RATE)
    rig.samples[at : at + 5] = [None] * 5
    rig.samples[at + 100 :] = [None] * 60
    report = rig.run()
    assert report.reason == "20 samples in a row are missing"
    assert rig.identifier.events.counts["missing"] == 25
    assert report.held == 5 + 19
    assert not rig.identifier.gate.open
    assert "20 samples in a row are missing" in rig.identifier.gate.reason


def test_refusals_are_sentences() -> None:
    rig = Rig()
    with pytest.raises(UsageError, match=r"give \(t, q, dq, tau\)"):
        rig.online(Cycle(0, 0.0, 0.0, False, 0), (np.zeros(4), np.zeros(4)))
    for controller in (Rig().controller, rig.make(truth())):
        with pytest.raises(UsageError, match="is not switched by this identifier"):
            OnlineControl(rig.identifier, controller, wanted=rig.wanted)


# -- the journal -----------------------------------------------------------------------------------


def test_the_journal_holds_what_was_measured_and_decided(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "run.journal")
    rig.samples[700] = None
    t, q, dq, tau = rig.samples[800]
    rig.samples[800] = (t, q, dq, tau * np.nan)
    report = rig.run()
    rig.journal.close()
    assert report.alarms == ()
    records = list(Journal.read(tmp_path / "run.journal"))
    kinds = Journal.report(tmp_path / "run.journal").kinds
    assert (kinds["begin"], kinds["sample"], kinds["missing"], kinds["halt"]) == (
        1,
        len(stream()) - 1,
        1,
        1,
    )
    samples = [r for r in records if r.kind == "sample"]
    given = [sample for sample in rig.samples if sample is not None]
    for name, column in (("q", 1), ("dq", 2), ("measured", 3)):
        assert np.array_equal(
            [r.values[name] for r in samples], [s[column] for s in given], equal_nan=True
        )
    assert np.array_equal(
        [r.values["tau"] for r in samples], np.delete(rig.written[:-1], 700, axis=0)
    ), "commands, without the one that was held"
    other = (
        identifier()
    )  # dry friction makes torques leap, so more samples than the one are turned away
    used = [
        (other.miss() if sample is None else other.push(*sample)).accepted for sample in rig.samples
    ]
    came = [each for each, sample in zip(used, rig.samples, strict=True) if sample is not None]
    assert [bool(r.values["used"]) for r in samples] == came
    assert not samples[799].values["used"]
    gates = [r for r in records if r.kind == "gate"]
    assert gates[-1].values == {"open": True, "reason": rig.identifier.gate.reason}
    switches = [r for r in records if r.kind == "switch"]
    assert len(switches) == rig.controller.switches
    assert np.array_equal(switches[-1].values["theta"], rig.controller.robot.theta)
    first = next(r.values["stamp"] for r in samples if r.values["identified"])
    assert first == pytest.approx(switches[0].t, abs=1e-9)
    assert {r.values["what"] for r in records if r.kind == "event"} == {"not finite", "opened"}
    assert f"{kinds['switch']} switch" in str(Journal.report(tmp_path / "run.journal")), (
        "and it says so"
    )


def test_a_payload_is_an_alarm_in_the_report_and_in_the_journal(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "run.journal")
    data, at = stream(), round(OPEN * RATE)
    heavy = th.inverse_dynamics(
        replace(truth(), theta=1.5 * truth().theta), data.q, data.dq, data.ddq
    )
    for k in range(at, len(rig.samples)):
        rig.samples[k] = (*rig.samples[k][:3], heavy[k])
    report = rig.run(OPEN + 2.0)
    rig.journal.close()
    told = [
        r.values["sentence"] for r in Journal.read(tmp_path / "run.journal") if r.kind == "alarm"
    ]
    assert told == [rig.identifier.alarm.sentence]
    assert report.alarms == tuple(told)
    assert "ALARM" in str(report)


def test_a_full_disk_stops_no_control_and_is_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, free = os.pwrite, [200_000]

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if offset + len(data) > free[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(module.os, "pwrite", pwrite)
    plain, rig = Rig(), Rig(tmp_path / "run.journal")
    plain.run()

    def ended() -> None:
        with rig.journal:
            report = rig.run()
            assert report.reason == "until() came true"
            (alarm,) = report.alarms
            assert "lost records from number" in alarm
            assert "No space left on device" in alarm
            assert f"{rig.journal.lost} records so far" in alarm

    with pytest.raises(StorageError) as told:
        ended()
    assert told.value.exit_code == 6
    assert rig.controller.identified
    assert np.array_equal(rig.written, plain.written), "not one command is another for it"
    held = Journal.report(tmp_path / "run.journal")
    assert (
        0
        < held.kinds["sample"]
        == sum(r.kind == "sample" for r in Journal.read(tmp_path / "run.journal"))
    )


# -- after a kill ----------------------------------------------------------------------------------


def same_state(a: OnlineIdentifier, b: OnlineIdentifier) -> None:
    assert (a.gate.open, a.gate.reason, a.gate.since, a.gate.fill) == (
        b.gate.open,
        b.gate.reason,
        b.gate.since,
        b.gate.fill,
    )
    assert a.updates == b.updates
    assert a.events.counts == b.events.counts
    assert a.clock == b.clock
    assert np.array_equal(a.robot.theta, b.robot.theta)
    assert (a.estimate is None) == (b.estimate is None)
    if a.estimate is not None:
        assert np.array_equal(a.estimate.x_base, b.estimate.x_base)


@pytest.mark.parametrize("until", [0.5, 3.0, OPEN + 0.3, 9.0])
def test_an_identifier_fed_from_the_journal_ends_in_the_same_state(
    tmp_path: Path, until: float
) -> None:
    rig = Rig(tmp_path / "run.journal")
    rig.samples[300] = None
    rig.samples[400] = (*rig.samples[400][:3], np.full(4, np.nan))
    rig.run(until)
    rig.journal.close()
    again = identifier()
    count = resume(again, tmp_path / "run.journal")
    assert count == len([s for s in rig.samples[: rig.at] if s is not None])
    same_state(again, rig.identifier)
    for k in range(rig.at, min(rig.at + 500, len(rig.samples))):  # and goes on as the other does
        for one in (again, rig.identifier):
            one.miss() if rig.samples[k] is None else one.push(*rig.samples[k])
    same_state(again, rig.identifier)


def test_the_last_seconds_of_a_journal_are_enough_for_a_short_memory(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "run.journal")
    rig.run()
    rig.journal.close()
    again = identifier()
    assert resume(again, tmp_path / "run.journal", seconds=6.5) == pytest.approx(6.5 * RATE, abs=2)
    assert again.gate.open
    with pytest.raises(UsageError, match=r"seconds is -1\.0"):
        resume(again, tmp_path / "run.journal", seconds=-1.0)


def killed_again_and_again(path: Path, kills: int, rng: np.random.Generator) -> None:
    """An online run in a process of its own, killed at random moments; each one goes on from the
    journal of those before.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "support")]),
    }
    first = 0
    for kill in range(kills):
        code = (
            f"import online_run_cases; online_run_cases.child({str(path)!r}, {first},"
            f" again={kill > 0})"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment
        ) as running:
            assert running.stdout.readline(), "it runs"
            time.sleep(rng.uniform(0.0, 0.25))
            running.send_signal(signal.SIGKILL)
            told = running.stdout.read().split(b"\n")
        acknowledged = max([first, *(int(line) for line in told[:-1])])  # the last line may be cut
        samples = [r for r in Journal.read(path) if r.kind == "sample"]
        numbers = [round(r.values["stamp"] * RATE) for r in samples]
        assert numbers == list(range(len(numbers))), f"kill {kill}: every one once, and in order"
        assert numbers[-1] >= acknowledged, f"kill {kill}: an acknowledged cycle is missing"
        data = stream()
        for number, record in list(zip(numbers, samples, strict=True))[first:]:
            assert np.array_equal(record.values["measured"], data.tau[number % len(data)])
        held = Journal.report(path)
        assert held.missing == held.damaged_bytes == held.lost == 0
        assert held.kinds["begin"] == kill + 1
        again = identifier()
        assert resume(again, path) == len(numbers), "and it can be gone on from"
        first = len(numbers)
    assert first > 20 * kills


def test_kill_9_of_an_online_run_loses_no_acknowledged_cycle(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path / "run.journal", 2, np.random.default_rng(0))


@pytest.mark.slow
def test_kill_9_of_an_online_run_again_and_again(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path / "run.journal", SLOW_KILLS, np.random.default_rng(1))
    assert Journal.report(tmp_path / "run.journal").kinds["switch"] > 0
