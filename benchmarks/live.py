"""The live page: frames per second, and what three readers cost the control loop, side by side in
one run, with and without them in turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.control.model_switch import ModelSwitch
from thetahat.excite.trajectories import Sinusoids
from thetahat.live.sample_sources import PlaybackClock, Step, Study
from thetahat.live.security import new_token
from thetahat.live.server import Server
from thetahat.live.session import Session
from thetahat.online.config import FilterConfig
from thetahat.plant.perturb import perturb
from thetahat.studies.closed_loop import ClosedLoop, Experiment

READERS = 3
PHASE, PHASES = (
    2.0,
    20,
)  # [s], with and without readers in turn: neighbours share what else the machine does
EDGE = 0.3  # [s] at a phase's begin that belong to connecting and leaving
TARGETS = {7: 30.0, 44: 10.0}  # frames per second, by joints
MORE = 1.10  # times the p99 without readers that it may be with them

# Readers in a process of their own, as browsers are. It is there all the time, and connects in
# every other phase; it says when, and how much it got.
CLIENT = """
import asyncio, json, sys, time
from websockets.asyncio.client import connect
async def read(address, seconds):
    count, end = 0, time.monotonic() + seconds
    async with connect(address, max_size=None, compression=None) as socket:
        while (left := end - time.monotonic()) > 0:
            try:
                message = await asyncio.wait_for(socket.recv(), left)
            except TimeoutError:
                break
            count += message.startswith('{"type":"frame"')
    return count
async def main(address, readers, seconds, phases, first):
    out = []
    for k in range(phases):
        begun, frames = time.perf_counter_ns(), []
        if (k + first) % 2:
            frames = await asyncio.gather(*(read(address, seconds) for _ in range(readers)))
        else:
            await asyncio.sleep(seconds)
        out.append({"begun": begun, "ended": time.perf_counter_ns(), "frames": frames})
    print(json.dumps(out))
asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:3]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])))
"""


CycleTimes = dict[
    bool, np.ndarray
]  # with readers or without: (cycles, 2), [µs] of processor time and on the wall


class Cost(NamedTuple):
    """A cycle of the loop with readers against without."""

    cpu: float  # p99 of its processor time, times that without
    wall: float  # p99 of its time on the wall, times that without
    wall_p50: float  # its median on the wall, times that without


class Timed(Study):
    """A study that notes, of every cycle, when it began and what it took, of its thread's processor
    time and on the wall.

    The cycle is all that a real robot's loop would do with a page: control, identification, and
    leaving what they brought for the page, which now and then is a parcel to another process. The
    simulation of the robot is not in it.
    """

    def __init__(self, made: Experiment, path: str) -> None:
        super().__init__("benchmark", made)
        self._path, self._notes, self._begun, self._wall = path, [], 0, 0
        inner, push, wall = made.controller, made.identifier.push, time.perf_counter_ns

        def control(*arguments: object) -> np.ndarray:
            self._begun = wall()
            u = inner(*arguments)
            self._wall = wall() - self._begun
            return u

        def identify(*arguments: object) -> bool:
            begun = wall()
            used = push(*arguments)
            self._wall += wall() - begun
            return used

        made.loop.controller, made.identifier.push = control, identify

    def steps(self, clock: PlaybackClock) -> Iterator[Step]:
        """As they are, noted."""
        cpu, wall = time.thread_time_ns, time.perf_counter_ns
        for cycle in super().steps(clock):
            cpu_before, before = cpu(), wall()
            yield cycle  # here the loop takes it
            after, cpu_after = wall(), cpu()
            self._notes.append(
                (self._begun, cycle.took + cpu_after - cpu_before, self._wall + after - before)
            )
        np.save(self._path, np.array(self._notes, dtype=np.int64))


def arm7(seconds: float) -> Experiment:
    """Seven joints at 1 kHz, with the gate and the switch."""
    nominal = th.load(robots.path("arm7"))
    truth = perturb(nominal, seed=0)
    identifier = th.OnlineIdentifier(
        nominal.with_drive(viscous=True, coulomb=True, offset=True),
        filter=FilterConfig(held_torque=True),
    )
    controller = ModelSwitch(identifier, lambda robot: th.ComputedTorque(robot, kp=400.0, kd=40.0))
    rng = np.random.default_rng(0)
    frequency = np.column_stack(
        [rng.permutation(np.linspace(0.15, 0.6, nominal.nv)) for _ in range(2)]
    )
    phase = rng.uniform(0.0, 2.0 * np.pi, (nominal.nv, 2))
    motion = Sinusoids(
        nominal.joint_names,
        seconds,
        np.zeros(nominal.nv),
        np.full((nominal.nv, 2), 0.3),
        frequency,
        phase,
        ramp=1.0,
    )
    plant = th.OwnPlant(truth, realism=th.Realism.typical(truth, seed=0))
    return Experiment(
        nominal,
        identifier.nominal,
        identifier,
        controller,
        ClosedLoop(plant, motion, controller, identifier, rate=1000.0),
    )


def read(address: str, seconds: float, *, phases: int = 1, first: int = 1) -> list[dict[str, Any]]:
    """Phases of readers, every other one with none; of each, when it was and the frames that each
    reader got.
    """
    command = [
        sys.executable,
        "-c",
        CLIENT,
        address,
        str(READERS),
        str(seconds),
        str(phases),
        str(first),
    ]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def timed(seconds: float, path: str) -> Timed:
    """Made in the process of the loop."""
    warnings.simplefilter("ignore")
    return Timed(arm7(seconds), path)


def rates() -> None:
    """Frames per second of seven and of 44 joints."""
    for joints, factory, arguments in (
        (7, Study, ("benchmark", arm7(60.0))),
        (44, Study.named, ("valkyrie", "own")),
    ):
        session = (
            Session(factory(*arguments)) if joints == 7 else Session.apart(factory, *arguments)
        )
        with Server(session, token=new_token()) as server, session:
            time.sleep(1.0)
            (found,) = read(f"ws://{server.name}/live?token={server.token}", 5.0)
        print(
            f"{joints:3} joints, {READERS} readers: {min(found['frames']) / 5.0:5.1f} frames/s each"
            f" (asked {TARGETS[joints]:g})",
            flush=True,
        )


def cycle_times(phase: float = PHASE, count: int = PHASES) -> CycleTimes:
    """What every cycle took, with readers and without in turn in one run."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "times.npy")
        session = Session.apart(timed, 20.0 + phase * count, path)
        with Server(session, token=new_token()) as server, session:
            time.sleep(5.0)  # kernels are compiled, the gate is open
            parts = read(
                f"ws://{server.name}/live?token={server.token}", phase, phases=count, first=0
            )
            session.command("pause")
            time.sleep(0.2)
            late, cycles = session.shared.status.late, session.shared.cycles
        table = np.load(path)
    told, edge, out = [frames for part in parts for frames in part["frames"]], int(EDGE * 1e9), {}
    for on in (False, True):
        spans = [
            (part["begun"] + edge, part["ended"]) for part in parts if bool(part["frames"]) is on
        ]
        out[on] = (
            np.concatenate(
                [table[(table[:, 0] >= begin) & (table[:, 0] < end), 1:] for begin, end in spans]
            )
            / 1e3
        )
    print(
        f"\na cycle of 7 joints at 1 kHz, {count} phases of {phase:g} s, with {READERS} readers and"
        " without in turn"
    )
    print(f"every reader got at least {min(told) / phase:.0f} frames/s; ", end="")
    print(f"lost on the wall because cycles took too long: {late:.2f} s of {cycles / 1e3:.0f} s")
    return out


def cost(found: CycleTimes) -> Cost:
    """Of all cycles together, printed as it is."""
    ratio = []
    for column, title in enumerate(("processor time", "on the wall")):
        quantiles = {
            on: np.percentile(rows[:, column], (50, 99, 99.9)) for on, rows in found.items()
        }
        ratio.append(quantiles[True] / quantiles[False])
        for on, name in ((False, "without"), (True, "with")):
            p50, p99, p999 = quantiles[on]
            print(
                f"{title if not on else '':15} {name:8} p50 {p50:6.1f}  p99 {p99:7.1f}  p99.9"
                f" {p999:7.1f} µs  of {len(found[on])} cycles"
            )
        p50, p99, p999 = ratio[-1]
        print(
            f"{'':15} {'ratio':8} p50 {p50:6.3f}  p99 {p99:7.3f}  p99.9 {p999:7.3f}     asked of"
            f" p99: ≤ {MORE:g}",
            flush=True,
        )
    (_, cpu, _), (wall_p50, wall, _) = ratio
    return Cost(float(cpu), float(wall), float(wall_p50))


def main() -> None:
    warnings.simplefilter("ignore")
    rates()
    cost(cycle_times())


if __name__ == "__main__":
    main()
