"""Identify an arm while it moves, and let its controller use the result once the gate opens.

    python examples/12_online_and_control.py

The loop below is the one of a real robot: read a sample, let the identifier judge it, command with
the model that its gate allows, write everything down. Here a simulated arm that is not quite as its
file says stands in for the robot, and a clock that does not wait for the real one. Until the buffer
is full and every check of the gate holds, computed torque runs on the file's values; then on the
identified ones, without a step in the torques.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.control.journal import Journal
from thetahat.control.loop import Loop
from thetahat.control.loop_timing import VirtualClock
from thetahat.control.model_switch import ModelSwitch
from thetahat.control.online_control import OnlineControl
from thetahat.excite.trajectories import tick_tock
from thetahat.plant.perturb import perturb

RATE = 500.0  # [Hz]
SECONDS = 24.0


def main() -> None:
    nominal = th.load(robots.path("valkyrie_arm"))
    truth = perturb(nominal, seed=2)
    plant = th.OwnPlant(truth, realism=th.Realism.typical(truth))
    identifier = th.OnlineIdentifier(nominal.with_drive(viscous=True, coulomb=True, offset=True))
    controller = ModelSwitch(
        identifier, lambda robot: th.ComputedTorque(robot, kp=400.0, kd=40.0), slew=50.0
    )
    poses = [-0.6, -0.9, -1.0, -1.6], [0.9, 0.5, 0.9, -0.2]
    motion = tick_tock(nominal, *poses, time=1.6, repeats=7)
    goals = motion.at(np.arange(0.0, SECONDS + 1.0, 1.0 / RATE))
    errors = []

    def wanted(t: float) -> tuple[np.ndarray, ...]:
        return tuple(each[round(t * RATE)] for each in goals)

    def read() -> tuple:
        return plant.t, *plant.sense_motion(), plant.sense_torque()

    def write(tau: np.ndarray) -> None:
        errors.append(wanted(plant.t)[0] - plant.state.q)
        plant.command(tau)
        plant.advance(1.0 / RATE)

    plant.reset(goals[0][0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.journal"
        with Journal(path) as journal:
            online = OnlineControl(identifier, controller, wanted=wanted, journal=journal)
            Loop(RATE, clock=VirtualClock()).run(read, online, write, duration=SECONDS)
        gates = [record for record in Journal.read(path) if record.kind == "gate"]
        opened = [record for record in gates if record.values["open"]]
        assert opened, identifier.gate.reason
        print(f"{opened[0].t:.1f} s: open: {opened[0].values['reason']}")
        print(f"the journal holds {Journal.report(path)}")
    rms = [
        np.sqrt(np.mean(np.square(part), axis=0))
        for part in (errors[: int(15 * RATE)], errors[-int(4 * RATE) :])
    ]
    for name, before, after in zip(nominal.joint_names, *rms, strict=True):
        print(f"{name:18} off course by {1e3 * before:6.1f} mrad before, {1e3 * after:5.1f} after")
    assert np.all(rms[1] < rms[0])


if __name__ == "__main__":
    main()
