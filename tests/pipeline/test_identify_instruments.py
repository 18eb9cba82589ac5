"""`identify` uses instruments by itself where a reference motion is there and the test asks for
them, and says so; references that cannot be one are refused in a sentence.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import simulated_log

import thetahat as th
from thetahat import robots
from thetahat.errors import MalformedInput, UsageError
from thetahat.identification.parameter_columns import prior_vector

QUICK = {"tune": False, "report": False, "armature": False, "cutoff": 12.0}
Table = dict[str, np.ndarray]


@cache
def table(*, encoder: float) -> Table:
    """A log of arm4 as it is in its file, with noise in its torques and positions, and with what was
    commanded.
    """
    robot = th.load(robots.path("arm4"))
    t, q, dq, ddq = simulated_log.motion(4)
    rng = np.random.default_rng(5)
    tau = th.inverse_dynamics(robot, q, dq, ddq)
    tau += 0.02 * rng.normal(size=tau.shape)
    measured = q + encoder * rng.normal(size=q.shape)
    out = {"t": t}
    for kind, values in (("q", measured), ("tau", tau), ("cmd", q)):
        out |= {f"{kind}.{name}": values[:, k] for k, name in enumerate(robot.joint_names)}
    return out


def identified(log: Table | Path, **settings: object) -> th.Identification:
    return th.identify("arm4", log, settings=th.IdentifySettings(**QUICK | settings))  # type: ignore[arg-type]


def error(result: th.Identification) -> float:
    """Of the base parameters, in torque: RMS of what the estimate mispredicts of a clean motion."""
    _, q, dq, ddq = simulated_log.motion(4, seed=3)
    truth = th.load(robots.path("arm4"))
    moved = np.abs(dq) > 0.2
    mine, right = (th.inverse_dynamics(robot, q, dq, ddq) for robot in (result.robot, truth))
    return float(np.sqrt(np.mean((mine - right)[moved] ** 2)))


def write(path: Path, log: Table, names: str = "t q tau cmd") -> Path:
    kinds = names.split()
    kept = {name: values for name, values in log.items() if name.partition(".")[0] in kinds}
    return simulated_log.write_csv(path, list(kept), np.column_stack(list(kept.values())))


@pytest.fixture(scope="module")
def noisy() -> th.Identification:
    return identified(table(encoder=1e-3))


def test_noise_in_the_motion_is_named_and_instruments_are_used(noisy: th.Identification) -> None:
    settings = noisy.data["provenance"]["settings"]
    assert settings["instruments"]
    (choice,) = [text for text in settings["tuned"] if text.startswith("instruments")]
    assert "from the commanded motion: noise in the motion biases" in choice
    (finding,) = [each for each in noisy.audit.findings if each.kind == "motion-noise"]
    assert finding.effect == "corrected"
    assert any("Durbin–Wu–Hausman" in reason for reason in noisy.verdict.reasons)
    plain = identified(table(encoder=1e-3), instruments=False)
    assert not plain.data["provenance"]["settings"]["instruments"]
    assert error(noisy) < 0.5 * error(plain)


def test_without_noise_in_the_motion_least_squares_stays() -> None:
    result = identified(table(encoder=0.0))
    without = {name: x for name, x in table(encoder=0.0).items() if not name.startswith("cmd")}
    plain = identified(without)
    assert not result.data["provenance"]["settings"]["instruments"]
    assert any(text.startswith("instruments not used") for text in result.tuned.reasons)
    assert not any("instruments" in text for text in plain.tuned.reasons)
    assert np.array_equal(result.estimate.x, plain.estimate.x)
    truth = result.estimate.base.map @ prior_vector(
        th.load(robots.path("arm4")), result.estimate.robot
    )
    assert np.max(np.abs(result.estimate.x_base - truth)) < 0.1 * np.max(np.abs(truth))


def test_files_stores_and_references_give_the_same_answer(
    noisy: th.Identification, tmp_path: Path
) -> None:
    log = table(encoder=1e-3)
    file = write(tmp_path / "log.csv", log)
    read = identified(file)
    stored = th.identify(
        "arm4", file, settings=th.IdentifySettings(**QUICK), store=tmp_path / "store"
    )
    planned = {f"q.{name[4:]}": x for name, x in log.items() if name.startswith("cmd.")}
    plan = write(tmp_path / "plan.csv", {"t": log["t"], **planned})
    referred = identified(write(tmp_path / "bare.csv", log, "t q tau"), reference=plan)
    largest = np.max(np.abs(noisy.estimate.x_base))
    # a reference of its own is filtered as a whole, beyond the rows that are fitted
    for other, tolerance in ((read, 1e-7), (stored, 1e-7), (referred, 1e-4)):
        assert other.data["provenance"]["settings"]["instruments"]
        apart = np.max(np.abs(other.estimate.x_base - noisy.estimate.x_base))
        assert apart < tolerance * largest


def test_least_squares_is_by_instruments_where_they_are_asked_for() -> None:
    result = identified(table(encoder=1e-3), method="least-squares", instruments=True)
    assert result.estimate.method == "instrumental"
    assert any("as asked" in text for text in result.tuned.reasons)
    bare = {k: v for k, v in table(encoder=0.0).items() if not k.startswith("cmd")}
    with pytest.raises(UsageError, match=r"there is no reference motion; log the commanded"):
        identified(bare, instruments=True)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_references_that_cannot_be_one_are_refused(tmp_path: Path) -> None:
    log = table(encoder=1e-3)
    file = write(tmp_path / "log.csv", log, "t q tau")
    joints = [name[2:] for name in log if name.startswith("q.")]
    late = write(tmp_path / "late.csv", {**log, "t": log["t"] + 60.0}, "t q")
    with pytest.raises(MalformedInput, match="without overlap; shift its time stamps"):
        identified(file, reference=late)
    fewer = {name: x for name, x in log.items() if not name.endswith(joints[-1])}
    with pytest.raises(MalformedInput, match=f"{joints[-1]} in one alone"):
        identified(file, reference=write(tmp_path / "fewer.csv", fewer, "t q"))
    still = {name: np.zeros_like(x) if name.startswith("q.") else x for name, x in log.items()}
    with pytest.raises(UsageError, match="its reference is constant"):
        identified(file, reference=write(tmp_path / "still.csv", still, "t q"))
    slow = {name: x[::40] for name, x in log.items()}
    with pytest.raises(MalformedInput, match=r"too few rows a second .* low-pass of 12 Hz"):
        identified(file, reference=write(tmp_path / "slow.csv", slow, "t q"))


def test_a_command_that_cannot_be_read_is_said_and_not_used(tmp_path: Path) -> None:
    log = dict(table(encoder=1e-3))
    name = next(each for each in log if each.startswith("cmd."))
    log[name] = np.where(np.arange(len(log["t"])) == 77, np.nan, log[name])
    with pytest.warns(UserWarning, match=f"the commanded motion is not used: .*{name}"):
        result = identified(write(tmp_path / "log.csv", log))
    assert not result.data["provenance"]["settings"]["instruments"]
