"""The arm's study with a good nominal model and without friction in the identified one: the paper's
figure, in which the bias of the joint errors goes and their peak-to-peak stays.
"""

from __future__ import annotations

from thetahat.studies import arm
from thetahat.studies.closed_loop import Experiment
from thetahat.studies.study import Progress, Result, silent


def experiment(engine: str, *, seed: int = 0) -> Experiment:
    """The parts of the study."""
    return arm.experiment(engine, seed=seed, variant=arm.RIGID)


def run(engine: str, *, seed: int = 0, progress: Progress = silent) -> Result:
    """Run it to its end."""
    return arm.run(engine, seed=seed, progress=progress, variant=arm.RIGID)
