"""Random robots, built without any file: every kind of joint, branches, several roots,
placeholders, massless links, mimic joints.

A seed gives the same robot everywhere. Bodies are clouds of point masses, so their ten numbers are
physical by construction and come from the definition of inertia alone. The mass matrix is positive
definite: every leaf has mass, and at most two joints in a row carry nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thetahat.model.drive import Drive
from thetahat.model.robot import Robot
from thetahat.model.tree import Joint, JointKind, Limits, Mimic, Node, Tree

ALL_KINDS = tuple(JointKind)
ONE_DOF = (JointKind.REVOLUTE, JointKind.PRISMATIC)


def rotation(rng: np.random.Generator) -> np.ndarray:
    """A rotation, uniformly distributed, (3, 3)."""
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0 else -q


def direction(rng: np.random.Generator) -> np.ndarray:
    """A unit vector: often along an axis of the frame, as in real files, and in any direction
    otherwise.
    """
    if rng.random() < 0.4:
        return np.eye(3)[rng.integers(3)] * rng.choice([-1.0, 1.0])
    v = rng.normal(size=3)
    return v / np.linalg.norm(v)


def cloud(rng: np.random.Generator, points: int = 6) -> np.ndarray:
    """θ of a body made of point masses at p: m = Σ m_k, m·c = Σ m_k p_k, I = Σ m_k (p·p 1 −
    p pᵀ).
    """
    masses, at = (
        rng.uniform(0.1, 1.0, points),
        0.3 * rng.normal(size=3) + 0.2 * rng.normal(size=(points, 3)),
    )
    inertia = sum(m * (p @ p * np.eye(3) - np.outer(p, p)) for m, p in zip(masses, at, strict=True))
    moment = masses @ at
    return np.array(
        [
            inertia[0, 0],
            inertia[0, 1],
            inertia[0, 2],
            moment[2],
            moment[1],
            inertia[1, 1],
            inertia[1, 2],
            moment[0],
            inertia[2, 2],
            masses.sum(),
        ]
    )


def random_robot(
    seed: int,
    *,
    nodes: int = 8,
    kinds: tuple[JointKind, ...] = ALL_KINDS,
    mimic: bool = True,
    massless: bool = True,
    drive: bool = False,
) -> Robot:
    """A robot of so many joints.

    Args:
        seed: the same seed and options, the same robot.
        nodes: joints, in depth-first order: a joint hangs in the one before it, in one of that
            one's ancestors or in the world.
        kinds: to draw from.
        mimic: whether some one-DOF joints follow others.
        massless: whether some inner joints carry a massless body, or no body at all (as between two
            joints of one MJCF body).
        drive: whether friction, offset and rotor inertia are there.
    """
    rng = np.random.default_rng(seed)
    built = [
        _node(rng, i, parent, kind) for i, (parent, kind) in enumerate(_skeleton(rng, nodes, kinds))
    ]
    empty = _empty(rng, built) if massless else set()
    without_body = {i for i in sorted(empty) if rng.random() < 0.6}
    built = [_askew(rng, node) if node.parent in empty else node for node in built]
    if mimic:
        built = _with_mimic(rng, built)
    tree = Tree(
        tuple(
            replace(node, body=None if i in without_body else node.body)
            for i, node in enumerate(built)
        )
    )
    theta = [np.zeros(10) if i in empty else cloud(rng) for i in tree.bodies]
    terms = Drive(*rng.uniform(0.05, 0.5, (4, tree.nv))) if drive else Drive.none(tree.nv)
    return Robot(
        f"random{seed}",
        tree,
        np.concatenate([np.zeros(0), *theta]),
        terms,
        gravity=6.0 * rng.normal(size=3),
    )


def random_state(
    robot: Robot, seed: int, samples: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(q, dq, ddq): angles over more than a turn, positions within ±1 m, rates of a few rad/s and
    m/s.
    """
    rng = np.random.default_rng([seed, 1])
    shape = () if samples is None else (samples,)
    q = np.empty((*shape, robot.nq))
    for node in robot.tree.independent:
        at, size = robot.tree.q_index[node.name], node.kind.nq
        q[..., at : at + size] = (
            rng.uniform(-4.0, 4.0, (*shape, size))
            if node.kind in ONE_DOF
            else rng.uniform(-1.0, 1.0, (*shape, size))
        )
        if node.kind in (JointKind.BALL, JointKind.FREE):
            turn = rng.normal(size=(*shape, 4))
            q[..., at + size - 4 : at + size] = turn / np.linalg.norm(turn, axis=-1, keepdims=True)
        if node.kind is JointKind.PLANAR:
            q[..., at + 2] *= 4.0
    return q, 2.0 * rng.normal(size=(*shape, robot.nv)), 4.0 * rng.normal(size=(*shape, robot.nv))


def _skeleton(
    rng: np.random.Generator, nodes: int, kinds: tuple[JointKind, ...]
) -> list[tuple[int, JointKind]]:
    """(parent, kind) in depth-first order; one joint in three starts a branch."""
    parents: list[int] = []
    for i in range(nodes):
        path = [-1]
        at = i - 1
        while at >= 0:
            path.insert(1, at)
            at = parents[at]
        parents.append(path[-1] if rng.random() < 0.67 else int(rng.choice(path)))
    return [(parent, JointKind(int(rng.choice(kinds)))) for parent in parents]


def _node(rng: np.random.Generator, i: int, parent: int, kind: JointKind) -> Node:
    return Node(
        name=f"joint{i}",
        kind=kind,
        parent=parent,
        rotation=rotation(rng) if rng.random() < 0.8 else np.eye(3),
        translation=0.4 * rng.normal(size=3),
        axis=direction(rng),
        body=f"body{i}",
        joint=Joint(
            limits=Limits(-2.0, 2.5) if kind in ONE_DOF and rng.random() < 0.5 else Limits(),
            offset=float(rng.normal()) if kind in ONE_DOF and rng.random() < 0.3 else 0.0,
        ),
    )


def _empty(rng: np.random.Generator, nodes: list[Node]) -> set[int]:
    """Joints that carry nothing themselves: one-DOF, at most two in a row, each above a body that
    cannot stand still when they move.
    """
    row = [0] * len(
        nodes
    )  # how many empty joints follow one another down to the next body with mass
    for i in range(len(nodes) - 1, -1, -1):
        below = [
            row[j]
            for j, child in enumerate(nodes)
            if child.parent == i and child.kind is not JointKind.FREE
        ]
        if nodes[i].kind in ONE_DOF and below and min(below) < 2 and rng.random() < 0.35:
            row[i] = 1 + min(below)
    return {i for i, count in enumerate(row) if count}


def _askew(rng: np.random.Generator, node: Node) -> Node:
    """The joint turned any way: after an empty joint, a parallel one would make the mass matrix
    singular.
    """
    axis = rng.normal(size=3)
    return replace(node, rotation=rotation(rng), axis=axis / np.linalg.norm(axis))


def _with_mimic(rng: np.random.Generator, nodes: list[Node]) -> list[Node]:
    """Some one-DOF joints follow another, before or after them in the list; none follows a
    follower.
    """
    candidates = [i for i, node in enumerate(nodes) if node.kind in ONE_DOF]
    out, leaders, followers = list(nodes), set(), set()
    for i in candidates:
        others = [j for j in candidates if j != i and j not in followers]
        if others and i not in leaders and rng.random() < 0.25:
            leader = int(rng.choice(others))
            ratio = float(rng.choice([-1.0, 1.0]) * rng.uniform(0.3, 1.5))
            mimic = Mimic(nodes[leader].name, ratio, float(rng.normal()))
            out[i] = replace(nodes[i], joint=replace(nodes[i].joint, mimic=mimic))
            leaders.add(leader)
            followers.add(i)
    return out
