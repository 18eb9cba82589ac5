"""Why the interval of a parameter may not hold, as the data alone tell.

    prior          the prior tells more than the data: the value is largely the robot file's
    bound          the fit sits on a bound, or on the edge of physical bodies, which decides
    slow noise     the torque noise stays alike for so long that this log cannot tell how much
    model error    what the fit leaves of the torque follows the motion, and moves the parameter
    motion noise   noise in the motion biases least squares (Durbin–Wu–Hausman test)

A parameter may have several reasons. One that no flag names has a 95 % interval of 1.96 standard
deviations that holds in 95 of 100 logs.
"""

from __future__ import annotations

DECIDES = 0.5  # share of a variance: beyond it the prior, or a bound, tells more than the data
ILL_CONDITIONED = 1e3  # ratio of singular values beyond which rows hardly tell a combination

PRIOR = "prior"
BOUND = "bound"
SLOW_NOISE = "slow noise"
MODEL_ERROR = "model error"
MOTION_NOISE = "motion noise"
REASONS = (PRIOR, BOUND, SLOW_NOISE, MODEL_ERROR, MOTION_NOISE)

# in a sentence about parameters
SENTENCES = {
    PRIOR: "decided by the prior",
    BOUND: "decided by a bound",
    SLOW_NOISE: "uncertain, as torque noise is too slow for this log",
    MODEL_ERROR: "moved by model error",
    MOTION_NOISE: "biased by noise in the motion",
}
