"""The import order of the design holds: a stage imports only the stages before it, kernels import
nothing of ours.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "thetahat"

# One straight path: each stage may import those to its left. A stage that is not here yet costs
# nothing.
STAGES = (
    *("errors", "files", "robots", "model", "kernels", "dynamics", "model.io", "data"),
    *("identification", "excite", "online", "control", "plant", "report", "studies", "engine"),
    *("pipeline", "live", "fleet", "cli"),
)
KERNELS_MAY_USE = {"numpy", "numba", "llvmlite"}  # and the standard library
HEAVY = ("numba", "polars", "scipy", "typer", "rich", "mujoco")
ROOT_NAMES = {
    "__version__"
}  # what any stage may take from the package's root; all else there comes from the stages

MODULES = {
    ".".join(("thetahat", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(module: str) -> set[str]:
    """Every module the file imports, wherever in it; `from a import b` counts as a.b where that is
    a module.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{module}, line {node.lineno}: relative import; write it out, so that the layers"
                " can be read"
            )
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES:
                    found.add(full)
                elif node.module != "thetahat" or alias.name not in ROOT_NAMES:
                    found.add(str(node.module))
    return found


def stage(module: str) -> str:
    if module.startswith("thetahat.model.io"):
        return "model.io"
    return module.split(".")[1] if "." in module else ""


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "thetahat"}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "thetahat"])
def test_a_stage_imports_only_stages_before_it(module: str) -> None:
    assert stage(module) in STAGES, f"{stage(module)} is a new stage: give it its place in STAGES"
    for imported in ours(imports(module)):
        assert imported != "thetahat", (
            f"{module} imports the package's root, which imports the stages; import the stage itself"
        )
        if stage(imported) != stage(module):
            assert STAGES.index(stage(imported)) < STAGES.index(stage(module)), (
                f"{module} imports {imported}, a later stage"
            )


@pytest.mark.parametrize("module", [name for name in MODULES if stage(name) == "kernels"])
def test_kernels_import_numpy_numba_and_each_other(module: str) -> None:
    for imported in imports(module):
        top = imported.split(".")[0]
        own = imported.startswith("thetahat.kernels")
        assert own or top in KERNELS_MAY_USE | sys.stdlib_module_names, (
            f"{module} imports {imported}; kernels work on raw arrays alone"
        )


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {module: ours(imports(module)) - {module} for module in MODULES if module != "thetahat"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circle of imports: {' → '.join(error.args[1])}")


@pytest.mark.parametrize(
    "statement",
    [
        "import thetahat",
        "import thetahat as th; dir(th); th.__version__",
        "import thetahat.model.io.load",
    ],
)
def test_importing_the_package_loads_nothing_heavy(statement: str) -> None:
    code = f"import sys; {statement}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert loaded == []
