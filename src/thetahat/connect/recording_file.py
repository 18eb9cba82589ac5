"""The recording of a robot: a journal while it grows, which outlives a kill -9, and a log at the
end.

Records of the journal: `begin` (robot, joints, motion, rate) whenever a recording begins or goes
on, then `sample` (part, s, stamp, q, dq, tau, cmd): `part` and `s` say where in the motion it was.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thetahat.connect.connection import RobotState
from thetahat.connect.playback import MOTION, RAMP, WARM_UP
from thetahat.control.journal import Journal
from thetahat.data.formats.write_log import write_table
from thetahat.data.formats.write_mcap import JointLog, write_mcap
from thetahat.errors import MalformedInput, UsageError
from thetahat.excite.trajectory import Motion
from thetahat.model.robot import Robot

PASSIVE = "recording"
PARTS = (RAMP, WARM_UP, MOTION, PASSIVE)
SAMPLE = ("part", "s", "stamp", "q", "dq", "tau", "cmd")


def journal_path(log: Path) -> Path:
    """The journal of a log that is being recorded."""
    return log.with_name(f"{log.name}.journal")


def fingerprint(motion: Motion | None) -> str:
    """What tells one motion from another; of none ""."""
    if motion is None:
        return ""
    return hashlib.sha256(motion.t.tobytes() + motion.q.tobytes()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Recorded:
    """What a journal holds."""

    motion: str  # fingerprint
    t: np.ndarray  # (n,) [s] stamps
    q: np.ndarray  # (n, nv)
    dq: np.ndarray  # (n, nv)
    tau: np.ndarray  # (n, nv)
    cmd: np.ndarray  # (n, nv) wanted positions; NaN in passive recordings
    seg: tuple[str, ...]  # (n,) run of each row
    at: tuple[str, float]  # part and s [s] of the last row

    @property
    def seconds(self) -> float:
        """[s] of samples, by their number and usual step."""
        if len(self.t) < 2:
            return 0.0
        return float(len(self.t) * np.median(np.diff(self.t)))


class RecordingFile:
    """A journal that samples are appended to."""

    def __init__(self, log: Path, robot: Robot, motion: str, rate: float) -> None:
        self.path = journal_path(log)
        self._journal = Journal(self.path)
        self.rows = 0
        names = list(robot.joint_names)
        self._journal.append("begin", 0.0, robot=robot.name, joints=names, motion=motion, rate=rate)

    def add(self, part: str, s: float, state: RobotState, wanted: np.ndarray) -> None:
        """Append a sample; what a full disk does not take, `alarms` tells."""
        self._journal.append(
            "sample",
            state.t,
            part=float(PARTS.index(part)),
            s=float(s),
            stamp=float(state.t),
            q=np.asarray(state.q, dtype=float),
            dq=np.asarray(state.dq, dtype=float),
            tau=np.asarray(state.tau, dtype=float),
            cmd=np.asarray(wanted, dtype=float),
        )
        self.rows += 1

    @property
    def alarms(self) -> tuple[str, ...]:
        """Samples that could not be written, as a sentence."""
        return self._journal.alarms

    def close(self) -> None:
        """Hand it to the disk."""
        self._journal.close()


def remove_journal(log: Path) -> None:
    """Remove the journal of a log that is complete."""
    path = journal_path(log)
    for each in (path, path.with_name(f".{path.name}.lock")):
        each.unlink(missing_ok=True)


def read_recording(log: Path, robot: Robot) -> Recorded:
    """Read the journal of a log, as far as it is whole."""
    path = journal_path(log)
    if not path.is_file():
        raise UsageError(f"{path} is not there, so there is no recording to go on with")
    rows: dict[str, list[np.ndarray | float]] = {name: [] for name in SAMPLE}
    seg: list[str] = []
    motion, run, label = "", 0, ""
    for record in Journal.read(path):
        if record.kind == "begin":
            if tuple(record.values["joints"]) != robot.joint_names:
                raise UsageError(
                    f"{path} is a recording of robot {record.values['robot']!r}, which has other"
                    " joints; give its file, or another --out"
                )
            motion, run, label = str(record.values["motion"]), run + 1, ""
        elif record.kind == "sample":
            for name in SAMPLE:
                rows[name].append(record.values[name])
            now = PARTS[int(record.values["part"])]
            if rows["stamp"] and seg and not rows["stamp"][-1] > rows["stamp"][-2]:
                run += label == now
            label = now
            seg.append(f"{run}-{now}")
    if not seg:
        raise MalformedInput(f"{path} holds no sample; remove it and record again")
    arrays = {name: np.array(values, dtype=float) for name, values in rows.items()}
    at = PARTS[int(arrays["part"][-1])], float(arrays["s"][-1])
    kept = {name: arrays[name] for name in ("q", "dq", "tau", "cmd")}
    return Recorded(motion, arrays["stamp"], **kept, seg=tuple(seg), at=at)


def write_recording(recorded: Recorded, log: Path, robot: Robot) -> Path:
    """Write a log with t, q., dq., tau., cmd. by joint, and seg, or MCAP: whole or not at all."""
    planned = bool(np.all(np.isfinite(recorded.cmd)))
    if log.suffix == ".mcap":
        wanted = recorded.cmd if planned else None
        arrays = (recorded.t, recorded.q, recorded.dq, recorded.tau, wanted)
        return write_mcap(log, JointLog(robot.joint_names, *arrays, runs=recorded.seg))
    kinds = {"q": recorded.q, "dq": recorded.dq, "tau": recorded.tau}
    if planned:
        kinds["cmd"] = recorded.cmd
    names = ["t", *(f"{kind}.{joint}" for kind in kinds for joint in robot.joint_names), "seg"]
    columns = [recorded.t, *(column for array in kinds.values() for column in array.T)]
    return write_table(log, names, [*columns, list(recorded.seg)])
