"""A 2R arm in closed form, by SymPy and Lagrange's equations. Nothing here comes from thetahat.

Two links turn about parallel y axes. The centres of mass, the full inertia tensors, the offset
between the joints and the gravity vector are general. From T(q, q̇) and V(q):

    D = ∂²T/∂q̇²,   C from Christoffel symbols of D,   G = ∂V/∂q,   τ = d/dt ∂T/∂q̇ − ∂T/∂q + ∂V/∂q
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import numpy as np
import sympy as sp


@dataclass(frozen=True, eq=False)
class TwoLink:
    """Numbers of one arm. Inertias are about the centres of mass, in link axes: (xx, xy, xz, yy,
    yz, zz).
    """

    base: np.ndarray  # (3,) first joint in the world [m]
    elbow: np.ndarray  # (3,) second joint in the first link's frame [m]
    masses: np.ndarray  # (2,) [kg]
    coms: np.ndarray  # (2, 3) [m]
    inertias: np.ndarray  # (2, 6) [kg·m²]

    @classmethod
    def random(cls, rng: np.random.Generator) -> TwoLink:
        """An arm with random, physical links."""
        inertias = []
        for _ in range(2):
            second_moment = (a := 0.3 * rng.normal(size=(3, 3))) @ a.T
            i = np.trace(second_moment) * np.eye(3) - second_moment
            inertias.append([i[0, 0], i[0, 1], i[0, 2], i[1, 1], i[1, 2], i[2, 2]])
        return cls(
            rng.normal(size=3),
            rng.normal(size=3),
            rng.uniform(1.0, 5.0, 2),
            0.3 * rng.normal(size=(2, 3)),
            np.array(inertias),
        )

    def urdf(self) -> str:
        """The same arm as a URDF file: joints `shoulder` and `elbow`, bodies `upper` and
        `lower`.
        """

        def numbers(values: np.ndarray) -> str:
            return " ".join(repr(float(x)) for x in values)

        def link(name: str, k: int) -> str:
            entries = " ".join(
                f'{key}="{float(x)!r}"'
                for key, x in zip(
                    ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), self.inertias[k], strict=True
                )
            )
            return (
                f'  <link name="{name}">\n    <inertial><origin'
                f' xyz="{numbers(self.coms[k])}"/><mass value="{float(self.masses[k])!r}"/><inertia'
                f" {entries}/></inertial>\n  </link>\n"
            )

        def joint(name: str, parent: str, child: str, at: np.ndarray) -> str:
            return (
                f'  <joint name="{name}" type="continuous">\n    <parent link="{parent}"/><child'
                f' link="{child}"/><origin xyz="{numbers(at)}"/><axis xyz="0 1 0"/>\n  </joint>\n'
            )

        parts = [
            link("upper", 0),
            link("lower", 1),
            joint("shoulder", "world", "upper", self.base),
            joint("elbow", "upper", "lower", self.elbow),
        ]
        return '<robot name="two_link">\n  <link name="world"/>\n' + "".join(parts) + "</robot>\n"

    @property
    def values(self) -> tuple[float, ...]:
        """All numbers in the order of the symbols of `_derivation`."""
        return tuple(
            float(x)
            for x in (
                *self.base,
                *self.elbow,
                *self.masses,
                *self.coms.ravel(),
                *self.inertias.ravel(),
            )
        )

    def _call(self, name: str, gravity: np.ndarray, *states: np.ndarray) -> np.ndarray:
        zeros = np.zeros(2)
        q, dq, ddq = (*states, *(zeros for _ in range(3 - len(states))))
        return np.array(
            _derivation().functions[name](*self.values, *gravity, *q, *dq, *ddq), dtype=float
        )

    def D(self, q: np.ndarray) -> np.ndarray:
        """Mass matrix, (2, 2)."""
        return self._call("D", np.zeros(3), q)

    def C(self, q: np.ndarray, dq: np.ndarray) -> np.ndarray:
        """Coriolis matrix from Christoffel symbols, (2, 2)."""
        return self._call("C", np.zeros(3), q, dq)

    def G(self, q: np.ndarray, gravity: np.ndarray) -> np.ndarray:
        """Gravity torques ∂V/∂q, (2,)."""
        return self._call("G", gravity, q).ravel()

    def V(self, q: np.ndarray, gravity: np.ndarray) -> float:
        """Potential energy, zero with everything at the world's origin [J]."""
        return float(self._call("V", gravity, q))

    def T(self, q: np.ndarray, dq: np.ndarray) -> float:
        """Kinetic energy [J]."""
        return float(self._call("T", np.zeros(3), q, dq))

    def inverse_dynamics(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, gravity: np.ndarray
    ) -> np.ndarray:
        """τ by Lagrange's equations, (2,)."""
        return self._call("tau", gravity, q, dq, ddq).ravel()

    def regressor(
        self, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray, *, gravity: np.ndarray
    ) -> np.ndarray:
        """∂τ/∂θ, (2, 20), θ per link (Ixx, Ixy, Ixz, m·cz, m·cy, Iyy, Iyz, m·cx, Izz, m), inertia
        about the joint origin.

        By the chain rule through each link's own numbers p = (m, c, Ī_C): ∂τ/∂p = ∂τ/∂θ · ∂θ/∂p.
        """
        dtau, dtheta = (self._call(name, gravity, q, dq, ddq) for name in ("dtau", "dtheta"))
        return np.linalg.solve(dtheta.T, dtau.T).T

    @property
    def theta(self) -> np.ndarray:
        """The twenty parameters, (20,)."""
        return np.array(_derivation().theta(*self.values), dtype=float).ravel()


def _turn_y(angle: sp.Expr) -> sp.Matrix:
    return sp.Matrix(
        [[sp.cos(angle), 0, sp.sin(angle)], [0, 1, 0], [-sp.sin(angle), 0, sp.cos(angle)]]
    )


def _symmetric(
    xx: sp.Expr, xy: sp.Expr, xz: sp.Expr, yy: sp.Expr, yz: sp.Expr, zz: sp.Expr
) -> sp.Matrix:
    return sp.Matrix([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


@cache
def _derivation() -> SimpleNamespace:
    """The symbolic arm, derived once and compiled."""
    base, elbow, c1, c2, g = (
        sp.Matrix(sp.symbols(f"{name}_x:z")) for name in ("base", "elbow", "c1", "c2", "g")
    )
    m = sp.symbols("m1 m2")
    i1, i2 = (
        sp.symbols(" ".join(f"{name}{axes}" for axes in ("xx", "xy", "xz", "yy", "yz", "zz")))
        for name in ("I1", "I2")
    )
    q, dq, ddq = (sp.Matrix(sp.symbols(f"{name}1:3")) for name in ("q", "dq", "ddq"))
    symbols = (*base, *elbow, *m, *c1, *c2, *i1, *i2)

    upper, lower = _turn_y(q[0]), _turn_y(q[0] + q[1])
    centres = (base + upper * c1, base + upper * elbow + lower * c2)
    T, V = sp.Integer(0), sp.Integer(0)
    for mass, centre, turn, inertia, rate in zip(
        m,
        centres,
        (upper, lower),
        (_symmetric(*i1), _symmetric(*i2)),
        (dq[0], dq[0] + dq[1]),
        strict=True,
    ):
        velocity, omega = centre.jacobian(q) * dq, sp.Matrix([0, rate, 0])
        T += mass * velocity.dot(velocity) / 2 + (omega.T * turn * inertia * turn.T * omega)[0] / 2
        V -= mass * g.dot(centre)

    D = sp.hessian(T, list(dq))
    C = sp.Matrix(
        2,
        2,
        lambda i, j: sum(
            (D[i, j].diff(q[k]) + D[i, k].diff(q[j]) - D[k, j].diff(q[i])) / 2 * dq[k]
            for k in range(2)
        ),
    )
    G = sp.Matrix([V]).jacobian(q).T
    momentum = sp.Matrix([T]).jacobian(dq).T
    tau = momentum.jacobian(q) * dq + momentum.jacobian(dq) * ddq - sp.Matrix([T]).jacobian(q).T + G

    theta = sp.Matrix([*_ten(m[0], c1, i1), *_ten(m[1], c2, i2)])
    own = [m[0], *c1, *i1, m[1], *c2, *i2]
    arguments = (*symbols, *g, *q, *dq, *ddq)
    expressions = {
        "D": D,
        "C": C,
        "G": G,
        "V": V,
        "T": T,
        "tau": tau,
        "dtau": tau.jacobian(own),
        "dtheta": theta.jacobian(own),
    }
    functions: dict[str, Callable] = {
        name: sp.lambdify(arguments, e, "numpy", cse=True) for name, e in expressions.items()
    }
    return SimpleNamespace(functions=functions, theta=sp.lambdify(symbols, theta, "numpy"))


def _ten(mass: sp.Symbol, com: sp.Matrix, inertia: tuple[sp.Symbol, ...]) -> list[sp.Expr]:
    """The paper's ten numbers of a link, its inertia moved to the joint origin by the parallel-axis
    theorem.
    """
    o = _symmetric(*inertia) + mass * (com.dot(com) * sp.eye(3) - com * com.T)
    return [
        o[0, 0],
        o[0, 1],
        o[0, 2],
        mass * com[2],
        mass * com[1],
        o[1, 1],
        o[1, 2],
        mass * com[0],
        o[2, 2],
        mass,
    ]
