"""Whether a fit is by instrumental variables, and why, in words."""

from __future__ import annotations

from dataclasses import dataclass

from thetahat.data.types import Finding
from thetahat.identification.estimators.instrumental import WEAK
from thetahat.identification.uncertainty.hausman import HausmanTest

KIND = "motion-noise"  # of the finding


@dataclass(frozen=True, eq=False)
class InstrumentChoice:
    """The test of least squares where a reference motion is there, and what follows from it.

    Instruments are used where they were asked for, or where noise in the motion biases least
    squares and they are not weak.
    """

    test: HausmanTest
    source: str  # of the reference motion, in sentences
    asked: bool | None = None  # for instruments; None: the test decides

    @property
    def used(self) -> bool:
        """Whether the fit is by instrumental variables."""
        return bool(self.asked) or (self.test.biased and self.test.strength >= WEAK)

    @property
    def reason(self) -> str:
        """The choice and its evidence, for the table of automatic choices."""
        kept = f"; they keep {self.test.strength:.2g} of the motion's information"
        if self.asked is not None:
            return f"instruments {self.source}, as asked: {self.test.sentence}{kept}"
        choice = f"instruments {self.source}" if self.used else "instruments not used"
        weak = ", too little to use them" if self.test.biased and not self.used else ""
        return f"{choice}: {self.test.sentence}{kept}{weak}"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the verdict names: that noise in the motion biases least squares."""
        if not self.test.biased:
            return ()
        done = (
            f"fitted by instrumental variables {self.source}"
            if self.used
            else "the fit is biased by it, as the instruments are too weak to use"
        )
        return (Finding(KIND, None, None, f"{self.test.sentence}; {done}", kept=not self.used),)
