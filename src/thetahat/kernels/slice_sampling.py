"""Elliptical slice sampling of a Gaussian that is cut off by cones and half-spaces [Murray2010].

A chain is ξ ~ N(0, 1) and its image: the upper triangles of blocks that must be positive definite,
ten numbers each, then numbers that must not be negative. Both are affine in ξ, so a point of an
ellipse is tested on three images alone, whatever the number of parameters.
"""

from __future__ import annotations

import math

from thetahat.kernels.jit import inline, jit

SHRINKS = 80  # of an angle: the ellipse passes through the point itself, which is inside
HALVINGS = 12  # of a way that leaves the set


@inline
def _uniform(states, chain):
    """A number in [0, 1) of a chain's own sequence (splitmix64)."""
    states[chain] += 0x9E3779B97F4A7C15
    z = states[chain]
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return float((z ^ (z >> 31)) >> 11) * (1.0 / 9007199254740992.0)


@inline
def _inside(a, blocks):
    """Whether all blocks are positive definite, and all numbers after them not negative."""
    for b in range(blocks):
        k = 10 * b
        if not a[k] > 0.0:
            return False
        l1, l2, l3 = a[k + 1] / a[k], a[k + 2] / a[k], a[k + 3] / a[k]
        b11, b12, b13 = a[k + 4] - l1 * a[k + 1], a[k + 5] - l1 * a[k + 2], a[k + 6] - l1 * a[k + 3]
        if not b11 > 0.0:
            return False
        m2, m3 = b12 / b11, b13 / b11
        c22 = a[k + 7] - l2 * a[k + 2] - m2 * b12
        if not c22 > 0.0:
            return False
        c23 = a[k + 8] - l2 * a[k + 3] - m2 * b13
        if not a[k + 9] - l3 * a[k + 3] - m3 * b13 - c23 / c22 * c23 > 0.0:
            return False
    least = 0.0
    for i in range(10 * blocks, len(a)):
        least = min(least, a[i])
    return least >= 0.0


@inline
def _image(xi, chain, origin, images, out):
    """The image of a chain's ξ."""
    m = len(origin)
    for i in range(m):
        out[i] = origin[i]
    for e in range(xi.shape[1]):
        for i in range(m):
            out[i] += xi[chain, e] * images[e, i]


@jit
def approach(xi, target, origin, images, blocks, chains, work):
    """Move the first entries of ξ of these chains towards a target, as far as the set goes.

    target: (all chains, known). The set is convex, so that halving the way finds a point inside.
    """
    m, known = len(origin), target.shape[1]
    now, along, trial = work[0], work[1], work[2]
    for chain in chains:
        _image(xi, chain, origin, images, now)
        for i in range(m):
            along[i] = 0.0
        for e in range(known):
            step = target[chain, e] - xi[chain, e]
            for i in range(m):
                along[i] += step * images[e, i]
        share = 1.0
        for _ in range(HALVINGS):
            for i in range(m):
                trial[i] = now[i] + share * along[i]
            if _inside(trial, blocks):
                for e in range(known):
                    if share == 1.0:
                        xi[chain, e] = target[chain, e]
                    else:
                        xi[chain, e] += share * (target[chain, e] - xi[chain, e])
                break
            share *= 0.5


@jit
def sweep(xi, fresh, order, starts, origin, images, blocks, states, chains, work):
    """Turn all entries of ξ of these chains, group by group, towards fresh draws.

    xi: (all chains, k). fresh: (chains, k). order: (k,) entries, starts: (groups + 1,) of it.
    origin: (m,) image of ξ = 0, images: (k, m) per entry. states: (all chains,) uint64.
    work: (5, m) scratch.
    """
    m = len(origin)
    now, along, across, fixed, trial = work[0], work[1], work[2], work[3], work[4]
    for number, chain in enumerate(chains):
        _image(xi, chain, origin, images, now)
        for group in range(len(starts) - 1):
            for i in range(m):
                along[i] = 0.0
                across[i] = 0.0
            for at in range(starts[group], starts[group + 1]):
                e = order[at]
                x, y = xi[chain, e], fresh[number, e]
                for i in range(m):
                    along[i] += x * images[e, i]
                    across[i] += y * images[e, i]
            for i in range(m):
                fixed[i] = now[i] - along[i]
            angle = 2.0 * math.pi * _uniform(states, chain)
            low, high = angle - 2.0 * math.pi, angle
            for _ in range(SHRINKS):
                c, s = math.cos(angle), math.sin(angle)
                for i in range(m):
                    trial[i] = fixed[i] + c * along[i] + s * across[i]
                if _inside(trial, blocks):
                    for i in range(m):
                        now[i] = trial[i]
                    for at in range(starts[group], starts[group + 1]):
                        e = order[at]
                        xi[chain, e] = c * xi[chain, e] + s * fresh[number, e]
                    break
                if angle < 0.0:
                    low = angle
                else:
                    high = angle
                angle = low + (high - low) * _uniform(states, chain)
