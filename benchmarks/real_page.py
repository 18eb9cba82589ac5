"""The page of `make real`: of every case its table and the torques of held-out rows, measured and
predicted, drawn as the reports draw them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thetahat.report.figures import time_series
from thetahat.report.page import render
from thetahat.report.section import Column, Figure, Panel, Section, Table
from thetahat.report.traces import Series

SECONDS = 10.0  # of held-out motion that are drawn, from the first recording on
POINTS = 1000  # of a line


@dataclass(frozen=True, eq=False)
class Trace:
    """Torques of held-out rows [N·m], (rows, joints) each, over time [s]; rows that are not scored
    are NaN.
    """

    t: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray

    @staticmethod
    def of(t: np.ndarray, scored: np.ndarray, measured: np.ndarray, predicted: np.ndarray) -> Trace:
        """The first seconds of these rows, as many points as a line shows."""
        back = np.flatnonzero(np.diff(t) < 0.0)
        first = slice(0, int(back[0]) + 1 if len(back) else len(t))
        t = t[first] - t[0]
        rows = np.flatnonzero(t <= SECONDS)
        rows = rows[:: max(1, len(rows) // POINTS)]
        shown = [np.where(scored[rows], values[rows], np.nan) for values in (measured, predicted)]
        return Trace(t[rows], *shown)


def page(cases: list[tuple[str, list[str], list[list[str]], tuple[str, ...], Trace]]) -> str:
    """HTML of (name, heads, rows of cells, joints, trace) per case."""
    sections = [
        Section(
            name,
            f"case-{number}",
            (
                Table(tuple(Column(head) for head in heads), tuple(tuple(row) for row in rows)),
                _torques(joints, trace),
            ),
        )
        for number, (name, heads, rows, joints, trace) in enumerate(cases)
    ]
    return render(
        "Real robots",
        sections,
        subtitle="Torques of rows that no choice has seen, behind the low-pass they are scored at",
    )


def _torques(joints: tuple[str, ...], trace: Trace) -> Figure:
    panels = []
    for j, name in enumerate(joints):
        drawn = time_series.torque_over_time(
            *(Series(trace.t, values[:, j]) for values in (trace.measured, trace.predicted))
        )
        drawn["layout"]["yaxis"]["title"] = {"text": f"{name} [N·m]"}
        panels.append(Panel(name, drawn))
    return Figure(
        tuple(panels),
        "Torque of every joint: measured, and predicted by the physically consistent fit",
        arrangement="grid",
    )
