"""Three-vectors of lanes, as tuples, and sine and cosine of lanes."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from thetahat.kernels.jit import inline
from thetahat.kernels.lanes import FLAGS, VECTOR, WIDTH, gather, lanes, load, splat, store

# π/2 in three parts; k times the first two is exact for |k| < 2²⁰ (Cody and Waite).
_HALF_PI = (
    float.fromhex("0x1.921fb544p+0"),
    float.fromhex("0x1.0b4611a6p-34"),
    float.fromhex("0x1.3198a2e037073p-69"),
)
_LARGE_ANGLE = 1e6  # beyond it the reduction would lose digits, so the C library does the work
_ROUND = 1.5 * 2.0**52  # adding it leaves the nearest integer in the low bits


@inline
def zero3():
    """0 ∈ R³."""
    zero = splat(0.0)
    return (zero, zero, zero)


@inline
def add3(a, b):
    """a + b."""
    return (a[0] + b[0], a[1] + b[1], a[2] + b[2])


@inline
def sub3(a, b):
    """a − b."""
    return (a[0] - b[0], a[1] - b[1], a[2] - b[2])


@inline
def scale3(a, s):
    """s·a."""
    return (a[0] * s, a[1] * s, a[2] * s)


@inline
def dot3(a, b):
    """a·b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inline
def cross3(a, b):
    """a × b."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


@inline
def load3(array, row, column):
    """Three neighbouring lanes values of a scratch array."""
    return (load(array, row, column), load(array, row, column + 1), load(array, row, column + 2))


@inline
def gather3(rows, first, last, column):
    """Three neighbouring columns of eight samples."""
    x, y = gather(rows, first, last, column), gather(rows, first, last, column + 1)
    return (x, y, gather(rows, first, last, column + 2))


@inline
def store3(array, row, column, a):
    """Write three neighbouring lanes values of a scratch array."""
    store(array, row, column, a[0])
    store(array, row, column + 1, a[1])
    store(array, row, column + 2, a[2])


def _series(builder, r2, first):
    """Horner's rule for Σ ±r²ᵏ/n!, the Taylor series; |r| ≤ π/4, so nine terms pass double
    precision.
    """
    coefficients = []
    factor, sign, n = 1.0, 1.0, first
    for _ in range(9):
        coefficients.append(sign * factor)
        factor /= (n + 1) * (n + 2)
        n, sign = n + 2, -sign
    value = ir.Constant(VECTOR, [coefficients[-1]] * WIDTH)
    for c in reversed(coefficients[:-1]):
        value = builder.fadd(
            builder.fmul(value, r2, flags=FLAGS), ir.Constant(VECTOR, [c] * WIDTH), flags=FLAGS
        )
    return value


def _by_library(builder, x, name):
    """Lane by lane through the C library."""
    double = ir.DoubleType()
    function = builder.module.declare_intrinsic(name, [double])
    value = ir.Constant(VECTOR, ir.Undefined)
    for lane in range(WIDTH):
        index = ir.IntType(32)(lane)
        value = builder.insert_element(
            value, builder.call(function, [builder.extract_element(x, index)]), index
        )
    return value


@intrinsic
def sincos(typingctx, angle):
    """(sin, cos): subtract the nearest multiple k of π/2, Taylor series, put the quadrant back; to
    two units in the last place.
    """
    pair = types.UniTuple(lanes, 2)

    def codegen(context, builder, sig, args):
        x = args[0]

        def constant(value):
            return ir.Constant(VECTOR, [value] * WIDTH)

        longs = ir.VectorType(ir.IntType(64), WIDTH)
        shifted = builder.fadd(builder.fmul(x, constant(2.0 / 3.141592653589793)), constant(_ROUND))
        k = builder.fsub(shifted, constant(_ROUND))
        bits = builder.bitcast(shifted, longs)
        r = x
        for part in _HALF_PI:
            r = builder.fsub(r, builder.fmul(k, constant(part), flags=FLAGS), flags=FLAGS)
        r2 = builder.fmul(r, r)
        sine = builder.fmul(r, _series(builder, r2, 1))
        cosine = _series(builder, r2, 0)
        one, two = (ir.Constant(longs, [n] * WIDTH) for n in (1, 2))
        odd = builder.icmp_signed("!=", builder.and_(bits, one), ir.Constant(longs, None))
        s, c = builder.select(odd, cosine, sine), builder.select(odd, sine, cosine)
        sign_s = builder.icmp_signed("!=", builder.and_(bits, two), ir.Constant(longs, None))
        sign_c = builder.icmp_signed(
            "!=", builder.and_(builder.add(bits, one), two), ir.Constant(longs, None)
        )
        s = builder.select(sign_s, builder.fneg(s), s)
        c = builder.select(sign_c, builder.fneg(c), c)
        outside = (
            builder.fcmp_ordered(">", x, constant(_LARGE_ANGLE)),
            builder.fcmp_ordered("<", x, constant(-_LARGE_ANGLE)),
        )
        large = builder.bitcast(builder.or_(*outside), ir.IntType(WIDTH))
        ordinary = builder.block
        with builder.if_then(builder.icmp_signed("!=", large, ir.IntType(WIDTH)(0)), likely=False):
            exact_s = _by_library(builder, x, "llvm.sin")
            exact_c = _by_library(builder, x, "llvm.cos")
            rare = builder.block
        result = []
        for quick, exact in ((s, exact_s), (c, exact_c)):
            phi = builder.phi(VECTOR)
            phi.add_incoming(quick, ordinary)
            phi.add_incoming(exact, rare)
            result.append(phi)
        return context.make_tuple(builder, sig.return_type, result)

    return pair(lanes), codegen
