"""Section on the motion: q, q̇ and q̈ over time with the robot's limits."""

from __future__ import annotations

from thetahat.model.robot import Robot
from thetahat.report.figures.motion import JointLimits, motion_over_time
from thetahat.report.section import Section, Text
from thetahat.report.sections.torques import NOTHING, choice, joined
from thetahat.report.text import Data, traced_joints
from thetahat.report.traces import Traces


def motion(estimate: Data, robot: Robot, traces: Traces) -> Section:
    """Return position, velocity and acceleration of every joint over time, with its limits."""
    joints = [each for each in traced_joints(estimate, traces) if each[1].lines.velocity]
    if not joints:
        return Section("Motion", "motion", (NOTHING,))
    limits = joint_limits(robot)
    drawings = [
        motion_over_time(
            joined(traced.lines.position) if traced.lines.position else None,
            joined(traced.lines.velocity),
            joined(traced.lines.acceleration),
            rate=traced.rate,
            clock=traces.clock,
            held_out=traces.spans.get("test"),
            limits=limits.get(joint["name"]),
        )
        for joint, traced in joints
    ]
    caption = (
        "Position, velocity and acceleration behind the low-pass, as the regressor sees them."
        " Limits of the robot file are dashed where the motion comes near them."
    )
    seconds = estimate.get("seconds") or {}
    blocks = [choice(joints, drawings, caption)]
    if seconds.get("train") is not None:
        held_out = seconds.get("test")
        more = "" if held_out is None else f", {held_out:.3g} s held out"
        return Section(
            "Motion", "motion", (Text(f"{seconds['train']:.3g} s fitted{more}."), *blocks)
        )
    return Section("Motion", "motion", tuple(blocks))


def joint_limits(robot: Robot) -> dict[str, JointLimits]:
    """Return limits of position and velocity by degree of freedom; zero velocity means none."""
    out = {}
    for node in robot.tree.independent:
        if node.kind.nv == 1:
            stated = node.limits
            name = robot.velocity_names[robot.tree.v_index[node.name]]
            fastest = stated.velocity if stated.velocity > 0.0 else float("inf")
            out[name] = JointLimits(stated.lower, stated.upper, fastest)
    return out
