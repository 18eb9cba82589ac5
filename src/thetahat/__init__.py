"""thetahat (Θ̂): identify a robot's inertial and friction parameters while it moves, and control it
with them.

The public names are listed in ``__init__.pyi``. Each is imported from its module on first use, so
``import thetahat`` is quick and loads neither Numba nor Polars.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.2.0.dev0"

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

RENAMED = {
    "Smooth": "use th.Consistent(solver=LogCholesky())",
    "Switched": "write: from thetahat.control.model_switch import ModelSwitch",
}
MOVED = {  # names that were here before 0.2, by the module that has them
    "Saved": "thetahat.model.io.save",
    "with_drive_file": "thetahat.model.io.save",
    "project": "thetahat.model.parameters",
    "integrate": "thetahat.dynamics.configuration",
    "mass_matrix_by_bodies": "thetahat.dynamics.rigid_body",
    "kinetic_energy_regressor": "thetahat.dynamics.rigid_body",
    "potential_energy_regressor": "thetahat.dynamics.rigid_body",
    "static_regressor": "thetahat.dynamics.rigid_body",
    "body_jacobian": "thetahat.dynamics.rigid_body",
    "body_frames": "thetahat.dynamics.rigid_body",
    "informative": "thetahat.identification.informative.selection",
    "torque_band": "thetahat.identification.uncertainty.torque_band",
    "essential": "thetahat.identification.uncertainty.essential",
    "Payload": "thetahat.identification.payload.payload_result",
    "payload_on_link": "thetahat.identification.payload.payload_difference",
    "payload_from_difference": "thetahat.identification.payload.payload_difference",
    "Ridge": "thetahat.identification.estimators.ridge",
    "ridge_path": "thetahat.identification.estimators.ridge",
    "Tuned": "thetahat.identification.tuning.tune",
    "Motion": "thetahat.excite.trajectory",
    "Box": "thetahat.excite.motion_limits",
    "motion_limits": "thetahat.excite.motion_limits",
    "GravityCompensation": "thetahat.control.computed_torque",
    "PD": "thetahat.control.computed_torque",
    "pd_gains": "thetahat.control.computed_torque",
    "SlotineLi": "thetahat.control.adaptive",
    "Euclidean": "thetahat.control.adaptation_laws",
    "LogDet": "thetahat.control.adaptation_laws",
    "Follow": "thetahat.control.loop",
    "Loop": "thetahat.control.loop",
    "Journal": "thetahat.control.journal",
    "OnlineControl": "thetahat.control.online_control",
    "MujocoPlant": "thetahat.plant.plant",
}


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    if name == "ExternalTorque":  # beside the listed names, which are few
        from thetahat.online.external_torque import ExternalTorque

        return ExternalTorque
    if name in RENAMED:
        raise AttributeError(f"th.{name} is gone; {RENAMED[name]}")
    if name in MOVED:
        raise AttributeError(f"th.{name} has moved; write: from {MOVED[name]} import {name}")
    if name.startswith("__"):  # what Python itself asks for, like __path__
        raise AttributeError(f"module 'thetahat' has no attribute {name!r}")

    from difflib import get_close_matches

    near = get_close_matches(name, __all__, n=4, cutoff=0.5) or __all__
    raise AttributeError(f"module 'thetahat' has no attribute {name!r}; it has {', '.join(near)}")
