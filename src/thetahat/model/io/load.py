"""Load a robot from a URDF or MJCF file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from thetahat.commit_record import finish_interrupted
from thetahat.errors import MalformedInput, UsageError
from thetahat.model.io.urdf import read_urdf
from thetahat.model.io.xml_reader import label, read_xml, shown

if TYPE_CHECKING:
    import numpy as np

    from thetahat.model.robot import Robot

_HINTS = {
    "mujocoinclude": "it is a part of an MJCF file; load the <mujoco> file that includes it",
    "sdf": "SDF is not read; convert it to URDF first",
    "world": "SDF and DART worlds are not read; convert the robot to URDF first",
    "skel": "skeleton files are not read; convert the robot to URDF first",
    "COLLADA": "it is a mesh; load the URDF or MJCF file that names it",
}


def load(
    path: str | os.PathLike[str],
    *,
    floating_base: bool = False,
    gravity: np.ndarray | tuple[float, ...] | None = None,
) -> Robot:
    """Read a robot from a URDF or MJCF file.

    Args:
        path: the file; its root element, not its name, says which format it is.
        floating_base: free the root link (six more degrees of freedom, in front).
        gravity: three numbers in the world frame [m/s²]; by default the file's own, or (0, 0,
            −9.81).

    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"path is {shown(repr(path))}; give the path of a URDF or MJCF file")
    finish_interrupted(Path(path).parent)
    document = read_xml(Path(path))
    match document.root.tag:
        case "robot":
            return read_urdf(document, floating_base=floating_base, gravity=gravity)
        case "mujoco":
            # MuJoCo is an extra, needed for MJCF alone
            from thetahat.model.io.mjcf import read_mjcf

            return read_mjcf(document, floating_base=floating_base, gravity=gravity)
        case tag:
            hint = _HINTS.get(tag, "give a URDF or MJCF file")
            raise MalformedInput(
                f"{label(document.path)}, line {document.root.line}: root element {shown(tag)} is"
                f" neither <robot> nor <mujoco>; {hint}"
            )
