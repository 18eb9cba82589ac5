"""Cases of the fuzzer: an input, how it is spoiled, and the command that reads it."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl
import typer

from fuzz import mutations as m
from fuzz import runner
from fuzz.samples import write_samples

Damage = Callable[[bytes, random.Random], bytes]
TEXT: tuple[Damage, ...] = (m.damage_numbers, m.damage_lines, m.damage_words, m.damage_bytes)
CSV: tuple[Damage, ...] = (m.damage_columns, m.damage_columns, *TEXT)
XML: tuple[Damage, ...] = (m.damage_xml, m.damage_xml, m.damage_xml, *TEXT)
JSON: tuple[Damage, ...] = (m.damage_json,) * 4 + TEXT[:1] + TEXT[3:]
BYTES: tuple[Damage, ...] = (m.damage_bytes,)
NPZ: tuple[Damage, ...] = (m.damage_arrays, m.damage_bytes)
PARQUET: tuple[Damage, ...] = (m.damage_frame(pl.read_parquet, "write_parquet"), m.damage_bytes)
FEATHER: tuple[Damage, ...] = (m.damage_frame(pl.read_ipc, "write_ipc"), m.damage_bytes)
EXPORTS = ("mjcf", "urdf", "isaaclab", "mjlab", "bam", "json")
LOADS = ("urscript", "franka", "kuka", "abb", "json")
VALIDATE = "validate robot.urdf {} --json -q"


@dataclass(frozen=True)
class Target:
    """An input file and a command that reads it; in place of {} stands the file."""

    file: str
    command: str
    damages: tuple[Damage, ...]
    fits: bool = False  # a full fit, where the damage lets it
    weight: int = 1


TARGETS = (
    Target("robot.urdf", "inspect {} --json", XML, weight=6),
    Target("robot.xml", "inspect {} --json", XML, weight=6),
    Target("robot.urdf", "validate {} log.csv --json -q", XML),
    Target("log.csv", VALIDATE, CSV, weight=6),
    Target("log.parquet", VALIDATE, PARQUET, weight=3),
    Target("log.feather", VALIDATE, FEATHER, weight=2),
    Target("log.npz", VALIDATE, NPZ, weight=3),
    Target("packed.npz", VALIDATE, NPZ),
    Target("log.mat", VALIDATE, BYTES, weight=2),
    Target("log.mcap", VALIDATE, BYTES, weight=2),
    Target("log.bag", VALIDATE, BYTES),
    Target("motion.csv", "simulate robot.urdf {} --plant own --out OUT.csv --json -q", CSV),
    *(Target("result/estimate.json", f"export {{}} --to {to}", JSON) for to in EXPORTS),
    Target("result/estimate.json", "diff {} {}", JSON, weight=3),
    Target("result/estimate.json", "diff {} before.json --json", JSON, weight=3),
    Target(
        "result/estimate.json", "validate robot.urdf log.csv --estimate {} --json", JSON, weight=3
    ),
    Target("result/estimate.json", "randomize result --count 1 --out OUT --json -q", JSON),
    Target("result/posterior.npz", "randomize result --count 1 --out OUT --json -q", NPZ),
    Target("result/drive.json", "validate result/robot_identified.urdf log.csv --json", JSON),
    Target("result/drive.json", "export result --to mjcf", JSON),
    Target("gains.json", "validate robot.urdf log.csv --gains {} --json", JSON, weight=2),
    *(Target("drives/actuators.json", f"export {{}} --to {to}", JSON) for to in EXPORTS),
    Target("drives/actuators.json", "randomize {} --count 1 --out OUT --json -q", JSON),
    *(Target("tool.json", f"export {{}} --to {to}", JSON) for to in LOADS),
    Target("fleet.toml", "fleet {} --out OUT --json -q", TEXT),
    Target("fleet.csv", "fleet {} --out OUT --json -q", TEXT),
    Target("poses.csv", "tool {} --json", CSV, weight=2),
)
FITS = (
    Target(
        "log.csv", "identify robot.urdf {} --out OUT --json -q --no-tune --no-report", CSV, True, 6
    ),
    Target(
        "log.parquet",
        "identify robot.urdf {} --out OUT --json -q --no-tune --no-report",
        PARQUET,
        True,
        2,
    ),
    Target(
        "robot.urdf", "identify {} log.csv --out OUT --json -q --no-tune --no-report", XML, True, 4
    ),
    Target(
        "robot.xml", "identify {} log.csv --out OUT --json -q --no-tune --no-report", XML, True, 2
    ),
    Target(
        "map.csv",
        "identify robot.urdf log.csv --actuation {} --out OUT --json -q --no-tune --no-report",
        CSV,
        True,
    ),
    Target(
        "gains.json",
        "identify robot.urdf log.csv --gains {} --out OUT --json -q --no-tune --no-report",
        JSON,
        True,
    ),
    Target("log.csv", "identify robot.urdf {} --out OUT --json -q", CSV, True),
    Target("drives.csv", "actuators robot.urdf {} --out OUT --json -q", CSV, True),
    Target(
        "other.csv",
        "payload robot.urdf {} --without log.csv --link lower --out OUT --json -q",
        CSV,
        True,
    ),
)
# commands whose options are given strange values; fits are left out of the cheap ones
OPTIONS = (
    *("inspect robot.urdf", "validate robot.urdf log.csv", "diff result result", "tool poses.csv"),
    *("simulate robot.urdf motion.csv --plant own --out OUT.csv -q", "export result --to mjcf"),
    *("randomize result --count 1 --out OUT -q", "history", "export tool.json --to kuka"),
)
SLOW_OPTIONS = (
    *("identify robot.urdf log.csv --out OUT -q --no-tune --no-report",) * 4,
    *("excite robot.urdf --out OUT.csv --starts 1 --duration 2 --rate 100 -q",) * 2,
    *("actuators robot.urdf drives.csv --out OUT -q", "fleet fleet.toml --out OUT -q"),
    "payload robot.urdf other.csv --without log.csv --link lower --out OUT -q",
    "control robot.urdf --via sim --duration 1 --motion motion.csv --out OUT -q",
)
# those lead to the network, start processes, write where the arguments say, or ask for much work
# (robot files to draw)
SKIPPED = (
    *(
        "--help",
        "--version",
        "--scheduler",
        "--workers",
        "--out",
        "--store",
        "--preview",
        "--watch",
    ),
    *("--journal", "--record", "--count"),
)


@dataclass(frozen=True)
class Case:
    """One call of the command line."""

    seed: int
    arguments: tuple[str, ...]
    file: str  # that was spoiled; empty: none
    content: bytes

    def __str__(self) -> str:
        return f"seed {self.seed}: thetahat {' '.join(self.arguments)[:300]!r} (spoiled: {self.file or 'no file'})"


class Fuzzer:
    """Makes cases from seeds, and runs them in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = write_samples(folder)
        with contextlib.chdir(folder):
            self._make_results()
        self.contents = {
            name: (folder / name).read_bytes() for name in {t.file for t in (*TARGETS, *FITS)}
        }

    def _make_results(self) -> None:
        """Let thetahat write the results that its other verbs read."""
        for command in (
            "identify robot.urdf log.csv --out result --no-tune --no-report -q --force",
            "actuators robot.urdf drives.csv --out drives -q",
            "tool poses.csv --out tool.json",
        ):
            ended = runner.run(command.split(), limit=120.0)
            assert ended.code == 0, f"{command}: {ended.err}"
        shutil.copy("result/estimate.json", "before.json")

    def case(self, seed: int, *, fit: bool = False) -> Case:
        """Return the case of a seed. fit: one that may reach a full fit."""
        rng = random.Random(f"{seed}{fit}")
        if rng.random() < 0.15:
            return self._options(seed, rng, SLOW_OPTIONS if fit else OPTIONS)
        targets = FITS if fit else TARGETS
        target = rng.choices(targets, [each.weight for each in targets])[0]
        content = rng.choice(target.damages)(self.contents[target.file], rng)
        arguments = target.command.replace("{}", target.file).split()
        return Case(seed, tuple(arguments), target.file, content)

    def _options(self, seed: int, rng: random.Random, commands: tuple[str, ...]) -> Case:
        arguments = rng.choice(commands).split()
        flags = _flags(arguments[0])
        for _ in range(rng.choice((1, 1, 2))):
            flag, takes_value = rng.choice(flags)
            arguments.append(flag)
            if takes_value:
                arguments.append(rng.choice((*m.NUMBERS, *m.NUMBERS, *m.WORDS)).replace("\0", ""))
        return Case(seed, tuple(arguments), "", b"")

    def run(self, case: Case, *, limit: float = runner.LIMIT) -> tuple[runner.Ended, list[str]]:
        """Run a case, and return how it ended and what is wrong with that."""
        with self._spoiled(case), contextlib.chdir(self.folder):
            before = _inputs(self.folder)
            ended = runner.run(case.arguments, limit=limit)
            wrong = runner.faults(ended, self._out(case))
            if _inputs(self.folder) != before:
                wrong.append("an input was changed, or a file appeared beside it")
        return ended, wrong

    def _out(self, case: Case) -> Path | None:
        given = [each for each in case.arguments if each.startswith("OUT")]
        return self.folder / given[0] if given else None

    @contextlib.contextmanager
    def _spoiled(self, case: Case) -> Iterator[None]:
        try:
            if case.file:
                (self.folder / case.file).write_bytes(case.content)
            yield
        finally:
            if case.file:
                (self.folder / case.file).write_bytes(self.contents[case.file])
            for path in self.folder.glob("OUT*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _inputs(folder: Path) -> dict[str, tuple[int, int]]:
    """Return sizes and times of all files but the outputs."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and not path.relative_to(folder).parts[0].startswith("OUT")
    }


@cache
def _flags(verb: str) -> list[tuple[str, bool]]:
    """Return the options of a verb, and whether each takes a value."""
    from thetahat.cli.app import app

    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    return [
        (flag, not option.is_flag)
        for option in command.params
        if option.param_type_name == "option"
        for flag in (*option.opts, *option.secondary_opts)
        if flag not in SKIPPED and flag.startswith("--")
    ]
