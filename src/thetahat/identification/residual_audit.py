"""stub"""

from dataclasses import dataclass

from thetahat.data.types import Finding


@dataclass(frozen=True)
class ResidualFindings:
    """Findings in what a fitted model leaves of the torques."""

    fit: tuple[Finding, ...] = ()
    test: tuple[Finding, ...] = ()
