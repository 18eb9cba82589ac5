"""Generated C beside Pinocchio's C++ in one program, and `robot.compiled()` beside Pinocchio from
Python: time per call on one core, as ratios of one run.

Needs a C and a C++ compiler, and the headers of Eigen (extra `cpp`: cmeel-eigen); Pinocchio is the
library of its wheel. Times are of the processor, best of many rounds taken in turn.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.robots import EXAMPLES, Pair, example_folder, pair, valkyrie
from thetahat.export.codegen.c_sources import RobotCode

ROUNDS = 60
NATIVE = ("-O3", "-march=native", "-ffp-contract=fast")
PREFIX = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix"
LIMITS = {"inverse dynamics": 0.2, "regressor": 0.5}  # [µs] for 7 joints
BOOST = (
    "-DBOOST_MPL_LIMIT_LIST_SIZE=30",
    "-DBOOST_MPL_LIMIT_VECTOR_SIZE=30",
    "-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS",
    "-DBOOST_FUSION_INVOKE_MAX_ARITY=10",
)
LEAST_RATIO = 3.0  # Pinocchio's time over ours, 7 and 44 joints

PROGRAM = r"""
#define PINOCCHIO_ENABLE_TEMPLATE_INSTANTIATION
#include <pinocchio/fwd.hpp>
#include <pinocchio/parsers/urdf.hpp>
#include <pinocchio/algorithm/rnea.hpp>
#include <pinocchio/algorithm/crba.hpp>
#include <pinocchio/algorithm/regressor.hpp>
#include <dlfcn.h>
#include <time.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
using namespace pinocchio;
typedef const double * In;
static double now() {
  timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec + 1e-9 * t.tv_nsec;
}
template <class F> static double one(int n, F f) {
  const double start = now();
  for (int k = 0; k < n; ++k) f(k & 15);
  return (now() - start) / n;
}
// robot.urdf robot.so rounds columns order...
int main(int, char ** argv) {
  Model model; pinocchio::urdf::buildModel(argv[1], model); Data data(model);
  const int n = model.nv, rounds = atoi(argv[3]), columns = atoi(argv[4]);
  void * code = dlopen(argv[2], RTLD_NOW);
  if (!code) { std::fprintf(stderr, "%s", dlerror()); return 1; }
  In p = (In)dlsym(code, "robot_parameters");
  auto id = (void (*)(In, In, In, In, double *))dlsym(code, "robot_inverse_dynamics");
  auto reg = (void (*)(In, In, In, double *))dlsym(code, "robot_regressor");
  auto mass = (void (*)(In, In, double *))dlsym(code, "robot_mass_matrix");
  std::vector<Eigen::VectorXd> q, v, a, x, y, z;
  srand(1);
  for (int s = 0; s < 16; ++s) {
    q.push_back(Eigen::VectorXd::Random(n)); v.push_back(Eigen::VectorXd::Random(n));
    a.push_back(Eigen::VectorXd::Random(n));
    Eigen::VectorXd X(n), Y(n), Z(n);
    for (int k = 0; k < n; ++k) {
      const int at = atoi(argv[5 + k]);
      X[at] = q[s][k]; Y[at] = v[s][k]; Z[at] = a[s][k];
    }
    x.push_back(X); y.push_back(Y); z.push_back(Z);
  }
  std::vector<double> tau(n), D(n * n, 0.0), R(n * columns, 0.0);
  double error = 0, sum = 0;
  rnea(model, data, q[0], v[0], a[0]);
  id(p, x[0].data(), y[0].data(), z[0].data(), tau.data());
  for (int k = 0; k < n; ++k) error = std::max(error, std::abs(data.tau[k] - tau[atoi(argv[5 + k])]));
  double best[6] = {1, 1, 1, 1, 1, 1};
  const int m = 10000 / n;
  for (int round = 0; round < rounds; ++round) {
    const double t[6] = {
      one(m, [&](int s) { sum += rnea(model, data, q[s], v[s], a[s])[0]; }),
      one(m, [&](int s) { id(p, x[s].data(), y[s].data(), z[s].data(), tau.data()); }),
      one(m, [&](int s) { sum += computeJointTorqueRegressor(model, data, q[s], v[s], a[s])(0, 0); }),
      one(m, [&](int s) { reg(x[s].data(), y[s].data(), z[s].data(), R.data()); }),
      one(m, [&](int s) { sum += crba(model, data, q[s])(0, 0); }),
      one(m, [&](int s) { mass(p, x[s].data(), D.data()); }),
    };
    for (int k = 0; k < 6; ++k) best[k] = std::min(best[k], t[k]);
  }
  std::printf("{\"error\": %g, \"sum\": %g, \"seconds\": [%g, %g, %g, %g, %g, %g]}", error,
              sum + tau[0] + R[0] + D[0], best[0], best[1], best[2], best[3], best[4], best[5]);
}
"""
WHAT = ("inverse dynamics", "regressor", "mass matrix")


def arms() -> dict[str, Path]:
    """Robots by name: 6, 7, 9 and 44 joints."""
    folder = example_folder()
    return {
        "UR5": folder / EXAMPLES["UR5"],
        "xArm7": folder / "xarm_description" / "urdf" / "xarm7.urdf",
        "Panda": folder / EXAMPLES["Panda"],
        "TALOS": folder / EXAMPLES["TALOS"],
        "Valkyrie": valkyrie(),
    }


def _run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr[-2000:]}")
    return done.stdout


def cpp_program() -> Path:
    """The program with Pinocchio's C++, built once into build/."""
    folder = Path("build") / "generated_code"
    program = folder / "beside_pinocchio"
    source = folder / "beside_pinocchio.cpp"
    if program.is_file() and source.read_text() == PROGRAM:
        return program
    folder.mkdir(parents=True, exist_ok=True)
    source.write_text(PROGRAM)
    libraries = ("pinocchio_default", "pinocchio_parsers", "urdfdom_model")
    _run(
        *("g++", "-std=c++17", "-O3", "-DNDEBUG", *BOOST, source, "-o", program),
        *(f"-I{PREFIX / 'include' / name}" for name in ("", "eigen3", "urdfdom_headers")),
        *(f"-L{PREFIX / 'lib'}", f"-Wl,-rpath,{PREFIX / 'lib'}", "-ldl"),
        *(f"-l{name}" for name in libraries),
    )
    return program


def against_cpp(p: Pair, path: Path, flags: tuple[str, ...]) -> dict[str, object]:
    """Microseconds per call of Pinocchio's C++ and of the generated C, and the C compiler's work."""
    program = cpp_program()
    code = RobotCode(p.robot.without_drive(), base=False, name="robot")
    names = list(p.model.names)[1:]  # type: ignore[attr-defined]
    order = [p.robot.joint_names.index(name) for name in names]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "robot.h").write_text(code.header())
        (folder / "robot.c").write_text(code.source())
        free = folder / "robot.urdf"
        free.write_text(re.sub(r"<mimic[^>]*/>", "", path.read_text(encoding="utf-8")))
        library, start = folder / "robot.so", _children()
        _run(
            "gcc", "-std=c99", *flags, "-shared", "-fPIC", folder / "robot.c", "-o", library, "-lm"
        )
        compiled = _children() - start
        found = json.loads(
            _run(program, free, library, ROUNDS, len(p.robot.theta), *map(str, order))
        )
        size = library.stat().st_size
    if not found["error"] < 1e-10:
        raise SystemExit(f"{p.name}: C and Pinocchio differ by {found['error']}")
    t = [1e6 * seconds for seconds in found["seconds"]]
    return {
        "joints": p.robot.nv,
        "compile_s": compiled,
        "object_bytes": size,
        **{
            what: {
                "pinocchio_us": t[2 * k],
                "ours_us": t[2 * k + 1],
                "ratio": t[2 * k] / t[2 * k + 1],
            }
            for k, what in enumerate(WHAT)
        },
    }


def _children() -> float:
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def from_python(p: Pair) -> dict[str, object]:
    """The same of one call from Python: Pinocchio and `robot.compiled()`."""
    import pinocchio as pin

    compiled = p.robot.without_drive().compiled()
    state, peer = [s[0] for s in p.states], [s[0] for s in p.peer_states]
    calls = {
        "inverse dynamics": (
            lambda: pin.rnea(p.model, p.data, *peer),
            lambda: compiled.inverse_dynamics(*state),
        ),
        "regressor": (
            lambda: pin.computeJointTorqueRegressor(p.model, p.data, *peer),
            lambda: compiled.regressor(*state),
        ),
    }
    out: dict[str, object] = {"native": compiled.native}
    for what, (theirs, ours) in calls.items():
        best = [1.0, 1.0]
        for _ in range(ROUNDS):
            for k, call in enumerate((theirs, ours)):
                best[k] = min(best[k], _cpu(call))
        out[what] = {
            "pinocchio_us": 1e6 * best[0],
            "ours_us": 1e6 * best[1],
            "ratio": best[0] / best[1],
        }
    return out


def _cpu(call: Callable[[], object], loops: int = 100) -> float:
    start = time.process_time_ns()
    for _ in range(loops):
        call()
    return (time.process_time_ns() - start) * 1e-9 / loops


def measure(names: list[str]) -> dict[str, object]:
    """All robots."""
    if not shutil.which("g++") or not (PREFIX / "include" / "eigen3").is_dir():
        raise SystemExit("a C++ compiler and cmeel-eigen are needed: pip install '.[cpp]'")
    results: dict[str, object] = {}
    for name, path in arms().items():
        if names and name not in names:
            continue
        p = pair(name, path, 2)
        results[name] = {
            "c": against_cpp(p, path, NATIVE),
            "c_portable": against_cpp(p, path, ("-O3",)),
            "python": from_python(p),
        }
        print(name, json.dumps(results[name]), file=sys.stderr)
    return results


def draw(results: dict[str, object]) -> None:
    """Print a table."""
    print(
        f"\n{'robot':9} {'n':>3} {'build':12} {'what':17} {'Pinocchio':>10} {'ours':>8} {'ratio':>6}  µs per call"
    )
    for name, rows in results.items():
        joints = rows["c"]["joints"]  # type: ignore[index]
        for build, cells in rows.items():  # type: ignore[attr-defined]
            for what in WHAT:
                if what in cells:
                    c = cells[what]
                    print(
                        f"{name:9} {joints:3} {build:12} {what:17} {c['pinocchio_us']:10.3f}"
                        f" {c['ours_us']:8.3f} {c['ratio']:6.1f}"
                    )


if __name__ == "__main__":
    draw(measure(sys.argv[1:]))
