"""thetahat (Θ̂): identify what a robot is made of while it moves, and control it with what it learned.

The names below are the public face; each is imported from its module when it is first used, so that
``import thetahat`` is quick and no compiler is loaded before it is needed.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_MODULES = {
    "thetahat.errors": ("ThetahatError",),
    "thetahat.model.load": ("load",),
    "thetahat.model.robot": ("Robot",),
    "thetahat.model.parameters": ("from_pinocchio", "project", "to_pinocchio"),
    "thetahat.configuration": ("integrate", "random_configuration"),
    "thetahat.dynamics": (
        *("inverse_dynamics", "forward_dynamics", "mass_matrix", "mass_matrix_by_bodies", "coriolis_matrix", "gravity"),
        *("kinetic_energy", "potential_energy", "kinetic_energy_regressor", "potential_energy_regressor"),
        *("regressor", "regressor_by_unit_parameters", "static_regressor", "body_jacobian", "body_frames"),
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'thetahat' has no attribute {name!r}; it has: {', '.join(_HOME)}")


def __dir__() -> list[str]:
    return sorted(__all__)
