"""Eight samples at once: a number whose value is one SIMD vector, so kernels read as scalar
mathematics.

A `Lanes` value holds the same quantity of eight samples. Arithmetic on it (+, −, ×, ÷, with each
other or with plain floats) becomes one vector instruction; there is no loop for the compiler to
vectorise and no aliasing for it to fear. The type exists only inside compiled kernels.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

WIDTH = 8
VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_INT = ir.IntType(32)
# Products may fuse into the sums that take them (fma): more accurate, not less. Nothing else is
# relaxed.
FLAGS = ("contract",)


class LanesType(types.Type):
    """Numba's type of eight doubles."""

    def __init__(self) -> None:
        super().__init__(name="Lanes8")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, VECTOR)


def _broadcast(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), scalar, _INT(0))
    zeros = ir.Constant(ir.VectorType(_INT, WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, ir.Constant(VECTOR, ir.Undefined), zeros)


def _register(symbol, instruction: str) -> None:
    pairs = [(lanes, lanes), (lanes, types.float64), (types.float64, lanes)]

    @infer_global(symbol)
    class _Typing(ConcreteTemplate):
        cases = [signature(lanes, *pair) for pair in pairs]  # noqa: RUF012

    def lower(context, builder, sig, args):
        left, right = (
            value if kind == lanes else _broadcast(builder, value)
            for kind, value in zip(sig.args, args, strict=True)
        )
        return getattr(builder, instruction)(left, right, flags=FLAGS)

    for pair in pairs:
        lower_builtin(symbol, *pair)(lower)


_register(operator.add, "fadd")
_register(operator.sub, "fsub")
_register(operator.mul, "fmul")
_register(operator.truediv, "fdiv")


@infer_global(operator.neg)
class _NegTyping(ConcreteTemplate):
    cases = [signature(lanes, lanes)]  # noqa: RUF012


@lower_builtin(operator.neg, lanes)
def _lower_neg(context, builder, sig, args):
    return builder.fneg(args[0])


@intrinsic
def splat(typingctx, scalar):
    """The same number in every lane."""

    def codegen(context, builder, sig, args):
        return _broadcast(builder, args[0])

    return lanes(types.float64), codegen


@intrinsic
def smaller(typingctx, a, b):
    """The smaller of two numbers, lane by lane; the second where either is NaN."""

    def codegen(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return lanes(lanes, lanes), codegen


def _item_pointer(context, builder, array_type, array, indices):
    view = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, array_type, view, indices, wraparound=False)


def _vector_pointer(builder, pointer):
    return builder.bitcast(pointer, VECTOR.as_pointer())


@intrinsic
def load(typingctx, array, row, column):
    """Lanes from a contiguous scratch array of shape (rows, columns, 8)."""

    def codegen(context, builder, sig, args):
        zero = context.get_constant(types.intp, 0)
        pointer = _item_pointer(context, builder, sig.args[0], args[0], [args[1], args[2], zero])
        return builder.load(_vector_pointer(builder, pointer), align=64)

    return lanes(array, types.intp, types.intp), codegen


@intrinsic
def store(typingctx, array, row, column, value):
    """Write lanes to a contiguous scratch array of shape (rows, columns, 8)."""

    def codegen(context, builder, sig, args):
        zero = context.get_constant(types.intp, 0)
        pointer = _item_pointer(context, builder, sig.args[0], args[0], [args[1], args[2], zero])
        builder.store(args[3], _vector_pointer(builder, pointer), align=64)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, lanes), codegen


@intrinsic
def gather(typingctx, array, first, last, column):
    """array[first + lane, column] for eight lanes; rows past `last` repeat it (a tile's unused
    lanes).
    """

    def codegen(context, builder, sig, args):
        value = ir.Constant(VECTOR, ir.Undefined)
        for lane in range(WIDTH):
            row = builder.add(args[1], context.get_constant(types.intp, lane))
            row = builder.select(builder.icmp_signed("<", row, args[2]), row, args[2])
            pointer = _item_pointer(context, builder, sig.args[0], args[0], [row, args[3]])
            value = builder.insert_element(value, builder.load(pointer), _INT(lane))
        return value

    return lanes(array, types.intp, types.intp, types.intp), codegen


@intrinsic
def scatter(typingctx, array, first, count, column, value):
    """array[first + lane, column] = value of the lane, for the first `count` lanes."""

    def codegen(context, builder, sig, args):
        for lane in range(WIDTH):
            with builder.if_then(
                builder.icmp_signed("<", context.get_constant(types.intp, lane), args[2]),
                likely=True,
            ):
                row = builder.add(args[1], context.get_constant(types.intp, lane))
                pointer = _item_pointer(context, builder, sig.args[0], args[0], [row, args[3]])
                builder.store(builder.extract_element(args[4], _INT(lane)), pointer)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, types.intp, lanes), codegen


def _shuffle(builder, a, b, mask):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, len(mask)), list(mask)))


def _transpose(builder, rows):
    """8×8 transpose in three rounds of pairwise shuffles."""
    for step in (1, 2, 4):
        low, high = [], []
        for k in range(WIDTH):
            swap = k & step
            low.append(k if not swap else WIDTH + k - step)
            high.append(k + step if not swap else WIDTH + k)
        result = list(rows)
        for k in range(WIDTH):
            if not k & step:
                result[k] = _shuffle(builder, rows[k], rows[k + step], low)
                result[k + step] = _shuffle(builder, rows[k], rows[k + step], high)
        rows = result
    return rows


def _ten(context, builder, sig, args, combine):
    """Write ten lanes values as ten neighbouring numbers of each lane's row, through
    `combine(value, pointer)`.
    """
    pair = ir.VectorType(ir.DoubleType(), 2)
    ten = [builder.extract_value(args[3], k) for k in range(WIDTH + 2)]
    eights = _transpose(builder, ten[:WIDTH])
    for lane in range(WIDTH):
        with builder.if_then(
            builder.icmp_signed("<", context.get_constant(types.intp, lane), args[1]), likely=True
        ):
            pointer = _item_pointer(
                context,
                builder,
                sig.args[0],
                args[0],
                [context.get_constant(types.intp, lane), args[2]],
            )
            two = _shuffle(builder, ten[WIDTH], ten[WIDTH + 1], (lane, WIDTH + lane))
            combine(eights[lane], builder.bitcast(pointer, VECTOR.as_pointer()))
            combine(two, builder.bitcast(builder.gep(pointer, [_INT(WIDTH)]), pair.as_pointer()))
    return context.get_dummy_value()


@intrinsic
def store_ten(typingctx, array, count, column, values):
    """array[lane, column : column + 10] = the ten values, for the first `count` lanes."""

    def codegen(context, builder, sig, args):
        return _ten(
            context,
            builder,
            sig,
            args,
            lambda value, pointer: builder.store(value, pointer, align=8),
        )

    return types.void(array, types.intp, types.intp, values), codegen


@intrinsic
def add_ten(typingctx, array, count, column, values):
    """array[lane, column : column + 10] += the ten values, for the first `count` lanes."""

    def codegen(context, builder, sig, args):
        def add(value, pointer):
            builder.store(builder.fadd(builder.load(pointer, align=8), value), pointer, align=8)

        return _ten(context, builder, sig, args, add)

    return types.void(array, types.intp, types.intp, values), codegen


def _write(context, builder, sig, args, value):
    """Store eight numbers at args[0][args[1]:], past the caches (aligned to 64 bytes) if the last
    argument says so.
    """
    pointer = _vector_pointer(
        builder, _item_pointer(context, builder, sig.args[0], args[0], [args[1]])
    )
    with builder.if_else(args[-1]) as (streamed, plain):
        with streamed:
            instruction = builder.store(value, pointer, align=64)
            instruction.set_metadata("nontemporal", builder.module.add_metadata([_INT(1)]))
        with plain:
            builder.store(value, pointer, align=8)
    return context.get_dummy_value()


@intrinsic
def write_eight(typingctx, target, at, source, lane, column, streamed):
    """target[at : at + 8] = source[lane, column : column + 8]."""

    def codegen(context, builder, sig, args):
        here = _item_pointer(context, builder, sig.args[2], args[2], [args[3], args[4]])
        return _write(
            context, builder, sig, args, builder.load(_vector_pointer(builder, here), align=8)
        )

    return types.void(target, types.intp, source, types.intp, types.intp, types.boolean), codegen


@intrinsic
def write_sum(typingctx, target, at, source, lane, column, next_column, streamed):
    """target[at : at + 8] = source[lane, column : column + 8] + source[lane + 1, next_column :
    next_column + 8].
    """

    def codegen(context, builder, sig, args):
        following = builder.add(args[3], context.get_constant(types.intp, 1))
        here = _item_pointer(context, builder, sig.args[2], args[2], [args[3], args[4]])
        there = _item_pointer(context, builder, sig.args[2], args[2], [following, args[5]])
        left, right = (
            builder.load(_vector_pointer(builder, pointer), align=8) for pointer in (here, there)
        )
        return _write(context, builder, sig, args, builder.fadd(left, right))

    return (
        types.void(target, types.intp, source, types.intp, types.intp, types.intp, types.boolean),
        codegen,
    )


@intrinsic
def write_zeros(typingctx, target, at, streamed):
    """target[at : at + 8] = 0."""

    def codegen(context, builder, sig, args):
        return _write(context, builder, sig, args, ir.Constant(VECTOR, None))

    return types.void(target, types.intp, types.boolean), codegen


@intrinsic
def doubles_to_line(typingctx, array):
    """How many numbers lie between the start of an array and the next multiple of 64 bytes."""

    def codegen(context, builder, sig, args):
        pointer = _item_pointer(
            context, builder, sig.args[0], args[0], [context.get_constant(types.intp, 0)]
        )
        address = builder.ptrtoint(pointer, ir.IntType(64))
        return builder.lshr(
            builder.and_(builder.neg(address), ir.IntType(64)(63)), ir.IntType(64)(3)
        )

    return types.intp(array), codegen


@intrinsic
def fence(typingctx):
    """Make streamed writes visible before anything that follows."""

    def codegen(context, builder, sig, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def put(typingctx, array, row, column, value):
    """array[row, column : column + 8] = the eight lanes."""

    def codegen(context, builder, sig, args):
        pointer = _item_pointer(context, builder, sig.args[0], args[0], [args[1], args[2]])
        builder.store(args[3], _vector_pointer(builder, pointer), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, lanes), codegen


@intrinsic
def take(typingctx, array, row, column):
    """The eight lanes array[row, column : column + 8]."""

    def codegen(context, builder, sig, args):
        pointer = _item_pointer(context, builder, sig.args[0], args[0], [args[1], args[2]])
        return builder.load(_vector_pointer(builder, pointer), align=8)

    return lanes(array, types.intp, types.intp), codegen


@intrinsic
def total(typingctx, value):
    """The sum of the eight lanes, by halves."""

    def codegen(context, builder, sig, args):
        value = args[0]
        for step in (4, 2, 1):
            value = builder.fadd(
                value, _shuffle(builder, value, value, [(k + step) % WIDTH for k in range(WIDTH)])
            )
        return builder.extract_element(value, _INT(0))

    return types.float64(lanes), codegen
