"""The torques a set of parameters predicts, for one filtered sample at the control rate or for a
batch, with scratch memory of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thetahat.dynamics import batch
from thetahat.identification.parameter_columns import Columns
from thetahat.model.drive import Drive
from thetahat.model.robot import Robot


class Predictor:
    """τ(x; q, q̇, q̈) of one robot's geometry for any x = [θ; identified drive terms]; other drive
    terms keep the robot's values.
    """

    def __init__(self, robot: Robot) -> None:
        from thetahat.kernels import online

        self.robot, self.columns = robot, Columns(robot)
        w = batch.Workspace(robot.tree)
        self.kernel, self.scratch = online.predict, (w.nodes, w.directions, w.forces, w.torques)
        self.tree = (*robot.tree.rigid_arrays, robot.kernel_values[1])
        # What is not identified is no column, so it leaves the torques before they are fitted.
        fixed = robot.drive.with_values(
            **{term: np.zeros_like(robot.drive.viscous) for term in robot.drive.identified}
        )
        self._fixed: Drive | None = None if fixed.is_zero else fixed

    def __deepcopy__(self, memo: dict[int, object]) -> Predictor:
        """Another one, with its own scratch memory."""
        return Predictor(self.robot)

    def model(self, x: np.ndarray) -> Model:
        """The parameters, ready to predict."""
        theta, drive = self.columns.split(x)
        values = {}
        for term, part in drive.items():
            values[term] = self.robot.drive.value(term).copy()
            values[term][list(self.robot.drive.column_motors)] = part
        own = self.robot.drive
        return Model(self, np.array(theta), own.with_values(**values) if values else own)

    def from_base(self, base_independent: np.ndarray, x_base: np.ndarray) -> Model:
        """The same from base parameters alone: they stand for the columns that name them, all
        others are zero.
        """
        x = np.zeros(self.columns.count)
        x[base_independent] = x_base
        return self.model(x)

    def fitted(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """What of a torque is left to the columns: without drive terms that are known and not
        identified.
        """
        return tau if self._fixed is None else tau - self._fixed.torque(dq, ddq, q=q)


class Model:
    """Parameters that predict. `drive` is its friction and rotors."""

    def __init__(self, predictor: Predictor, theta: np.ndarray, drive: Drive) -> None:
        self._predictor, self.theta, self.drive = predictor, theta, drive
        self._simple = drive.simple
        nv = predictor.robot.nv
        self._rows = (
            np.array([drive.viscous, drive.coulomb, drive.offset, drive.armature])
            if self._simple
            else np.zeros((4, nv))
        )
        self._one, self._no_wrench = np.zeros((1, nv)), np.empty((1, 0))

    def torque(self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
        """(n, nv), contiguous arrays in. Of one sample the result is scratch, until the
        next call.
        """
        p, out, external = self._predictor, self._one, self._no_wrench
        if len(q) != 1:
            out, external = np.zeros((len(q), dq.shape[1])), np.empty((len(q), 0))
        p.kernel(*p.tree, self.theta, q, dq, ddq, external, *p.scratch, out, self._rows)
        if not self._simple:
            out += self.drive.torque(dq, ddq, q=q, load=out.copy())
        return out

    @property
    def coulomb(self) -> np.ndarray:
        """(nv,) of the dry friction, what `torque` adds with the sign of a joint's own speed."""
        return self.drive.coulomb if self._simple else np.zeros(self._predictor.robot.nv)

    def dry(self) -> np.ndarray:
        """(nv,) dry friction of every degree of freedom [N·m or N]: by how much a still joint's
        torque may differ from what carries it.
        """
        drive = self.drive
        if drive.actuation is None:
            return drive.coulomb
        if not drive.actuation.constant:
            return np.zeros(self._predictor.robot.nv)
        return np.asarray(np.abs(drive.actuation.matrix_at(None)) @ drive.coulomb)


def has_dry_friction(robot: Robot) -> bool:
    """Whether a still joint's torque is uncertain by friction, identified or stated."""
    drive = robot.drive
    moving = [term for term in drive.terms if term not in ("viscous", "offset", "armature")]
    return any(term in drive.identified or np.any(drive.value(term)) for term in moving)


def plain(robot: Robot) -> Robot:
    """The robot with a tree of its own, free of scratch memory: what another process can be
    sent.
    """
    return replace(robot, tree=type(robot.tree)(robot.tree.nodes))
