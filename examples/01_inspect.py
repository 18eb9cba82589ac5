"""What is in a robot file, and what can its motion tell about it?

    python examples/01_inspect.py [ROBOT]

ROBOT is a URDF or MJCF file; without it, the seven-joint arm that ships with the package. `thetahat
inspect` shows the same as tables.
"""

from __future__ import annotations

import sys

import thetahat as th
from thetahat import robots

robot = th.load(sys.argv[1] if len(sys.argv) > 1 else robots.path("arm7"))
print(
    f"{robot.name}: {robot.nv} degrees of freedom, {len(robot.body_names)} moving bodies,"
    f" {robot.mass:.3g} kg"
)
print("joints:", ", ".join(robot.joint_names))

# Links behind fixed joints are merged into the body that carries them; each body has ten inertial
# parameters.
for body, verdict in zip(robot.body_names, robot.consistency, strict=True):
    print(f"  {body:12} {'could be built' if verdict else verdict.condition}")

# Not all of them show in the torques: some never do, others only as sums. The sums are the base
# parameters.
base = th.base_parameters(robot)
print(f"{len(base)} base parameters of {base.columns} parameters; the last five:")
for name in base.names[-5:]:
    print(f"  {name}")
