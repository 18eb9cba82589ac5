"""The live page: frames per second, and what three readers cost the control loop, side by side in one run, with and without them in turn."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import thetahat as th
from thetahat import robots
from thetahat.control.switched import Switched
from thetahat.excite.shapes import Sinusoids
from thetahat.live.pace import Pace
from thetahat.live.security import new_token
from thetahat.live.server import Server
from thetahat.live.session import Session
from thetahat.live.sources import Beat, Study
from thetahat.plant.built import as_built
from thetahat.studies.arm import Experiment
from thetahat.studies.loop import ClosedLoop

READERS = 3
PHASE, PHASES = 4.0, 8  # [s], with and without readers in turn
TARGETS = {7: 30.0, 44: 10.0}  # frames per second, by joints
MORE = 1.10  # times the p99 without readers that it may be with them

# Readers in a process of their own, as browsers are: they take what they get, and say how much that was.
CLIENT = """
import asyncio, sys, time
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
async def main(address, readers, seconds):
    print(*await asyncio.gather(*(read(address, seconds) for _ in range(readers))))
asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
"""


class Timed(Study):
    """A study that notes, of every cycle, when it began and what it took: of its thread's processor time, and on the wall."""

    def __init__(self, made: Experiment, path: str) -> None:
        super().__init__("benchmark", made)
        self._path, self._notes, self._begun = path, [], 0
        inner, push = made.controller, made.identifier.push

        def control(*arguments: object) -> np.ndarray:
            self._begun = time.perf_counter_ns()
            return inner(*arguments)

        def identify(*arguments: object) -> bool:
            used = push(*arguments)
            self._wall = time.perf_counter_ns() - self._begun
            return used

        made.loop.controller, made.identifier.push = control, identify

    def beats(self, pace: Pace) -> Iterator[Beat]:
        """As they are, noted."""
        for beat in super().beats(pace):
            self._notes.append((self._begun, beat.took, self._wall))
            yield beat
        np.save(self._path, np.array(self._notes, dtype=np.int64))


def arm7(seconds: float) -> Experiment:
    """Seven joints at 1 kHz, with the gate and the switch."""
    nominal = th.load(robots.path("arm7"))
    truth = as_built(nominal, seed=0)
    identifier = th.OnlineIdentifier(nominal.with_drive(viscous=True, coulomb=True, offset=True), held=True)
    controller = Switched(identifier, lambda robot: th.ComputedTorque(robot, kp=400.0, kd=40.0))
    rng = np.random.default_rng(0)
    frequency = np.column_stack([rng.permutation(np.linspace(0.15, 0.6, nominal.nv)) for _ in range(2)])
    phase = rng.uniform(0.0, 2.0 * np.pi, (nominal.nv, 2))
    motion = Sinusoids(nominal.joint_names, seconds, np.zeros(nominal.nv), np.full((nominal.nv, 2), 0.3), frequency, phase, ramp=1.0)
    plant = th.OwnPlant(truth, realism=th.Realism.typical(truth, seed=0))
    return Experiment(nominal, identifier.nominal, identifier, controller, ClosedLoop(plant, motion, controller, identifier, rate=1000.0))


def read(address: str, seconds: float) -> list[int]:
    """Frames that each of the readers got."""
    command = [sys.executable, "-c", CLIENT, address, str(READERS), str(seconds)]
    return [int(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def timed(seconds: float, path: str) -> Timed:
    """Made in the process of the loop."""
    warnings.simplefilter("ignore")
    return Timed(arm7(seconds), path)


def rates() -> None:
    """Frames per second of seven and of 44 joints."""
    for joints, factory, arguments in ((7, Study, ("benchmark", arm7(60.0))), (44, Study.named, ("valkyrie", "own"))):
        session = Session(factory(*arguments)) if joints == 7 else Session.apart(factory, *arguments)
        with Server(session, token=new_token()) as server, session:
            time.sleep(1.0)
            found = read(f"ws://{server.name}/live?token={server.token}", 5.0)
        print(f"{joints:3} joints, {READERS} readers: {min(found) / 5.0:5.1f} frames/s each (asked {TARGETS[joints]:g})", flush=True)


def loop(phase: float = PHASE, count: int = PHASES) -> tuple[float, float]:
    """p50 and p99 of the control cycle with readers and without, in turn; how many times p99 is with them, of processor time and on the wall."""
    spans: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "times.npy")
        session = Session.apart(timed, 6.0 + phase * count, path)
        with Server(session, token=new_token()) as server, session:
            time.sleep(2.0)
            for k in range(count):
                begun = time.perf_counter_ns()
                if k % 2:
                    read(f"ws://{server.name}/live?token={server.token}", phase - 0.5)
                else:
                    time.sleep(phase)
                spans[bool(k % 2)].append((begun + 500_000_000, time.perf_counter_ns() - 100_000_000))
            session.command("pause")
        table = np.load(path)
        late = session.shared.status.late
    print(f"\ncontrol cycle of 7 joints at 1 kHz, {count} phases of {phase:g} s, with {READERS} readers and without in turn")
    ratios = []
    for title, column in (("processor time of control and identification", 1), ("the same on the wall, with the torque sensed", 2)):
        found = {}
        for on, parts in spans.items():
            rows = np.concatenate([table[(table[:, 0] >= a) & (table[:, 0] < b), column] for a, b in parts]) / 1e3
            found[on] = (*np.percentile(rows, (50, 99)), len(rows))
        ratios.append(found[True][1] / found[False][1])
        for on, name in ((False, "without"), (True, "with")):
            print(f"{title if not on else '':46} {name:8} p50 {found[on][0]:6.1f}  p99 {found[on][1]:7.1f} µs  of {found[on][2]} cycles", end="")
            print(f"   p99 × {ratios[-1]:.3f} (asked ≤ {MORE:g})" if on else "", flush=True)
    print(f"lost on the wall because cycles took too long: {late:.2f} s")
    return ratios[0], ratios[1]


def main() -> None:
    warnings.simplefilter("ignore")
    rates()
    loop()


if __name__ == "__main__":
    main()
