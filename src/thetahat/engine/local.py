"""The engine of one process: streams the log, one pass after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from thetahat.data.friction_direction import batches_with_friction_direction
from thetahat.data.joint_selection import TorqueCounter
from thetahat.data.log import Log, read_files
from thetahat.data.prepare import Settings, choose, prepare_batches
from thetahat.data.reading import Reading
from thetahat.data.samples import Samples
from thetahat.data.samples_log import SamplesLog
from thetahat.engine.multi_log import Span
from thetahat.engine.protocol import Engine, Fold, NoProgress, Progress, Rows, Tuning
from thetahat.identification.estimate import Estimate
from thetahat.identification.estimators.estimator import AnyEstimator
from thetahat.identification.information import Information, information
from thetahat.identification.scores import Validation, validate
from thetahat.identification.solve import solve
from thetahat.identification.tuning.tune import Tuned
from thetahat.model.robot import Robot

KEPT = 1_000_000  # torques of a pass over a log that is kept in memory
PASSES = 3  # that are kept: rows that are fitted, with another reference motion, held out


@dataclass(frozen=True, eq=False)
class _Pass:
    """The samples of one pass over a log."""

    rows: Rows
    fitted: Robot
    batches: tuple[Samples, ...]

    def serves(self, rows: Rows, fitted: Robot) -> bool:
        """Whether another pass would read the same samples."""
        mine, drive, other = self.rows, self.fitted.drive, fitted.drive
        same = (mine.log, mine.joints, mine.reference, drive.dry, drive.actuation)
        asked = (rows.log, rows.joints, rows.reference, other.dry, other.actuation)
        if not all(a is b for a, b in zip(same, asked, strict=True)):
            return False
        return mine.settings == rows.settings and mine.span == rows.span


class LocalEngine(Engine):
    """Streams logs in this process; answers are not kept, and there is no history."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress or NoProgress()
        self._passes: list[_Pass] = []  # over logs that are small enough to keep, newest last

    def read(self, names: Sequence[str], robot: Robot, reading: Reading) -> Log:
        """Scan the files behind these names and return them as one log."""
        return read_files(list(names), robot, reading)

    def choose_filter(
        self, log: Log, robot: Robot, *, cutoff: float | None, min_speed: float | None, span: Span
    ) -> Settings:
        """Choose how the log's rows are filtered."""
        return choose(log, robot, cutoff=cutoff, min_speed=min_speed, span=span)

    def tune(self, log: Log, request: Tuning) -> Tuned:
        """Choose what the settings leave open."""
        return request.run(log)

    def fold(self, rows: Rows, fitted: Robot) -> Fold:
        """Fold rows into information, and count what is left out."""
        counter = TorqueCounter(fitted.nv, rows.joints.dofs)

        def counted() -> Iterator[Samples]:
            for samples in self.samples(rows, fitted, "folding"):
                counter.add(samples)
                yield samples

        folded = information(fitted, counted())
        return Fold(folded, counter.result(), counter.period)

    def samples(
        self, rows: Rows, fitted: Robot, text: str, *, every: bool = True
    ) -> Iterator[Samples]:
        """Yield the samples of the rows, batch by batch."""
        for kept in self._passes:
            if kept.serves(rows, fitted):
                return iter(kept.batches)
        return self._kept(rows, fitted, self._read(rows, fitted, text))

    def _read(self, rows: Rows, fitted: Robot, text: str) -> Iterator[Samples]:
        """Prepare the samples, batch by batch."""
        batches: Iterator[Samples]
        if isinstance(rows.log, SamplesLog):
            samples = rows.log.samples.with_form(rows.settings.form)
            batches = iter([samples.subset(slice(*(rows.span or (None,))))])
        else:
            batches = prepare_batches(
                rows.log, rows.joints.robot, settings=rows.settings, span=rows.span
            )
            if rows.reference is not None:
                batches = rows.reference.attached(batches, rows.settings, rows.span)
        counted = self._progress.count(batches, text, rows.stop)
        return batches_with_friction_direction(map(rows.joints.select, counted), fitted)

    def _kept(self, rows: Rows, fitted: Robot, batches: Iterator[Samples]) -> Iterator[Samples]:
        """Hand samples on, and keep them for the next pass where they are few."""
        held: list[Samples] | None = []
        room = KEPT
        for batch in batches:
            room -= len(batch) * (fitted.nv + 1)
            if room < 0:
                held = None
            if held is not None:
                held.append(batch)
            yield batch
        if held is not None:
            self._passes = [*self._passes[1 - PASSES :], _Pass(rows, fitted, tuple(held))]

    def solve(
        self, seen: Information, whole: Information, estimator: AnyEstimator, rows: Rows
    ) -> Estimate:
        """Estimate from `seen`, with standard deviations that know the noise's correlation."""
        return solve(
            seen, estimator, samples=lambda: self.samples(rows, whole.robot, "reading again")
        )

    def score(
        self,
        rows: Rows,
        identified: Robot,
        *,
        nominal: Robot | None = None,
        beside: Mapping[str, Robot] | None = None,
        watch: Callable[[Samples], None] | None = None,
    ) -> Validation:
        """Score robots on the rows."""

        def watched() -> Iterator[Samples]:
            for part in self.samples(rows, identified, "scoring"):
                if watch is not None:
                    watch(part)
                yield part

        return validate(identified, watched(), nominal, beside=beside)

    def without_failures(self, log: Log) -> Log:
        """Return the log: all of it was used."""
        return log
