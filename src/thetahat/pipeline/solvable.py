"""Numbers too far apart for double precision end in a sentence that names the largest of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from thetahat.data.log import Log
from thetahat.errors import NotIdentifiable, ThetahatError
from thetahat.model.parameters import NAMES
from thetahat.model.robot import Robot

CHUNKS = 50  # of the log that are looked at for its largest number
NOT_FINITE = "infs or NaNs"  # what SciPy says of a matrix that has overflowed


@contextmanager
def solvable(robot: Robot, log: Log) -> Iterator[None]:
    """Raise NotIdentifiable where the equations inside could not be solved in double precision."""
    try:
        yield
    except ThetahatError:
        raise
    except (np.linalg.LinAlgError, FloatingPointError, OverflowError, ValueError) as error:
        if type(error) is ValueError and NOT_FINITE not in str(error):
            raise
        raise NotIdentifiable(
            "the equations of the fit cannot be solved in double precision: numbers of the log and"
            f" the robot are too far apart; the largest are {_largest_of_log(robot, log)} and"
            f" {_largest_of_robot(robot)}: correct units and damaged rows"
        ) from error


def _largest_of_robot(robot: Robot) -> str:
    bodies = np.abs(robot.theta.reshape(-1, len(NAMES)))
    body, parameter = np.unravel_index(np.argmax(bodies), bodies.shape)
    value = bodies[body, parameter]
    return f"{robot.body_names[body]}'s {NAMES[parameter]} ({value:.3g}) in the robot file"


def _largest_of_log(robot: Robot, log: Log) -> str:
    named, most = "no number", -1.0
    with suppress(ThetahatError):
        for count, chunk in enumerate(log.chunks()):
            if count == CHUNKS:
                break
            for kind in ("q", "dq", "ddq", "tau"):
                values = getattr(chunk, kind)
                if values is None or not values.size:
                    continue
                top = np.max(np.abs(np.nan_to_num(values)), axis=0)
                if (value := float(np.max(top))) > most:
                    at, most = int(np.argmax(top)), value
                    names = robot.velocity_names if len(top) == robot.nv else ()
                    joint = f" of {names[at]}" if names else ""
                    named = f"{kind}{joint} ({value:.3g})"
    return f"{named} in the log"
