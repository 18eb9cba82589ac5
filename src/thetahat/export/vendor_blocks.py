"""Load data as robot vendors ask for it: fields, frames and units of each.

Every block states the load in the flange's frame. Vendors differ in units (m or mm), in the inertia
they want (a tensor about the centre of mass in the flange's axes, or principal moments with the
orientation of their axes), and in the order of its entries; docs/how-to/export.md cites each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np

from thetahat.errors import MalformedInput
from thetahat.export.load_data import LoadData

LARGEST_UR = 133.0  # [kg·m²] of an entry that set_target_payload takes
UNKNOWN = "inertia not identified"


def urscript(load: LoadData) -> str:
    """Return the call that a UR program makes; the tensor about the centre of mass, in the flange's
    axes, as xx, yy, zz, xy, xz, yz.
    """
    arguments = [_number(load.mass), _list(load.com)]
    if load.inertia is not None:
        if np.abs(load.inertia).max() > LARGEST_UR:
            raise MalformedInput(
                f"the inertia reaches {np.abs(load.inertia).max():g} kg·m², and set_target_payload"
                f" takes at most {LARGEST_UR:g}; check the result"
            )
        i = load.inertia
        entries = np.array([i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2]])
        arguments.append(_list(entries))
    name = load.name.encode("ascii", "replace").decode()  # controllers read no other letters
    head = f"# {name}, at the tool flange [kg, m, kg m^2]"
    if load.inertia is None:
        head += f"; {UNKNOWN}"
    return f"{head}\nset_target_payload({', '.join(arguments)})\n"


def franka(load: LoadData) -> str:
    """Return the values of Desk's end effector and of setLoad: the tensor about the centre of mass,
    column by column.
    """
    inertia = np.zeros((3, 3)) if load.inertia is None else load.inertia
    data = {
        "mass": _rounded(load.mass),
        "centerOfMass": [_rounded(value) for value in load.com],
        "inertia": [_rounded(value) for value in inertia.ravel(order="F")],
    }
    return json.dumps(data, indent=2) + "\n"


def kuka(load: LoadData) -> str:
    """Return KRL load data: principal moments about the centre of mass, and A, B, C [°] of their
    axes, turned about Z, the new Y, the new X; millimetres.
    """
    moments, axes = load.principal()
    a, b, c = np.rad2deg(axes.as_euler("ZYX"))
    x, y, z = 1e3 * load.com
    centre = _fields(X=x, Y=y, Z=z, A=a, B=b, C=c)
    values = _fields(X=moments[0], Y=moments[1], Z=moments[2])
    note = f" ; {UNKNOWN}" if load.inertia is None else ""
    return f"LOAD_DATA[1]={{M {_number(load.mass)},CM {centre},J {values}}}{note}\n"


def abb(load: LoadData) -> str:
    """Return RAPID load data: principal moments about the centre of mass, and the quaternion of
    their axes, scalar first; millimetres.
    """
    moments, axes = load.principal()
    x, y, z, w = axes.as_quat()
    sign = -1.0 if w < 0.0 else 1.0
    quaternion = sign * np.array([w, x, y, z])
    parts = [
        _number(load.mass),
        _list(1e3 * load.com),
        _list(quaternion),
        *map(_number, moments),
    ]
    note = f" ! {UNKNOWN}" if load.inertia is None else ""
    return f"PERS loaddata thetahat_load := [{', '.join(parts)}];{note}\n"


def plain(load: LoadData) -> str:
    """Return plain JSON, schema thetahat/load/1."""
    i = load.inertia
    entries = None if i is None else [float(i[r, c]) for r in range(3) for c in range(r, 3)]
    data = {
        "schema": "thetahat/load/1",
        "link": load.name,
        "frame": "flange",
        "mass": load.mass,
        "com": load.com.tolist(),
        "inertia_com": entries,
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


TARGETS: Mapping[str, Callable[[LoadData], str]] = {
    "urscript": urscript,
    "franka": franka,
    "kuka": kuka,
    "abb": abb,
    "json": plain,
}


def _rounded(value: float) -> float:
    """Six significant digits; no negative zero."""
    return float(f"{value:.6g}") + 0.0


def _number(value: float) -> str:
    """Plain decimals, which every vendor's language reads."""
    return np.format_float_positional(_rounded(value), trim="-")


def _list(values: np.ndarray) -> str:
    return f"[{', '.join(map(_number, values))}]"


def _fields(**values: float) -> str:
    return "{" + ",".join(f"{name} {_number(value)}" for name, value in values.items()) + "}"
