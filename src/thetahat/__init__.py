"""thetahat (Θ̂): identify what a robot is made of while it moves, and control it with what it
learned.

The names below are the public face; each is imported from its module when it is first used, so that
``import thetahat`` is quick and no compiler is loaded before it is needed.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

__version__ = "0.1.0"

_MODULES = {
    "thetahat.errors": ("ThetahatError",),
    "thetahat.model.io.load": ("load",),
    "thetahat.model.robot": ("Robot",),
    "thetahat.model.io.save": ("Saved", "save", "with_drive_file"),
    "thetahat.model.parameters": ("from_pinocchio", "project", "to_pinocchio"),
    "thetahat.dynamics.configuration": ("integrate", "random_configuration"),
    "thetahat.dynamics.rigid_body": (
        *(
            "inverse_dynamics",
            "forward_dynamics",
            "mass_matrix",
            "mass_matrix_by_bodies",
            "coriolis_matrix",
            "gravity",
        ),
        *(
            "kinetic_energy",
            "potential_energy",
            "kinetic_energy_regressor",
            "potential_energy_regressor",
        ),
        *(
            "regressor",
            "regressor_by_unit_parameters",
            "static_regressor",
            "body_jacobian",
            "body_frames",
        ),
    ),
    "thetahat.data.log": ("read_log",),
    "thetahat.data.prepare": ("prepare",),
    "thetahat.data.samples": ("Samples",),
    "thetahat.identification.identifiability.base_parameters": ("base_parameters",),
    "thetahat.identification.information": ("Information",),
    "thetahat.engine.fold_logs": ("information",),
    "thetahat.identification.informative.selection": ("informative",),
    "thetahat.identification.estimate": ("Estimate",),
    "thetahat.identification.solve": ("solve",),
    "thetahat.identification.estimators.least_squares": ("LeastSquares",),
    "thetahat.identification.estimators.prior": ("Prior",),
    "thetahat.identification.estimators.positive": ("Positive",),
    "thetahat.identification.estimators.consistent": ("Consistent", "LogCholesky"),
    "thetahat.identification.consistency.constraints": ("Bounds", "Constraints", "Tie"),
    "thetahat.identification.estimators.robust": ("Robust",),
    "thetahat.identification.uncertainty.torque_band": ("torque_band",),
    "thetahat.identification.uncertainty.essential": ("essential",),
    "thetahat.identification.payload.payload": (
        "Payload",
        "payload_from_difference",
        "payload_on_link",
    ),
    "thetahat.identification.estimators.ridge": ("Ridge", "ridge_path"),
    "thetahat.identification.tuning.tune": ("Tuned", "TuningOptions", "tune"),
    "thetahat.identification.scores": ("validate",),
    "thetahat.excite.trajectory": ("Motion",),
    "thetahat.excite.motion_limits": ("Box", "motion_limits"),
    "thetahat.excite.design": ("design",),
    "thetahat.online.identifier": ("OnlineIdentifier",),
    "thetahat.control.computed_torque": ("ComputedTorque", "GravityCompensation", "PD"),
    "thetahat.control.gains": ("pd_gains",),
    "thetahat.control.adaptive": ("SlotineLi",),
    "thetahat.control.adaptation_laws": ("Euclidean", "LogDet"),
    "thetahat.control.model_switch": ("Switched",),
    "thetahat.control.loop": ("Follow", "Loop"),
    "thetahat.control.journal": ("Journal",),
    "thetahat.control.online_control": ("OnlineControl",),
    "thetahat.plant.realism": ("Realism",),
    "thetahat.plant.plant": ("MujocoPlant", "OwnPlant"),
    "thetahat.plant.simulate": ("simulate",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_HOME]


class _Stage(ModuleType):
    """A stage whose name is also that of its function: `thetahat.identification` holds modules, and
    `thetahat.identification(info)` calls.
    """

    def __call__(self, *arguments: object, **options: object) -> object:
        name = self.__name__.rpartition(".")[2]
        return getattr(importlib.import_module(_HOME[name]), name)(*arguments, **options)


class _Package(ModuleType):
    """Makes a stage callable as Python binds it here, whichever way it is imported first."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOME and isinstance(value, ModuleType):
            value.__class__ = _Stage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> object:
    if name in _HOME:
        module = importlib.import_module(_HOME[name])
        if name not in globals():  # else it is a stage, bound by its import
            globals()[name] = getattr(module, name)
        return globals()[name]
    raise AttributeError(f"module 'thetahat' has no attribute {name!r}; it has: {', '.join(_HOME)}")


def __dir__() -> list[str]:
    return sorted(__all__)
