"""`Identification`: what `identify` returns."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thetahat.errors import UsageError, known
from thetahat.identification.scores import Validation
from thetahat.identification.verdict import Verdict
from thetahat.model.robot import Robot
from thetahat.pipeline import outputs
from thetahat.pipeline.results import Results
from thetahat.pipeline.settings import IdentifySettings
from thetahat.report.section import Figure, Section, plain

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import polars


TABLES = ("joints", "links", "base_parameters")


@dataclass(frozen=True, eq=False)
class Identification(Results):
    """The result of `identify`: estimate, identified robot, scores, verdict, report, figures."""

    @property
    def robot(self) -> Robot:
        """The robot with the identified parameters."""
        return self.model.identified

    @property
    def nominal(self) -> Robot:
        """The robot as its file states it."""
        return self.model.nominal

    @property
    def scores(self) -> Validation | None:
        """R² and RMS per joint on held-out data, beside the nominal robot; None without any."""
        return self.held_out.test

    @property
    def settings(self) -> IdentifySettings:
        """The settings that were asked for."""
        return self.dataset.settings

    @property
    def verdict(self) -> Verdict:
        """Whether the result is good, usable or not usable, and why."""
        return Verdict.from_data(self.data["verdict"])

    @cached_property
    def data(self) -> dict[str, Any]:
        """The answer as plain data, schema thetahat/estimate/1."""
        return outputs.as_data(self)

    # -- what a user looks at ----------------------------------------------------------------------

    @cached_property
    def sections(self) -> list[Section]:
        """The sections of the report."""
        return outputs.report_sections(self, self.data)

    @property
    def figures(self) -> Mapping[str, go.Figure]:
        """The report's figures by name, for Plotly: ``result.figures["torque"].show()``."""
        return Figures(self.sections)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one self-contained HTML page."""
        return outputs.write_report(self, self.data, Path(path))

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> outputs.SavedResult:
        """Write the files that the command writes: estimate.json, report.html, the robot file.

        force: write the robot file of a result that is not usable, too.
        """
        report = self.traces is not None
        targets = outputs.Targets.beneath(folder, self.robot, report=report)
        return outputs.write(self, self.data, targets, force=force or self.settings.force)

    def to_frame(self, table: str = "joints") -> polars.DataFrame:
        """Return a table as a polars frame: joints, links or base_parameters."""
        import polars

        if table not in TABLES:
            raise UsageError(f"table is {table!r}; tables: {', '.join(TABLES)}")
        rows = [
            {name: value for name, value in row.items() if not isinstance(value, dict)}
            for row in self.data[table]
        ]
        return polars.DataFrame(rows, infer_schema_length=None)

    def __repr__(self) -> str:
        return f"<Identification of {self.nominal.name}: {self.verdict.sentence}>"

    def __str__(self) -> str:
        parts = [self.verdict, self.estimate, self.scores]
        return "\n\n".join(str(part) for part in parts if part is not None)

    def _repr_html_(self) -> str:
        """Return a short summary for notebooks: verdict and a row per joint."""
        columns = {
            "name": "joint",
            "r2_test": "R²",
            "rms_test": "RMS",
            "rms_nominal": "nominal RMS",
        }
        head = "".join(f"<th>{title}</th>" for title in columns.values())
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(joint[name])}</td>" for name in columns) + "</tr>"
            for joint in self.data["joints"]
        )
        return (
            f"<p><b>{html.escape(self.nominal.name)}</b>: {html.escape(self.verdict.sentence)}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


class Figures(Mapping[str, "go.Figure"]):
    """Figures of a report by name, made when they are asked for."""

    def __init__(self, sections: list[Section]) -> None:
        self._panels: dict[str, Any] = {}
        for section in sections:
            for block in section.blocks:
                if not isinstance(block, Figure):
                    continue
                for panel in block.panels:
                    name = (
                        section.anchor
                        if len(block.panels) == 1
                        else f"{section.anchor}.{panel.label}"
                    )
                    self._panels.setdefault(section.anchor, panel)
                    self._panels.setdefault(name, panel)

    def __getitem__(self, name: str) -> go.Figure:
        import plotly.graph_objects as go

        if name not in self._panels:
            raise KeyError(f"no figure {name!r}; figures: {known(self._panels, 40)}")
        return go.Figure(plain(dict(self._panels[name].figure)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._panels)

    def __len__(self) -> int:
        return len(self._panels)
