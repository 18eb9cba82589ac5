"""Save a robot as a copy of its source file in which only inertial and drive values differ.

The copy is read again before it takes its place, and must give the same torques.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thetahat.errors import RobotWarning, StorageError, UnphysicalRobot, UsageError, known
from thetahat.files import as_written, remove_file, write_atomically, written_together
from thetahat.model import parameters
from thetahat.model.drive import Drive
from thetahat.model.io.drive_json import (
    drive_content,
    drive_file_of,
    drive_place,
    missing_terms,
    with_drive_file,
    with_drive_text,
)
from thetahat.model.io.mjcf import read_mjcf
from thetahat.model.io.mjcf_write import Written, write_mjcf
from thetahat.model.io.urdf import read_urdf
from thetahat.model.io.urdf_write import write_urdf
from thetahat.model.io.write_back import joint_changes, same_parameters, shared_change
from thetahat.model.io.xml_reader import Document, label, parse, read_bytes, read_xml, shown
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot

__all__ = ["Saved", "save", "with_drive_file"]

STATES = 16  # random states at which torques are compared
AGREEMENT = 1e-9  # [N·m or N], and relative to the largest torque where that is above 1
FASTEST = 2.0  # [rad/s, rad/s², …] of those states
PLACE = 1e-12  # [m or none] a joint may stand elsewhere by this, which is rounding
SEED = 6


@dataclass(frozen=True)
class Saved:
    """What was written, and the certificate that it gives the same torques."""

    path: Path
    drive_file: Path | None  # beside it, where the format cannot hold every drive term
    # [N·m or N] largest difference between the robot and the file read again, at random states
    torque_error: float
    torque_scale: float  # [N·m or N] largest torque there
    not_in_file: tuple[str, ...]  # terms that are in the drive file alone
    files: tuple[Path, ...]  # all that was written
    note: str = ""  # what to know to use it, such as meshes that stayed where they were

    def as_data(self) -> dict[str, object]:
        """The "parity" of `estimate.json`."""
        return {
            "file": self.path.name,
            "torque_error": self.torque_error,
            "not_in_file": list(self.not_in_file),
            "drive_file": self.drive_file.name if self.drive_file else None,
        }

    def __str__(self) -> str:
        beside = (
            f"; {', '.join(self.not_in_file)} in {self.drive_file.name}" if self.drive_file else ""
        )
        return f"{self.path.name}: torques agree to {self.torque_error:.1e} N·m{beside}" + (
            f"\n{self.note}" if self.note else ""
        )


def save(robot: Robot, path: str | os.PathLike[str]) -> Saved:
    """Write a robot as a copy of the file it was loaded from, in which only the inertial and drive
    values that changed differ.

    Links joined by fixed joints share their body's change (`shared_change`). What the format cannot
    hold goes into `drive.json` beside it. The copy is read again before it takes its place, and
    must give the robot's torques. The source itself is never written to.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"path is {shown(repr(path))}; give the path of the file to write")
    target = Path(path)
    if robot.source is None:
        raise UsageError(
            f"robot {robot.name!r} was not loaded from a file, so there is none to write a copy of;"
            " load it with th.load first"
        )
    _require_finite(robot)
    _refuse_originals([target], [robot.source])
    if target.is_dir():
        raise UsageError(f"{label(target)} is a folder; give the name of the file to write in it")
    document = read_xml(robot.source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)  # the user saw them when the robot was loaded
        nominal, floating = _nominal(robot, document)
        links = _link_changes(robot, nominal)
        joints = joint_changes(robot, nominal)
        draft = _draft(document, links, joints, nominal=nominal, stem=target.stem)
        copy = Document(document.path, draft.main, parse(draft.main, document.path))
        again = _locked_like(robot, _read(copy, robot, floating, draft.unsaved))
    missing = missing_terms(robot, again)
    drive_file, content = None, ""
    if missing:
        drive_file = drive_place(target)
        sha256 = hashlib.sha256(draft.main).hexdigest()
        content = drive_content(robot, missing, file=target.name, sha256=sha256)
        extra = [term for term, _ in robot.drive.extra]
        again = with_drive_text(_with_code(again, robot), content, drive_file, shapes=extra)
    error, scale = torque_error(robot, again)
    if not error <= AGREEMENT * max(1.0, scale):
        raise UnphysicalRobot(
            f"{label(target)} was not written: read again, it would give torques that differ by"
            f" {error:.3g} N·m of {scale:.3g}; identify with the consistent method, or use"
            " robot.projected()"
        )
    files = _write(draft, target, document.path, content=content, drive_file=drive_file)
    _warn_if_unphysical(again, links, target)
    note = _note(draft, target, document.path)
    return Saved(target, drive_file, error, scale, missing, files, note)


# -- the robot's file as it is now -----------------------------------------------------------------


def _read(
    document: Document, robot: Robot, floating: bool, unsaved: Mapping[Path, bytes] | None = None
) -> Robot:
    if document.root.tag == "robot":
        return read_urdf(document, floating_base=floating, gravity=robot.gravity)
    return read_mjcf(document, floating_base=floating, gravity=robot.gravity, unsaved=unsaved)


def _nominal(robot: Robot, document: Document) -> tuple[Robot, bool]:
    """The robot of the file, freed and locked as the given one is, and whether it was freed."""
    nominal, floating = _read(document, robot, False), False
    if any(node.name not in nominal.tree.index_of for node in robot.tree.nodes):
        # where it cannot be freed the file is not the robot's, as is said below
        with suppress(UsageError):
            nominal, floating = _read(document, robot, True), True
    nominal = _locked_like(robot, nominal)
    difference = _difference(robot, nominal)
    if difference:
        raise StorageError(
            f"{label(document.path)} is not the file that robot {robot.name!r} was loaded from any"
            f" more ({difference}); load it again"
        )
    return nominal, floating


def _locked_like(robot: Robot, nominal: Robot) -> Robot:
    return lock(nominal, [name for name in nominal.joint_names if name not in robot.tree.index_of])


def _difference(robot: Robot, nominal: Robot) -> str:
    """What two robots differ in beside the values that are to be written; empty where in
    nothing.
    """
    if [node.name for node in robot.tree.nodes] != [node.name for node in nominal.tree.nodes]:
        gone = [node.name for node in robot.tree.nodes if node.name not in nominal.tree.index_of]
        return f"it has no joint {gone[0]!r}" if gone else "its joints hang together otherwise"
    for a, b in zip(robot.tree.nodes, nominal.tree.nodes, strict=True):
        exact = ("kind", "parent", "body", "mimic")
        same = all(getattr(a, key) == getattr(b, key) for key in exact)
        if (
            not same
            or a.joint.offset != b.joint.offset
            or not all(
                np.allclose(getattr(a, key), getattr(b, key), rtol=0, atol=PLACE)
                for key in ("rotation", "translation", "axis")
            )
        ):
            return f"joint {a.name!r} is another"
        stated = ("damping", "friction", "armature")
        if any(getattr(a.joint, key) != getattr(b.joint, key) for key in stated):
            return f"joint {a.name!r} has other drive values"
    if [link.name for link in robot.links] != [link.name for link in nominal.links]:
        return "its links are others"
    for link, other in zip(robot.links, nominal.links, strict=True):
        if np.any(link.theta != other.theta):
            return f"link {link.name!r} has another inertia"
    return ""


# -- what changes ----------------------------------------------------------------------------------


def _link_changes(robot: Robot, nominal: Robot) -> dict[str, np.ndarray]:
    """θ of every link that changes, in its own frame."""
    out: dict[str, np.ndarray] = {}
    for body, (new, old) in enumerate(
        zip(robot.theta.reshape(-1, 10), nominal.theta.reshape(-1, 10), strict=True)
    ):
        if not np.array_equal(new, old):
            out |= shared_change(
                new, [link for link in nominal.links if link.body == body], robot.body_names[body]
            )
    return out


def _draft(
    document: Document,
    links: dict[str, np.ndarray],
    joints: dict[str, dict[str, float]],
    *,
    nominal: Robot,
    stem: str,
) -> Written:
    reach = {link.name: float(np.linalg.norm(link.translation)) for link in nominal.links}
    if document.root.tag != "robot":
        return write_mjcf(document, links, joints, reach=reach, stem=stem)
    text = write_urdf(document, links, joints, reach=reach)
    _require_links(Document(document.path, text, parse(text, document.path)), links, nominal)
    files = [
        element.attrib.get("filename", "/")
        for element in document.root.iter()
        if element.tag in ("mesh", "texture")
    ]
    return Written(
        text, names_files=any(not file.startswith("/") and "://" not in file for file in files)
    )


def _require_links(document: Document, links: dict[str, np.ndarray], nominal: Robot) -> None:
    """Refuse a link whose numbers do not survive being stated as mass, centre and inertia about it,
    beside the body that it is a part of: of frames without mass only rounding is left.
    """
    bodies = nominal.theta.reshape(-1, 10)
    of = {link.name: bodies[link.body] for link in nominal.links if link.body >= 0}
    for link in read_urdf(document).links:
        if link.name in links and not same_parameters(
            link.theta, links[link.name], body=of.get(link.name)
        ):
            raise UnphysicalRobot(
                f"{label(document.path)}: link {link.name!r} cannot be stated with its new inertia,"
                " whose numbers are too far apart; identify with the consistent method, or use"
                " robot.projected()"
            )


def _with_code(again: Robot, robot: Robot) -> Robot:
    """The robot read again, with an actuation map that no file can hold."""
    actuation = robot.drive.actuation
    if actuation is None or actuation.constant:
        return again
    return replace(again, drive=replace(Drive.none(actuation.motors), actuation=actuation))


# -- the certificate -------------------------------------------------------------------------------


def torque_error(robot: Robot, other: Robot) -> tuple[float, float]:
    """(largest difference of the two robots' torques, largest torque) [N·m or N] at random states
    inside the joints' limits.
    """
    if not robot.nv:
        return 0.0, 0.0
    from thetahat.dynamics.configuration import random_configuration
    from thetahat.dynamics.rigid_body import inverse_dynamics  # compiles: only where it is needed

    rng = np.random.default_rng(SEED)
    q = random_configuration(robot, rng, STATES)
    dq, ddq = rng.uniform(-FASTEST, FASTEST, (2, STATES, robot.nv))
    torque = inverse_dynamics(robot, q, dq, ddq)
    difference = torque - inverse_dynamics(other, q, dq, ddq)
    return float(np.max(np.abs(difference))), float(np.max(np.abs(torque)))


# -- files -----------------------------------------------------------------------------------------


def _write(
    draft: Written, target: Path, source: Path, *, content: str, drive_file: Path | None
) -> tuple[Path, ...]:
    """Write all files, the robot's own last, so that whoever finds it finds all it needs."""
    parts = {target.parent / name: text for name, text in draft.parts.items()}
    if target.parent.resolve() != source.parent.resolve():
        parts |= {target.parent / name: text for name, text in draft.unchanged.items()}
        for name, text in draft.unchanged.items():
            place = target.parent / name
            if place.exists() and place.read_bytes() != text:
                raise UsageError(
                    f"{label(place)} is there already and is not the {label(name)} that the robot"
                    " includes; save to an empty folder"
                )
    _refuse_originals([target, *parts], [source, *draft.originals])
    stale = drive_file_of(target)
    if not target.parent.is_dir():  # that of a part may be made below it
        raise StorageError(
            f"{label(target)} cannot be written: there is no folder {label(target.parent)}; make it"
            " first"
        )
    with written_together():
        for place, text in parts.items():
            write_atomically(place, text, folders=True)
        if drive_file is not None:
            write_atomically(drive_file, content)
        write_atomically(target, draft.main)
        if read_bytes(as_written(target)) != draft.main:
            raise StorageError(
                f"{label(target)} does not hold what was written to it; check the disk and save"
                " again"
            )
        if stale is not None and drive_file is None:
            remove_file(stale)  # it belonged to the file that was here before
    return (target, *parts, *([drive_file] if drive_file is not None else []))


def _refuse_originals(places: list[Path], originals: list[Path]) -> None:
    """Refuse to write over what the robot was read from, by whatever name or link."""
    for place in places:
        for original in originals:
            try:
                same = place.samefile(original)
            except OSError:  # one of them is not there
                same = place.absolute() == original.absolute()
            if same:
                raise UsageError(
                    f"{label(place)} is the file the robot was read from, which is never changed;"
                    " save to another name"
                )


def _require_finite(robot: Robot) -> None:
    theta = robot.theta.reshape(-1, 10)
    for body in np.flatnonzero(~np.all(np.isfinite(theta), axis=1)):
        at = int(np.argmin(np.isfinite(theta[body])))
        raise UsageError(
            f"{parameters.NAMES[at]} of body {robot.body_names[body]!r} is {theta[body, at]}; only"
            " finite parameters can be saved"
        )


def _warn_if_unphysical(again: Robot, links: dict[str, np.ndarray], target: Path) -> None:
    names = [
        link.name for link in again.links if link.name in links and not parameters.check(link.theta)
    ]
    if names:
        warnings.warn(
            f"{target.name}: links that no rigid body can be were written as they are:"
            f" {known(names)}",
            RobotWarning,
            stacklevel=3,
        )


def _note(draft: Written, target: Path, source: Path) -> str:
    if not draft.names_files or target.parent.resolve() == source.parent.resolve():
        return ""
    return (
        f"{target.name} names meshes or textures that are beside {label(source)}; to open it in"
        " other programs, copy it there"
    )
