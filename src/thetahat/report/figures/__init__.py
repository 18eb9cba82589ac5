"""Figures as plain dictionaries {data, layout} for Plotly.js: one small pure function each, for the
report, the studies and the live page.
"""

from thetahat.report.figures.base import fit, shown
from thetahat.report.figures.motion import (
    PART_NAMES,
    friction_curve,
    residual_against_velocity,
    residual_over_time,
    residual_spectrum,
    torque_over_time,
    torque_scatter,
)
from thetahat.report.figures.parameters import consistency_margins, parameter_intervals
from thetahat.report.figures.scores import r2_by_joint, rms_by_joint
from thetahat.report.figures.stick import robot_figure

__all__ = [
    "PART_NAMES",
    "consistency_margins",
    "fit",
    "friction_curve",
    "parameter_intervals",
    "r2_by_joint",
    "residual_against_velocity",
    "residual_over_time",
    "residual_spectrum",
    "rms_by_joint",
    "robot_figure",
    "shown",
    "torque_over_time",
    "torque_scatter",
]
