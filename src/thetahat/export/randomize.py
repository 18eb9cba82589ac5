"""Write robot files drawn from a result, their ranges, and text for simulators' event terms.

All files are made in a folder beside the wanted one, which takes its place at the end: whoever
finds the folder finds all of it.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

from thetahat.engine.protocol import NoProgress, Progress
from thetahat.errors import RobotWarning, StorageError, UsageError, check_count, is_number
from thetahat.export.event_terms import isaaclab_events, mujoco_events
from thetahat.export.mjcf_export import mjcf
from thetahat.export.parameter_ranges import describe_ranges
from thetahat.export.robot_draws import RobotDraws, draw_robots
from thetahat.files import as_text, require_folder, write_atomically
from thetahat.identification.verdict_reason import Fields
from thetahat.model.io.save import save

MOST = 100_000  # files of one folder
RANGES = "ranges.json"


@dataclass(frozen=True)
class RandomizeSettings:
    """What to draw."""

    count: int
    seed: int = 0
    level: float = 0.95  # of the ranges
    robot: str | None = None  # where the result does not lead to it
    force: bool = False  # of a result that is not usable, too

    def __post_init__(self) -> None:
        check_count("--count", self.count)
        if self.count > MOST:
            raise UsageError(f"--count is {self.count}; give at most {MOST:,} files")
        check_count("--seed", self.seed, least=0)
        if not is_number(self.level) or not 0.0 < self.level < 1.0:
            raise UsageError(
                f"--level is {self.level}; give a number between 0 and 1, such as 0.95"
            )


def randomize(
    results: list[Path],
    folder: Path,
    *,
    settings: RandomizeSettings,
    progress: Progress | None = None,
) -> Fields:
    """Write robot files, ranges.json and event terms into a new folder; return ranges.json."""
    progress = progress or NoProgress()
    require_folder(folder, [], results)
    if folder.is_dir() and any(folder.iterdir()):
        raise StorageError(
            f"--out {str(folder)!r} is not empty; give a new folder, so that no file of another"
            " run stays among the robots"
        )
    progress.stage("drawing robots")
    draws = draw_robots(
        results,
        settings.count,
        seed=settings.seed,
        robot=settings.robot,
        force=settings.force,
    )
    data = describe_ranges(draws, level=settings.level, seed=settings.seed)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    except OSError as error:
        raise StorageError(
            f"--out {str(folder)!r} cannot be made: {error.strerror or error}; give another folder"
        ) from None
    try:
        data = {**data, "files": _write(draws, scratch, progress)}
        write_atomically(scratch / "isaaclab_events.py", isaaclab_events(data))
        write_atomically(scratch / "mujoco_events.py", mujoco_events(data))
        write_atomically(scratch / RANGES, as_text(data))
        scratch.chmod(0o755)
        scratch.replace(folder)
    except OSError as error:
        raise StorageError(
            f"--out {str(folder)!r} cannot be written: {error.strerror or error}; check the folder"
            " and the room on its disk"
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return data


def _write(draws: RobotDraws, folder: Path, progress: Progress) -> list[str]:
    """Write the robots' files; each is read again and must give its robot's torques."""
    source = draws.robot.source
    assert source is not None  # it was loaded from a file
    stem, digits = source.stem.removesuffix("_identified"), len(str(len(draws) - 1))
    names = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)
        for k in range(len(draws)):
            progress.update("writing robots", k, len(draws))
            name = f"{stem}_{k:0{max(digits, 4)}d}"
            drives = draws.simulator_model(k)
            if drives is None or not drives.has_loop:
                names.append(name + source.suffix)
                save(draws[k], folder / names[-1])
            else:  # gains, delays and biases are in MJCF alone
                names.append(f"{name}.xml")
                write_atomically(folder / names[-1], mjcf(drives))
    return names
