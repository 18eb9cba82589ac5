"""Write a designed motion as one self-contained HTML page in which the robot moves.

The robot is drawn by the script of the live page; the motion is in the page, at RATE frames per
second, between which the page interpolates.
"""

from __future__ import annotations

import os
import re
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from thetahat import __version__
from thetahat.excite.design import Design
from thetahat.files import write_atomically
from thetahat.model.io.primitives import ellipsoid
from thetahat.model.robot import Robot
from thetahat.report.figures.stick_figure import Skeleton
from thetahat.report.page import asset, embedded, head

RATE = 30.0  # [Hz] frames in the page
MOST_FRAMES = 3_000
DIGITS = 4
SCRIPTS = ("format.js", "scheduler.js", "robot.js", "motion_preview.js")


def write_preview(design: Design, robot: Robot, path: str | os.PathLike[str]) -> Path:
    """Write the page of a design of this robot."""
    return write_atomically(path, preview_page(design, robot))


def preview_page(design: Design, robot: Robot) -> str:
    """Return the page."""
    script = bundle()
    style = asset("page.css") + _static("motion_preview.css")
    title = f"Motion of {robot.name}"
    page = f"""{head(title, [script], style)}<body class="preview">
{_content(design, robot, title)}<footer>thetahat {escape(__version__)}</footer>
<script type="application/json" id="motion">{embedded(motion_data(design, robot))}</script>
<script>{script}</script>
</body>
</html>
"""
    # An unpaired surrogate in a name must not keep the page from being written.
    return page.encode("utf-8", "replace").decode("utf-8")


def _content(design: Design, robot: Robot, title: str) -> str:
    """Return the page's header and main part."""
    duration = design.trajectory.duration
    about = (
        f"{duration:g} s for {robot.nv} joints, {len(design.information.base)} base parameters,"
        f" condition {design.condition:.3g}"
    )
    limits = "".join(f"<li>{escape(str(margin))}</li>" for margin in design.margins)
    notes = "".join(f"<li>{escape(str(note))}</li>" for note in (design.workspace, *design.notes))
    views = "".join(
        f'<button type="button" data-view="{name}">{name.title()}</button>'
        for name in ("home", "front", "side", "top")
    )
    speeds = "".join(
        f'<option value="{value}"{" selected" if value == 1 else ""}>{value:g}×</option>'
        for value in (0.25, 0.5, 1, 2)
    )
    return f"""<header><h1>{escape(title)}</h1><p>{escape(about)}</p></header>
<main>
<noscript><p class="note warning">The robot moves by JavaScript; the text does not.</p></noscript>
<div><section class="card" aria-labelledby="robot-title">
<div class="head"><h2 id="robot-title">Robot</h2>
<div class="views" role="group" aria-label="View">{views}</div></div>
<div class="legend"></div>
<div class="frame-of-plot"><canvas id="stage" tabindex="0" role="img" aria-label="The robot with its
 collision shapes. Arrow keys rotate it, plus and minus zoom."></canvas></div>
<div class="controls"><button type="button" id="play">Pause</button>
<input type="range" id="time" min="0" max="{duration}" step="0.001" value="0" aria-label="Time">
<select id="speed" aria-label="Speed">{speeds}</select><span id="clock"></span></div>
</section>
<section class="card" aria-labelledby="notes-title">
<h2 id="notes-title">Workspace, and what was assumed</h2><ul>{notes}</ul></section></div>
<div><section class="card" aria-labelledby="joints-title">
<h2 id="joints-title">Joint positions in their ranges</h2>
<div class="legend" id="joints"></div>
<div class="frame-of-plot low"><canvas id="lines" role="img"
 aria-label="Positions of all joints over time, each between its lower and upper limit."></canvas>
</div></section>
<section class="card" aria-labelledby="limits-title">
<h2 id="limits-title">Nearest to its limits</h2><ul>{limits}</ul></section></div>
</main>
"""


def motion_data(design: Design, robot: Robot) -> dict[str, Any]:
    """Return what the page's script plays: frames of all bodies, shapes, joints."""
    duration = design.trajectory.duration
    rate = min(RATE, MOST_FRAMES / duration)
    t = np.linspace(0.0, duration, max(2, round(duration * rate) + 1))
    q = design.trajectory.at(t)[0]
    skeleton, frames, ends = Skeleton(robot), [], 0
    for row in q:
        pose = skeleton.pose(row)
        points = pose.points[~np.isnan(pose.points[:, 0])]
        ends = len(points)
        bodies = np.concatenate([pose.rotation.reshape(-1, 9), pose.position], axis=1)
        frames.append(np.round(np.concatenate([points.ravel(), bodies.ravel()]), DIGITS).tolist())
    limits = design.limits
    share = (q - limits.centre) / limits.reach
    return {
        "duration": duration,
        "rate": (len(t) - 1) / duration,
        "ends": ends,
        "frames": frames,
        "pieces": _pieces(design, len(robot.body_names)),
        "floor": limits.collisions.floor,
        "joints": [
            {"name": name, "share": np.round(share[:, j], 3).tolist()}
            for j, name in enumerate(robot.joint_names)
        ],
    }


def _pieces(design: Design, world: int) -> list[dict[str, Any]]:
    """Points of every collision shape in its body's frame; the base's body is −1."""
    hulls, out = design.limits.collisions.hulls, []
    for k, body in enumerate(hulls.body):
        points = hulls.points[hulls.first[k] : hulls.first[k + 1]]
        if hulls.radius[k] > 0.0:
            ball = ellipsoid(np.full(3, hulls.radius[k]))[:: max(1, len(points) // 4)]
            points = (points[:, None] + ball).reshape(-1, 3)
        x, y, z = np.round(points, DIGITS).T.tolist()
        out.append({"body": -1 if body == world else int(body), "x": x, "y": y, "z": z})
    return out


def bundle() -> str:
    """Return the page's scripts as one, without the words that join modules."""
    joined = "\n".join(_static(name) for name in SCRIPTS)
    joined = re.sub(r"^import .*?;\n", "", joined, flags=re.MULTILINE)
    joined = re.sub(r"^export ", "", joined, flags=re.MULTILINE)
    return f'"use strict";\n{joined}'.replace("</script", "<\\/script")


def _static(name: str) -> str:
    return resources.files("thetahat.live").joinpath("static", name).read_text(encoding="utf-8")
