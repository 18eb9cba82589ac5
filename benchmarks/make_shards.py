"""A long log of a simulated arm of six joints as Parquet files: `python -m benchmarks.make_shards
FOLDER SAMPLES [--file-rows N]`.

2·10⁷ samples are 20,000 s at 1 kHz and about 3 GB. Every file is another motion, and every number
of it follows from the seed.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.files import replacing, write_atomically
from thetahat.model.robot import Robot

RATE = 1000.0  # [Hz]
FILE_ROWS = 250_000
PIECE = 50_000  # rows computed at once
SINES = 2.0 * np.pi * np.array([0.11, 0.23, 0.41, 0.67, 1.09])  # [rad/s]
VISCOUS, COULOMB, OFFSET = 0.9, 1.7, 0.2  # of joint 1; joint k has 1/k of it
NOISE = {"q": 1e-5, "dq": 1e-3, "tau": 0.3}


def arm6(folder: Path) -> Robot:
    """The shipped arm with its last joint welded: six joints, the size of an industrial arm."""
    text = robots.path("arm7").read_text(encoding="utf-8")
    welded = re.sub(
        r'<joint name="joint7" type="revolute">', '<joint name="joint7" type="fixed">', text
    )
    folder.mkdir(parents=True, exist_ok=True)
    return th.load(write_atomically(folder / "arm6.urdf", welded))


def truth(robot: Robot) -> Robot:
    """The arm as it is built: friction that its file does not know."""
    size = 1.0 / np.arange(1, robot.nv + 1)
    with_terms = robot.without_drive().with_drive(viscous=True, coulomb=True, offset=True)
    return with_terms.with_parameters(
        np.concatenate([robot.theta, VISCOUS * size, COULOMB * size, OFFSET * size])
    )


def columns(built: Robot, rows: int, seed: int) -> dict[str, np.ndarray]:
    """One file's columns: t, q1 … tau6, with noise."""
    rng = np.random.default_rng([20240229, seed])
    n = built.nv
    amplitude, phase = (
        rng.uniform(-0.7, 0.7, (n, len(SINES))) / SINES**0.8,
        rng.uniform(0.0, 2.0 * np.pi, (n, len(SINES))),
    )
    t = np.arange(rows) / RATE
    out = {"t": t, **{f"{kind}{j + 1}": np.empty(rows) for kind in NOISE for j in range(n)}}
    for first in range(0, rows, PIECE):
        part = slice(first, min(first + PIECE, rows))
        angle = t[part, None, None] * SINES + phase
        sine, cosine = np.sin(angle), np.cos(angle)
        q, dq = np.sum(amplitude * sine, axis=2), np.sum(amplitude * SINES * cosine, axis=2)
        ddq = -np.sum(amplitude * SINES**2 * sine, axis=2)
        for kind, array in (("q", q), ("dq", dq), ("tau", th.inverse_dynamics(built, q, dq, ddq))):
            measured = array + rng.normal(0.0, NOISE[kind], array.shape)
            for j in range(n):
                out[f"{kind}{j + 1}"][part] = measured[:, j]
    return out


def make(folder: Path, samples: int, *, file_rows: int = FILE_ROWS) -> tuple[Robot, Path, int]:
    """(robot, folder of the logs, bytes written)."""
    import polars

    robot = arm6(folder)
    built, logs = truth(robot), folder / "logs"
    logs.mkdir(exist_ok=True)
    size = 0
    for number, first in enumerate(range(0, samples, file_rows)):
        path = logs / f"run{number:05d}.parquet"
        frame = polars.DataFrame(columns(built, min(file_rows, samples - first), number))
        with replacing(path) as scratch:
            frame.write_parquet(scratch, row_group_size=65_536)
        size += path.stat().st_size
    return robot, logs, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("samples", type=lambda text: int(float(text)))
    parser.add_argument("--file-rows", type=int, default=FILE_ROWS)
    asked = parser.parse_args()
    _, logs, size = make(asked.folder, asked.samples, file_rows=asked.file_rows)
    print(f"{asked.samples:,} samples, {size / 1e9:.2f} GB in {logs}")


if __name__ == "__main__":
    main()
