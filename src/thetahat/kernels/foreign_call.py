"""Calls of compiled functions of other libraries, by their address."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_INTEGER = ir.IntType(64)
_FUNCTION = ir.FunctionType(ir.VoidType(), [_INTEGER, _INTEGER])


@intrinsic
def call_with_two(typingctx, address, first, second):
    """Call void f(void*, void*) at an address."""

    def codegen(context, builder, sig, args):
        builder.call(builder.inttoptr(args[0], _FUNCTION.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen
