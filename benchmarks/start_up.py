"""Import time, and the one-time cost of compiling every kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

IMPORT = "import time; t = time.perf_counter(); import thetahat; print(time.perf_counter() - t)"
COMPILE = """
import time, numpy as np, thetahat as th
from thetahat import robots
from thetahat.dynamics.rigid_body import body_frames, body_jacobian
robot = th.load(robots.path("arm4"))
z = np.zeros(robot.nv)
samples = th.Samples(**{name: np.zeros((8, robot.nv)) for name in ("q", "dq", "ddq", "tau")})
calls = {
    "regressor": lambda: th.regressor(robot, z, z, z), "inverse dynamics": lambda: th.inverse_dynamics(robot, z, z, z),
    "mass matrix": lambda: th.mass_matrix(robot, z), "Coriolis matrix": lambda: th.coriolis_matrix(robot, z, z),
    "forward dynamics": lambda: th.forward_dynamics(robot, z, z, z), "kinetic energy": lambda: th.kinetic_energy(robot, z, z),
    "potential energy": lambda: th.potential_energy(robot, z), "body Jacobian": lambda: body_jacobian(robot, z, robot.body_names[-1]),
    "body frames": lambda: body_frames(robot, z), "information": lambda: th.information(robot, samples),
}
for name, call in calls.items():
    t = time.perf_counter()
    call()
    print(f"{name}\\t{time.perf_counter() - t:.3f}")
from thetahat.kernels.jit import compilation
print(f"compiling\\t{compilation.seconds:.3f}")
"""


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def main() -> None:
    print(f"\nimport thetahat: {min(float(run(IMPORT)) for _ in range(5)):.3f} s (may take 0.5)")
    with tempfile.TemporaryDirectory() as folder:
        for when in ("cold", "cached"):
            rows = [
                line.split("\t")
                for line in run(COMPILE, NUMBA_CACHE_DIR=folder, THETAHAT_QUIET="1").splitlines()
            ]
            *rows, (_, compiling) = rows
            total = sum(float(seconds) for _, seconds in rows)
            print(
                f"first calls, {when}: {total:.2f} s in all, of it compiling {float(compiling):.2f}"
                " (may take 20)"
            )
            print("   " + ", ".join(f"{name} {float(seconds):.2f}" for name, seconds in rows))


if __name__ == "__main__":
    main()
