"""Time stepping: Runge–Kutta of fourth order between the moments at which a motor stops or breaks
away.

A motor with dry friction slides forwards (+1), backwards (−1) or holds (0). While no motor changes,
the equation of motion is smooth and one step is

    q ← q + h q̇ + h²/6 (k₁ + k₂ + k₃),   q̇ ← q̇ + h/6 (k₁ + 2 k₂ + 2 k₃ + k₄),   k = q̈

with friction evaluated by its formula at every stage. Where a sliding motor's speed crosses zero
inside a step, the step is cut there (by false position, to `AT_ZERO`), the speed is set to zero,
and the motor holds. A motor that holds is a constraint q̇_m = 0, met by the friction λ = (BᵀD⁻¹B)⁻¹
Bᵀq̈_free; it breaks away in the direction of λ at the beginning of the first step for which λ is
outside [f(0−), f(0+)]. So friction equals its formula whenever a joint moves, a joint at rest stays
exactly at rest, and nothing chatters.

Where the engine's kernels know the robot and its friction, they take the same steps themselves
(compiled_steps.py); what is here does it for every engine.
"""

from __future__ import annotations

import math

import numpy as np

from thetahat.data.velocities import all_single_dof
from thetahat.errors import UsageError
from thetahat.plant.compiled_steps import compiled_steps
from thetahat.plant.friction import Friction
from thetahat.plant.physics_engine import CoordinateRates, Engine, solved

LONGEST = 1e-3  # [s] of a step: at speeds of some rad/s its error is below 1e-10 of the motion
# step × (steepness of friction over inertia): Runge–Kutta is stable to 2.78, and accurate to a
# thousandth below this
STIFF = 0.5
SHORTEST = 1e-6  # [s]: friction that acts quicker than this cannot be followed in reasonable time
AT_ZERO = 1e-12  # of the speed at the beginning of the step: a motor that slow has stopped
# stops, and pieces cut for those that break away, in one step; beyond it the motors concerned hold
# until its end
MAX_EVENTS = 50
# of a step: a motor that comes back to zero so soon after it broke away holds until the step's end
SHORTEST_PIECE = 1e-4
MAX_LOADS = 60  # evaluations of the load that friction by load reads
SAME_LOAD = 1e-12  # of the load: its iteration has ended
LEAST_SHARE = 0.05  # of a change of the load that is taken, at least
MAX_CUTS = 60  # evaluations of false position


class Stepper:
    """State and motion of one robot under a torque that is constant meanwhile."""

    def __init__(self, engine: Engine, friction: Friction, q: np.ndarray, dq: np.ndarray) -> None:
        self.engine, self.friction = engine, friction
        self.q, self.dq = np.array(q, dtype=float), np.array(dq, dtype=float)
        # of sliding; 0: holds, or has no dry friction
        self.sign = np.sign(friction.motor_speed(self.dq)) * friction.dry
        self._held = self._who_holds()
        n = engine.robot.nv
        self._k = [np.empty(n) for _ in range(4)]
        self._rates = None if all_single_dof(engine.robot) else CoordinateRates(engine.robot)
        self._load = np.zeros(len(friction.names))  # at the motors, as last evaluated
        self._compiled = compiled_steps(engine, friction)
        self._known: np.ndarray | None = None  # the torque that k₁ and the signs were computed for
        self._longest = self._step_limit()

    def replace_engine(self, engine: Engine) -> None:
        """Go on with other bodies (a payload that was taken up) from the same state."""
        self.engine, self._known = engine, None
        self._compiled, self._held = compiled_steps(engine, self.friction), self._who_holds()
        self._longest = self._step_limit()

    def _step_limit(self) -> float:
        """The longest step that friction allows here."""
        slope = self.friction.steepness()
        if not np.any(slope):
            return LONGEST
        B = np.eye(len(slope)) if self.friction.B is None else self.friction.B
        D = self.engine.mass_matrix(self.q)
        rate = np.linalg.eigvals(solved(D, (B * slope) @ B.T))
        quickest = float(np.max(np.abs(rate)))
        if STIFF / quickest < SHORTEST:
            inertia = np.diag(D)
            k = int(np.argmax((B**2 @ slope) / inertia))
            raise UsageError(
                f"friction of joint {self.engine.robot.velocity_names[k]!r} stops it within"
                f" {1.0 / quickest:.2g} s, too quick to simulate: slope {(B**2 @ slope)[k]:.3g} on"
                f" an inertia of {inertia[k]:.3g}; give the joint armature, or less viscous or"
                " Stribeck friction"
            )
        return min(LONGEST, STIFF / quickest)

    # -- acceleration ------------------------------------------------------------------------------

    def acceleration(self, tau: np.ndarray) -> np.ndarray:
        """q̈ now, with every motor's state (sliding or holding) decided for this torque; an array
        that the next step overwrites.
        """
        if self._known is not tau:  # the same array: a plant makes a new one for every torque
            if self._compiled is not None:
                self._k[0] = self._compiled.settle(self.q, self.dq, self.sign, tau)
                self._known = tau
                return self._k[0]
            if self.friction.any_dry:
                self._decide(tau)
            self._stage(self.q, self.dq, tau, self._k[0])
            self._known = tau
        return self._k[0]

    def friction_torque(self, tau: np.ndarray) -> np.ndarray:
        """What friction takes from the joints now, (nv,): its formula where they slide, what holds
        them where they hold.
        """
        a = self.acceleration(tau)
        net = self.engine.mass_matrix(self.q) @ (
            a - self.engine.acceleration(self.q, self.dq, np.zeros_like(tau), np.empty_like(tau))
        )
        taken: np.ndarray = tau - net
        return taken

    def _stage(self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray) -> None:
        friction = self.friction
        if friction.none:
            self.engine.acceleration(q, dq, tau, out)
            return
        taken = self._slide(q, dq, tau, out)
        if friction.by_load:
            self._solve_load(q, dq, tau, taken, out)

    def _solve_load(
        self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, taken: np.ndarray, out: np.ndarray
    ) -> None:
        """Bring the load that friction reads to the one that it leaves, motor by motor, by
        secants (Aitken).
        """
        share, before = np.ones(len(self._load)), np.zeros(len(self._load))
        for k in range(MAX_LOADS):
            change = self.friction.load(q, tau, taken, out) - self._load
            if np.all(np.abs(change) <= SAME_LOAD * (1.0 + np.abs(self._load))):
                return
            if k:
                steps = before - change
                slope = np.where(steps != 0.0, before / np.where(steps != 0.0, steps, 1.0), 1.0)
                share = np.clip(share * slope, LEAST_SHARE, 1.0)
            self._load = self._load + share * change
            before = change
            taken = self._slide(q, dq, tau, out)

    def _slide(self, q: np.ndarray, dq: np.ndarray, tau: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fill `out` with q̈ under the load of the last evaluation; what friction takes."""
        friction = self.friction
        taken = friction.joint_torque(dq, self.sign, self._load if friction.by_load else None)
        self.engine.acceleration(q, dq, tau - taken, out)
        held = self._held
        if len(held):
            X, force = self._holding(q, held, out)
            out -= X @ force
            if friction.B is None:
                out[held] = 0.0
            if friction.by_load:
                motors = np.eye(len(out)) if friction.B is None else friction.B
                taken = taken + motors[:, held] @ force
        return taken

    def _who_holds(self) -> np.ndarray:
        return np.flatnonzero(self.friction.dry & (self.sign == 0.0))

    def _holding(
        self, q: np.ndarray, held: np.ndarray, a: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """D⁻¹B of the motors that hold, and λ, (held,), that brings their accelerations to zero:
        the least, where several motors share a joint.
        """
        motors = self.friction.B
        B = (np.eye(len(self.dq)) if motors is None else motors)[:, held]
        X = solved(self.engine.mass_matrix(q), B)
        W, rate = B.T @ X, B.T @ a
        if motors is None or not np.all(np.isfinite(W)):
            return X, solved(W, rate)
        return X, np.linalg.lstsq(W, rate, rcond=1e-12)[0]

    def _decide(self, tau: np.ndarray) -> None:
        """Let go the motors that cannot hold, the one furthest beyond its limit first."""
        friction, a = self.friction, self._k[0]
        while len(held := self._held):
            low, high = friction.low, friction.high
            if friction.by_load:
                self._stage(self.q, self.dq, tau, a)  # finds the load
                low, high = friction.holding(self._load)
            known = self._load if friction.by_load else None
            self.engine.acceleration(
                self.q, self.dq, tau - friction.joint_torque(self.dq, self.sign, known), a
            )
            # f of a motor at zero without its sign is its offset, which the torque above holds
            # already
            beside = friction.torque(np.zeros(len(self.sign)), np.zeros(len(self.sign)))[held]
            needed = self._holding(self.q, held, a)[1] + beside
            beyond = np.maximum(needed - high[held], low[held] - needed)
            worst = int(np.argmax(beyond))
            if not beyond[worst] > 0.0:
                return
            self.sign[held[worst]] = 1.0 if needed[worst] > high[held[worst]] else -1.0
            self._held = self._who_holds()

    # -- steps -------------------------------------------------------------------------------------

    def advance(self, tau: np.ndarray, duration: float) -> None:
        """Move on by `duration` under a constant torque."""
        count = max(1, math.ceil(duration / self._longest * (1.0 - 1e-9)))
        h = duration / count
        if self._compiled is not None:
            known, self._known = self._known is tau, None
            self.q, self.dq = self._compiled.advance(
                self.q, self.dq, self.sign, tau, count, h, known=known
            )
            return
        if self._stands(tau):
            return
        for _ in range(count):
            if self.friction.any_dry:
                self._step_with_events(tau, h)
            else:
                self._commit(*self._trial(tau, h))

    def _stands(self, tau: np.ndarray) -> bool:
        """Whether every joint stands still and is held there, so that no step changes anything."""
        if len(self._held) < len(self.dq) or self.friction.B is not None or self.dq.any():
            return False
        self.acceleration(tau)  # decides who holds
        return len(self._held) == len(self.dq)

    def _trial(self, tau: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        """State after a step in which no motor changes its ways."""
        k1, k2, k3, k4 = self._k
        self.acceleration(tau)
        q, v, half = self.q, self.dq, 0.5 * h
        v2 = v + half * k1
        if self._rates is not None:
            return self._trial_on_manifold(tau, h, v2, self._rates)
        self._stage(q + half * v, v2, tau, k2)
        v3 = v + half * k2
        self._stage(q + half * v2, v3, tau, k3)
        self._stage(q + h * v3, v + h * k3, tau, k4)
        both = k2 + k3
        return q + h * (v + (h / 6.0) * (k1 + both)), v + (h / 6.0) * (k1 + both + both + k4)

    def _trial_on_manifold(
        self, tau: np.ndarray, h: float, v2: np.ndarray, rates: CoordinateRates
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same where rates of q depend on q; quaternions come back to unit length at the end of
        a step.
        """
        k1, k2, k3, k4 = self._k
        q, v, half = self.q, self.dq, 0.5 * h
        r1 = rates(q, v)
        q2 = q + half * r1
        self._stage(q2, v2, tau, k2)
        r2, v3 = rates(q2, v2), v + half * k2
        q3 = q + half * r2
        self._stage(q3, v3, tau, k3)
        r3, v4 = rates(q3, v3), v + h * k3
        q4 = q + h * r3
        self._stage(q4, v4, tau, k4)
        out = q + (h / 6.0) * (r1 + 2.0 * (r2 + r3) + rates(q4, v4))
        rates.normalise(out)
        return out, v + (h / 6.0) * (k1 + 2.0 * (k2 + k3) + k4)

    def _commit(self, q: np.ndarray, dq: np.ndarray) -> None:
        self.q, self.dq, self._known = q, dq, None

    def _step_with_events(self, tau: np.ndarray, h: float) -> None:
        """A step, cut wherever a sliding motor stops."""
        left, piece, events = h, h, 0
        forced = np.zeros(len(self.sign), dtype=bool)
        while left > 0.0:
            self.acceleration(tau)  # decides who holds
            if events and np.any(forced & (self.sign != 0.0)):
                self.sign[forced] = 0.0
                self._held = self._who_holds()
                self._stage(self.q, self.dq, tau, self._k[0])
            piece = min(piece, left)
            q, dq = self._trial(tau, piece)
            ahead = self.sign * self.friction.motor_speed(dq)
            if ahead.min() < 0.0:
                events, crossed = events + 1, ahead < 0.0
                begin = self.sign * self.friction.motor_speed(self.dq)
                zero = AT_ZERO * float(np.max(begin))
                idle = crossed & (begin <= zero)  # broke away, and came back within the step
                if events > MAX_EVENTS or (np.any(idle) and piece < SHORTEST_PIECE * h):
                    forced |= crossed
                    self._stop(forced)
                    self._known = None
                    continue
                if np.any(idle):
                    piece *= 0.25
                    continue
                piece, q, dq, stopped = self._first_stop(tau, piece, begin, dq, zero)
                self._commit(q, dq)
                self._stop(stopped)
            else:
                self._commit(q, dq)
            left -= piece
            piece = left
            if left < 1e-9 * h:
                return

    def _first_stop(
        self, tau: np.ndarray, h: float, begin: np.ndarray, end: np.ndarray, zero: float
    ) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """(time, q, dq, motors that stop) where the first sliding motor comes within `zero` of
        standing still, by false position.
        """
        moving = begin > zero
        speeds, sign = self.friction.motor_speed, self.sign[moving]
        low, f_low, high, f_high = 0.0, begin[moving], h, sign * speeds(end)[moving]
        side = 0
        for _ in range(MAX_CUTS):
            fraction = min(
                a / (a - b) for a, b in zip(f_low.tolist(), f_high.tolist(), strict=True) if b < 0.0
            )
            at = low + fraction * (high - low)
            q, dq = self._trial(tau, at)
            f = sign * speeds(dq)[moving]
            least = float(np.min(f))
            if abs(least) <= zero or high - low < 1e-15 * h:
                break
            # Illinois: an end that stays twice counts half, or false position would creep.
            if least < 0.0:
                high, f_high, f_low, side = at, f, f_low * (0.5 if side == 1 else 1.0), 1
            else:
                low, f_low, f_high, side = at, f, f_high * (0.5 if side == -1 else 1.0), -1
        stopped = np.zeros(len(moving), dtype=bool)
        stopped[np.flatnonzero(moving)[f <= max(zero, least)]] = True
        return at, q, dq, stopped

    def _stop(self, motors: np.ndarray) -> None:
        """Hold these motors: their speed is zero from now on."""
        self.sign[motors] = 0.0
        self._held = held = self._who_holds()
        if self.friction.B is None:
            self.dq[held] = 0.0
        else:
            B = self.friction.B[:, held]
            self.dq = self.dq - np.linalg.lstsq(B.T, B.T @ self.dq, rcond=1e-12)[0]
