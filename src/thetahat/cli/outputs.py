"""What `identify` leaves behind: the robot's file, the report, and estimate.json, in this order, so
that the last says that all are there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thetahat.errors import StorageError, UsageError, known
from thetahat.files import write_atomically

if TYPE_CHECKING:
    from thetahat.cli.identify_stages import Outcome

DRIVE = "drive.json"  # beside the robot's file, for what that cannot hold


@dataclass(frozen=True)
class Targets:
    """Where the answers go."""

    folder: Path
    estimate: Path
    robot: Path
    report: Path | None

    @staticmethod
    def beneath(out: str, robot_file: Path, *, report: bool = True) -> Targets:
        """The files in the folder `out`."""
        folder = Path(out)
        name = f"{robot_file.stem}_identified{robot_file.suffix or '.urdf'}"
        return Targets(
            folder,
            folder / "estimate.json",
            folder / name,
            folder / "report.html" if report else None,
        )

    def check(self, inputs: Iterable[str | Path]) -> None:
        """Raise where they cannot be written, before the work begins; an input of ours is never
        written over.
        """
        targets = [
            target
            for target in (self.estimate, self.robot, self.report, self.folder / DRIVE)
            if target is not None
        ]
        require_folder(self.folder, targets, inputs)


def require_folder(
    folder: Path, targets: Iterable[Path], inputs: Iterable[str | Path] = ()
) -> None:
    """Raise where files cannot be written into a folder, which may not exist yet, or would take the
    place of an input.
    """
    out, inputs = str(folder), list(inputs)
    try:
        if folder.exists() and not folder.is_dir():
            raise StorageError(f"--out {out!r} is a file; give a folder")
        for target in targets:
            if target.is_dir():
                raise StorageError(
                    f"{target} is a folder, and the answer is a file of that name; give another"
                    " --out"
                )
            for name in inputs:
                if target.exists() and Path(name).exists() and target.samefile(name):
                    raise UsageError(
                        f"--out {out!r} would write over the input {name}; give another folder"
                    )
        above = next(
            (parent for parent in (folder, *folder.absolute().parents) if parent.exists()), Path()
        )
    except ValueError as error:  # a NUL byte
        raise UsageError(f"--out {out!r} cannot be a path: {error}") from None
    if not above.is_dir():
        raise StorageError(f"--out {out!r} cannot be made: {above} is a file; give another folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise StorageError(
            f"--out {out!r} cannot be written: no permission in {above}; give another folder"
        )


def as_text(found: dict[str, Any]) -> str:
    """JSON as it is written and printed."""
    return json.dumps(found, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write(
    targets: Targets, found: dict[str, Any], outcome: Outcome, warnings: list[str]
) -> list[Path]:
    """Write everything; completes `found` with the robot file's parity and with the warnings heard
    until then.
    """
    from thetahat.model.io.save import save

    try:
        targets.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"--out {str(targets.folder)!r} cannot be made: {error.strerror or error}; give another"
            " folder"
        ) from None
    files: list[Path] = []
    robot = outcome.identified
    wrong = [
        name
        for name, verdict in zip(robot.body_names, robot.consistency, strict=True)
        if not verdict
    ]
    if wrong:
        found["advice"].append(
            f"no robot file is written, as {known(wrong)} cannot be rigid bodies; --method"
            " consistent finds parameters that can"
        )
    else:
        saved = save(robot, targets.robot)
        found["parity"] = saved.as_data()
        files += saved.files
        if saved.note:
            found["advice"].append(saved.note)
    found["warnings"] = list(warnings)
    if targets.report is not None:
        from thetahat.report.identification_report import sections, titles
        from thetahat.report.page import render

        title, subtitle = titles(found)
        parts = sections(found, robot=outcome.nominal, identified=robot, traces=outcome.traces)
        files.append(write_atomically(targets.report, render(title, parts, subtitle=subtitle)))
    return [write_atomically(targets.estimate, as_text(found)), *files]
