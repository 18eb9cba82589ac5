"""The self-test of generated code: states and results of the Python library, in C."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from thetahat.dynamics import configuration, rigid_body
from thetahat.export.codegen.c_functions import TRANSITION
from thetahat.model.friction_terms import FrictionDirection
from thetahat.model.robot import Robot

if TYPE_CHECKING:
    from thetahat.export.codegen.c_sources import RobotCode

STATES = 4
TOLERANCE = {False: 1e-10, True: 1e-4}  # of the largest entry: double, float
GAINS = (100.0, 20.0)  # kp [1/s²], kd [1/s] of the computed torque


def probe(columns: int) -> np.ndarray:
    """Weights that turn a matrix into a vector: 1 + k mod 7, exact in C and Python alike."""
    return 1.0 + np.arange(columns) % 7


def expected(robot: Robot, name: str, q: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Compute what a function gives for (q, rates), matrices times `probe`; rates: dq, ddq, dq_d,
    ddq_d and tau, each (nv,).
    """
    dq, ddq, dq_d, ddq_d, tau = rates
    match name:
        case "inverse_dynamics":
            return rigid_body.inverse_dynamics(robot, q, dq, ddq)
        case "gravity":
            return rigid_body.gravity(robot, q)
        case "mass_matrix":
            return np.asarray(rigid_body.mass_matrix(robot, q) @ probe(robot.nv))
        case "regressor":
            return np.asarray(rigid_body.regressor(robot, q, dq, ddq) @ probe(len(robot.theta)))
        case "base_regressor":
            Y = base_regressor(robot, q, dq, ddq)
            return np.asarray(Y @ probe(Y.shape[-1]))
        case "forward_dynamics":
            return rigid_body.forward_dynamics(robot, q, dq, tau)
        case _:
            return computed_torque(robot, q, dq, (0.9 * q, dq_d, ddq_d))


def base_regressor(robot: Robot, q: np.ndarray, dq: np.ndarray, ddq: np.ndarray) -> np.ndarray:
    """Compute the columns of base parameters, drive included."""
    Y = rigid_body.regressor(robot, q, dq, ddq)
    load = rigid_body.inverse_dynamics(robot, q, dq, ddq, rigid=True)
    columns = robot.drive.columns(dq, ddq, q=q, load=load)
    whole: np.ndarray = np.concatenate([Y, columns], axis=-1)
    return whole[..., robot.base_parameters.strong.independent]


def computed_torque(
    robot: Robot, q: np.ndarray, dq: np.ndarray, wanted: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> np.ndarray:
    """Compute computed torque with `GAINS`, friction by the wanted speed."""
    q_d, dq_d, ddq_d = wanted
    command = ddq_d + GAINS[0] * (q_d - q) + GAINS[1] * (dq_d - dq)
    load = rigid_body.inverse_dynamics(robot, q, dq, command, rigid=True)
    drive = robot.drive
    if drive.dry is None or drive.simple:
        zone = np.full(len(drive.viscous), TRANSITION)
        drive = drive.with_dry(FrictionDirection(zone, np.zeros_like(zone)))
    return np.asarray(load + drive.torque(dq_d, command, q=q, load=load))


def self_test(code: RobotCode) -> str:
    """Return self_test.c."""
    robot, name = code.robot, code.prefix
    rng = np.random.default_rng(0)
    q = configuration.random_configuration(robot, rng, STATES)
    rates = rng.normal(size=(STATES, 5, robot.nv))
    tables = [_table("q", q)]
    tables += [
        _table(what, rates[:, k]) for k, what in enumerate(("dq", "ddq", "dq_d", "ddq_d", "tau"))
    ]
    checks = []
    for function in code.functions:
        values = [expected(robot, function.name, q[s], rates[s]) for s in range(STATES)]
        tables.append(_table(f"want_{function.name}", np.array(values)))
        checks.append(_CHECKS[function.name])
    used = "\n".join(checks)
    text = _FILE.replace("@tables@", "\n".join(t for t in tables if _name(t) in used))
    text = text.replace("@checks@", used).replace("@states@", str(STATES))
    numbers = {"@tolerance@": TOLERANCE[code.single], "@kp@": GAINS[0], "@kd@": GAINS[1]}
    for key, value in numbers.items():
        text = text.replace(key, repr(value))
    return text.replace("@name@", name).replace("@NAME@", name.upper())


def _table(name: str, values: np.ndarray) -> str:
    rows = ",\n".join("    {" + ", ".join(repr(float(v)) for v in row) + "}" for row in values)
    return f"static const double {name}[{len(values)}][{values.shape[1]}] = {{\n{rows}\n}};\n"


def _name(table: str) -> str:
    return table.split("[")[0].split()[-1]


_STATE = "take(q[s], x, @NAME@_NQ); take(dq[s], v, @NAME@_NV);"
_ACCELERATED = f"{_STATE} take(ddq[s], a, @NAME@_NV);"
_CHECKS = {
    "inverse_dynamics": f"""\
    {_ACCELERATED}
    @name@_inverse_dynamics(p, x, v, a, out);
    worst = compare("inverse dynamics", want_inverse_dynamics[s], out, worst);""",
    "gravity": """\
    take(q[s], x, @NAME@_NQ);
    @name@_gravity(p, x, out);
    worst = compare("gravity", want_gravity[s], out, worst);""",
    "mass_matrix": """\
    take(q[s], x, @NAME@_NQ);
    @name@_mass_matrix_init(matrix);
    @name@_mass_matrix(p, x, matrix);
    probe(matrix, @NAME@_NV, out);
    worst = compare("mass matrix", want_mass_matrix[s], out, worst);""",
    "regressor": f"""\
    {_ACCELERATED}
    @name@_regressor_init(matrix);
    @name@_regressor(x, v, a, matrix);
    probe(matrix, @NAME@_COLUMNS, out);
    worst = compare("regressor", want_regressor[s], out, worst);""",
    "base_regressor": f"""\
    {_ACCELERATED}
    @name@_base_regressor_init(matrix);
    @name@_base_regressor(p, x, v, a, matrix);
    probe(matrix, @NAME@_BASE, out);
    worst = compare("base regressor", want_base_regressor[s], out, worst);""",
    "forward_dynamics": f"""\
    {_STATE} take(tau[s], a, @NAME@_NV);
    if (@name@_forward_dynamics(p, x, v, a, out) != 0) {{
        printf("forward dynamics: the mass matrix is singular\\n");
        return 1;
    }}
    worst = compare("forward dynamics", want_forward_dynamics[s], out, worst);""",
    "computed_torque": f"""\
    {_STATE}
    take(q[s], x_d, @NAME@_NV); take(dq_d[s], v_d, @NAME@_NV); take(ddq_d[s], a, @NAME@_NV);
    for (k = 0; k < @NAME@_NV; k++) {{
        x_d[k] = (real)(0.9 * q[s][k]);
        kp[k] = (real)@kp@;
        kd[k] = (real)@kd@;
    }}
    @name@_computed_torque(p, x, v, x_d, v_d, a, kp, kd, out);
    worst = compare("computed torque", want_computed_torque[s], out, worst);""",
}

_FILE = """\
/* Compares the generated code with values that the Python library computed; 0: all agree. */
#include "@name@.h"

#include <math.h>
#include <stdio.h>

#define TOLERANCE @tolerance@ /* of the largest entry */

typedef @name@_real real;

@tables@
static void take(const double *from, real *to, int count)
{
    int k;
    for (k = 0; k < count; k++) to[k] = (real)from[k];
}

/* rows of a matrix against 1, 2, ..., 7, 1, 2, ... */
static void probe(const real *matrix, int columns, real *out)
{
    int i, k;
    for (i = 0; i < @NAME@_NV; i++) {
        double sum = 0;
        for (k = 0; k < columns; k++) sum += (double)matrix[i * columns + k] * (1 + k % 7);
        out[i] = (real)sum;
    }
}

static double compare(const char *what, const double *want, const real *got, double worst)
{
    double error = 0, largest = 0;
    int k;
    for (k = 0; k < @NAME@_NV; k++) {
        const double e = fabs((double)got[k] - want[k]);
        if (!(e <= error)) error = e; /* NaN, too */
        if (fabs(want[k]) > largest) largest = fabs(want[k]);
    }
    error = largest > 0 ? error / largest : error;
    if (!(error <= TOLERANCE)) printf("%s: relative error %.3g\\n", what, error);
    return error <= worst ? worst : error;
}

int main(void)
{
    const real *p = @name@_parameters;
    static real matrix[@NAME@_NV * (@NAME@_COLUMNS + @NAME@_NV + @NAME@_PARAMETERS)];
    real x[@NAME@_NQ], v[@NAME@_NV], a[@NAME@_NV], out[@NAME@_NV];
    real x_d[@NAME@_NV], v_d[@NAME@_NV], kp[@NAME@_NV], kd[@NAME@_NV];
    double worst = 0;
    int s, k;
    (void)x_d, (void)v_d, (void)kp, (void)kd, (void)k;
    for (s = 0; s < @states@; s++) {
@checks@
    }
    printf("worst relative error %.3g, allowed %.3g\\n", worst, (double)TOLERANCE);
    return !(worst <= TOLERANCE);
}
"""
