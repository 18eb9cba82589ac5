"""`thetahat demo`: the whole path on a robot that ships with the package: excite, simulate,
identify, validate, control.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from thetahat import robots
from thetahat.cli import arguments
from thetahat.cli.exit_status import collect_warnings, emit
from thetahat.cli.progress import Progress
from thetahat.cli.settings_options import with_options
from thetahat.errors import UsageError
from thetahat.files import as_text, require_folder
from thetahat.pipeline.settings import setting

if TYPE_CHECKING:
    from thetahat.control.controller import Controller
    from thetahat.model.robot import Robot
    from thetahat.plant.simulate import Recording

SCHEMA = "thetahat/demo/1"
FOLDER = "thetahat-demo"
DURATION, RATE = 10.0, 1000.0  # [s, Hz] of each motion
KP, KD = 400.0, 40.0  # [1/s²], [1/s] of the controller
TERMS = {"viscous": True, "coulomb": True, "offset": True}


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of `thetahat demo`."""

    robot: str = setting(f"Bundled robot: {', '.join(robots.names())}.", "arm4", "NAME", shown=True)
    seed: int = setting(
        "Random seed of the simulated robot's parameters, noise and motions.", 0, "N", shown=True
    )

    def __post_init__(self) -> None:
        if self.robot not in robots.names():
            shipped = ", ".join(robots.names())
            raise UsageError(
                f"--robot is {self.robot!r}; robots that ship with thetahat: {shipped}"
            )
        arguments.whole_number("--seed", self.seed)


@with_options(DemoOptions)
def demo(
    *,
    out: Annotated[
        str, arguments.output("Output folder; created if needed.", "DIR", show_default=True)
    ] = FOLDER,
    plant: arguments.Plant = None,
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    options: DemoOptions,
) -> None:
    """Run the whole workflow in under a minute: simulate, identify, validate, control."""
    began, seed = time.monotonic(), options.seed
    file, engine = robots.path(options.robot), arguments.plant(plant)
    require_folder(Path(out), [])
    with collect_warnings(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        from thetahat.model.io.load import load

        walk = _walk(file, Path(out), engine, seed, progress, warnings)
        followed = _followed(load(file), walk, engine, seed, progress)
    seconds = time.monotonic() - began
    data = describe(walk, followed, engine=engine, seed=seed, warnings=warnings, seconds=seconds)
    if json:
        emit(as_text(data))
    else:
        from thetahat.cli.demo_view import draw

        draw(data)


@dataclass(frozen=True, eq=False)
class Walk:
    """The logs that were simulated, and what was identified from them."""

    data: dict[str, Any]  # of estimate.json
    files: dict[str, Path]
    truth: Robot  # that was simulated
    identified: Robot


def _walk(
    file: Path, folder: Path, engine: str, seed: int, progress: Progress, warnings: list[str]
) -> Walk:
    """Simulate two motions of a robot that is not quite as its file says, and identify it."""
    from thetahat.engine.local import LocalEngine
    from thetahat.model.io.load import load
    from thetahat.pipeline.dataset import read_dataset
    from thetahat.pipeline.identify import run
    from thetahat.pipeline.outputs import Targets, write
    from thetahat.pipeline.settings import IdentifySettings
    from thetahat.plant.perturb import perturb

    nominal, targets = load(file), Targets.beneath(folder, file)
    truth = perturb(nominal, seed=seed)
    targets.check([])
    folder.mkdir(parents=True, exist_ok=True)
    names = ("motion", "log", "test_motion", "test_log")
    files = {name: folder / f"{name}.csv" for name in names}
    for k, (motion, log) in enumerate((names[:2], names[2:])):
        _moved(nominal, files[motion], "log-det" if k == 0 else "condition", seed + k, progress)
        _recorded(nominal, truth, files[motion], engine, seed + k, progress).save(files[log])
    local, settings = LocalEngine(progress), IdentifySettings()
    dataset = read_dataset(nominal, files["log"], files["test_log"], settings, local)
    result = run(dataset, local, progress)
    progress.stage("writing")
    saved = write(result, result.data, targets, warnings)
    files |= {"estimate": saved.files[0], "report": folder / "report.html"}
    if targets.robot in saved.files:  # of a result that is usable
        files["robot"] = targets.robot
    return Walk(saved.data, files, truth, result.robot)


def _moved(robot: Robot, path: Path, criterion: str, seed: int, progress: Progress) -> None:
    """Design a motion and write it."""
    from thetahat.excite.design import design

    motion_design = design(
        robot.with_drive(**TERMS),
        duration=DURATION,
        criterion=criterion,
        seed=seed,
        progress=progress.share("designing a motion"),
    )
    motion_design.trajectory.sampled(RATE).save(path)


def _recorded(
    nominal: Robot,
    truth: Robot,
    motion: Path,
    engine: str,
    seed: int,
    progress: Progress,
    controller: Controller | None = None,
) -> Recording:
    """What the sensors of the robot that was built see while its driver, which by default knows the
    file alone, follows the motion.
    """
    from thetahat.excite.trajectory import Motion
    from thetahat.plant import plant as plants
    from thetahat.plant.realism import Realism
    from thetahat.plant.simulate import simulate
    from thetahat.plant.tracking import Tracking

    kind = plants.MujocoPlant if engine == "mujoco" else plants.OwnPlant
    tell = progress.rows(f"simulating ({engine})")
    body = kind(truth, realism=Realism.typical(truth, seed=seed))
    return simulate(
        body,
        Motion.load(motion, nominal),
        rate=RATE,
        seed=seed,
        controller=controller or Tracking(nominal),
        progress=tell,
    )


def _followed(
    nominal: Robot, walk: Walk, engine: str, seed: int, progress: Progress
) -> dict[str, list[float]]:
    """How far computed torque lets each joint leave its course (RMS), with the file's values and
    with the identified ones.
    """
    import numpy as np

    from thetahat.control.computed_torque import ComputedTorque

    out = {}
    for name, model in (("tracking_rms_nominal", nominal), ("tracking_rms", walk.identified)):
        law = ComputedTorque(model, kp=KP, kd=KD, physical=False)
        recording = _recorded(
            nominal, walk.truth, walk.files["test_motion"], engine, seed + 1, progress, law
        )
        out[name] = np.sqrt(np.mean((recording.q - recording.wanted[0]) ** 2, axis=0)).tolist()
    return out


def describe(
    walk: Walk,
    followed: dict[str, list[float]],
    *,
    engine: str,
    seed: int,
    warnings: list[str],
    seconds: float,
) -> dict[str, Any]:
    """Return the answer as plain data, schema thetahat/demo/1."""
    answer, files, truth = walk.data, walk.files, walk.truth
    keys = ("name", "r2_test", "rms_test", "r2_nominal", "rms_nominal")
    masses = truth.theta.reshape(-1, 10)[:, 9]
    return {
        "schema": SCHEMA,
        "robot": answer["provenance"]["robot"],
        "plant": engine,
        "seed": seed,
        "seconds": seconds,
        "consistent": answer["consistent"],
        "verdict": answer["verdict"],
        "r2": {key: answer["r2"][key] for key in ("test", "nominal")},
        "joints": [
            {
                **{key: joint[key] for key in keys},
                **{key: values[j] for key, values in followed.items()},
            }
            for j, joint in enumerate(answer["joints"])
        ],
        "bodies": [
            {
                "name": link["name"],
                "mass_file": link["nominal"]["mass"],
                "mass_truth": float(mass),
                "mass": link["mass"],
            }
            for link, mass in zip(answer["links"], masses, strict=True)
        ],
        "parity": answer["parity"],
        "files": {name: str(path) for name, path in files.items()},
        "warnings": list(warnings),
    }
