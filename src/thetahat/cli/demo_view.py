"""Terminal output of `demo`."""

from __future__ import annotations

from thetahat.cli.terminal import show
from thetahat.report.section import Column, Text
from thetahat.report.sections.torques import SCORES, table_of
from thetahat.report.text import Data
from thetahat.report.verdict_section import verdict_lines

COLUMNS = {
    "name": SCORES["name"],
    "r2_nominal": Column("R² nominal", decimals=4),
    "r2_test": Column("R² identified", decimals=4, limits=(0.8, 0.95), brief="identified"),
    "rms_nominal": Column("RMS nominal"),
    "rms_test": Column("RMS identified", brief="identified"),
    "tracking_nominal": Column("tracking nominal"),
    "tracking": Column("tracking identified", brief="identified"),
}


def draw(result: Data) -> None:
    """Print the scores to stdout. result: plain data, schema thetahat/demo/1."""
    engine = "MuJoCo" if result["plant"] == "mujoco" else "the built-in simulator"
    files, robot = result["files"], result["robot"]
    identified = f"Identified robot: {files['robot']}. " if "robot" in files else ""
    joints = [
        {
            **joint,
            "tracking_nominal": 1e3 * joint["tracking_rms_nominal"],
            "tracking": 1e3 * joint["tracking_rms"],
        }
        for joint in result["joints"]
    ]
    total = {f"r2_{kind}": result["r2"][kind] for kind in ("nominal", "test")}
    note = (
        "R² and RMS of the torque residual [N·m] over the rows of the other motion, standstill"
        " included; RMS of the tracking error in computed torque [mrad]."
    )
    show(
        [
            verdict_lines(result),
            Text(
                f"{robot} with parameters slightly off its file, simulated by {engine} with"
                " friction, noise and delay. Identified from the log of one motion; scored on"
                " another."
            ),
            table_of([*joints, {"name": "all", **total}], COLUMNS, note=note),
            [
                Text(f"Done in {result['seconds']:.0f} s. Report: {files['report']}"),
                Text(f"{identified}Parameters: {files['estimate']}"),
                Text(f"On your own robot: thetahat identify {robot}.urdf log.csv --out result"),
            ],
        ]
    )
