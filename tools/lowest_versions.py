"""Write constraints that hold every dependency at the lowest version that pyproject.toml allows.

`python tools/lowest_versions.py build/lowest.txt`: one line per requirement of the package and its
extras, with the first release that is not below its bound. Tools that look at the sources alone are
left out, and so is Pinocchio, all of whose releases since 3.0 ask for a newer NumPy: it is a judge
in the tests and no part of the package, and is installed beside by `make test-lowest`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
EXTRAS_LEFT_OUT = {"worlds", "cpp"}  # of benchmarks, which no test needs
LEFT_OUT = {"pin", "mypy", "pyright", "ruff"}
LIMIT = 120.0  # [s] to ask for the releases of one package


def requirements(project: dict[str, object]) -> Iterator[Requirement]:
    """Yield the requirements of a project and its extras, itself left out."""
    stated = [*_texts(project["dependencies"])]
    extras = project.get("optional-dependencies", {})
    assert isinstance(extras, dict)
    for name, texts in extras.items():
        if name not in EXTRAS_LEFT_OUT:
            stated += _texts(texts)
    for text in stated:
        requirement = Requirement(text)
        wanted = requirement.marker is None or requirement.marker.evaluate()
        if requirement.name not in {project["name"], *LEFT_OUT} and wanted:
            yield requirement


def _texts(value: object) -> list[str]:
    assert isinstance(value, list)
    return [str(each) for each in value]


def lowest(requirement: Requirement, releases: list[Version]) -> Version:
    """Return the first release that a requirement allows, final ones before others."""
    fitting = sorted(requirement.specifier.filter(releases, prereleases=False))
    if not fitting:
        raise SystemExit(f"{requirement} allows none of the releases there are; correct its bound")
    return fitting[0]


def releases_of(name: str) -> list[Version]:
    """Ask the index for the releases of a package that this Python can use."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        name,
        "--disable-pip-version-check",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    listed = re.search(r"^Available versions: (.*)$", answer.stdout, re.MULTILINE)
    if listed is None:
        raise SystemExit(f"the index knows no {name}: {answer.stderr.strip()[-500:]}")
    return [Version(each) for each in listed[1].split(", ") if re.fullmatch(r"[\d.]+", each)]


def main() -> None:
    """Write the constraints."""
    target = Path(sys.argv[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        f"{each.name}=={lowest(each, releases_of(each.name))}" for each in requirements(project)
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(sorted(set(lines))) + "\n", encoding="utf-8")
    print(f"{len(lines)} requirements at their lowest in {target}")


if __name__ == "__main__":
    main()
