"""`--via`: which connection a text names, and what is refused before anything is connected."""

from __future__ import annotations

import pytest
from plant_cases import load

from thetahat.connect.open_connection import FORMS, KINDS, Address
from thetahat.connect.ros2 import Ros2Address
from thetahat.connect.sim_process import SimulatorLink
from thetahat.connect.sim_server import SimulationSetup
from thetahat.errors import RefusedForSafety, UsageError


def test_addresses_name_their_link() -> None:
    assert Address.parse("sim") == Address("sim", SimulatorLink(""))
    assert Address.parse("sim:/tmp/robot").link == SimulatorLink("/tmp/robot")
    assert Address.parse("ros2:/a,effort=/b").link == Ros2Address("/a", "effort", "/b")
    assert all(name in FORMS for name in KINDS)


@pytest.mark.parametrize("text", ["", "telepathy", "telepathy:host", "SIM"])
def test_other_kinds_are_refused_with_a_list(text: str) -> None:
    with pytest.raises(UsageError, match="connections: sim, ros2"):
        Address.parse(text)


def test_nothing_real_moves_without_leave() -> None:
    for kind in KINDS.keys() - {"sim"}:
        address = Address(kind, SimulatorLink())
        address.require_allowed(motion=False, allowed=False)
        address.require_allowed(motion=True, allowed=True)
        with pytest.raises(RefusedForSafety, match="--allow-motion"):
            address.require_allowed(motion=True, allowed=False)
    Address.parse("sim").require_allowed(motion=True, allowed=False)


def test_a_robot_whose_address_takes_no_commands_is_not_opened_for_them() -> None:
    setup = SimulationSetup(load("arm4"))
    with pytest.raises(UsageError, match=r"add ,position=TOPIC"):
        Address.parse("ros2:/a").open(setup, "position")
