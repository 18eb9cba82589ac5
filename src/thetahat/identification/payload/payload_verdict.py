"""The verdict on a payload: whether its mass and centre of mass may be entered anywhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from thetahat.errors import known
from thetahat.identification.next_steps import Commands
from thetahat.identification.payload.payload_body import CLEAR
from thetahat.identification.verdict import Verdict, verdict_of
from thetahat.identification.verdict_findings import finding_reasons
from thetahat.identification.verdict_reason import (
    CORRECTED,
    SUSPECT,
    WRONG,
    Data,
    Fields,
    Reason,
    quantity,
)

CLOSE = 0.1  # of the mass: a standard deviation above is no measurement
CENTRED = 0.02  # [m] standard deviation of the centre of mass, likewise
SCALE = 0.05  # error of the torques' scale that is worth a known payload
APART = 10.0  # χ² per degree of freedom: the runs differ by much more than a payload
Z = 1.96  # of a 95 % interval


def with_payload_verdict(data: Fields, out: str = "result") -> Fields:
    """Return an answer, schema thetahat/payload/1, with its verdict."""
    return {**data, "verdict": judge_payload(data, out).as_data()}


def judge_payload(data: Data, out: str = "result") -> Verdict:
    """Judge payloads: their masses, centres of mass, and whether the runs differ by them alone."""
    commands = _PayloadCommands(Commands.of(data, out), str(data["link"]))
    reasons = list(finding_reasons(data, commands.files))
    for each in data["payloads"]:
        reasons += _payload_reasons(each, commands)
    reasons += _scale_reasons(data, commands)
    return verdict_of(_summary(data), reasons, commands.excite)


class _PayloadCommands:
    """Commands to try next, with the user's own files."""

    def __init__(self, files: Commands, link: str) -> None:
        self.files, self._link = files, shlex.quote(link)

    @property
    def excite(self) -> str:
        """Design a motion that tells the payload's numbers."""
        robot = self.files.robot
        return f"thetahat excite {robot} --for payload --link {self._link} --out motion.csv"

    @property
    def find_gains(self) -> str:
        """Find the drives' gains from a payload that was weighed."""
        words = ["thetahat payload", self.files.robot, "WEIGHED_LOG", "--without UNLOADED_LOG"]
        words += [f"--link {self._link}", "--known-mass KG", self.files.options]
        return " ".join(filter(None, [*words, f"--out {self.files.out}"]))


def _summary(data: Data) -> str:
    """Return the masses and centres of mass in a sentence."""
    parts = []
    for each in data["payloads"]:
        name = f"{each['name']}: " if len(data["payloads"]) > 1 else ""
        if each["mass"] is None:
            parts.append(f"{name}no mass on {each['link']} that the motion tells")
            continue
        interval = " kg (given)" if each["mass_known"] else f" ± {Z * each['std']:.1g} kg (95 %)"
        text = f"{name}{each['mass']:.4g}{interval} on {each['link']}"
        if None not in each["com"]:
            centre = ", ".join(f"{1e3 * value:.1f}".replace("-", "−") for value in each["com"])
            text += f", centre of mass at ({centre}) mm"
        parts.append(text)
    gains = data["gains"]
    if gains is not None:
        found = [each for each in gains if each["gain"] is not None]
        parts.append(f"gains of {len(found)} of {len(gains)} joints")
    return "; ".join(parts)


def _payload_reasons(each: Data, commands: _PayloadCommands) -> Iterator[Reason]:
    """What one payload lacks."""
    mass, std = each["mass"], each["std"]
    if mass is None:
        text = f"the motion does not tell the mass on {each['link']}"
        yield Reason(WRONG, text, (commands.excite,))
        return
    if not each["mass_known"] and std is not None:
        if mass <= CLEAR * std:
            text = (
                f"a mass of {quantity(mass, 'kg')} ± {quantity(std, 'kg')} cannot be told from none"
            )
            yield Reason(WRONG, text, (commands.excite,))
        elif std > CLOSE * mass:
            text = f"the mass is known to ± {100.0 * std / mass:.0f} % only"
            yield Reason(SUSPECT, text, (commands.excite,))
    wide = [
        axis
        for axis, spread in zip("xyz", each["com_std"], strict=True)
        if spread is None or spread > CENTRED
    ]
    if wide:
        text = (
            f"the motion does not tell the centre of mass along {', '.join(wide)}: turn the payload"
            " against gravity"
        )
        yield Reason(SUSPECT, text, (commands.excite,))
    turning = [part for part in each["unidentified"] if part.startswith("I")]
    if turning:
        text = (
            f"the motion does not tell {known(turning)} of the payload: accelerate it about more"
            " axes, or faster"
        )
        yield Reason(CORRECTED, text, (commands.excite,))
    if each["misfit"] is not None and each["misfit"] > APART:
        text = (
            f"the runs differ by more than a payload on {each['link']} explains (χ² per degree of"
            f" freedom {each['misfit']:.3g}); standard deviations are larger for it"
        )
        yield Reason(SUSPECT, text, (commands.find_gains,))


def _scale_reasons(data: Data, commands: _PayloadCommands) -> Iterator[Reason]:
    """Torques whose scale is not confirmed, and gains that are not told."""
    error, gains = data["scale_error"], data["gains"]
    if gains is None and error is not None and error > SCALE:
        text = (
            f"the robot's own torques differ by {100.0 * error:.0f} % from what its file's masses"
            " need, and the payload's mass may be off by as much: weigh something, hold it, record"
            " it, and give --known-mass"
        )
        yield Reason(SUSPECT, text, (commands.find_gains,))
    if gains is not None:
        unknown = [each["joint"] for each in gains if each["gain"] is None]
        if unknown:
            text = f"the known payload does not tell the gains of {known(unknown)}"
            yield Reason(SUSPECT, text, (commands.excite,))
