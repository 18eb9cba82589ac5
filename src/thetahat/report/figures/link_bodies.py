"""A link's body in its region: shadows of ellipsoids on the plane in which the link is longest.

The shadow of {c + A u, |u| ≤ 1} on a plane with the orthonormal basis E is the ellipse
c₂ + M^½ (cos φ, sin φ) with c₂ = Eᵀc and M = Eᵀ A Aᵀ E.
"""

from __future__ import annotations

import numpy as np

from thetahat.model.link_geometry import Region
from thetahat.report.figures.base import (
    GREY,
    NOMINAL,
    PREDICTED,
    WRONG,
    Drawing,
    Trace,
    axis,
    dots,
    figure,
    line,
    linear,
)
from thetahat.report.figures.stick_figure import Ellipsoid

POINTS = 49  # of an outline
FRAME = 1.6  # times the region: what is farther out is cut off


def link_body(
    region: Region,
    identified: Ellipsoid | None,
    nominal: Ellipsoid | None = None,
    *,
    plausible: bool = True,
    title: str = "",
    size: int = 300,
) -> Drawing:
    """Draw the inertia ellipsoids of a link in its region, in the frame that fits the region.

    All are in the body's frame. plausible: whether the identified body may be this link's.
    """
    centre, axes = region.centre, region.axes * region.radii
    plane = _plane(axes)
    outline = _shadow(centre, axes, plane)
    data: list[Trace] = [
        {**_closed(outline, "region", GREY, width=1.5), "fill": "toself", "opacity": 0.35}
    ]
    bodies = (
        (nominal, "file", NOMINAL, "diamond-open", "dash"),
        (identified, "identified", PREDICTED if plausible else WRONG, "circle", "solid"),
    )
    for body, name, colour, symbol, dash in bodies:
        if body is None:
            continue
        shadow = _shadow(body.centre, body.axes * body.radii, plane)
        data.append(_closed(shadow, name, colour, width=2, dash=dash))
        at = body.centre @ plane
        label = f"{body.mass:.3g} kg"
        style = {"symbol": symbol, "size": 7, "showlegend": False, "hovertemplate": label}
        data.append(dots(linear([at[0]]), linear([at[1]]), name, colour, **style))
    middle = 0.5 * (outline.min(axis=0) + outline.max(axis=0))
    half = 0.5 * FRAME * float(np.max(np.ptp(outline, axis=0)))
    ends = [[float(f"{m - half:.4g}"), float(f"{m + half:.4g}")] for m in middle]
    x = axis("[m]", range=ends[0], nticks=5, constrain="domain")
    y = axis("", range=ends[1], nticks=5, scaleanchor="x", constrain="domain")
    heading = {"title": {"text": title, "font": {"size": 13}, "x": 0.5, "xanchor": "center"}}
    margin = {"l": 44, "r": 10, "t": 64 if title else 16, "b": 40}
    return figure(data, x=x, y=y, height=size, showlegend=False, margin=margin, **heading)


def in_frame(region: Region, body: Ellipsoid) -> bool:
    """Whether a body's centre is inside the frame of its drawing."""
    centre, axes = region.centre, region.axes * region.radii
    plane = _plane(axes)
    outline = _shadow(centre, axes, plane)
    half = 0.5 * FRAME * float(np.max(np.ptp(outline, axis=0)))
    middle = 0.5 * (outline.min(axis=0) + outline.max(axis=0))
    return bool(np.all(np.abs(body.centre @ plane - middle) <= half))


def _plane(axes: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis (3, 2) of the plane of the two longest semi-axes.

    Along the frame's own axes where the region is, so that both can be read as coordinates.
    """
    order = np.argsort(-np.linalg.norm(axes, axis=0), kind="stable")[:2]
    basis = np.linalg.qr(axes[:, np.sort(order)])[0]
    return np.asarray(basis * np.sign(basis[np.argmax(np.abs(basis), axis=0), [0, 1]]))


def _shadow(centre: np.ndarray, axes: np.ndarray, plane: np.ndarray) -> np.ndarray:
    """Return the outline (POINTS, 2) of an ellipsoid's shadow."""
    values, vectors = np.linalg.eigh(plane.T @ axes @ axes.T @ plane)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    angle = np.linspace(0.0, 2.0 * np.pi, POINTS)
    return np.asarray(centre @ plane + np.stack([np.cos(angle), np.sin(angle)], axis=1) @ root.T)


def _closed(
    outline: np.ndarray, name: str, colour: str, *, width: float, dash: str = "solid"
) -> Trace:
    return line(
        linear(outline[:, 0]),
        linear(outline[:, 1]),
        name,
        colour,
        width=width,
        dash=dash,
        hoverinfo="name",
    )
