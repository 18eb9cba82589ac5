"""Section on what to do with a result: its files, a few lines of Python, commands."""

from __future__ import annotations

import shlex

from thetahat.report.section import Block, Code, Section, Text
from thetahat.report.text import Data


def use(estimate: Data) -> Section:
    """Return the files, the Python lines and the commands that use them."""
    origin, written = estimate["provenance"], estimate.get("parity") or {}
    source = shlex.quote(origin.get("robot_file") or "ROBOT")
    robot, drive = written.get("file"), written.get("drive_file")
    blocks: list[Block] = []
    if robot is None:
        usable = estimate["verdict"]["level"] != "not usable"
        how = "`result.save(folder)` writes it" if usable else "`--force` writes it all the same"
        text = f"There is no robot file ({how}); `estimate.json` holds all parameters."
        lines = [f"thetahat validate {source} OTHER_LOG --estimate estimate.json"]
        blocks += [Text(text), Code("\n".join(lines), "Score the parameters on another log:")]
        return Section("How to use the result", "use", tuple(blocks))
    beside = f" with `{drive}` (what its format cannot hold)" if drive else ""
    text = (
        f"`{robot}`{beside} is a copy of your robot file with the identified values;"
        " `estimate.json` holds parameters, standard deviations, scores and this verdict."
    )
    model = shlex.quote(robot)
    lines = [
        f"thetahat validate {model} OTHER_LOG --against {source}",
        f"thetahat excite {model} --out motion.csv",
        f"thetahat simulate {model} motion.csv --out simulated.csv",
    ]
    blocks += [
        Text(text),
        Code(python_lines(robot), "In Python, in the folder of these files:"),
        Code("\n".join(lines), "Score it on another log; design a motion, and simulate it:"),
    ]
    return Section("How to use the result", "use", tuple(blocks))


def python_lines(robot: str) -> str:
    """Return the lines that load the identified robot and make a controller of it."""
    return "\n".join(
        [
            "import thetahat as th",
            "from thetahat.model.io.save import with_drive_file",
            f"robot = with_drive_file(th.load({robot!r}))  # friction and offsets included",
            "controller = th.ComputedTorque(robot, kp=400.0, kd=40.0)",
        ]
    )
