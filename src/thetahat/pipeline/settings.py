"""Settings of an identification: every option of `thetahat identify`, with its default."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from thetahat.data.finding_kinds import KEEP
from thetahat.data.form_names import FORMS
from thetahat.pipeline import body_settings
from thetahat.pipeline.setting_error import SettingError

if TYPE_CHECKING:
    from thetahat.data.reading import Reading
    from thetahat.model.robot import Robot

METHODS = ("consistent", "least-squares", "prior", "positive", "smooth")
CONSISTENT = ("consistent", "smooth")  # methods whose bodies are all physically consistent
WITH_PRIOR = ("consistent", "prior", "smooth")
BOUNDED = ("consistent",)  # methods that take bounds on bodies
METRICS = ("moments", "entropic", "euclidean")
FRICTION = ("viscous", "coulomb", "offset")
WEIGHTS = ("iterated", "joint")
FORM_CHOICES = (*FORMS, "auto")
CONTACTS = ("auto", "point", "flat", "none")
MOST_NUMBER = 1e12  # of any option that has no span of its own
MOST_COUNT = 2**63 - 1  # seeds are hashes at times
CUTOFFS = (1e-3, 1e6)  # [Hz]
LEAST_WEIGHT = 1e-12  # of a prior that is used at all
MOST_GRAVITY = 1e4  # [m/s²]


def setting(
    help: str,
    default: Any = None,
    metavar: str = "",
    flags: str = "",
    *,
    shown: bool = False,
    span: tuple[float, float] | None = None,
) -> Any:
    """Return a dataclass field that the command line offers as an option.

    flags: as Typer writes them, such as ``--tune/--no-tune``.
    shown: whether the help states the default.
    span: least and most of a number; where it is not given, `outside_span` has its own.
    """
    metadata = {"help": help, "metavar": metavar, "flags": flags, "shown": shown, "span": span}
    return field(default=default, metadata=metadata)


def outside_span(each: Field[object], value: object) -> str | None:
    """Return what is wrong with a number far from anything that is measured; None: nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if each.metadata.get("span") is not None:
        low, high = each.metadata["span"]
        if not low <= value <= high:
            return f" is {_brief(value)}; give a number from {low:g} to {high:g}"
        return None
    most = MOST_COUNT if isinstance(value, int) else MOST_NUMBER
    if abs(value) <= most:
        return None
    unit = f" [{each.metadata['metavar']}]" if each.metadata.get("metavar") else ""
    return f" is {_brief(value)}; give a finite number from {-most:g} to {most:g}{unit}"


def _brief(value: float) -> str:
    """A number as given, unless it has a great many digits."""
    return f"{value:g}" if isinstance(value, float) else str(value) if abs(value) < 1e20 else "huge"


@dataclass(frozen=True, kw_only=True)
class IdentifySettings:
    """Settings of `identify`. What is None is chosen from the training rows, or not used."""

    method: str = setting(f"Estimator: {', '.join(METHODS)}.", METHODS[0], "NAME", shown=True)
    prior: Robot | str | os.PathLike[str] | None = setting(
        "Robot file used as the prior; default: ROBOT.", None, "ROBOT"
    )
    prior_weight: float | None = setting(
        "Weight of the prior; default: chosen by the log's evidence.", None, "W", span=(0.0, 1e12)
    )
    metric: str | None = setting(
        f"Distance to the prior: {', '.join(METRICS)}; default: {METRICS[0]}.", None, "NAME"
    )
    alpha: float | None = setting(
        "Blend of --method prior: 1 is data only, 0 is the prior only; default: 0.5.", None, "A"
    )
    robust: bool = setting("Reduce the weight of torque outliers (Huber).", False, flags="--robust")
    weights: str | None = setting(
        "Joint weights: joint (inverse residual), iterated (to convergence), none.",
        WEIGHTS[0],
        "NAME",
        shown=True,
    )
    friction: tuple[str, ...] = setting(
        "Friction terms to identify, or none.", FRICTION, "TERMS", shown=True
    )
    mass_range: tuple[float, float] | None = setting(
        "Factors of the file's mass that bound each link's, or none: bodies need not be plausible.",
        body_settings.MASS_RANGE,
        "LOW,HIGH",
        shown=True,
    )
    total_mass: tuple[float, float] | None = setting(
        "Mass of all moving links in kg: a number, or LOW,HIGH.", None, "KG"
    )
    bounds: str | None = setting(
        "Limits in kg and m: LINK:mass=LOW..HIGH,com=XLOW..XHIGH/YLOW..YHIGH/ZLOW..ZHIGH;LINK:…",
        None,
        "LIMITS",
    )
    frozen: tuple[str, ...] = setting("Links that keep the prior's values.", (), "A,B,C")
    tied: tuple[str, ...] = setting(
        "Pairs of links that are alike: A=B, or A=B:x where B is A's mirror image along x.",
        (),
        "A=B,C=D",
    )
    armature: bool | None = setting(
        "Identify rotor inertia; default: of motors for which it improves the BIC by more than 2.",
        None,
        flags="--armature/--no-armature",
    )
    cutoff: float | None = setting(
        "Low-pass cut-off for motion and torque; default: chosen from the training rows.",
        None,
        "HZ",
        span=CUTOFFS,
    )
    form: str = setting(
        "Form of the equation of motion that is fitted: torque, or without accelerations momentum"
        " or filtered; auto: the one that predicts torques of the training rows best.",
        FORM_CHOICES[0],
        "NAME",
        shown=True,
    )
    score_cutoff: float | None = setting(
        "Low-pass cut-off for scored torques; default: that of the fit.", None, "HZ", span=CUTOFFS
    )
    gravity: tuple[float, float, float] | None = setting(
        "Gravity in the robot's world frame, in m/s²; default: the file's, or 0,0,-9.81.",
        None,
        "X,Y,Z",
    )
    holdout: float | None = setting(
        "Fraction at the end of the log held out for scoring; default: 0.3, 0 for none.",
        None,
        "FRACTION",
    )
    min_speed: float | None = setting(
        "Speed in rad/s or m/s below which a joint is at standstill and not fitted; default:"
        " chosen from the training rows.",
        None,
        "SPEED",
        span=(0.0, 1e6),
    )
    columns: str | None = setting(
        'Column names, such as "q={joint}_pos,tau={joint}_eff"; {number} counts joints from 1,'
        ' {index} from 0; or places of columns, such as "t=1,q=2-8,tau=9-15".',
        None,
        "PATTERNS",
    )
    units: str | None = setting(
        "Units of columns that are not in SI units, such as q=deg,t=ms,tau=mNm.", None, "UNITS"
    )
    wrench_frame: str = setting(
        "Whose axes columns wrench.<link>.* are in: link or world, about the link's origin.",
        "link",
        "FRAME",
        shown=True,
    )
    floating_base: bool = setting(
        "The root link moves freely: the log has its pose base.x … base.qw, and wrench.<link>.* or"
        " contact.<link> of what touches the ground.",
        False,
        flags="--floating-base",
    )
    contacts: str = setting(
        "What ground whose force is not measured exerts on a link: point (a force), flat (force"
        " and couple), auto (flat beyond six joints), or none: nothing touches the robot.",
        CONTACTS[0],
        "KIND",
        shown=True,
    )
    gains: str | os.PathLike[str] | Mapping[str, float] | None = setting(
        "drive.json with the gain of each joint's torque or current, as thetahat payload"
        " --known-mass writes it.",
        None,
        "FILE",
    )
    format: str | None = setting(
        "Names of a recorder's columns: rtde, plotjuggler or lerobot.", None, "NAME"
    )
    reference: str | os.PathLike[str] | None = setting(
        "Log of the same motion as commanded, repeated or simulated, for instrumental variables;"
        " default: the log's own columns cmd.<joint>, where it has them.",
        None,
        "FILE",
    )
    instruments: bool | None = setting(
        "Fit by instrumental variables; default: where a reference motion is there and a"
        " Durbin–Wu–Hausman test finds that noise in the motion biases least squares.",
        None,
        flags="--instruments/--no-instruments",
    )
    joints: tuple[str, ...] = setting(
        "Fit and score the torques of these joints only.", (), "A,B,C"
    )
    actuation: str | os.PathLike[str] | None = setting(
        "CSV file of the actuation matrix: a row per joint, a column per motor.", None, "FILE"
    )
    topic: str | None = setting(
        "Joint-state topic to read from a bag that has several.", None, "NAME"
    )
    salvage: bool = setting("Read the intact part of a truncated file.", False, flags="--salvage")
    keep: tuple[str, ...] = setting(
        f"What the audit would leave out but must not: {', '.join(KEEP)}; may be repeated.",
        (),
        "REASON",
    )
    skip_bad_rows: bool = setting(
        "Leave out rows with cells that are no finite numbers; default: refuse the file.",
        False,
        flags="--skip-bad-rows",
    )
    load_friction: bool = setting(
        "Allow load-dependent friction, which the simulators here do not model.",
        False,
        flags="--load-friction",
    )
    static: bool = setting(
        "Identify gravity alone, from poses that are held: masses and centres of mass as far as"
        " holding torques tell them, for gravity compensation.",
        False,
        flags="--static",
    )
    springs: bool = setting(
        "Identify springs and counterbalances of joints whose log shows them; default: yes.",
        True,
        flags="--springs/--no-springs",
    )
    tune: bool = setting(
        "Choose friction model, low-pass, delay, rotors and prior weight from the training rows;"
        " default: yes.",
        True,
        flags="--tune/--no-tune",
    )
    report: bool = setting("Write report.html; default: yes.", True, flags="--report/--no-report")
    force: bool = setting(
        "Write the robot file of a result that is not usable, too.", False, flags="--force"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "friction", _friction(self.friction))
        for name in ("joints", "frozen", "tied"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        object.__setattr__(self, "keep", _keep(self.keep))
        object.__setattr__(self, "mass_range", body_settings.mass_range(self.mass_range))
        object.__setattr__(self, "total_mass", body_settings.total_mass(self.total_mass))
        if self.gravity is not None:
            object.__setattr__(self, "gravity", _gravity(self.gravity))
        _among("method", self.method, METHODS, "methods: ")
        _among("form", self.form, FORM_CHOICES)
        _among("wrench_frame", self.wrench_frame, ("link", "world"))
        _among("contacts", self.contacts, CONTACTS)
        if self.robust and self.form != FORM_CHOICES[0]:
            raise SettingError(
                "robust",
                f" weights single torques, and the rows of form {self.form} are made of several;"
                " leave one of the two out",
            )
        if self.metric is not None:
            _among("metric", self.metric, METRICS)
        if self.weights is not None:
            _among("weights", self.weights, WEIGHTS, more=("none",))
        self._check_method()
        for name, unit in (("cutoff", "Hz"), ("score_cutoff", "Hz"), ("min_speed", "rad/s or m/s")):
            _check_positive(name, getattr(self, name), unit, zero=name == "min_speed")
        if self.form == "auto" and not self.tune:
            raise SettingError("form", " auto is a choice of the tuning; name the form, or tune")
        if self.holdout is not None and not 0.0 <= self.holdout < 1.0:
            raise SettingError(
                "holdout",
                f" is {self.holdout}; give the fraction of the log to hold out, from 0 to less"
                " than 1",
            )
        for each in fields(self):
            if (wrong := outside_span(each, getattr(self, each.name))) is not None:
                raise SettingError(each.name, wrong)

    def _check_method(self) -> None:
        """Raise where an option is out of range or does not apply to the method."""
        for name, methods in (
            ("prior", WITH_PRIOR),
            ("prior_weight", CONSISTENT),
            ("metric", CONSISTENT),
            ("alpha", ("prior",)),
            ("total_mass", BOUNDED),
            ("bounds", BOUNDED),
            ("frozen", BOUNDED),
            ("tied", BOUNDED),
        ):
            if getattr(self, name) not in (None, ()) and self.method not in methods:
                raise SettingError(
                    name,
                    f" is of no use to method {self.method}; it belongs to {' and '.join(methods)}",
                )
        body_settings.link_limits(self.bounds)  # what cannot be read is told before work begins
        for each in self.tied:
            body_settings.pair(each)
        weight, alpha = self.prior_weight, self.alpha
        if weight is not None and not (math.isfinite(weight) and weight >= 0.0):
            raise SettingError(
                "prior_weight", f" is {weight}; give a number of at least 0 (0: no prior)"
            )
        if weight is not None and 0.0 < weight < LEAST_WEIGHT:
            raise SettingError(
                "prior_weight",
                f" is {weight}; give 0 (no prior), or a number from {LEAST_WEIGHT:g} to 1e12",
            )
        if alpha is not None and not 0.0 < alpha < 1.0:
            raise SettingError(
                "alpha",
                f" is {alpha}; give a number between 0 (the prior alone) and 1 (the data alone),"
                " both excluded",
            )

    @property
    def reading(self) -> Reading:
        """How the files of a log are read."""
        from thetahat.data.reading import Reading
        from thetahat.data.units import ScaledUnits

        given = (self.columns, self.topic, self.salvage)
        gains = self.torque_gains
        units: str | ScaledUnits | None = self.units
        if gains or self.wrench_frame != "link":
            units = ScaledUnits(self.units, gains, self.wrench_frame)
        return Reading(*given, units, self.format, self.skip_bad_rows, self.keep)

    @property
    def torque_gains(self) -> tuple[tuple[str, float], ...]:
        """Joints, and the factors on their logged torques."""
        if self.gains is None:
            return ()
        if isinstance(self.gains, Mapping):
            return tuple((str(name), float(gain)) for name, gain in self.gains.items())
        from thetahat.model.io.gains_json import read_gains

        known = read_gains(self.gains)
        return tuple((name, each.gain) for name, each in known.items() if each.gain is not None)

    @property
    def gain_errors(self) -> dict[str, float]:
        """Joints, and the standard deviations of their gains as shares of these, as a file has
        them; gains that are given as numbers count as exact.
        """
        if self.gains is None or isinstance(self.gains, Mapping):
            return {}
        from thetahat.model.io.gains_json import read_gains

        return {
            name: each.std / abs(each.gain)
            for name, each in read_gains(self.gains).items()
            if each.gain and each.std
        }

    @property
    def plausible(self) -> tuple[float, float] | None:
        """The mass range, where the method can hold bodies to it."""
        return self.mass_range if self.method in BOUNDED else None

    @property
    def held_out(self) -> float:
        """Fraction of the log that is held out, where no test log is given."""
        return 0.3 if self.holdout is None else self.holdout

    @property
    def blend(self) -> float:
        """α of the paper's blend with an initial guess."""
        return 0.5 if self.alpha is None else self.alpha

    @property
    def consistent(self) -> bool:
        """Whether the method yields physically consistent bodies."""
        return self.method in CONSISTENT

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in given.items() if value != getattr(_DEFAULT, name)}

    def __repr__(self) -> str:
        return f"IdentifySettings({', '.join(f'{k}={v!r}' for k, v in self.changed().items())})"


def _among(
    name: str, value: str, choices: tuple[str, ...], title: str = "", more: tuple[str, ...] = ()
) -> None:
    if value not in choices:
        listed = (
            title + ", ".join((*choices, *more))
            if title
            else "give one of " + ", ".join((*choices, *more))
        )
        raise SettingError(name, f" is {value!r}; {listed}")


def _check_positive(name: str, value: float | None, unit: str, *, zero: bool) -> None:
    if value is None or (zero and value == 0.0):
        return
    if not (math.isfinite(value) and value > 0.0):
        raise SettingError(name, f" is {value}; give a positive number [{unit}]")


def _names(name: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """Names from a sequence, or from text with commas."""
    if isinstance(value, str):
        names = tuple(part.strip() for part in value.split(",") if part.strip())
        if not names:
            raise SettingError(name, " is empty; give names with commas")
        return names
    return tuple(value)


def _friction(value: str | Sequence[str]) -> tuple[str, ...]:
    """Some of the friction terms, in their order; "none" is none."""
    terms = ",".join(FRICTION)
    if isinstance(value, str) and not value.strip(", "):
        raise SettingError("friction", f" is empty; give some of {terms}, or none")
    names = _names("friction", value)
    if names == ("none",):
        return ()
    for name in names:
        if name not in FRICTION:
            raise SettingError(
                "friction", f" names {name!r}; terms: {', '.join(FRICTION)}, or none"
            )
    return tuple(term for term in FRICTION if term in names)


def _keep(value: str | Sequence[str]) -> tuple[str, ...]:
    """Reasons of the audit, each once, from names or from text with commas."""
    parts = [value] if isinstance(value, str) else value
    names = dict.fromkeys(name for part in parts for name in _names("keep", part))
    for name in names:
        _among("keep", name, tuple(KEEP), "reasons: ")
    return tuple(names)


def _gravity(value: str | Sequence[float]) -> tuple[float, float, float]:
    """Three finite numbers, from a sequence or from text with commas."""
    try:
        numbers = tuple(
            float(part) for part in (value.split(",") if isinstance(value, str) else value)
        )
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != 3 or not all(abs(each) <= MOST_GRAVITY for each in numbers):
        raise SettingError(
            "gravity",
            f" is {value!r}; give three numbers from {-MOST_GRAVITY:g} to {MOST_GRAVITY:g} [m/s²],"
            " for example 0,0,-9.81",
        )
    return numbers[0], numbers[1], numbers[2]


_DEFAULT = IdentifySettings()
