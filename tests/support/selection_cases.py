"""Robots, logs and scores for the tests of informative samples."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
from data_paths import example_robot, shared_file

import thetahat as th
from thetahat import robots
from thetahat.data.log import read_log
from thetahat.data.prepare import prepare
from thetahat.data.samples import Samples
from thetahat.errors import RobotWarning
from thetahat.identification import factor as f
from thetahat.identification.information import Information, information
from thetahat.identification.parameter_columns import full_regressor

WITHIN = 1e-3  # R², the tolerance of the issue
FRICTION = {"viscous": True, "coulomb": True, "offset": True}
MOTOR = {**FRICTION, "armature": True}

# -- robots and logs -------------------------------------------------------------------------------


@cache
def panda() -> th.Robot:
    return th.load(example_robot("panda")).with_drive(**FRICTION)


@cache
def ur10() -> th.Robot:
    return th.load(example_robot("ur10")).with_drive(**FRICTION)


@cache
def pendulum() -> th.Robot:
    return th.load(robots.path("double_pendulum")).with_drive(**FRICTION)


def fourier(
    robot: th.Robot, rng: np.random.Generator, rows: int, *, seconds: float = 20.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Five harmonics per joint, as robots are excited: q, dq, ddq."""
    t = np.linspace(0.0, seconds, rows)[:, None, None]
    omega = 2.0 * np.pi * np.arange(1, 6) / seconds * 2.0
    a, b = rng.normal(size=(2, robot.nv, 5)) / omega
    s, c = np.sin(omega * t), np.cos(omega * t)
    return (
        np.sum(a * s - b * c, axis=2),
        np.sum(omega * (a * c + b * s), axis=2),
        np.sum(omega**2 * (b * c - a * s), axis=2),
    )


def simulated(robot: th.Robot, seed: int, rows: int, *, noise: float = 0.02) -> Samples:
    """A log of Fourier motion with friction, and noise that is a fiftieth of every joint's
    torque.
    """
    rng = np.random.default_rng(seed)
    q, dq, ddq = fourier(robot, rng, rows)
    drive = robot.drive.with_values(
        viscous=np.full(robot.nv, 0.5),
        coulomb=np.full(robot.nv, 0.8),
        offset=np.full(robot.nv, 0.1),
    )
    tau = th.inverse_dynamics(replace(robot, drive=drive), q, dq, ddq)
    return Samples(
        q=q,
        dq=dq,
        ddq=ddq,
        tau=tau + noise * np.sqrt(np.mean(tau**2, axis=0)) * rng.normal(size=tau.shape),
    )


def fits(info: Information) -> tuple[np.ndarray, np.ndarray]:
    """x_base by plain least squares, and with joints weighted by their residuals."""
    plain = f.solve(info.stacked()).x
    variance = info.residual_norms(plain) ** 2 / np.maximum(info.rows, 1)
    return plain, f.solve(info.stacked(1.0 / np.sqrt(np.where(variance > 0.0, variance, 1.0)))).x


def scores(info: Information, held_out: Information) -> np.ndarray:
    """Held-out R² per joint of both fits, (2, nv); 0 where it is not defined."""
    return np.array([held_out.r2_per_joint(x).filled(0.0) for x in fits(info)])


@cache
def dense(robot: th.Robot) -> np.ndarray:
    return information(robot, simulated(robot, 0, 8)).base.independent


def log_det(robot: th.Robot, samples: Samples) -> float:
    """Log-determinant of the information of samples, each column over its norm at typical
    states.
    """
    Y = (
        full_regressor(robot, samples.q, samples.dq, samples.ddq)[:, :, dense(robot)]
        * samples.valid[:, :, None]
    )
    typical = simulated(robot, 9, 500)
    scale = np.linalg.norm(
        full_regressor(robot, typical.q, typical.dq, typical.ddq)[:, :, dense(robot)], axis=(0, 1)
    )
    Y = Y.reshape(-1, Y.shape[2]) / scale
    return float(np.linalg.slogdet(Y.T @ Y + 1e-12 * np.eye(Y.shape[1]))[1])


REAL = {
    "panda": (
        "panda/panda_nomesh_from_example_robot_data.urdf",
        "panda/panda_exciting_traj1.csv",
        10.0,
        FRICTION,
    ),
    "ur10": ("ur10/ur10_nomesh.urdf", "ur10/ur10_exciting.csv", 5.0, MOTOR),
    "kr300": ("kr300/kr300_from_dh.urdf", "kr300/kr300.csv", 10.0, MOTOR),
    "tx40": ("tx40/tx40_mdh_modified.urdf", "tx40/tx40.csv", 50.0, MOTOR),
    "pendulum C1": (
        "double_pendulum/double_pendulum_C1_from_yml.urdf",
        "double_pendulum/double_pendulum_C1.csv",
        5.0,
        MOTOR,
    ),
    "pendulum C0": (
        "double_pendulum/double_pendulum_C0_from_yml.urdf",
        "double_pendulum/double_pendulum_C0.csv",
        5.0,
        MOTOR,
    ),
    "pendulum A0": (
        "double_pendulum/double_pendulum_A0_from_yml.urdf",
        "double_pendulum/double_pendulum_A0.csv",
        5.0,
        MOTOR,
    ),
}


@cache
def real(name: str) -> tuple[th.Robot, Samples, Samples]:
    """(robot, training samples, held-out samples) of a real log, with the splits and cut-offs of
    its SOURCE.md.
    """
    urdf, csv, cutoff, terms = REAL[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)  # C0's published parameters are unphysical
        robot = th.load(shared_file("logs", *urdf.split("/")))
    if name == "tx40":  # joints 5 and 6 share motor 6
        B = np.eye(6)
        B[4, 5] = 1.0
        robot = robot.with_actuation(B)
    robot = robot.with_drive(**terms)
    samples = prepare(read_log(shared_file("logs", *csv.split("/")), robot), robot, cutoff=cutoff)
    if name == "kr300":
        return robot, *samples.split_runs([0, 1], [2])
    if name.startswith("pendulum"):
        return robot, *samples.split_runs([run for run in np.unique(samples.run) if run % 2 == 0])
    return robot, *samples.split(0.5)
