"""Drives of simulated robots from commanded positions: errors, intervals, and time beside CMA-ES.

    python -m benchmarks.drives                              # 50 robots: 20 arms, 10 quadrupeds, 20 with hobby servos
    python -m benchmarks.drives --kinds hobby --count 3 --first 100
    python -m benchmarks.drives --cma                        # the same objective by CMA-ES (package `cma`)

MuJoCo moves the robots (benchmarks/planted_drives.py). Arms log 100 or 200 Hz with noise, their gains
are unknown; quadrupeds hang with the trunk held, 200 Hz, kp and kd given; hobby servos log whole
encoder steps at 50 Hz and have backlash between gear and link. What a result states is compared with
the truth: `close` is armature and friction within 5 % or inside the 95 % interval, delay within
2 ms, bias within 2 mrad or inside its interval; `inside` whether intervals hold.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.planted_drives import KINDS, PlantedRobot, planted, robot_of
from thetahat.pipeline.actuators import actuators

COUNTS = {"arm": 20, "quadruped": 10, "hobby": 20}
NAMES = ("armature", "coulomb", "damping", "kp", "delay", "bias", "backlash")
RELATIVE = 0.05  # of armature, friction and gains
CLOSE = {"delay": 2e-3, "bias": 2e-3}  # [s], [rad]


@dataclass(frozen=True)
class Found:
    """One number of one joint beside its truth."""

    kind: str
    seed: int
    joint: str
    name: str
    value: float
    truth: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        return self.low <= self.truth <= self.high

    @property
    def close(self) -> bool:
        error = abs(self.value - self.truth)
        if self.name == "delay":
            return error <= CLOSE["delay"]
        return self.inside or error <= CLOSE.get(self.name, RELATIVE * abs(self.truth))


def truths(robot: PlantedRobot, joint: int) -> dict[str, float]:
    drives = robot.drives
    return {
        "armature": float(drives.armature[joint]),
        "coulomb": float(drives.coulomb[joint]),
        "damping": float(drives.kd[joint] + drives.viscous[joint]),
        "kp": float(drives.kp[joint]),
        "delay": drives.delay,
        "bias": float(drives.bias[joint]),
        "backlash": float(drives.play[joint]),
    }


def run(kind: str, seed: int, folder: Path) -> tuple[list[Found], dict[str, object]]:
    """Identify one robot; return its numbers beside the truth, and errors and time."""
    robot = robot_of(kind, seed)
    file, log = planted(folder, robot, seed=seed)
    given: dict[str, object] = {}
    if kind == "quadruped":
        given = {"kp": list(robot.drives.kp), "kd": list(robot.drives.kd)}
    began, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = actuators(str(file), str(log), **given).data
    seconds, processor = time.perf_counter() - began, time.process_time() - used
    out = []
    for at, joint in enumerate(data["joints"]):
        for name, truth in truths(robot, at).items():
            interval = joint["interval"][name]
            if interval is not None:
                numbers = (joint[name], truth, *interval)
                out.append(Found(kind, seed, joint["name"], name, *numbers))
    info = {
        **{"kind": kind, "seed": seed, "joints": len(data["joints"]), "seconds": seconds},
        **{"processor": processor, "rms_test": data["rms_test"], "friction": data["friction"]},
        **{"verdict": data["verdict"]["level"], "rows_per_sample": data["rows_per_sample"]},
        "reported": len(out),
    }
    return out, info


def size(found: Found) -> float:
    """Return what an error is relative to; of backlash where there is none, a milliradian."""
    return abs(found.truth) or 1e-3


def summary(found: list[Found]) -> Iterator[str]:
    """Yield lines of a table: how many of each number are close, and how many intervals hold."""
    yield f"{'':22}{'count':>6}{'close':>8}{'inside':>8}{'median error':>14}{'median ±':>10}"
    for kind in (*KINDS, "all"):
        for name in (*NAMES, "all"):
            mine = [f for f in found if kind in (f.kind, "all") and name in (f.name, "all")]
            if not mine:
                continue
            error = np.median([abs(f.value - f.truth) / size(f) for f in mine])
            half = np.median([0.5 * (f.high - f.low) / size(f) for f in mine])
            close, inside = (
                np.mean([getattr(f, each) for f in mine]) for each in ("close", "inside")
            )
            yield f"{kind + ' ' + name:22}{len(mine):6}{close:8.3f}{inside:8.3f}{error:14.4f}{half:10.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--count", type=int, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--out", type=Path, help="JSON lines, one per number")
    parser.add_argument(
        "--cma", action="store_true", help="time to the same objective, CMA-ES beside"
    )
    arguments = parser.parse_args()
    if arguments.cma:
        from benchmarks.drives_cma import compare

        for kind in arguments.kinds.split(","):
            print(json.dumps(compare(kind, arguments.first)), flush=True)
        return
    found: list[Found] = []
    for kind in arguments.kinds.split(","):
        for seed in range(arguments.first, arguments.first + (arguments.count or COUNTS[kind])):
            with tempfile.TemporaryDirectory() as folder:
                more, info = run(kind, seed, Path(folder))
            found += more
            print(json.dumps(info), flush=True)
            if arguments.out is not None:
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(asdict(each)) + "\n" for each in more)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
