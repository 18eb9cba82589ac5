"""How well robots predict the torques of shards: sums that merge, and the scores they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from thetahat.data.prepare import Settings
from thetahat.data.samples import Samples
from thetahat.engine import array_codec
from thetahat.engine.fingerprint import DATA_FORMAT, fingerprint, robot_fingerprint
from thetahat.engine.shard_fold import Prepared, remembers
from thetahat.engine.shards import Shard
from thetahat.identification.scores import TorqueSums, Validation, validate
from thetahat.model.robot import Robot

SCHEMA = "thetahat/scored/1"
OWN, NOMINAL = "", "\0nominal"  # names of the two robots that are always meant; others have theirs


@dataclass(frozen=True, eq=False)
class Scored:
    """Sums over some samples, (2, nv) each: all usable rows, and those of joints in motion."""

    samples: int
    rows: np.ndarray
    torque: np.ndarray  # Σ u²
    left: dict[str, np.ndarray]  # Σ e², by robot


@dataclass(frozen=True, eq=False)
class Score:
    """How shards are scored."""

    prepared: Prepared
    robot: Robot  # joints without a column locked
    nominal: Robot | None = None
    beside: Mapping[str, Robot] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """How the samples are made."""
        return self.prepared.settings

    @cached_property
    def fingerprint(self) -> str:
        """Of everything that a shard's sums depend on beside the shard."""
        robots = {OWN: self.robot, NOMINAL: self.nominal, **self.beside}
        prints = {
            name: None if robot is None else robot_fingerprint(robot, values=True)
            for name, robot in robots.items()
        }
        return fingerprint("score", DATA_FORMAT, self.prepared.plain, prints)

    @property
    def whole(self) -> bool:
        """Whether runs must not be cut."""
        return remembers(self.robot)

    def run(self, shard: Shard) -> Scored:
        """Score a shard, on one core."""
        torque = np.zeros((2, self.robot.nv))

        def seen() -> Iterator[Samples]:
            for part in self.prepared.samples(shard, self.robot):
                for k, rows in enumerate((part.scorable, part.valid)):
                    torque[k] += np.sum(part.tau**2, axis=0, where=rows)
                yield part

        found = validate(self.robot, seen(), nominal=self.nominal, beside=self.beside)
        each = {
            OWN: found,
            **({} if found.nominal is None else {NOMINAL: found.nominal}),
            **found.beside,
        }
        rows = np.stack([found.rows, found.rows_moving])
        left = {
            name: np.stack([_squares(v.rms, v.rows), _squares(v.rms_moving, v.rows_moving)])
            for name, v in each.items()
        }
        return Scored(found.samples, rows, torque, left)

    @staticmethod
    def merged(parts: Sequence[Scored]) -> Scored:
        """All of them together."""
        left = {name: np.sum([part.left[name] for part in parts], axis=0) for name in parts[0].left}
        return Scored(
            sum(part.samples for part in parts),
            np.sum([part.rows for part in parts], axis=0),
            np.sum([part.torque for part in parts], axis=0),
            left,
        )

    @staticmethod
    def to_bytes(result: Scored, key: str) -> bytes:
        """As the store keeps it, under this key."""
        values = {
            "schema": SCHEMA,
            "key": key,
            "samples": int(result.samples),
            "names": list(result.left),
        }
        left = {f"left{k}": array for k, array in enumerate(result.left.values())}
        return array_codec.packed(values, {"rows": result.rows, "torque": result.torque, **left})

    @staticmethod
    def from_bytes(data: bytes, key: str) -> Scored:
        """What `to_bytes` wrote; `codec.Damaged` where it is something else, or of another key."""
        values, arrays = array_codec.unpacked(data)
        if values.get("schema") != SCHEMA or values.get("key") != key:
            raise array_codec.Damaged("it is the entry of another key")
        left = {name: arrays[f"left{k}"] for k, name in enumerate(values["names"])}
        return Scored(int(values["samples"]), arrays["rows"], arrays["torque"], left)

    def validation(self, sums: Scored) -> Validation:
        """The scores, as `thetahat.identification.scores` gives them."""
        cutoff = self.settings.torque_cutoff or self.settings.cutoff
        found = {
            name: _validation(self.robot.velocity_names, sums, left, cutoff)
            for name, left in sums.left.items()
        }
        return replace(found.pop(OWN), nominal=found.pop(NOMINAL, None), beside=found)


def _squares(rms: np.ma.MaskedArray, rows: np.ndarray) -> np.ndarray:
    return np.ma.filled(rms, 0.0) ** 2 * rows


def _validation(
    names: tuple[str, ...], sums: Scored, left: np.ndarray, cutoff: float
) -> Validation:
    return Validation(names, TorqueSums(sums.samples, sums.rows, sums.torque, left), cutoff)
