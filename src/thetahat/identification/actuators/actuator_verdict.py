"""The verdict on identified actuators: whether a simulator with them moves as the robot does."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from thetahat.errors import known
from thetahat.identification.verdict import Verdict, verdict_of
from thetahat.identification.verdict_reason import CORRECTED, SUSPECT, WRONG, Data, Fields, Reason

LIKE_COMMAND = 0.9  # of the error of the command itself: a simulation that adds little
OVERFITTED = 2.5  # times the error of fitted rows
SHORT = 5.0  # times the rows that count as one, per parameter


def with_actuator_verdict(data: Fields, out: str = "result") -> Fields:
    """Return an answer, schema thetahat/actuators/1, with its verdict."""
    return {**data, "verdict": judge_actuators(data, out).as_data()}


def judge_actuators(data: Data, out: str = "result") -> Verdict:
    """Judge drives by the motion that they simulate, beside the file's and the command itself."""
    given = data["provenance"]
    robot = shlex.quote(given["robot_file"] or "ROBOT")
    logs = " ".join(shlex.quote(each["path"]) for each in given["logs"][:3]) or "LOG"
    excite = f"thetahat excite {robot} --out motion.csv"
    with_gains = f"thetahat actuators {robot} {logs} --kp KP --kd KD --out {shlex.quote(out)}"
    reasons = [*_motion_reasons(data, excite), *_joint_reasons(data, with_gains, excite)]
    export = f"thetahat export {shlex.quote(out)}/actuators.json --to mjcf --out robot.xml"
    return verdict_of(_summary(data), reasons, export)


def _summary(data: Data) -> str:
    error, nominal, command = data["rms_test"], data["rms_nominal"], data["rms_command"]
    if error is None:
        train = data["rms_train"]
        what = "cannot be computed" if train is None else f"is {train:.3g} rad"
        return f"open-loop error {what} on fitted motion; none was held out"
    beside = "diverges" if nominal is None else f"{nominal:.3g} rad"
    return (
        f"open-loop error {error:.3g} rad on held-out motion (file's actuators: {beside}, the"
        f" command itself: {command:.3g} rad)"
    )


def _motion_reasons(data: Data, excite: str) -> Iterator[Reason]:
    error, nominal, command = data["rms_test"], data["rms_nominal"], data["rms_command"]
    if error is None:
        if data["samples_test"]:
            yield Reason(WRONG, "the simulation of the held-out motion diverges", (excite,))
        else:
            yield Reason(SUSPECT, "no motion was held out")
        return
    if nominal is not None and error > nominal:
        yield Reason(
            WRONG if error > command else SUSPECT,
            "held-out motion is simulated worse than with the actuators of the robot's file",
            (excite,),
        )
    elif error > command:
        yield Reason(
            WRONG,
            "held-out motion is simulated worse than by the command itself; check that the robot"
            " file and the log belong together",
            (excite,),
        )
    elif error > LIKE_COMMAND * command:
        yield Reason(SUSPECT, "the command itself predicts the held-out motion almost as well")
    compared = (data["rollout"] or {}).get("compared")
    if compared is not None and compared["worse"]:
        yield Reason(
            SUSPECT,
            "simulated motion is worse than with the actuators of the robot's file: errors after"
            f" {compared['horizon']:g} s are {compared['ratio']:.2f} times theirs, over"
            f" {compared['starts']} starts",
            (excite,),
        )
    train = data["rms_train"]
    if train is not None and error > OVERFITTED * train:
        yield Reason(
            SUSPECT,
            f"the error on held-out motion is {error / train:.2g} times that on fitted motion",
            (excite,),
        )


def _joint_reasons(data: Data, with_gains: str, excite: str) -> Iterator[Reason]:
    joints = data["joints"]
    still = [each["name"] for each in joints if not each["moves"]]
    if still:
        yield Reason(SUSPECT, f"{known(still)} does not move in the log", (excite,))
    unscaled = [each["name"] for each in joints if each["moves"] and not each["scale_known"]]
    if unscaled:
        yield Reason(
            CORRECTED,
            f"of {known(unscaled)} only ratios to kp are known (per_kp): neither gravity nor the"
            " links' inertia shows their scale; --kp sets it",
            (with_gains,),
        )
    worse = [
        each["name"]
        for each in joints
        if None not in (each["rms_test"], each["rms_nominal"])
        and each["moves"]
        and each["rms_test"] > 1.05 * each["rms_nominal"]
        and each["rms_test"] > 2e-3
    ]
    if worse:
        yield Reason(
            SUSPECT, f"{known(worse)} moves worse than with the actuators of the robot's file"
        )
    if not data["converged"]:
        yield Reason(CORRECTED, "the fit stopped at its limit of steps")
