"""The paper's experiments and Valkyrie at 44 joints, each one command: closed loops of a simulated
robot, a controller and an identifier.
"""

STUDIES = {
    "double-pendulum": "double_pendulum",
    "leg": "leg",
    "arm": "arm",
    "arm-rigid": "arm_rigid",
    "valkyrie": "valkyrie",
}
