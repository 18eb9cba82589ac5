"""Golden numbers: answers of the command line, committed as small JSON files, and how an answer is
compared with them.

A file `tests/golden/numbers/<name>.json` keeps the machine it was computed on. On that machine an
answer may differ from it by `SAME_MACHINE`, on any other by `ELSEWHERE` (the linear algebra and the
compiled code differ by processor and by version). `python -m tests.golden.update` rewrites the files
and prints what changed.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "numbers"
SAME_MACHINE, ELSEWHERE = 1e-9, 1e-6  # relative
DIGITS = 13  # significant, of a number that is kept
PACKAGES = ("numpy", "scipy", "numba", "clarabel")


# -- what is kept of an answer ---------------------------------------------------------------------


def of_estimate(answer: dict[str, Any]) -> dict[str, Any]:
    """Base parameters with their standard deviations, scores and chosen settings of an
    `estimate.json`.
    """
    settings = answer["provenance"]["settings"]
    return {
        "counts": {key: answer[key] for key in ("samples", "rank", "columns")},
        "settings": {
            key: settings[key]
            for key in ("cutoff", "torque_cutoff", "delay", "prior_weight", "metric")
        },
        "r2": {key: answer["r2"][key] for key in ("train", "test", "test_raw", "nominal")},
        "r2_train": {joint["name"]: joint["r2_train"] for joint in answer["joints"]},
        "r2_test": {joint["name"]: joint["r2_test"] for joint in answer["joints"]},
        "base_parameters": {
            _first_term(each["name"]): [each["value"], each["std"]]
            for each in answer["base_parameters"]
        },
    }


def of_study(summary: dict[str, Any]) -> dict[str, Any]:
    """Scores, the time at which the gate opened, and tracking biases of a study's `summary.json`.

    The first fit's score is left out: a fit of a few samples, scored on the whole run, amplifies
    rounding (a leg's R² of 0.7476 differs by 1e-5 between processors).
    """
    gate, scores = summary["gate"], summary["r2_over_time"]
    every = 1 if scores is None else max(1, len(scores["r2"]) // 8)
    return {
        "r2": dict(zip(summary["joints"], summary["r2"], strict=True)),
        "r2_over_time": None if scores is None else scores["r2"][every::every],
        "gate": None if gate is None else {key: gate[key] for key in ("opened_at", "open_at_end")},
        "bias_before": summary["bias_before"],
        "bias_after": summary["bias_after"],
        "max_torque_step": summary["max_torque_step"],
    }


def _first_term(name: str) -> str:
    """A base parameter's first term, which no other has: `Izz_1 + …` of `Izz_1 + Iyy_2 + 1.4·m_3`."""
    first, *others = re.split(r" [+−] ", name, maxsplit=1)
    return f"{first} + …" if others else first


# -- comparing -------------------------------------------------------------------------------------


def check(name: str, numbers: dict[str, Any]) -> None:
    """Fail where the numbers are not those that are kept under this name."""
    kept = load(name)
    if kept is None:
        pytest.fail(f"no golden numbers {name!r}; write them: python -m tests.golden.update {name}")
    differing = list(differences(kept["numbers"], rounded(numbers), tolerance(kept)))
    if differing:
        pytest.fail(
            f"{name}: {len(differing)} golden numbers changed, by more than {tolerance(kept):g}"
            f" (if that is intended: python -m tests.golden.update {name})\n"
            + "\n".join(differing[:20])
        )


def load(name: str) -> dict[str, Any] | None:
    """The kept numbers and their machine; None where there are none."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def tolerance(kept: dict[str, Any]) -> float:
    """The relative difference that is allowed on this machine."""
    return SAME_MACHINE if kept["machine"] == machine() else ELSEWHERE


def differences(kept: Any, now: Any, relative: float, path: str = "") -> Iterator[str]:
    """A sentence for each number that differs by more than `relative` of its scale: the largest of
    its row (a base parameter's value and standard deviation, the biases of all joints), else its own.
    """
    if isinstance(kept, dict) and isinstance(now, dict):
        if list(kept) != list(now):
            yield f"{path or 'keys'}: {_only(kept, now)} are gone, {_only(now, kept)} are new"
        for key in kept:
            if key in now:
                yield from differences(kept[key], now[key], relative, f"{path}/{key}".strip("/"))
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        scale = max((abs(value) for value in kept if _is_number(value)), default=0.0)
        for k, (old, new) in enumerate(zip(kept, now, strict=True)):
            if not _agree(old, new, relative * scale):
                yield _sentence(f"{path}[{k}]", old, new)
    elif not _agree(kept, now, relative * abs(kept) if _is_number(kept) else 0.0):
        yield _sentence(path, kept, now)


def _agree(old: Any, new: Any, slack: float) -> bool:
    if _is_number(old) and _is_number(new):
        return abs(old - new) <= slack
    return type(old) is type(new) and old == new


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sentence(path: str, old: Any, new: Any) -> str:
    if _is_number(old) and _is_number(new) and old != 0.0:
        return f"  {path}: {old!r} → {new!r} ({(new - old) / abs(old):+.1e})"
    return f"  {path}: {old!r} → {new!r}"


def _only(these: dict[str, Any], others: dict[str, Any]) -> list[str]:
    return [key for key in these if key not in others]


# -- files -----------------------------------------------------------------------------------------


def rounded(value: Any) -> Any:
    """A JSON value whose numbers have `DIGITS` significant digits; NaN and infinities are refused."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} among golden numbers")
        return float(f"{value:.{DIGITS}g}")
    return value


def save(name: str, numbers: dict[str, Any]) -> Path:
    """Write a file of golden numbers: one line per base parameter, joint or setting."""
    path = FOLDER / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    groups = [f'  "machine": {_lines(machine())}', f'  "numbers": {_lines(rounded(numbers), 2)}']
    path.write_text("{\n" + ",\n".join(groups) + "\n}\n", encoding="utf-8")
    return path


def _lines(value: Any, levels: int = 1, indent: str = "    ") -> str:
    """JSON text with a line per key down to so many levels."""
    if levels == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    rows = [
        f"{indent}{json.dumps(key, ensure_ascii=False)}: {_lines(part, levels - 1, indent + '  ')}"
        for key, part in value.items()
    ]
    return "{\n" + ",\n".join(rows) + f"\n{indent[:-2]}}}"


@cache
def machine() -> dict[str, str]:
    """What decides the last digits of an answer: processor, linear algebra, versions of packages."""
    import threadpoolctl
    from llvmlite import binding
    from numba import config

    blas = {
        each.get("architecture", each["internal_api"])
        for each in threadpoolctl.threadpool_info()
        if each["user_api"] == "blas"
    }
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "compiled for": config.CPU_NAME or binding.get_host_cpu_name(),
        "blas": ", ".join(sorted(blas)),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = re.findall(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return names[0] if names else platform.machine()
