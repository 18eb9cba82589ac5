"""One 5 s log of a 4-joint arm, identified here and by mujoco.sysid: time, error, and what each
says of its uncertainty.

MuJoCo simulates the arm under position control (Runge–Kutta, as a real arm has no time step), and
q, q̇ and the motors' torques are logged at 1 kHz with noise. Both estimate the same 40 inertial
parameters from the same arrays. mujoco.sysid is called as its documentation calls it
(pseudo-inertia parameters, default bounds and optimiser, the log's references as controls), from
masses a fifth too large, and is told what it could not know of a real arm: the exact initial state,
servo gains and references. It rolls out by Euler's method, with which it is fastest, and by
Runge–Kutta, with which its model is exact. Here the arrays are low-passed, differentiated, folded
and solved. Compiling is not timed.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

import thetahat as th
from benchmarks.timing import best
from thetahat import robots
from thetahat.data.filters import edge_rows, method_of, smooth
from thetahat.data.samples import EDGE, Samples
from thetahat.identification.estimate import Estimate
from thetahat.identification.identifiability.naming import combination

DURATION, PERIOD = 5.0, 1e-3  # [s]
CUTOFF = 20.0  # [Hz]
STIFFNESS = {
    "shoulder_pitch": 300.0,
    "shoulder_roll": 300.0,
    "arm_yaw": 60.0,
    "elbow": 60.0,
}  # [N·m/rad] of the servos; a thirtieth damps
POSITION, VELOCITY, TORQUE = 1e-5, 1e-3, 0.05  # noise of the sensors [rad], [rad/s], [N·m]
WRONG = 1.2  # factor on every mass at their start
STATES = 1000  # random ones, at which the identified arms are compared with the true one


def arm_spec(integrator: str):
    """arm4 as a MuJoCo model in memory: no friction, position servos, sensors of position, velocity
    and torque.
    """
    import mujoco

    spec = mujoco.MjSpec.from_file(str(robots.path("arm4")))
    spec.option.timestep, spec.option.integrator = PERIOD, getattr(mujoco.mjtIntegrator, integrator)
    spec.option.disableflags |= (
        mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    )
    for joint in spec.joints:
        joint.damping, joint.frictionloss = np.zeros_like(joint.damping), 0.0
        servo = spec.add_actuator(
            name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT
        )
        servo.set_to_position(kp=STIFFNESS[joint.name], kv=STIFFNESS[joint.name] / 30.0)
    for what, kind in (("q", "JOINTPOS"), ("dq", "JOINTVEL"), ("tau", "JOINTACTFRC")):
        for joint in spec.joints:
            sensor = spec.add_sensor(
                name=f"{what}.{joint.name}",
                objname=joint.name,
                type=getattr(mujoco.mjtSensor, f"mjSENS_{kind}"),
            )
            sensor.objtype = mujoco.mjtObj.mjOBJ_JOINT
    spec.compile()
    return mujoco.MjSpec.from_string(spec.to_xml())


def references(t: np.ndarray) -> np.ndarray:
    """Three sines per joint, (samples, 4), from rest."""
    rng = np.random.default_rng(3)
    frequencies, phases = rng.uniform(0.3, 1.6, (3, 4)), rng.uniform(0.0, 2.0 * np.pi, (3, 4))
    sines = sum(
        np.sin(2.0 * np.pi * f * t[:, None] + p) for f, p in zip(frequencies, phases, strict=True)
    )
    return np.minimum(t / 0.5, 1.0)[:, None] ** 2 * sines * [0.5, 0.35, 0.5, 0.4]


def record(spec) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(initial state, times and values of the references, times and values of the sensors) of one
    log.
    """
    import mujoco
    from mujoco import rollout

    model = spec.compile()
    data = mujoco.MjData(model)
    t = np.arange(round(DURATION / PERIOD)) * PERIOD
    wanted = references(t)
    initial = np.concatenate([[0.0], data.qpos, data.qvel])
    state, sensors = rollout.rollout(model, data, initial[None], wanted[None, :-1])
    noise = np.random.default_rng(0).normal(size=sensors[0].shape) * np.repeat(
        [POSITION, VELOCITY, TORQUE], 4
    )
    return initial, t, wanted, state[0, :, 0], sensors[0] + noise


def ours(robot: th.Robot, sensors: np.ndarray, *, correlated: bool = True) -> Estimate:
    """Arrays → low-passed samples → information → physically consistent estimate with standard
    deviations.
    """
    q, dq, tau = sensors[:, :4], sensors[:, 4:8], sensors[:, 8:]
    method = method_of("butterworth", CUTOFF)
    future, past = edge_rows(method, PERIOD)
    reason = np.full(tau.shape, EDGE, dtype=np.uint8)
    reason[past : len(reason) - future] = 0
    filtered = partial(smooth, period=PERIOD, method=method)
    arrays = {
        "q": filtered(q),
        "dq": filtered(dq),
        "ddq": filtered(dq, derivative=1),
        "tau": filtered(tau),
    }
    samples = Samples(**arrays, reason=reason, period=PERIOD, cutoff=CUTOFF)
    return th.solve(th.information(robot, samples), samples=samples if correlated else None)


def theirs(spec, initial, t, wanted, times, sensors) -> tuple[float, np.ndarray, np.ndarray]:
    """(seconds, θ found, half-widths of the 40 intervals) by mujoco.sysid; the spec is changed."""
    from mujoco import sysid

    names = [body.name for body in spec.bodies[1:]]
    for name in names:
        spec.body(name).mass *= WRONG
    model, parameters = spec.compile(), sysid.ParameterDict()
    for name in names:
        parameters.add(
            sysid.body_inertia_param(
                spec,
                model,
                name,
                inertia_type=sysid.InertiaType.Pseudo,
                modifier=partial(_modified, name),
            )
        )
    log = sysid.TimeSeries.from_names(times, sensors, model)
    sequences = sysid.ModelSequences("arm4", spec, "log", initial, sysid.TimeSeries(t, wanted), log)
    residual = sysid.build_residual_fn(models_sequences=[sequences])
    start = time.perf_counter()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        np.errstate(all="ignore"),
    ):  # it prints every iteration
        found, result = sysid.optimize(
            initial_params=parameters, residual_fn=residual, verbose=False
        )
        _, intervals = sysid.calculate_intervals(residual(found.as_vector(), found)[0], result.jac)
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.xml"
        sysid.apply_param_modifiers_spec(found, spec).compile()
        path.write_text(spec.to_xml(), encoding="utf-8")
        return seconds, th.load(path).theta, np.asarray(intervals)


def _modified(body: str, spec, parameter) -> None:
    """Their modifier. MuJoCo 4.0 refuses the NaN it leaves as orientation beside a full inertia,
    even on the arm of its own tests.
    """
    from mujoco import sysid

    sysid.apply_body_inertia(spec, body, parameter)
    spec.body(body).iquat[:] = [1.0, 0.0, 0.0, 0.0]


def missing() -> str | None:
    """Why mujoco.sysid cannot be called, or None."""
    try:
        import mujoco
        from mujoco import sysid
    except ImportError as error:
        return f"{error}; it came with MuJoCo 3.5: pip install 'mujoco[sysid]'"
    return (
        None
        if hasattr(sysid, "optimize")
        else (
            f"MuJoCo {mujoco.__version__} is installed without its extra: pip install"
            " 'mujoco[sysid]'"
        )
    )


def unseen(robot: th.Robot) -> list[str]:
    """The changes of parameters that no torque of any motion shows, from the robot alone."""
    base = th.base_parameters(robot)
    lines = []
    for direction in base.nullspace.T:
        there = np.flatnonzero(np.abs(direction) > 1e-9)
        first = np.setdiff1d(there, base.independent)
        order = [*first, *(k for k in there if k not in first)]
        lines.append(combination(direction[order], [base.column_names[k] for k in order]))
    return lines


def torque_error(robot: th.Robot, theta: np.ndarray) -> float:
    """RMS of the torque that θ predicts wrongly at other states, relative to the torque."""
    rng = np.random.default_rng(1)
    states = (
        th.random_configuration(robot, rng, STATES),
        rng.normal(size=(STATES, 4)),
        3.0 * rng.normal(size=(STATES, 4)),
    )
    true = th.inverse_dynamics(robot, *states, rigid=True)
    return float(
        np.linalg.norm(th.inverse_dynamics(robot, *states, rigid=True, theta=theta) - true)
        / np.linalg.norm(true)
    )


def main() -> None:
    try:
        spec = arm_spec("mjINT_RK4")
    except ImportError as error:
        raise SystemExit(
            f"the log is simulated with MuJoCo: {error}; pip install 'mujoco[sysid]'"
        ) from None
    log, robot = record(spec), th.load(robots.path("arm4")).without_drive()
    ours(robot, log[-1])  # kernels compiled
    fresh = th.load(robots.path("arm4")).without_drive()
    start = time.perf_counter()
    lines = unseen(fresh)
    found_in = time.perf_counter() - start
    columns, seen = len(fresh.theta), len(th.base_parameters(fresh))
    print(
        f"\n{DURATION:.0f} s of a 4-joint arm at {1.0 / PERIOD:.0f} Hz, {columns} inertial"
        " parameters\n"
    )
    print(
        f"before any data, in {1e3 * found_in:.1f} ms: {seen} combinations can show, and"
        f" {len(lines)} changes never do, each by itself invisible:"
    )
    print("   " + "\n   ".join(lines) + "\n")
    estimate = ours(robot, log[-1])
    seconds, plain = (
        best(lambda correlated=correlated: ours(robot, log[-1], correlated=correlated))
        for correlated in (True, False)
    )
    finite = int(np.sum(np.isfinite(np.diag(estimate.covariance))))
    print(
        f"{'thetahat':13} {1e3 * seconds:10.1f} ms (may take 50; {1e3 * plain:.1f} with rows taken"
        " as independent), ",
        end="",
    )
    print(f"{finite} of {seen} intervals finite, ", end="")
    print(f"torques at other states wrong by {100.0 * torque_error(robot, estimate.theta):.2f} %")
    reason = missing()
    if reason:
        print(f"{'mujoco.sysid':13} not measured: {reason}")
        return
    for name, integrator in (("Euler", "mjINT_EULER"), ("Runge–Kutta", "mjINT_RK4")):
        peer, theta, intervals = theirs(arm_spec(integrator), *log)
        known = int(np.sum(np.isfinite(intervals)))
        print(
            f"{'mujoco.sysid':13} {1e3 * peer:10.1f} ms ({name}: {peer / seconds:.0f}×), {known} of"
            f" {len(intervals)} intervals finite, ",
            end="",
        )
        print(f"torques at other states wrong by {100.0 * torque_error(robot, theta):.2f} %")


if __name__ == "__main__":
    main()
