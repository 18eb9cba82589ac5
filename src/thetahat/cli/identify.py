"""`thetahat identify ROBOT LOG... --out DIR`: the robot's parameters from a log of its motion."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from thetahat import __version__
from thetahat.cli import arguments, engine_options, outputs
from thetahat.cli.arguments import option
from thetahat.cli.exit_status import emit, heard, say
from thetahat.cli.progress import Progress
from thetahat.errors import UsageError

if TYPE_CHECKING:
    from thetahat.cli.backends import Alone
    from thetahat.cli.identify_stages import Options, Outcome
    from thetahat.model.robot import Robot

METHODS = ("consistent", "least-squares", "prior", "positive", "smooth")
WITH_PRIOR = ("consistent", "prior", "smooth")
METRICS = ("entropic", "euclidean")
FRICTION = ("viscous", "coulomb", "offset")
WEIGHTS = ("iterated", "joint", "none")
GRAVE = (
    "gravity-direction",
    "sign",
    "dead-torque",
    "saturated",
    "stuck",
    "coupling",
)  # findings that change the answer: said beside JSON too


def identify(
    robot: arguments.Robot,
    logs: arguments.Logs,
    *,
    out: Annotated[
        str,
        option(
            "Folder for estimate.json, report.html and the robot's file; made if absent.",
            "--out",
            "-o",
            metavar="DIR",
        ),
    ],
    json: arguments.Json = False,
    quiet: arguments.Quiet = False,
    method: Annotated[
        str, option(f"How to solve: {', '.join(METHODS)}.", metavar="NAME", show_default=True)
    ] = METHODS[0],
    prior: Annotated[
        str | None,
        option(
            "Robot file whose values what the log does not show keeps; default: ROBOT.",
            metavar="ROBOT",
        ),
    ] = None,
    prior_weight: Annotated[
        float | None,
        option(
            "Of the prior, which spreads by 1/√W; default: chosen by what predicts best.",
            metavar="W",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        option(
            f"Distance from the prior: {', '.join(METRICS)}; default {METRICS[0]}.", metavar="NAME"
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        option(
            "Of --method prior: near 1 the data count, near 0 the guess. Default 0.5.", metavar="A"
        ),
    ] = None,
    robust: Annotated[
        bool, option("Hold back single torques that do not fit the others.", "--robust")
    ] = False,
    weights: Annotated[
        str,
        option(
            "joint: weigh each joint by its residual; iterated: until that settles; none: all"
            " alike.",
            metavar="NAME",
            show_default=True,
        ),
    ] = "iterated",
    friction: Annotated[
        str,
        option("Friction to fit: some of the three, or none.", metavar="TERMS", show_default=True),
    ] = ",".join(FRICTION),
    armature: Annotated[
        bool | None,
        option("Fit rotor inertia; default: only if the log shows it.", "--armature/--no-armature"),
    ] = None,
    cutoff: Annotated[
        float | None,
        option(
            "Low-pass of motion and torque; default: chosen from the rows to fit.", metavar="HZ"
        ),
    ] = None,
    score_cutoff: Annotated[
        float | None,
        option(
            "Low-pass of the torque that is scored, and that choices aim at; default: the fit's.",
            metavar="HZ",
        ),
    ] = None,
    gravity: arguments.Gravity = None,
    test: Annotated[
        list[str] | None,
        option("A log to score on instead of a held-out part; may be repeated.", metavar="LOG"),
    ] = None,
    holdout: Annotated[
        float | None,
        option(
            "The last part of the log is scored, not fitted; default 0.3, 0: none.",
            metavar="FRACTION",
        ),
    ] = None,
    min_speed: Annotated[
        float | None,
        option(
            "Joints slower than this, in rad/s or m/s, stand still and leave the fit; default:"
            " chosen.",
            metavar="SPEED",
        ),
    ] = None,
    columns: arguments.Columns = None,
    joints: Annotated[
        str | None, option("Only these joints' torques are fitted and scored.", metavar="A,B,C")
    ] = None,
    actuation: Annotated[
        str | None,
        option(
            "CSV of the map from motors to joints: a row per joint, a column per motor.",
            metavar="FILE",
        ),
    ] = None,
    topic: arguments.Topic = None,
    salvage: arguments.Salvage = False,
    load_friction: Annotated[
        bool,
        option(
            "Let friction grow with the load where that predicts better; such a robot cannot be"
            " simulated here.",
            "--load-friction",
        ),
    ] = False,
    tune: Annotated[
        bool,
        option(
            "Choose friction, low-pass and prior by what predicts best inside the rows to fit;"
            " default: yes.",
            "--tune/--no-tune",
        ),
    ] = True,
    report: Annotated[
        bool, option("Write report.html; default: yes.", "--report/--no-report")
    ] = True,
    workers: engine_options.Workers = None,
    scheduler: engine_options.Scheduler = None,
    store: engine_options.Store = None,
) -> None:
    """Identify a robot from logs of its motion: parameters, how well each is known, and scores on
    held-out data.
    """
    began = time.monotonic()
    file, vector = arguments.robot_file(robot), arguments.gravity(gravity)
    if method not in METHODS:
        raise UsageError(f"--method is {method!r}; methods: {', '.join(METHODS)}")
    if weights not in WEIGHTS:
        raise UsageError(f"--weights is {weights!r}; give one of {', '.join(WEIGHTS)}")
    _require_method(method, prior=prior, prior_weight=prior_weight, metric=metric, alpha=alpha)
    if test and holdout is not None:
        raise UsageError(
            "--test and --holdout are both given; score on other logs or on a part of this one"
        )
    settings: dict[str, Any] = {
        "logs": tuple(logs),
        "tests": tuple(test or ()),
        "holdout": _fraction(0.3 if holdout is None else holdout),
        "friction": arguments.friction_terms(friction, FRICTION),
        "armature": armature,
        "weights": None if weights == "none" else weights,
        "method": method,
        "prior": None if prior is None else arguments.robot_file(prior),
        "prior_weight": prior_weight,
        "metric": metric,
        "tune": tune,
        "load_friction": load_friction,
        "alpha": 0.5 if alpha is None else alpha,
        "robust": robust,
        "cutoff": arguments.positive("--cutoff", cutoff, "Hz"),
        "score_cutoff": arguments.positive("--score-cutoff", score_cutoff, "Hz"),
        "min_speed": arguments.min_speed(min_speed),
        "joints": arguments.listed(joints, "--joints"),
        "actuation": None if actuation is None else arguments.input_file(actuation, "--actuation"),
        "columns": columns,
        "topic": topic,
        "salvage": salvage,
        "report": report,
    }
    inputs = [
        file,
        *logs,
        *(test or ()),
        *([actuation] if actuation else []),
        *([settings["prior"]] if prior else []),
    ]
    targets = outputs.Targets.beneath(out, file, report=report)
    targets.check(inputs)
    found, files, crew = _run(
        file,
        vector,
        settings,
        targets,
        engine_options.asked(workers, scheduler, store),
        quiet=quiet,
    )
    if json:
        emit(outputs.as_text(found))
        if not quiet:
            for finding in found["findings"]:
                if finding["kind"] in GRAVE:
                    say(finding["message"], "warning")
    else:
        from thetahat.cli.identify_view import draw

        draw(found, files=files, seconds=time.monotonic() - began)
    crew.conclude()


def _run(
    file: Path,
    gravity: tuple[float, float, float] | None,
    settings: dict[str, Any],
    targets: outputs.Targets,
    size: engine_options.Scale,
    *,
    quiet: bool,
) -> tuple[dict[str, Any], list[Path], Alone]:
    """The answer, the files it was written to, and who did the work."""
    from thetahat.cli.identify_stages import Options, run
    from thetahat.model.io.load import load

    options = Options(**settings)
    with heard(quiet=quiet) as warnings, Progress(quiet=quiet) as progress:
        progress.stage("loading the robot")
        loaded = load(file, gravity=gravity)
        with engine_options.opened(size, progress, [*options.logs, *options.tests]) as crew:
            progress.stage("reading the log")
            known = crew.answered(loaded, options, targets.folder)
            if known is None:
                outcome = run(loaded, options, progress, crew)
                progress.stage("writing")
                found = described(loaded, outcome, options)
                known = found, outputs.write(targets, found, outcome, warnings)
                crew.answer(*known)
            found, files = known
            warnings += [sentence for sentence in found["warnings"] if sentence not in warnings]
            crew.record(found)
        return found, files, crew


def described(robot: Robot, outcome: Outcome, options: Options) -> dict[str, Any]:
    """The answer as plain data, schema thetahat/estimate/1; the robot file's parity and warnings
    come when it is written.
    """
    from thetahat.identification.estimate_json import as_data, findings

    settings = outcome.settings
    logs = outcome.log.sources
    provenance = {
        "robot": robot.name,
        "robot_file": None if robot.source is None else str(robot.source),
        "robot_sha256": None if robot.source is None else _sha256(robot.source),
        "logs": [{"path": source.path, "sha256": source.sha256} for source in logs],
        "test_logs": (
            []
            if outcome.test_log is None
            else [
                {"path": source.path, "sha256": source.sha256}
                for source in outcome.test_log.sources
            ]
        ),
        "version": __version__,
        "settings": {
            "cutoff": settings.cutoff,
            "cutoff_reason": settings.reasoning,
            "min_speed": list(settings.min_speed),
            "friction": list(options.friction),
            "armature": outcome.armature,
            "weights": options.weights,
            "prior": None if options.prior is None else str(options.prior),
            "torque_cutoff": settings.torque_cutoff,
            "delay": settings.delay,
            "tuned": list(outcome.tuned.reasons),
            "prior_weight": (
                outcome.tuned.weight if options.method in ("consistent", "smooth") else None
            ),
            "metric": outcome.tuned.metric if options.method in ("consistent", "smooth") else None,
            "alpha": options.alpha if options.method == "prior" else None,
            "robust": options.robust,
            "joints": list(options.joints) or None,
            "actuation": None if options.actuation is None else str(options.actuation),
            "columns": options.columns,
            "topic": options.topic,
            "salvage": options.salvage,
            "gravity": [float(value) for value in robot.gravity],
            "rows_fitted": list(outcome.spans[0]),
            "rows_held_out": None if outcome.spans[1] is None else list(outcome.spans[1]),
        },
    }
    found = as_data(
        outcome.estimate,
        rows=outcome.information.rows,
        robot=outcome.nominal,
        test=outcome.test,
        raw=outcome.raw,
        provenance=provenance,
    )
    found["locked"] = list(outcome.log.locked)
    found["dropped"] = outcome.dropped
    found["findings"] = findings(outcome.log, "fit") + (
        [] if outcome.test_log is None else findings(outcome.test_log, "test")
    )
    found["findings"] += [
        {
            "log": "fit",
            "kind": "coupling",
            "joint": coupling.joints[0],
            "rows": None,
            "message": coupling.sentence,
        }
        for coupling in outcome.couplings
    ]
    found["warnings"] = []
    return found


# -- options ---------------------------------------------------------------------------------------


def _require_method(
    method: str,
    *,
    prior: str | None,
    prior_weight: float | None,
    metric: str | None,
    alpha: float | None,
) -> None:
    """Raise where an option is out of range, or says nothing to the method chosen."""
    for name, value, methods in (
        ("--prior", prior, WITH_PRIOR),
        ("--prior-weight", prior_weight, ("consistent", "smooth")),
        ("--metric", metric, ("consistent", "smooth")),
        ("--alpha", alpha, ("prior",)),
    ):
        if value is not None and method not in methods:
            raise UsageError(
                f"{name} is of no use to --method {method}; it belongs to {' and '.join(methods)}"
            )
    if metric is not None and metric not in METRICS:
        raise UsageError(f"--metric is {metric!r}; give one of {', '.join(METRICS)}")
    if prior_weight is not None and not (math.isfinite(prior_weight) and prior_weight >= 0.0):
        raise UsageError(
            f"--prior-weight is {prior_weight}; give a number of at least 0 (0: no prior)"
        )
    if alpha is not None and not 0.0 < alpha < 1.0:
        raise UsageError(
            f"--alpha is {alpha}; give a number between 0 (the guess alone) and 1 (the data alone),"
            " both excluded"
        )


def _fraction(value: float) -> float:
    if not (math.isfinite(value) and 0.0 <= value < 1.0):
        raise UsageError(
            f"--holdout is {value}; give the part of the log to hold out, from 0 to less than 1"
        )
    return value


def _sha256(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
