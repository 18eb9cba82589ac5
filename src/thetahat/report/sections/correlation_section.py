"""Section on correlations of the estimated base parameters."""

from __future__ import annotations

import re

import numpy as np

from thetahat.report.figures.correlations import correlation_map
from thetahat.report.section import Block, Column, Figure, Note, Panel, Section, Table, Text
from thetahat.report.text import Data

MOST = 48  # parameters drawn: those with the strongest correlations
STRONG, NAMED = 0.9, 10  # |ρ| from which on a pair is named; pairs at most


def correlation_matrix(covariance: np.ndarray) -> np.ndarray:
    """Return correlation coefficients; NaN of parameters that nothing identifies."""
    std = np.sqrt(np.diag(covariance))
    usable = np.isfinite(std) & (std > 0.0)
    scale = np.where(usable, std, 1.0)
    rho = np.clip(covariance / np.outer(scale, scale), -1.0, 1.0)
    rho[~usable], rho[:, ~usable] = np.nan, np.nan
    return np.asarray(rho)


def correlations(estimate: Data, covariance: np.ndarray | None) -> Section:
    """Return a heat map of base parameters' correlations, and the strongest pairs by name."""
    names = [entry["name"] for entry in estimate["base_parameters"]]
    if covariance is None or len(covariance) != len(names):
        note = Note("The covariance of the base parameters is not known.")
        return Section("Correlations", "correlations", (note,))
    rho = correlation_matrix(np.asarray(covariance, dtype=float))
    known = np.flatnonzero(np.isfinite(np.diag(rho)))
    if len(known) < 2:
        note = Note("Fewer than two base parameters are identified.")
        return Section("Correlations", "correlations", (note,))
    rho = rho[np.ix_(known, known)]
    names = [names[k] for k in known]
    size = np.abs(rho - np.eye(len(rho)))
    shown = np.sort(np.argsort(-size.max(axis=1), kind="stable")[:MOST])
    drawing = correlation_map(
        [names[k] for k in shown],
        rho[np.ix_(shown, shown)],
        labels=[_first_term(names[k]) for k in shown],
    )
    part = "" if len(shown) == len(names) else f", the {len(shown)} with the strongest ones"
    caption = f"Correlation of the estimated base parameters{part}; columns are in the rows' order."
    blocks: list[Block] = [*_pairs(names, rho), Figure((Panel("correlations", drawing),), caption)]
    return Section("Correlations", "correlations", tuple(blocks))


def _pairs(names: list[str], rho: np.ndarray) -> list[Block]:
    """Return the pairs that the log hardly tells apart."""
    rows, columns = np.triu_indices(len(names), 1)
    order = np.argsort(-np.abs(rho[rows, columns]), kind="stable")
    strong = [k for k in order if abs(rho[rows[k], columns[k]]) >= STRONG]
    if not strong:
        k = order[0]
        text = (
            f"No two base parameters are correlated by {STRONG} or more; the strongest are"
            f" {names[rows[k]]} and {names[columns[k]]} ({rho[rows[k], columns[k]]:+.3f})."
        )
        return [Text(text.replace("(-", "(−"))]
    table = tuple(
        (names[rows[k]], names[columns[k]], float(rho[rows[k], columns[k]])) for k in strong[:NAMED]
    )
    titles = (
        Column("base parameter", wide=True),
        Column("and", wide=True),
        Column("ρ", decimals=2),
    )
    text = (
        f"{len(strong)} pairs of base parameters are correlated by {STRONG} or more: the log tells"
        " their sum or difference better than either. `thetahat excite ROBOT --after LOG --out"
        " motion.csv` designs a motion that tells them apart."
    )
    return [Text(text), Table(titles, table, "Strongest correlations")]


def _first_term(name: str) -> str:
    first, *rest = re.split(r" [+−] ", name, maxsplit=1)
    return f"{first} + …" if rest else first
