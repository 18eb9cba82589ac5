"""`thetahat codegen`: C code of a robot file or a result, written to a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thetahat import robots
from thetahat.errors import UsageError
from thetahat.export.codegen.c_sources import RobotCode
from thetahat.export.codegen.code_files import code_files
from thetahat.export.simulator_model import read_simulator_model
from thetahat.files import make_folder, require_folder, write_atomically, written_together
from thetahat.identification.verdict_reason import Data
from thetahat.model.io.load import load
from thetahat.model.io.save import with_drive_file
from thetahat.model.robot import Robot

SCHEMA = "thetahat/codegen/1"
PRECISIONS = ("double", "float")


@dataclass(frozen=True)
class CodegenSettings:
    """What code to write."""

    precision: str = "double"
    name: str = ""  # prefix of the C names; empty: the robot's
    floating_base: bool = False
    robot: str | None = None  # where a result does not lead to it
    force: bool = False  # of a result that is not usable, too

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise UsageError(f"--precision is {self.precision!r}; choose {' or '.join(PRECISIONS)}")


def read_robot(source: str, settings: CodegenSettings) -> Robot:
    """Read a robot file, or the robot of a result with its identified bodies and drive."""
    path = Path(source)
    if path.is_dir() or path.suffix == ".json":
        if settings.floating_base:
            raise UsageError(
                "--floating-base is for a robot file; a result says itself whether its base is free"
            )
        return read_simulator_model(path, robot=settings.robot, force=settings.force).robot
    return with_drive_file(load(robots.find(source), floating_base=settings.floating_base))


def write_code(source: str, folder: Path, settings: CodegenSettings | None = None) -> Data:
    """Write the files; return what `--json` prints."""
    settings = settings or CodegenSettings()
    robot = read_robot(source, settings)
    code = RobotCode(robot, single=settings.precision == "float", name=settings.name)
    files = code_files(code)
    require_folder(folder, [folder / name for name in files], [source])
    make_folder(folder)
    with written_together():
        for name, text in files.items():
            write_atomically(folder / name, text)
    return {
        "schema": SCHEMA,
        "robot": robot.name,
        "prefix": code.prefix,
        "precision": settings.precision,
        "robot_sha256": code.robot_hash,
        "joints": list(robot.velocity_names),
        "parameters": len(code.parameters),
        "base_parameters": len(robot.base_parameters.strong),
        "files": list(files),
        "functions": [function.name for function in code.functions],
        "left_out": code.left_out,
    }
