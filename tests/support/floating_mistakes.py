"""Mistakes in the log of a floating robot, each as a change of a table and what its error says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Columns = dict[str, np.ndarray]


def negated(table: Columns) -> Columns:
    return {name: -x if name.startswith("wrench.") else x for name, x in table.items()}


def scalar_first(table: Columns) -> Columns:
    x, y, z, w = (table[f"base.{name}"] for name in ("qx", "qy", "qz", "qw"))
    return table | {"base.qx": w, "base.qy": x, "base.qz": y, "base.qw": z}


def long_quaternions(table: Columns) -> Columns:
    return {name: 1.1 * x if name.startswith("base.q") else x for name, x in table.items()}


def inverted(table: Columns) -> Columns:
    return {name: 1.0 - x if name.startswith("contact.") else x for name, x in table.items()}


def without(prefix: str) -> Callable[[Columns], Columns]:
    def drop(table: Columns) -> Columns:
        return {name: x for name, x in table.items() if not name.startswith(prefix)}

    return drop


def y_up(table: Columns) -> Columns:
    from scipy.spatial.transform import Rotation

    turn = Rotation.from_euler("x", -90, degrees=True)
    place = turn.apply(np.column_stack([table[f"base.{axis}"] for axis in "xyz"]))
    quaternion = np.column_stack([table[f"base.{name}"] for name in ("qx", "qy", "qz", "qw")])
    turned = (turn * Rotation.from_quat(quaternion)).as_quat()
    out = {f"base.{axis}": place[:, k] for k, axis in enumerate("xyz")}
    out |= {f"base.{name}": turned[:, k] for k, name in enumerate(("qx", "qy", "qz", "qw"))}
    return table | out


def foreign_link(table: Columns) -> Columns:
    return {name.replace("FL_FOOT", "HOOF"): x for name, x in table.items()}


# which log is spoiled, how, what the error says, settings
MISTAKES: list[tuple[str, Callable[[Columns], Columns], str, dict[str, str]]] = [
    ("wrenches", negated, "forces of the feet on the ground.*--units wrench=-1", {}),
    ("wrenches", dict, "--wrench-frame link", {"wrench_frame": "world"}),
    ("wrenches", scalar_first, "scalar part", {}),
    ("contacts", scalar_first, "scalar part", {}),
    ("contacts", long_quaternions, "log unit quaternions", {}),
    ("contacts", y_up, "--gravity 0,-9.81,0", {}),
    ("contacts", inverted, "0 in all rows", {}),
    ("contacts", without("contact."), "no column says what holds it up", {}),
    ("contacts", without("base."), "no column 'base.x'", {}),
    ("contacts", foreign_link, "no moving link 'HOOF'", {}),
]
