"""Column names of common recorders (`--format`), as patterns.

rtde: files of Universal Robots' RTDE client [RTDE]. plotjuggler: CSV files that PlotJuggler
exports [PlotJuggler]. lerobot: folders of LeRobot datasets [LeRobot].
"""

from __future__ import annotations

from collections.abc import Sequence

from thetahat.errors import MalformedInput, UsageError, known

FORMATS = ("rtde", "plotjuggler", "lerobot")
_RTDE = {"t": "timestamp", "q": "actual_q_{index}", "dq": "actual_qd_{index}"}
_RTDE_TORQUE = "actual_current_as_torque_{index}"
_RTDE_CURRENT = "actual_current_{index}"
_JOINT_STATE = {"q": "position", "dq": "velocity", "tau": "effort"}


def check_format(name: str | None) -> None:
    """Refuse a format that is not known."""
    if name is not None and name not in FORMATS:
        raise UsageError(f"format is {name!r}; formats: {', '.join(FORMATS)}")


def preset_patterns(
    name: str, names: Sequence[str], joints: Sequence[str], topic: str | None, file: str
) -> dict[str, str]:
    """Return the patterns of a recorder for a file with these columns."""
    if name == "rtde":
        return _rtde(names, file)
    if name == "plotjuggler":
        return _plotjuggler(names, joints, topic, file)
    return {}


def currents_hint(name: str | None, names: Sequence[str]) -> str:
    """Return how currents can be used where a file has no torques; empty elsewhere."""
    if name != "rtde" or _RTDE_TORQUE.format(index=0) in names:
        return ""
    if _RTDE_CURRENT.format(index=0) not in names:
        return ""
    return (
        "the file has currents in A (actual_current) and no torques; with the joints' gains in"
        f' N·m per A they are: --columns "tau={_RTDE_CURRENT}" --units'
        ' "tau.<joint>=GAIN,…"'
    )


def _rtde(names: Sequence[str], file: str) -> dict[str, str]:
    missing = [name for name in ("timestamp", "actual_q_0") if name not in names]
    if missing:
        raise MalformedInput(
            f"{file} is not of format rtde: it has no column {missing[0]!r}; its columns:"
            f" {known(names)}"
        )
    patterns = {kind: text for kind, text in _RTDE.items() if text.format(index=0) in names}
    if _RTDE_TORQUE.format(index=0) in names:
        patterns["tau"] = _RTDE_TORQUE
    return patterns


def _plotjuggler(
    names: Sequence[str], joints: Sequence[str], topic: str | None, file: str
) -> dict[str, str]:
    if "__time" not in names:
        raise MalformedInput(
            f"{file} is not of format plotjuggler: it has no column '__time'; its columns:"
            f" {known(names)}"
        )
    ends = {f"/{joint}/{field}" for joint in joints for field in _JOINT_STATE.values()}
    found = dict.fromkeys(
        name.removesuffix(end) for name in names for end in ends if name.endswith(end)
    )
    topics = [each for each in found if topic is None or each == topic]
    if not topics:
        wanted = f"topic {topic!r}" if topic and found else "series <topic>/<joint>/position"
        raise MalformedInput(
            f"{file} has no {wanted} of the robot's joints ({known(joints)}); topics:"
            f" {known(found)}; columns: {known(names)}"
        )
    if len(topics) > 1:
        raise MalformedInput(
            f"{file} has joint states of {len(topics)} topics ({known(topics)}); choose one with"
            " --topic"
        )
    fields = {kind: f"{topics[0]}/{{joint}}/{field}" for kind, field in _JOINT_STATE.items()}
    present = {
        kind: text
        for kind, text in fields.items()
        if any(text.replace("{joint}", joint) in names for joint in joints)
    }
    return {"t": "__time", **present}
