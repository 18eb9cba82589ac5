"""The layer rules of the architecture: import order, no circles, no private names across modules,
no oversized functions and constructors.

Each rule is a function of one module's source, so that every rule is also shown to fail on a
made-up source.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "thetahat"

# One straight path: each stage may import those before it.
STAGES = (
    *(
        "errors",
        "commit_record",
        "files",
        "child_process",
        "json_document",
        "robots",
        "model",
        "kernels",
        "dynamics",
        "model.io",
        "data",
    ),
    *("identification", "engine", "excite", "online", "control", "plant", "report", "pipeline"),
    *("export", "connect", "studies", "live", "fleet", "cli"),
)
# The same inside packages: a part may not import the parts after it. Parts that are not listed are
# bound by the rule against circles alone.
PARTS = {
    "model": ("spatial", "tree", "friction_terms", "actuation", "drive", "robot", "lock_joints"),
    "model.io": ("xml_reader", "urdf", "mjcf", "load", "write_back", "save"),
    "kernels": ("jit", "vectors", "kinematics", "rnea", "fold", "slotine_li", "online"),
    "dynamics": ("batch", "rigid_body", "algorithm1"),
    "data": ("formats", "columns", "row_batches", "audit", "scan", "log", "memory_log"),
    "identification": (
        *("parameter_columns", "factor", "fold_plan", "fold_samples", "information", "estimate"),
        *("estimators", "solve"),
        *("payload", "tuning"),
    ),
    "report": ("traces", "figures", "sections", "identification_report"),
    "fleet": ("manifest", "analysis", "fleet_page"),
    "engine": ("sources", "cache", "shards", "reduce", "local", "sharded", "open_engine"),
    "pipeline": ("settings", "dataset", "results", "outputs", "identification", "identify"),
    "live": (
        "viewers",
        "downloads",
        "shared_state",
        "sample_loop",
        "publisher",
        "session",
        "server",
    ),
    "cli": ("exit_status", "arguments", "identify", "demo", "app"),
}
UPWARD = {  # the only imports of a later stage, each inside a function, with its reason
    (
        "thetahat.model.robot",
        "thetahat.identification.identifiability.base_parameters",
    ): "`robot.base_parameters` is part of the public interface",
    (
        "thetahat.model.robot",
        "thetahat.export.codegen.compiled_robot",
    ): "`robot.compiled()` is part of the public interface",
}
DYNAMIC = {  # the only modules that import by a computed name
    "thetahat.cli.study": "a study is loaded by its name",
    "thetahat.live.sample_sources": "a study is loaded by its name",
}
KERNELS_MAY_USE = {"numpy", "numba", "llvmlite"}  # and the standard library
HEAVY = ("numba", "polars", "scipy", "typer", "rich", "mujoco")
ROOT_NAMES = {"__version__"}  # what any stage may import from the package's root
UNDERSCORED = {"_replace", "_asdict", "_fields", "_make", "_exit"}  # public, of named tuples and os

# Names from before the move, by package. They do not come back.
OLD_MODULES = {
    "": "identify",
    "cli": "crew scale measured answers identify_run",
    "control": "frames steps switched laws limits",
    "data": "direction excerpt motion recorded records stamps stream survey windows",
    "excite": "families problem shapes starts",
    "fleet engine": "against strangers inquiry gather choice kept_answers spool tuned rows ranges"
    " notes by_file catalogue memory spread inertial",
    "identification": "inside interior search stretches restrict run bands evidence extended"
    " applied result select buffer",
    "live": "workshop tap shared remote pace products words frames",
    "model model.io": "shapes splice plausible lock shared_change drive_change",
    "online": "beside usual watch stack scores options",
    "plant": "built",
    "report": "collect fit model words",
}

LONGEST_FUNCTION = 60  # lines, docstring included
MOST_PARAMETERS = 8
# Ratchets: these counts may only fall. Lower the number when yours is less.
PRIVATE_IMPORTS = 0
PRIVATE_ACCESS = 0
LONG_FUNCTIONS = 3  # all of them kernels
WIDE_CONSTRUCTORS = 0
WIDE_RECORDS = 26  # dataclasses with more fields
TYPE_IGNORES = 7
ANYS = 318
CASTS = 0


@dataclass(frozen=True)
class Module:
    """A module's name and source."""

    name: str  # thetahat.model.robot
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def stage(self) -> str:
        return stage_of(self.name)


def stage_of(module: str) -> str:
    if module.startswith("thetahat.model.io"):
        return "model.io"
    return module.split(".")[1] if "." in module else ""


def part_of(module: str) -> str:
    """The module or package directly below a stage: `identification.estimators.prior` is of
    `estimators`.
    """
    return module.removeprefix(f"thetahat.{stage_of(module)}").lstrip(".").split(".")[0]


MODULES = {
    module.name: module
    for module in (
        Module(
            ".".join(("thetahat", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
                ".__init__"
            ),
            path.read_text(encoding="utf-8"),
        )
        for path in sorted(PACKAGE.rglob("*.py"))
    )
}
NOT_ROOT = [module for module in MODULES.values() if module.name != "thetahat"]
OUTSIDE_KERNELS = [module for module in MODULES.values() if module.stage != "kernels"]


def imports(module: Module) -> set[str]:
    """Every module the source imports, wherever in it; `from a import b` counts as a.b where that
    is a module.
    """
    names: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES:
                    names.add(full)
                elif node.module != "thetahat" or alias.name not in ROOT_NAMES:
                    names.add(f"{'.' * node.level}{node.module or ''}")
    return names


def ours(module: Module) -> set[str]:
    """The modules of this package that the module imports, but for the exceptions."""
    return {
        name
        for name in imports(module)
        if name.split(".")[0] == "thetahat" and (module.name, name) not in UPWARD
    }


# -- rules: each yields sentences about what breaks it --------------------------------------------


def upward_imports(module: Module) -> Iterator[str]:
    if module.stage not in STAGES:
        yield f"{module.name}: {module.stage} is a new stage; give it its place in STAGES"
        return
    for imported in ours(module):
        if imported == "thetahat":
            yield f"{module.name} imports the package's root; import the stage itself"
        elif stage_of(imported) != module.stage and (
            STAGES.index(stage_of(imported)) > STAGES.index(module.stage)
        ):
            yield f"{module.name} imports {imported}, a later stage"


def upward_imports_inside(module: Module) -> Iterator[str]:
    order = PARTS.get(module.stage, ())
    own = part_of(module.name)
    for imported in ours(module):
        part = part_of(imported)
        if (
            stage_of(imported) == module.stage
            and own in order
            and part in order
            and order.index(part) > order.index(own)
        ):
            yield f"{module.name} imports {imported}, a later part of {module.stage}"


def relative_imports(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{module.name}, line {node.lineno}: relative import; write it out"


def foreign_imports_of_kernels(module: Module) -> Iterator[str]:
    for imported in imports(module):
        allowed = KERNELS_MAY_USE | sys.stdlib_module_names
        if not imported.startswith("thetahat.kernels") and imported.split(".")[0] not in allowed:
            yield f"{module.name} imports {imported}; kernels work on raw arrays alone"


def imports_of_the_command_line(module: Module) -> Iterator[str]:
    if module.stage != "cli":
        for imported in imports(module):
            if stage_of(imported) == "cli":
                yield f"{module.name} imports {imported}; nothing imports the command line"


def dynamic_imports(module: Module) -> Iterator[str]:
    """Imports by a computed name, which hide from the other rules."""
    for node in module.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in ("import_module", "__import__") and module.name not in DYNAMIC:
            yield f"{module.name}, line {node.lineno}: {name}; write a plain import"


def private_imports(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("thetahat"):
            for alias in node.names:
                if alias.name.startswith("_") and alias.name not in ROOT_NAMES:
                    yield f"{module.name} imports {alias.name} of {node.module}"


def private_access(module: Module) -> Iterator[str]:
    """Attributes `x._y` whose `_y` this module neither defines nor sets."""
    own: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, ast.Attribute) and (
            isinstance(node.ctx, ast.Store) or ast.unparse(node.value) in ("self", "cls")
        ):
            own.add(node.attr)
    for node in module.nodes:
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and node.attr not in own | UNDERSCORED
        ):
            yield f"{module.name}, line {node.lineno}: {ast.unparse(node)} is private elsewhere"


def old_names(names: Iterable[str]) -> Iterator[str]:
    old = {
        ".".join(filter(None, ("thetahat", package, name)))
        for packages, several in OLD_MODULES.items()
        for package in packages.split() or [""]
        for name in several.split()
    }
    for name in names:
        if name in old:
            yield f"{name} is an old name"


def repeated_names(names: Iterable[str]) -> Iterator[str]:
    """Files whose name occurs twice; verbs of the command line and kernels aside."""
    names = list(names)
    packages = {name.rpartition(".")[0] for name in names}
    last = [
        name.split(".")[-1]
        for name in names
        if name not in packages and stage_of(name) not in ("cli", "kernels")
    ]
    for name, count in Counter(last).items():
        if count > 1:
            yield f"{count} modules are called {name}"


def circles(modules: Iterable[Module]) -> Iterator[str]:
    graph = {module.name: ours(module) - {module.name} for module in modules}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"circle of imports: {' → '.join(error.args[1])}"


def long_functions(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                yield f"{module.name}.{node.name} has {lines} lines"


def wide_constructors(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            several = node.args
            count = len([*several.posonlyargs, *several.args, *several.kwonlyargs]) - 1
            if count > MOST_PARAMETERS:
                yield f"{module.name}, line {node.lineno}: a constructor of {count} parameters"


def wide_records(module: Module) -> Iterator[str]:
    for node in module.nodes:
        decorators = getattr(node, "decorator_list", [])
        if isinstance(node, ast.ClassDef) and any(
            "dataclass" in ast.unparse(decorator) for decorator in decorators
        ):
            count = sum(isinstance(each, ast.AnnAssign) for each in node.body)
            if count > MOST_PARAMETERS:
                yield f"{module.name}.{node.name} has {count} fields"


def type_ignores(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if re.search(r"#\s*type:\s*ignore", line):
            yield f"{module.name}, line {number}: type: ignore"


def anys(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id == "Any":
            yield f"{module.name}, line {node.lineno}: Any"


def casts(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name | ast.Attribute)
            and ast.unparse(node.func) in ("cast", "typing.cast")
        ):
            yield f"{module.name}, line {node.lineno}: cast"


Rule = Callable[[Module], Iterator[str]]


def broken(rule: Rule, modules: Iterable[Module]) -> list[str]:
    return [sentence for module in modules for sentence in rule(module)]


# -- the rules hold --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        *(upward_imports, upward_imports_inside, relative_imports, imports_of_the_command_line),
        dynamic_imports,
    ],
)
def test_the_layers_hold(rule: Rule) -> None:
    assert broken(rule, NOT_ROOT) == []


def test_kernels_import_numpy_numba_and_each_other() -> None:
    kernels = [module for module in NOT_ROOT if module.stage == "kernels"]
    assert broken(foreign_imports_of_kernels, kernels) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    assert list(circles(NOT_ROOT)) == []


def test_no_old_name_is_left_and_none_occurs_twice() -> None:
    assert [*old_names(MODULES), *repeated_names(MODULES)] == []


def test_every_exception_and_part_exists() -> None:
    for module, imported in UPWARD:
        assert imported in imports(MODULES[module]), f"{module} does not import {imported}"
    assert all("import_module" in MODULES[name].text for name in DYNAMIC)
    for stage, parts in PARTS.items():
        for part in parts:
            assert f"thetahat.{stage}.{part}" in MODULES, f"{stage} has no {part}: correct PARTS"


@pytest.mark.parametrize(
    ("rule", "most"),
    [
        (private_imports, PRIVATE_IMPORTS),
        (private_access, PRIVATE_ACCESS),
        (long_functions, LONG_FUNCTIONS),
        (wide_constructors, WIDE_CONSTRUCTORS),
        (wide_records, WIDE_RECORDS),
        (type_ignores, TYPE_IGNORES),
        (anys, ANYS),
        (casts, CASTS),
    ],
)
def test_a_count_never_rises(rule: Rule, most: int) -> None:
    sentences = broken(rule, OUTSIDE_KERNELS)
    assert len(sentences) <= most, "\n".join(sentences)


# -- and can fail ----------------------------------------------------------------------------------

LONG = "def f():\n" + "    pass\n" * LONGEST_FUNCTION
WIDE = "class A:\n    def __init__(self, a, b, c, d, *, e, f, g, h, i): ...\n"
RECORD = "@dataclass(frozen=True)\nclass A:\n" + "".join(f"    x{i}: int\n" for i in range(9))


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (upward_imports, "model.a", "from thetahat.data.log import read_log"),
        (upward_imports, "model.a", "def f():\n    import thetahat.dynamics.batch"),
        (upward_imports, "model.a", "import thetahat"),
        (upward_imports, "newcomer.a", ""),
        (upward_imports_inside, "identification.factor", "import thetahat.identification.solve"),
        (upward_imports_inside, "model.tree", "from thetahat.model import robot"),
        (relative_imports, "model.a", "from . import robot"),
        (foreign_imports_of_kernels, "kernels.a", "import scipy.linalg"),
        (foreign_imports_of_kernels, "kernels.a", "from thetahat.errors import UsageError"),
        (imports_of_the_command_line, "live.a", "from thetahat.cli.app import app"),
        (dynamic_imports, "model.a", "import importlib\nimportlib.import_module('thetahat.data')"),
        (
            dynamic_imports,
            "model.a",
            "from importlib import import_module\nimport_module('x')",
        ),
        (dynamic_imports, "model.a", "__import__('thetahat.data')"),
        (private_imports, "data.a", "from thetahat.model.robot import _secret"),
        (private_access, "data.a", "from thetahat.model import robot\nrobot._secret()"),
        (private_access, "data.a", "def f(log):\n    return log._rows"),
        (long_functions, "model.a", LONG),
        (wide_constructors, "model.a", WIDE),
        (wide_records, "model.a", RECORD),
        (type_ignores, "model.a", "x: int = 'a'  # type: ignore[assignment]"),
        (anys, "model.a", "from typing import Any\ndef f(x: list[Any]) -> None: ..."),
        (casts, "model.a", "from typing import cast\nx = cast(int, 'a')"),
    ],
)
def test_a_rule_can_fail(rule: Rule, name: str, text: str) -> None:
    assert broken(rule, [Module(f"thetahat.{name}", text)]) != []


def test_rules_of_names_and_circles_can_fail() -> None:
    assert list(old_names(["thetahat.fleet.spool", "thetahat.model.robot"])) != []
    assert list(repeated_names(["thetahat.data.log", "thetahat.online.log"])) != []
    assert list(repeated_names(["thetahat.cli.design", "thetahat.excite.design"])) == []
    a = Module("thetahat.data.log", "import thetahat.data.scan")
    b = Module("thetahat.data.scan", "import thetahat.data.log")
    assert list(circles([a, b])) != []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (private_access, "class A:\n    def f(self, other):\n        return self._x + other._x"),
        (private_access, "def f(pair):\n    return pair._replace(a=1)"),
        (long_functions, LONG.removesuffix("    pass\n")),
        (wide_constructors, WIDE.replace(", i)", ")")),
        (upward_imports, "from thetahat.errors import UsageError"),
        (upward_imports, "from thetahat import __version__"),
    ],
)
def test_a_rule_lets_the_rest_pass(rule: Rule, text: str) -> None:
    assert broken(rule, [Module("thetahat.model.a", text)]) == []


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
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()
    assert loaded == []
