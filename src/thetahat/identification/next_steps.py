"""Commands to try next, with the user's own files."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePath

from thetahat import robots
from thetahat.identification.verdict_reason import Data

MOST_LOGS = 3  # named in a command
STRONGER = 10.0  # times the weight of the prior
NAMES = {"columns": "--columns", "units": "--units", "format": "--format"}
OPTIONS = {"actuation": "--actuation", **NAMES, "topic": "--topic"}


@dataclass(frozen=True)
class Commands:
    """The files of a result, from which commands are made."""

    robot: str = "ROBOT"
    logs: tuple[str, ...] = ("LOG",)
    options: str = ""  # with which the logs were read
    out: str = "result"
    names: str = ""  # of the options, those of columns and their units

    @staticmethod
    def of(data: Data, out: str) -> Commands:
        """Take the files from an answer's provenance."""
        origin = data.get("provenance") or {}
        paths = (log["path"] for log in origin.get("logs") or ())
        logs = tuple(path for path in paths if PurePath(path).suffix)  # others are in memory
        settings = origin.get("settings") or {}
        words, names = (
            [
                f"{option} {shlex.quote(str(settings[name]))}"
                for name, option in options.items()
                if settings.get(name)
            ]
            for options in (OPTIONS, NAMES)
        )
        if settings.get("joints"):
            words.append(f"--joints {shlex.quote(','.join(settings['joints']))}")
        robot = origin.get("robot_file") or origin.get("robot") or "ROBOT"
        if PurePath(robot).parent == robots.FOLDER:  # ships with the package
            robot = PurePath(robot).stem
        named = tuple(map(shlex.quote, logs if len(logs) <= MOST_LOGS else logs[:1]))
        more = ("OTHER_LOGS",) if len(logs) > MOST_LOGS else ()
        return Commands(
            shlex.quote(str(robot)),
            (*named, *more) or ("LOG",),
            " ".join(words),
            shlex.quote(out),
            " ".join(names),
        )

    @property
    def inspect(self) -> str:
        """Look at the robot file: tree, masses, consistency."""
        return f"thetahat inspect {self.robot}"

    @property
    def validate(self) -> str:
        """Score the result on another log."""
        estimate = str(PurePath(self.out) / "estimate.json")
        return f"thetahat validate {self.robot} OTHER_LOG --estimate {estimate}"

    @property
    def score_nominal(self) -> str:
        """Score the robot file itself on the log."""
        return " ".join(filter(None, ["thetahat validate", self.robot, *self.logs, self.options]))

    @property
    def excite_after(self) -> str:
        """Design a motion that adds what the logs do not tell."""
        after = [f"--after {log}" for log in self.logs]
        words = ["thetahat excite", self.robot, *after, self.names, "--out motion.csv"]
        return " ".join(filter(None, words))

    @property
    def load_friction(self) -> str:
        """Identify again with friction that grows with the load."""
        return self.identify("--load-friction")

    @property
    def weigh(self) -> str:
        """Find the drives' gains with a payload of known mass."""
        words = ["thetahat payload", self.robot, "WEIGHED_LOG"]
        words += [f"--without {log}" for log in self.logs]
        words += ["--link LINK --known-mass KG", self.options, "--out gains"]
        return " ".join(filter(None, words))

    def excite(self, seconds: float) -> str:
        """Design a longer motion."""
        return f"thetahat excite {self.robot} --duration {seconds:.0f} --out motion.csv"

    def identify(self, option: str) -> str:
        """Identify again with another option."""
        words = ["thetahat identify", self.robot, *self.logs, self.options, option]
        return " ".join(filter(None, [*words, f"--out {self.out}"]))

    def stronger_prior(self, data: Data) -> tuple[str, ...]:
        """Identify again with more weight on the prior, where the method has one."""
        settings = (data.get("provenance") or {}).get("settings") or {}
        weight = settings.get("prior_weight")
        return (self.identify(f"--prior-weight {STRONGER * weight:.3g}"),) if weight else ()
