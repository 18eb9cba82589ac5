"""The online loop in worlds that nobody here built: arms from other people's packages, simulated by
MuJoCo from their own files, with planted mass and dry friction, and the same defaults for all.

    python -m benchmarks.worlds                     # every arm, every friction
    python -m benchmarks.worlds --arms ur5e,panda --friction 0.8 --verbose

The loop is the one of docs/how-to/online.md, as a user would write it. Every body is heavier than
its file says (×1.25), every joint has MuJoCo's dry friction (`frictionloss`: held by a band, not a
line), scaled to the joint. Each run says when the gate opened, how often it closed, what was
reported, and how far the tracking error fell against the controller with the file's model alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat.control.model_switch import ModelSwitch
from thetahat.model.lock_joints import lock
from thetahat.model.robot import Robot
from thetahat.plant.mujoco_engine import load_mujoco

PERIOD = 0.002  # [s] of the control loop
STEPS = 2  # of MuJoCo in a cycle
SECONDS = 60.0
LAST = 10.0  # [s] over which tracking is compared
SETTLE, SPAN, STRIDE = 3.0, 5.0, 0.25  # [s] after the switch; of a window; between windows
# of the file's model's error in the same window: where the gate closed again, both are the same
# controller and their errors differ by how they started
NO_WORSE = 1.01
HEAVIER = 1.25  # planted masses over the file's
FRICTIONS = (0.0, 0.05, 0.8)  # [N·m] of the strongest joint
ROBOSUITE = "robosuite/models/assets/robots/{}/robot.xml"


@dataclass(frozen=True)
class Arm:
    """An arm in somebody's package: its file, and how names of its joints begin ("" for all)."""

    name: str
    file: str  # below the folder that holds the packages
    joints: str = ""
    left_out: tuple[str, ...] = ()  # joints so named that are none of the arm's

    @property
    def path(self) -> Path | None:
        """The file, None where the package is not installed."""
        package, _, rest = self.file.partition("/")
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            return None
        return Path(next(iter(found.submodule_search_locations))) / rest


ARMS = (
    *(
        Arm(name, ROBOSUITE.format(name))
        for name in ("iiwa", "jaco", "kinova3", "panda", "sawyer", "ur5e", "xarm7")
    ),
    Arm("baxter", ROBOSUITE.format("baxter"), "right_"),
    Arm("tiago", ROBOSUITE.format("tiago"), "arm_right_"),
    Arm("spot_arm", ROBOSUITE.format("spot_arm")),
    Arm(
        "fetch",
        "gymnasium_robotics/envs/assets/fetch/reach.xml",
        "robot0:",
        tuple(
            f"robot0:{name}"
            for name in (
                "slide0",
                "slide1",
                "slide2",
                "torso_lift_joint",
                "head_pan_joint",
                "head_tilt_joint",
                "r_gripper_finger_joint",
                "l_gripper_finger_joint",
            )
        ),
    ),
    Arm("dm_jaco", "dm_control/third_party/kinova/jaco_arm.xml"),
)


def load_arm(arm: Arm) -> Robot:
    """The arm as its file says, all other joints locked."""
    whole = th.load(str(arm.path))
    own = [n for n in whole.joint_names if n.startswith(arm.joints) and n not in arm.left_out]
    return lock(whole, [name for name in whole.joint_names if name not in own])


class World:
    """MuJoCo on the package's own file: heavier, with dry friction, without contacts."""

    def __init__(self, arm: Arm, robot: Robot, friction: np.ndarray, heavier: float) -> None:
        mujoco = self._mujoco = load_mujoco()
        spec = mujoco.MjSpec.from_file(str(arm.path))
        for actuator in list(spec.actuators):
            spec.delete(actuator)
        for equality in list(spec.equalities):
            spec.delete(equality)
        for joint in list(spec.joints):
            if joint.name not in robot.joint_names:
                spec.delete(joint)
        flags = mujoco.mjtDisableBit
        spec.option.disableflags |= flags.mjDSBL_CONTACT | flags.mjDSBL_LIMIT
        spec.option.timestep = PERIOD / STEPS
        spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.model = model = spec.compile()
        model.body_mass *= heavier
        model.body_inertia *= heavier
        self.data = mujoco.MjData(model)
        addresses = [model.joint(name).qposadr[0] for name in robot.joint_names]
        self.places = (
            np.array(addresses),
            np.array([model.joint(name).dofadr[0] for name in robot.joint_names]),
        )
        model.dof_frictionloss[:] = 0.0
        model.dof_frictionloss[self.places[1]] = friction
        mujoco.mj_setConst(model, self.data)

    def reset(self, q: np.ndarray) -> None:
        self._mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[self.places[0]] = q
        self._mujoco.mj_forward(self.model, self.data)

    def read(self) -> tuple[float, np.ndarray, np.ndarray]:
        data = self.data
        return data.time, data.qpos[self.places[0]].copy(), data.qvel[self.places[1]].copy()

    def write(self, tau: np.ndarray) -> None:
        self.data.qfrc_applied[self.places[1]] = tau
        for _ in range(STEPS):
            self._mujoco.mj_step(self.model, self.data)


def motion(robot: Robot, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sines of every joint about the middle of its range, from rest: (q, dq, ddq) of every
    cycle.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, SECONDS + PERIOD, PERIOD)
    nodes = robot.tree.independent
    low = np.array([max(node.limits.lower, -np.pi) for node in nodes])
    high = np.array([min(node.limits.upper, np.pi) for node in nodes])
    middle, room = 0.5 * (low + high), 0.5 * (high - low)
    amplitude = np.minimum(0.5, 0.4 * room)
    frequency = rng.uniform(0.1, 0.3, robot.nv)
    w = 2.0 * np.pi * frequency
    # a phase that starts with no speed: φ(t) = w (t − (1 − e^{−t}))
    phase = np.outer(t - (1.0 - np.exp(-t)), w)
    rate = np.outer(1.0 - np.exp(-t), w)
    change = np.outer(np.exp(-t), w)
    sine, cosine = np.sin(phase), np.cos(phase)
    q = middle + amplitude * sine
    return q, amplitude * cosine * rate, amplitude * (cosine * change - sine * rate**2)


def joint_shares(robot: Robot, goals: tuple[np.ndarray, ...]) -> np.ndarray:
    """(nv,) strength of every joint against the strongest, from the torque that its file's model
    needs along the motion; a tenth at least.
    """
    q, dq, ddq = (each[::50] for each in goals)
    rms = np.sqrt(np.mean(th.inverse_dynamics(robot, q, dq, ddq) ** 2, axis=0))
    return np.maximum(rms / rms.max(), 0.1)


@dataclass
class Outcome:
    """What a run came to."""

    arm: str
    friction: float
    opened: float | None = None  # [s]
    closings: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    nominal: float = 0.0  # [rad] RMS of the tracking error over the last seconds, file's model
    identified: float = 0.0  # the same with the gate's model
    per_joint: list[float] = field(default_factory=list)  # ratio of both
    # worst RMS error of any SPAN seconds after the switch, over the file's model's in the same ones
    worst: float = 0.0
    worst_at: float = 0.0  # [s] where that window begins
    reason: str = ""  # of the gate at the end
    seconds: float = 0.0  # of the run

    @property
    def ratio(self) -> float:
        return self.identified / self.nominal

    @property
    def good(self) -> bool:
        return (
            self.opened is not None
            and self.opened <= 40.0
            and len(self.closings) <= 1
            and not self.alarms
            and self.ratio <= 0.3
            and self.worst <= NO_WORSE
        )


def run(
    arm: Arm,
    friction: float,
    *,
    heavier: float = HEAVIER,
    uniform: bool = False,
    seed: int = 0,
    verbose: bool = False,
) -> Outcome:
    """The loop of the documentation, and the same with the file's model alone."""
    begin = time.perf_counter()
    robot = load_arm(arm)
    goals = motion(robot, seed)
    dry = friction * (np.ones(robot.nv) if uniform else joint_shares(robot, goals))
    world = World(arm, robot, dry, heavier)
    outcome = Outcome(arm.name, friction)
    nominal = track(world, goals, lambda t, q, dq, goal, tau: None, th.ComputedTorque(robot))
    identifier = th.OnlineIdentifier(robot.with_drive(viscous=True, coulomb=True, offset=True))
    controller = ModelSwitch(identifier, lambda model: th.ComputedTorque(model))
    state = {"open": False}

    def push(t: float, q: np.ndarray, dq: np.ndarray, goal: object, tau: np.ndarray) -> None:
        verdict = identifier.push(t, q, dq, tau)
        for event in verdict.events:
            if event.kind == "alarm":
                outcome.alarms.append(event.sentence)
            if verbose and event.kind != "spike":
                print(f"   {event.t:7.2f} {event.kind}: {event.sentence}", flush=True)
        if verdict.gate.open and outcome.opened is None:
            outcome.opened = t
        if state["open"] and not verdict.gate.open:
            outcome.closings.append(f"{t:.2f} s: {verdict.gate.reason}")
        state["open"] = verdict.gate.open

    identified = track(world, goals, push, controller)
    last = int(LAST / PERIOD)
    both = [np.sqrt(np.mean(each[-last:] ** 2, axis=0)) for each in (nominal, identified)]
    outcome.nominal, outcome.identified = (float(np.sqrt(np.mean(each**2))) for each in both)
    outcome.per_joint = [round(float(b / a), 3) for a, b in zip(*both, strict=True)]
    if outcome.opened is not None:
        outcome.worst, outcome.worst_at = worst_window(nominal, identified, outcome.opened)
    outcome.reason = identifier.gate.reason
    outcome.seconds = time.perf_counter() - begin
    identifier.close()
    return outcome


def worst_window(nominal: np.ndarray, identified: np.ndarray, opened: float) -> tuple[float, float]:
    """The largest ratio of both RMS errors over any SPAN seconds, SETTLE seconds after the gate
    opened or later, and where that window begins [s].
    """
    squares = np.cumsum([np.mean(each**2, axis=1) for each in (nominal, identified)], axis=1)
    span, first = round(SPAN / PERIOD), round((opened + SETTLE) / PERIOD)
    starts = np.arange(first, len(nominal) - span, round(STRIDE / PERIOD))
    if not len(starts):
        return 0.0, 0.0
    file, own = squares[:, starts + span] - squares[:, starts]
    at = int(np.argmax(own / file))
    return float(np.sqrt(own[at] / file[at])), float(starts[at] * PERIOD)


def track(world: World, goals: tuple[np.ndarray, ...], push, controller) -> np.ndarray:
    """Follow the motion; return the errors, (cycles, nv)."""
    q_d, dq_d, ddq_d = goals
    world.reset(q_d[0])
    tau, errors = np.zeros(q_d.shape[1]), []
    for k in range(len(q_d)):
        t, q, dq = world.read()
        goal = q_d[k], dq_d[k], ddq_d[k]
        push(t, q, dq, goal, tau)
        tau = np.array(controller(t, q, dq, goal))
        world.write(tau)
        errors.append(goal[0] - q)
    return np.array(errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--arms", default=",".join(arm.name for arm in ARMS))
    parser.add_argument("--friction", default=",".join(f"{f:g}" for f in FRICTIONS))
    parser.add_argument("--seed", type=int, default=0, help="of the motion")
    parser.add_argument("--uniform", action="store_true", help="the same friction in every joint")
    parser.add_argument("--out", type=Path, default=None, help="JSON of all outcomes")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    chosen = [arm for arm in ARMS if arm.name in given.arms.split(",")]
    outcomes = []
    for arm in chosen:
        if arm.path is None:
            print(f"{arm.name}: its package is not installed; pip install 'thetahat[worlds]'")
            continue
        for friction in (float(text) for text in given.friction.split(",")):
            outcome = run(
                arm, friction, uniform=given.uniform, seed=given.seed, verbose=given.verbose
            )
            outcomes.append(outcome)
            opened = "never" if outcome.opened is None else f"{outcome.opened:.1f} s"
            print(
                f"{arm.name:9} {friction:4g}  {'good' if outcome.good else 'BAD ':4}  open {opened:>7}"
                f"  closings {len(outcome.closings)}  alarms {len(outcome.alarms)}"
                f"  {1e3 * outcome.nominal:7.2f} → {1e3 * outcome.identified:7.2f} mrad"
                f" ({outcome.ratio:.2f})  worst {SPAN:g} s {outcome.worst:.2f}"
                f"  {outcome.seconds:.0f} s",
                flush=True,
            )
            if not outcome.good:
                print(
                    "      ",
                    outcome.per_joint,
                    outcome.reason,
                    *outcome.closings[:3],
                    sep="\n       ",
                )
    good = sum(outcome.good for outcome in outcomes)
    print(f"{good} of {len(outcomes)} good")
    if given.out:
        given.out.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))


if __name__ == "__main__":
    main()
