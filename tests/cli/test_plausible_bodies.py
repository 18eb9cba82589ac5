"""Limits on links from the command line, and what is told of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from identify_cases import Done

import thetahat as th
from thetahat import robots

Thetahat = Callable[..., Done]
LINKS = th.load(robots.path("arm4")).body_names
FAR = 1e-3  # relative, by which a bound may be missed


@pytest.fixture
def light(tmp_path: Path) -> Path:
    """A file whose links weigh a tenth of those of the robot that moved."""
    path = tmp_path / "light.urdf"
    robot = th.load(robots.path("arm4"))
    th.save(robot.with_parameters(0.1 * robot.theta), path)
    return path


def masses(done: Done) -> dict[str, float]:
    assert done.code == 0, done.err
    return {link["name"]: link["mass"] for link in done.data["links"]}


def test_a_plausible_result_says_so(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--json")
    found = done.data["plausibility"]
    assert found["mass_range"] == [pytest.approx(1 / 3), 3.0]
    assert found["given_up"] == found["on_bound"] == []
    assert found["placeholder"] is None
    assert [link["name"] for link in found["links"]] == list(LINKS)
    for link in found["links"]:
        assert 1 / 3 <= link["mass_ratio"] <= 3.0
        assert link["com_outside"] == 0.0
        assert 0.0 < link["size_ratio"] < 2.0
    assert found["total_mass"] == pytest.approx(sum(masses(done).values()))


def test_bounds_that_the_log_rejects_are_told(
    thetahat: Thetahat, log: Path, tmp_path: Path, light: Path
) -> None:
    """Without bounds the same log gives the same torques."""
    out = tmp_path / "out"
    bounded = thetahat("identify", light, log, "--out", out, "--json").data
    free = thetahat("identify", light, log, "--out", out, "--json", "--mass-range", "none").data
    given_up = bounded["plausibility"]["given_up"]
    assert given_up
    assert all(each["evidence"] > each["threshold"] for each in given_up)
    for each in given_up:
        assert any(each["name"] in sentence for sentence in bounded["advice"])
    assert bounded["r2"]["test"] == pytest.approx(free["r2"]["test"], abs=1e-3)
    assert free["plausibility"]["mass_range"] is None
    assert free["plausibility"]["given_up"] == []
    shown = thetahat("identify", light, log, "--out", out, "-v")
    assert "Given up, as the log rejects it" in shown.out
    if bounded["plausibility"]["on_bound"]:
        assert "On a bound: " in shown.out


def test_stated_limits_hold(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    nominal = th.load(robots.path("arm4")).theta.reshape(-1, 10)
    low = 1.5 * nominal[2, 9]
    limits = f"{LINKS[2]}:mass={low}..{2 * low},com=-1..1/-1..1/-0.01..0.01;{LINKS[0]}:mass=2..3"
    done = thetahat(
        "identify", "arm4", log, "--out", tmp_path, "--json", "--bounds", limits,
        "--total-mass", "14.5,16", "--frozen", LINKS[1],
    )  # fmt: skip
    found = masses(done)
    assert low * (1 - FAR) <= found[LINKS[2]] <= 2 * low * (1 + FAR)
    assert 2.0 * (1 - FAR) <= found[LINKS[0]] <= 3.0 * (1 + FAR)
    assert 14.5 * (1 - FAR) <= sum(found.values()) <= 16.0 * (1 + FAR)
    assert abs(done.data["links"][2]["com"][2]) <= 0.0101
    assert found[LINKS[1]] == pytest.approx(nominal[1, 9], rel=1e-9)
    assert done.data["provenance"]["settings"]["frozen"] == [LINKS[1]]


def test_links_that_are_alike(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    tie = f"{LINKS[0]}={LINKS[1]}:x"
    done = thetahat("identify", "arm4", log, "--out", tmp_path, "--json", "--tied", tie)
    first, second = (np.array(done.data["links"][k]["com"]) for k in (0, 1))
    assert second == pytest.approx(first * [-1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--mass-range", "3", "LOW,HIGH"),
        ("--mass-range", "2,3", "around 1"),
        ("--mass-range", "a,b", "factors"),
        ("--mass-range", "1/0,3", "factors"),
        ("--total-mass", "-1", "above 0"),
        ("--total-mass", "5,2", "above 0"),
        ("--bounds", "forearm", "LINK:mass"),
        ("--bounds", "forearm:mass=a..b", "LOW..HIGH"),
        ("--bounds", "forearm:mass=4..2", "LOW..HIGH"),
        ("--bounds", "forearm:length=1..2", "LINK:mass"),
        ("--bounds", "nobody:mass=1..2", "no moving body"),
        ("--frozen", "nobody", "no moving body"),
        ("--tied", "a-b", "A=B"),
        ("--tied", "a=b:w", "A=B"),
    ],
)
def test_what_cannot_be_used_is_refused(
    thetahat: Thetahat, log: Path, tmp_path: Path, option: str, value: str, words: str
) -> None:
    done = thetahat("identify", "arm4", log, "--out", tmp_path / "out", option, value)
    assert done.code == 2
    assert words in done.err


def test_other_methods_take_no_limits(thetahat: Thetahat, log: Path, tmp_path: Path) -> None:
    plain = ["identify", "arm4", log, "--out", tmp_path, "--json", "--method", "least-squares"]
    assert thetahat(*plain, "--total-mass", "3").code == 2
    assert thetahat(*plain).data["plausibility"]["mass_range"] is None


def test_a_total_mass_that_the_log_rejects_is_given_up(
    thetahat: Thetahat, log: Path, tmp_path: Path
) -> None:
    plain = ["identify", "arm4", log, "--out", tmp_path, "--json"]
    done = thetahat(*plain, "--total-mass", "5")
    (rejected,) = done.data["plausibility"]["given_up"]
    assert rejected["name"] == "total mass in 5 … 5 kg"
    assert sum(masses(done).values()) > 8.0
    held = thetahat(*plain, "--total-mass", "20")  # the first link's mass moves no joint
    assert sum(masses(held).values()) == pytest.approx(20.0, rel=1e-6)


@pytest.fixture
def weightless(tmp_path: Path) -> Path:
    """A file as vendors publish them: geometry, and no inertia."""
    robot = th.load(robots.path("arm4"))
    assert robot.source is not None
    text = re.sub(r'<mass value="[^"]*"', '<mass value="0"', robot.source.read_text())
    path = tmp_path / "empty.urdf"
    path.write_text(re.sub(r'(i[xyz]{2})="[^"]*"', r'\1="0"', text))
    return path


def test_a_robot_without_masses_is_identified(
    thetahat: Thetahat, log: Path, tmp_path: Path, weightless: Path
) -> None:
    """The prior fills its regions, and bounds no mass but by the density of steel."""
    done = thetahat("identify", weightless, log, "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    found = done.data["plausibility"]
    assert found["placeholder"] == "no body has mass"
    assert found["total_mass_file"] == 0.0
    assert all(link["mass_ratio"] is None for link in found["links"])
    assert done.data["r2"]["test"] > 0.95


@pytest.mark.slow
def test_the_prior_of_a_robot_without_masses_is_weak(
    thetahat: Thetahat, log: Path, tmp_path: Path, weightless: Path
) -> None:
    done = thetahat("identify", weightless, log, "--out", tmp_path / "out", "--json", "--tune")
    assert done.data["provenance"]["settings"]["prior_weight"] <= 0.1
