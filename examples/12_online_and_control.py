"""Identify an arm while it moves, and let its controller use the result once the gate opens.

    python examples/12_online_and_control.py

The loop below is the one of a real robot: read, control, push, wait for the next cycle. Here a simulated arm that is
not quite as its file says stands in for it. Until the buffer is full and every check of the gate holds, computed torque
runs on the file's values; then on the identified ones, without a step in the torques.
"""

from __future__ import annotations

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.excite.shapes import tick_tock
from thetahat.plant.built import as_built

RATE = 500.0  # [Hz]
SECONDS = 24.0


def main() -> None:
    nominal = th.load(robots.path("valkyrie_arm"))
    truth = as_built(nominal, seed=2)
    plant = th.OwnPlant(truth, realism=th.Realism.typical(truth))
    identifier = th.OnlineIdentifier(nominal.with_drive(viscous=True, coulomb=True, offset=True), rate=3.0, window=50, threshold=0.95)
    controller = th.Switched(identifier, lambda robot: th.ComputedTorque(robot, kp=400.0, kd=40.0), slew=50.0)
    motion = tick_tock(nominal, np.array([-0.6, -0.9, -1.0, -1.6]), np.array([0.9, 0.5, 0.9, -0.2]), time=1.6, repeats=7)
    wanted = motion.at(np.arange(0.0, SECONDS, 1.0 / RATE))

    plant.reset(wanted[0][0])
    said, errors = "", []
    for goal in zip(*wanted, strict=True):
        q, dq = plant.sense_motion()
        plant.command(controller(plant.t, q, dq, goal))
        identifier.push(plant.t, q, dq, plant.sense_torque())
        errors.append(goal[0] - plant.state.q)
        if identifier.gate.open and not said:
            said = f"{plant.t:.1f} s: {identifier.gate}"
            print(said)
        plant.advance(1.0 / RATE)
    rms = [np.sqrt(np.mean(np.square(part), axis=0)) for part in (errors[: int(15 * RATE)], errors[-int(4 * RATE) :])]
    for name, before, after in zip(nominal.joint_names, *rms, strict=True):
        print(f"{name:18} off course by {1e3 * before:6.1f} mrad before, {1e3 * after:5.1f} after")
    assert said, identifier.gate.reason
    assert np.all(rms[1] < rms[0])


if __name__ == "__main__":
    main()
