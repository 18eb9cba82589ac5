"""The verbs that write, each with the command of an earlier answer and that of a later one."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import thetahat
from interruptions import child
from interruptions.child import CUT, FULL, KILLED, KINDS, READ_ONLY, Ended, Moment

FIT = "--no-tune -q --force"
LAST = 8  # changes at the end of a run, when files take their places: each is a moment
QUICK = (  # modules of the quick verbs
    *("thetahat.cli.app", "thetahat.cli.tool", "thetahat.cli.codegen", "thetahat.export.codegen"),
    *("thetahat.identification.payload.wrist", "thetahat.data.wrist", "thetahat.model.io.load"),
)
LOGS = (".journal", ".recording")  # written as a run goes on: whole up to their last record


@dataclass(frozen=True)
class Verb:
    """Commands that write into the folder `out`."""

    name: str
    before: str  # empty: the folder is empty
    after: str
    quick: bool = False  # for the short version


VERBS = (
    Verb(
        "identify",
        f"identify robot.urdf log.csv --out out {FIT}",
        f"identify robot.urdf other.csv --out out {FIT}",
    ),
    Verb(
        "unusable",
        f"identify robot.urdf log.csv --out out {FIT} --no-report",
        "identify robot.urdf noise.csv --out out --no-tune -q --no-report",
    ),
    Verb(
        "actuators",
        "actuators robot.urdf drives.csv --out out -q",
        "actuators robot.urdf drives.csv --out out -q --kp 30",
    ),
    Verb(
        "payload",
        "payload robot.urdf other.csv --without log.csv --link lower --out out -q",
        "payload robot.urdf other.csv --without log.csv --link lower --out out -q --size 0.2,0.2,0.2",
    ),
    Verb("tool", "tool poses.csv --out out/tool.json", "tool fewer.csv --out out/tool.json", True),
    Verb(
        "export",
        "export result --to mjcf --out out/robot.xml",
        "export result --to urdf --out out/robot.xml",
    ),
    Verb(
        "codegen",
        "codegen robot.urdf --out out",
        "codegen robot.urdf --out out --precision float --name b",
        True,
    ),
    Verb("randomize", "", "randomize result --count 2 --out out/robots -q --force"),
    Verb(
        "excite",
        "excite robot.urdf --out out/m.csv --preview out/m.html --duration 2 --starts 1 -q",
        "excite robot.urdf --out out/m.csv --preview out/m.html --duration 3 --starts 1 -q",
    ),
    Verb(
        "simulate",
        "simulate robot.urdf motion.csv --plant own --out out/log.csv -q",
        "simulate robot.urdf motion.csv --plant own --out out/log.csv -q --seed 3",
    ),
    Verb(
        "record",
        "",
        "record robot.urdf slow.csv --via sim --plant own --no-rehearse --no-check"
        " --warm-up 0 --floor none --out out/log.csv -q",
    ),
    Verb(
        "control",
        "control robot.urdf --plant own --motion motion.csv --duration 1 --out out -q",
        "control robot.urdf --plant own --motion motion.csv --duration 2 --out out -q",
    ),
    Verb(
        "study",
        "study double-pendulum --plant own --out out -q",
        "study double-pendulum --plant own --seed 1 --out out -q",
    ),
    Verb(
        "fleet",
        "fleet fleet.toml --out out -q",
        "fleet fleet.csv --out out -q",
    ),
)


class Workbench:
    """A folder with inputs, in which verbs are run and interrupted."""

    def __init__(self, folder: Path, verbs: Sequence[Verb]) -> None:
        self.home, self.out, self.changes = folder, folder / "out", 0
        self.out.mkdir()
        _load_modules(QUICK if all(verb.quick for verb in verbs) else ("thetahat.",))
        assert child.in_a_copy(lambda: _write_samples(folder)) == 0
        if any(" result " in verb.after for verb in verbs):
            ended = self._run(f"identify robot.urdf log.csv --out result {FIT} --no-report", None)
            assert ended.code == 0, ended.err

    def _run(self, command: str, moment: Moment | None) -> Ended:
        return child.run(command.split(), self.out, moment)

    def _empty(self) -> None:
        shutil.rmtree(self.out)
        self.out.mkdir()

    def faults(self, verb: Verb, moments: int, *, rng: random.Random | None = None) -> list[str]:
        """Interrupt a verb at these moments of each kind, and return what was left as it must not
        be. rng: so many moments of all kinds together, drawn.
        """
        old = self._answer(verb.before)
        new = self._answer(verb.after, self._changes(verb))
        wrong = [] if old != new else [f"{verb.name}: both commands write the same"]
        chosen = _moments(self.changes, new, moments)
        if rng is not None:
            chosen = rng.sample(chosen, moments)
        for moment in chosen:
            self._restore(old)
            ended = self._run(verb.after, moment)
            wrong += [
                f"{verb.name}, {moment}: {each}" for each in self._judged(moment, ended, old, new)
            ]
        return wrong

    def _changes(self, verb: Verb) -> Ended:
        """Run the later command over the earlier answer, and count its changes."""
        ended = self._run(verb.after, None)
        self.changes = ended.changes
        return ended

    def _answer(self, command: str, ended: Ended | None = None) -> dict[str, bytes]:
        """Return the files of a whole answer."""
        if ended is None:
            self._empty()
            if not command:
                return {}
            ended = self._run(command, None)
        assert ended.code == 0, f"{command}: exit {ended.code}, {ended.err[-2000:]}"
        return self.files()

    def _restore(self, files: dict[str, bytes]) -> None:
        self._empty()
        for name, data in files.items():
            path = self.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def files(self) -> dict[str, bytes]:
        """Return what a user sees in the folder."""
        return {
            str(path.relative_to(self.out)): path.read_bytes()
            for path in sorted(self.out.rglob("*"))
            if path.is_file() and not any(p[0] == "." for p in path.relative_to(self.out).parts)
        }

    def _judged(
        self, moment: Moment, ended: Ended, old: dict[str, bytes], new: dict[str, bytes]
    ) -> list[str]:
        """Return what is wrong after a moment."""
        from thetahat.commit_record import finish_interrupted

        wrong = []
        if "Traceback" in ended.err:
            wrong.append(f"traceback: {ended.err[-400:]}")
        finish_interrupted(self.out)  # as every verb does that reads or writes in the folder
        there = {name: data for name, data in self.files().items() if not name.endswith(LOGS)}
        old, new = (
            {name: data for name, data in files.items() if not name.endswith(LOGS)}
            for files in (old, new)
        )
        is_old, is_new = there == old, _is_new(there, old, new)
        if not (is_old or is_new):
            wrong.append(f"a mixture: {_described(there, old)} (exit {ended.code})")
        if moment.kind in (READ_ONLY, FULL) and ended.code not in (0, 6):
            wrong.append(f"exit {ended.code}: {ended.err[-300:]}")
        if moment.kind in (READ_ONLY, FULL) and ended.code == 0 and not is_new:
            wrong.append("exit 0, and the files are those of before")
        if moment.kind == FULL:
            hidden = [p.name for p in self.out.rglob(".*") if p.is_file()]
            wrong += [f"scratch file {name} is left" for name in hidden]
        return wrong


def _moments(changes: int, new: dict[str, bytes], count: int) -> list[Moment]:
    """Return moments of each kind, those at the end of a run closest together."""
    steps = sorted({*_spread(changes, count - LAST), *range(max(changes - LAST, 0), changes)})
    sizes = _spread(max(map(len, new.values())), count)
    return [Moment(kind, at) for kind in (KILLED, READ_ONLY) for at in steps] + [
        Moment(kind, at) for kind in (FULL, CUT) for at in sizes
    ]


def _spread(most: int, count: int) -> list[int]:
    return sorted({most * k // max(count, 1) for k in range(max(count, 1))})


def _is_new(there: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> bool:
    """Whether these are the files of the later answer, whole: the same, but for times in them."""
    if there.keys() != new.keys():
        return False
    return all(
        data == new[name] or (data != old.get(name) and _is_whole(name, data, new[name]))
        for name, data in there.items()
    )


def _is_whole(name: str, data: bytes, like: bytes) -> bool:
    if name.endswith(".json"):
        return isinstance(json.loads(data), dict)
    if name.endswith(".html"):
        return data.rstrip().endswith(b"</html>")
    return data[-20:] == like[-20:] and abs(len(data) - len(like)) < 0.05 * len(like) + 200


def _described(there: dict[str, bytes], old: dict[str, bytes]) -> str:
    words = [f"{name} {'old' if old.get(name) == data else 'new'}" for name, data in there.items()]
    return ", ".join([*words, *(f"{name} gone" for name in old if name not in there)])


def _load_modules(prefixes: tuple[str, ...]) -> None:
    """Load what the copies need, but for polars, which starts threads as it is loaded."""
    packages = pkgutil.walk_packages(thetahat.__path__, "thetahat.")
    sys.modules["polars"] = None  # type: ignore[assignment]
    try:
        for module in packages:
            if module.name.startswith(prefixes) and not module.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(module.name)
    finally:
        del sys.modules["polars"]
    for name in ("scipy.stats", "pydantic", "typer._adapters", "rich.progress"):
        with suppress(ImportError):
            importlib.import_module(name)


def _write_samples(folder: Path) -> int:
    """Inputs of the fuzzer, a log that identifies nothing well, and a shorter table of poses."""
    import numpy as np
    import polars as pl

    from fuzz.samples import write_samples

    write_samples(folder)

    frame, rng = pl.read_csv(folder / "log.csv"), np.random.default_rng(0)
    noise = {name: 5.0 * rng.normal(size=len(frame)) for name in ("tau.shoulder", "tau.elbow")}
    frame.with_columns(**{k: pl.Series(v) for k, v in noise.items()}).write_csv(
        folder / "noise.csv"
    )
    turn = 2.0 * np.pi * np.arange(101) / 100  # from rest to rest in two seconds
    slow = {"t": 0.02 * np.arange(101)}
    for name in ("shoulder", "elbow"):
        slow |= {f"q.{name}": 0.1 * (1.0 - np.cos(turn)), f"dq.{name}": 0.1 * np.pi * np.sin(turn)}
        slow |= {f"ddq.{name}": 0.1 * np.pi**2 * np.cos(turn)}
    pl.DataFrame(slow).write_csv(folder / "slow.csv")
    lines = (folder / "poses.csv").read_text().splitlines()
    (folder / "fewer.csv").write_text("\n".join(lines[:-4]) + "\n")
    return 0


def chosen(names: Sequence[str]) -> tuple[Verb, ...]:
    """Return the verbs of these names; all without any."""
    return tuple(verb for verb in VERBS if not names or verb.name in names)


__all__ = ["KINDS", "VERBS", "Verb", "Workbench", "chosen"]
