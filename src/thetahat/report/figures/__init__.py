"""Figures as plain dictionaries {data, layout} for Plotly.js: one small pure function each, for the
report, the studies and the live page.
"""

from thetahat.report.figures.base import fit, shown
from thetahat.report.figures.correlations import correlation_map
from thetahat.report.figures.link_bodies import link_body
from thetahat.report.figures.motion import motion_over_time
from thetahat.report.figures.parameter_bars import consistency_margins, parameter_intervals
from thetahat.report.figures.score_bars import r2_by_joint, rms_by_joint
from thetahat.report.figures.stick_figure import robot_figure
from thetahat.report.figures.time_series import (
    PART_NAMES,
    friction_curve,
    residual_against_velocity,
    residual_over_time,
    residual_spectrum,
    torque_over_time,
    torque_scatter,
)

__all__ = [
    "PART_NAMES",
    "consistency_margins",
    "correlation_map",
    "fit",
    "friction_curve",
    "link_body",
    "motion_over_time",
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
