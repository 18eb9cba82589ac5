"""Terminal output of `payload`."""

from __future__ import annotations

from pathlib import Path

from thetahat.cli.terminal import findings, show
from thetahat.report.payload_report import gain_table, payload_table, residual_table
from thetahat.report.section import Code, Text
from thetahat.report.text import Data
from thetahat.report.verdict_section import verdict_lines


def draw(data: Data, *, files: list[Path], seconds: float) -> None:
    """Print payloads, gains and what they explain. data: schema thetahat/payload/1."""
    several = len(data["payloads"]) > 1
    steps = data["verdict"]["next_steps"]
    show(
        [
            verdict_lines(data),
            *(
                payload_table(each, caption=each["name"] if several else "")
                for each in data["payloads"]
            ),
            gain_table(data) if data["gains"] is not None else None,
            residual_table(data),
            [*findings(data["findings"])],
            Code("\n".join(steps), "Next steps:") if steps else None,
            Text("\n".join([*map(str, files), f"Identified in {seconds:.1f} s."])),
        ]
    )
