"""Robot files that load with a warning, and files with anything at all in them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from bad_robot_cases import AXIS, GOOD, MASS, ORIGIN, changed, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thetahat.errors import (
    RobotWarning,
    ThetahatError,
)
from thetahat.model.io.load import load

WARNED = {
    "negative mass": (
        [(MASS, 'mass value="-1"')],
        r"arm.urdf: link 'upper' is not physical: mass is negative \(-1 kg\)",
    ),
    "massless leaf": (
        [
            ('mass value="0.5"', 'mass value="0"'),
            (
                'ixx="0.002" ixy="0" ixz="0" iyy="0.002" iyz="0" izz="0.001"',
                'ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"',
            ),
        ],
        r"arm.urdf: link 'lower' moves, carries nothing and has no mass",
    ),
    "indefinite inertia": (
        [('izz="0.01"', 'izz="-0.01"')],
        r"link 'upper' is not physical: inertia .* negative principal moment \(-0.01",
    ),
    "triangle inequality": (
        [('izz="0.01"', 'izz="0.05"')],
        r"link 'upper' is not physical: principal moments .* triangle inequality",
    ),
    "grams": (
        [(MASS, 'mass value="1500"'), ('mass value="0.5"', 'mass value="500"')],
        r"arm.urdf: link 'upper' weighs 1500 kg; if the file is in grams",
    ),
    "grams of a light robot": (
        [(MASS, 'mass value="150"'), ('mass value="0.5"', 'mass value="50"')],
        r"arm.urdf: the links are too dense to be real",
    ),
    "millimetres in a joint": (
        [(ORIGIN, 'origin xyz="0 0 300"')],
        r"arm.urdf: joint 'shoulder' is 300 m from its parent; if .* millimetres",
    ),
    "millimetres in a centre of mass": (
        [('xyz="0 0 0.1"', 'xyz="0 0 100"')],
        r"arm.urdf: the centre of mass of link 'upper' is 100 m off",
    ),
    "square millimetres": (
        [
            ('ixx="0.02"', 'ixx="20000"'),
            ('iyy="0.02"', 'iyy="20000"'),
            ('izz="0.01"', 'izz="10000"'),
        ],
        (
            r"arm.urdf: the links' mean radius of gyration is .* m, link 'upper' most; if inertia"
            r" is in kg·mm²"
        ),
    ),
}


EXTREME = {
    "largest": [
        (MASS, 'mass value="1e30"'),
        ("0 0 0.1", "0 0 1e30"),
        ("revolute", "fixed"),
        ("0 0 0.3", "1e30 -1e30 1e30"),
    ],
    "smallest": [
        (MASS, 'mass value="5e-324"'),
        ("0 0 0.1", "0 0 1e30"),
        (ORIGIN, 'origin rpy="1e30 1e300 -1e300"'),
    ],
    "friction": [
        (
            f"<{AXIS}/>",
            (
                f'<{AXIS}/><mimic joint="elbow" multiplier="1e30" offset="-1e30"/><dynamics'
                ' damping="1e30" friction="1e30"/>'
            ),
        )
    ],
}


@pytest.mark.parametrize("case", WARNED)
def test_loads_with_a_warning(tmp_path: Path, case: str) -> None:
    changes, pattern = WARNED[case]
    with pytest.warns(RobotWarning, match=pattern):
        robot = load(save(tmp_path, changed(*changes)))
    assert robot.nv == 2
    assert np.all(np.isfinite(robot.theta))


@pytest.mark.parametrize("case", EXTREME)
def test_extreme_but_accepted_values_stay_finite(tmp_path: Path, case: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        robot = load(save(tmp_path, changed(*EXTREME[case])), floating_base=True)
    for array in (robot.theta, *robot.tree.arrays, robot.drive.viscous, robot.drive.coulomb):
        assert np.all(np.isfinite(array))


def test_a_negative_mass_stays_what_the_file_says(tmp_path: Path) -> None:
    """Pinocchio keeps −1, Drake turns it into +1: we keep it and report it."""
    with pytest.warns(RobotWarning):
        robot = load(save(tmp_path, changed((MASS, 'mass value="-1"'))))
    assert robot.theta[9] == -1.0
    assert [bool(verdict) for verdict in robot.consistency] == [False, True]


# -- anything at all -------------------------------------------------------------------------------

NASTY = st.sampled_from(
    [
        b"<",
        b">",
        b'"',
        b"&",
        b"\0",
        b"nan",
        b"1e999",
        b"-",
        b" ",
        b"</robot>",
        b"<link/>",
        b"\xff",
        b"base",
        b"lower",
        b"${x}",
        b"&#10;",
    ]
)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    edits=st.lists(
        st.tuples(
            st.integers(0, len(GOOD)), st.integers(0, 12), st.one_of(NASTY, st.binary(max_size=3))
        ),
        min_size=1,
        max_size=3,
    )
)
def test_damaged_files_load_or_are_refused(
    tmp_path: Path, edits: list[tuple[int, int, bytes]]
) -> None:
    """Whatever bytes are lost or changed: a robot of finite numbers, or one sentence."""
    data = GOOD.encode()
    for at, lost, new in edits:
        data = data[:at] + new + data[at + lost :]
    path = save(tmp_path, data)
    robot, error = None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        try:
            robot = load(path)
        except ThetahatError as refused:
            error = refused
    if robot is None:
        assert error.exit_code in (3, 7)
        assert path.name in str(error)
        assert str(error).isprintable()
    else:
        assert np.all(np.isfinite(robot.theta))
        assert all(np.all(np.isfinite(array)) for array in robot.tree.arrays)
