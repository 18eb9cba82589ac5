"""thetahat (Θ̂): identify what a robot is made of while it moves, and control it with what it learned.

The names below are the public face; each is imported from its module when it is first used, so that
``import thetahat`` is quick and no compiler is loaded before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "load": "thetahat.model.load",
    "Robot": "thetahat.model.robot",
    "from_pinocchio": "thetahat.model.parameters",
    "to_pinocchio": "thetahat.model.parameters",
    "project": "thetahat.model.parameters",
    "body_frames": "thetahat.dynamics",
    "body_jacobian": "thetahat.dynamics",
    "coriolis_matrix": "thetahat.dynamics",
    "forward_dynamics": "thetahat.dynamics",
    "gravity": "thetahat.dynamics",
    "inverse_dynamics": "thetahat.dynamics",
    "kinetic_energy": "thetahat.dynamics",
    "kinetic_energy_regressor": "thetahat.dynamics",
    "mass_matrix": "thetahat.dynamics",
    "mass_matrix_by_bodies": "thetahat.dynamics",
    "potential_energy": "thetahat.dynamics",
    "potential_energy_regressor": "thetahat.dynamics",
    "regressor": "thetahat.dynamics",
    "regressor_by_unit_parameters": "thetahat.dynamics",
    "static_regressor": "thetahat.dynamics",
    "integrate": "thetahat.configuration",
    "random_configuration": "thetahat.configuration",
    "ThetahatError": "thetahat.errors",
}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from thetahat.configuration import integrate, random_configuration
    from thetahat.dynamics import (
        body_frames,
        body_jacobian,
        coriolis_matrix,
        forward_dynamics,
        gravity,
        inverse_dynamics,
        kinetic_energy,
        kinetic_energy_regressor,
        mass_matrix,
        mass_matrix_by_bodies,
        potential_energy,
        potential_energy_regressor,
        regressor,
        regressor_by_unit_parameters,
        static_regressor,
    )
    from thetahat.errors import ThetahatError
    from thetahat.model.load import load
    from thetahat.model.parameters import from_pinocchio, project, to_pinocchio
    from thetahat.model.robot import Robot


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'thetahat' has no attribute {name!r}; it has: {', '.join(_HOME)}")


def __dir__() -> list[str]:
    return sorted(__all__)
