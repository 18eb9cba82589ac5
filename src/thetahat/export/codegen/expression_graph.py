"""Expression graph: arithmetic on names that a C function reads, simplified as it is written down.

An `Expression` is a node of a `Graph`. Equal nodes are one node (common subexpressions), constants
are folded, products with 0 and ±1 and sums with 0 vanish, and signs move outwards until a sum takes
them up. Nothing is reordered beyond that: a sum is rounded as the recursion wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

CONSTANT, INPUT, ADD, SUBTRACT, MULTIPLY, NEGATE, DIVIDE, CALL = range(8)

Key = tuple[int, object, object]
Number = int | float


@dataclass(frozen=True, eq=False)
class Expression:
    """A node of a graph, with Python's arithmetic."""

    graph: Graph
    index: int

    @property
    def constant(self) -> float | None:
        """Its value where it is a constant."""
        kind, value, _ = self.graph.nodes[self.index]
        return value if kind == CONSTANT and isinstance(value, float) else None

    @property
    def is_zero(self) -> bool:
        """Whether it is the constant 0."""
        return self.constant == 0.0

    def __add__(self, other: Expression | Number) -> Expression:
        return self.graph.add(self, self.graph.as_expression(other))

    def __radd__(self, other: Number) -> Expression:
        return self.graph.add(self.graph.as_expression(other), self)

    def __sub__(self, other: Expression | Number) -> Expression:
        return self.graph.subtract(self, self.graph.as_expression(other))

    def __rsub__(self, other: Number) -> Expression:
        return self.graph.subtract(self.graph.as_expression(other), self)

    def __mul__(self, other: Expression | Number) -> Expression:
        return self.graph.multiply(self, self.graph.as_expression(other))

    def __rmul__(self, other: Number) -> Expression:
        return self.graph.multiply(self.graph.as_expression(other), self)

    def __truediv__(self, other: Expression) -> Expression:
        return self.graph.divide(self, other)

    def __neg__(self) -> Expression:
        return self.graph.negate(self)


class Graph:
    """Nodes in the order in which they were first written down: operands before results."""

    def __init__(self) -> None:
        self.nodes: list[Key] = []
        self._index: dict[Key, int] = {}
        self.zero, self.one = self.number(0.0), self.number(1.0)

    def _node(self, kind: int, first: object, second: object = None) -> Expression:
        key = (kind, first, second)
        at = self._index.get(key)
        if at is None:
            at = self._index[key] = len(self.nodes)
            self.nodes.append(key)
        return Expression(self, at)

    def _has(self, kind: int, first: int, second: int) -> bool:
        return (kind, first, second) in self._index

    def _negated(self, a: Expression) -> Expression | None:
        """Return what `a` is the negative of, where it is one."""
        kind, first, _ = self.nodes[a.index]
        return Expression(self, first) if kind == NEGATE and isinstance(first, int) else None

    # -- leaves ------------------------------------------------------------------------------------

    def number(self, value: Number) -> Expression:
        """Return a constant; −0 is 0."""
        return self._node(CONSTANT, float(value) + 0.0)

    def as_expression(self, value: Expression | Number) -> Expression:
        """Return a number as a constant, and an expression as it is."""
        return value if isinstance(value, Expression) else self.number(value)

    def input(self, array: str, index: int) -> Expression:
        """Return an element of an array that the function reads."""
        return self._node(INPUT, array, index)

    def inputs(self, array: str, count: int) -> list[Expression]:
        """Return the elements of an array."""
        return [self.input(array, k) for k in range(count)]

    # -- arithmetic --------------------------------------------------------------------------------

    def add(self, a: Expression, b: Expression) -> Expression:
        """Return a + b."""
        x, y = a.constant, b.constant
        if x is not None and y is not None:
            return self.number(x + y)
        if x == 0.0:
            return b
        if y == 0.0:
            return a
        if (minus_b := self._negated(b)) is not None:
            return self.subtract(a, minus_b)
        if (minus_a := self._negated(a)) is not None:
            return self.subtract(b, minus_a)
        return self._node(ADD, *sorted((a.index, b.index)))

    def subtract(self, a: Expression, b: Expression) -> Expression:
        """Return a − b."""
        x, y = a.constant, b.constant
        if x is not None and y is not None:
            return self.number(x - y)
        if y == 0.0:
            return a
        if x == 0.0:
            return self.negate(b)
        if a.index == b.index:
            return self.zero
        if (minus_b := self._negated(b)) is not None:
            return self.add(a, minus_b)
        if (minus_a := self._negated(a)) is not None:
            return self.negate(self.add(minus_a, b))
        if self._has(SUBTRACT, b.index, a.index):
            return self.negate(self._node(SUBTRACT, b.index, a.index))
        return self._node(SUBTRACT, a.index, b.index)

    def multiply(self, a: Expression, b: Expression) -> Expression:
        """Return a·b."""
        x, y = a.constant, b.constant
        if x is not None and y is not None:
            return self.number(x * y)
        if x is not None:
            a, b, x, y = b, a, y, x
        if y == 0.0:
            return self.zero
        if y == 1.0:
            return a
        if y is not None and y < 0.0:
            return self.negate(self.multiply(a, self.number(-y)))
        if (minus_a := self._negated(a)) is not None:
            return self.negate(self.multiply(minus_a, b))
        if (minus_b := self._negated(b)) is not None:
            return self.negate(self.multiply(a, minus_b))
        return self._node(MULTIPLY, *sorted((a.index, b.index)))

    def negate(self, a: Expression) -> Expression:
        """Return −a."""
        if a.constant is not None:
            return self.number(-a.constant)
        if (minus_a := self._negated(a)) is not None:
            return minus_a
        return self._node(NEGATE, a.index)

    def divide(self, a: Expression, b: Expression) -> Expression:
        """Return a/b."""
        if a.is_zero or b.constant == 1.0:
            return a
        if a.constant is not None and b.constant:
            return self.number(a.constant / b.constant)
        return self._node(DIVIDE, a.index, b.index)

    def call(self, function: str, a: Expression) -> Expression:
        """Return a function of one number, by its name in `c_functions.CALLS`."""
        return self._node(CALL, function, a.index)

    # -- what a function computes ------------------------------------------------------------------

    def operands(self, index: int) -> tuple[int, ...]:
        """Return the nodes that a node reads."""
        kind, first, second = self.nodes[index]
        if kind in (CONSTANT, INPUT):
            return ()
        pair = (second,) if kind == CALL else (first, second)
        return tuple(each for each in pair if isinstance(each, int))

    def needed(self, outputs: Iterable[Expression]) -> list[int]:
        """Return the nodes behind the outputs, in an order in which each can be computed: depth
        first, so that what is computed is soon used.
        """
        order: list[int] = []
        state: dict[int, bool] = {}
        for output in outputs:
            stack = [output.index]
            while stack:
                at = stack[-1]
                if at not in state:
                    state[at] = False
                    stack += [k for k in reversed(self.operands(at)) if k not in state]
                    continue
                stack.pop()
                if not state[at]:
                    state[at] = True
                    order.append(at)
        return order

    def evaluate(
        self,
        outputs: Iterable[Expression],
        arrays: dict[str, list[float]],
        calls: dict[str, Callable[[float], float]],
    ) -> list[float]:
        """Compute the outputs in Python, to check a graph without a compiler."""
        outputs = list(outputs)
        value: dict[int, float] = {}
        for at in self.needed(outputs):
            kind, first, second = self.nodes[at]
            x = [value[k] for k in self.operands(at)]
            match kind:
                case _ if kind == CONSTANT and isinstance(first, float):
                    value[at] = first
                case _ if kind == INPUT and isinstance(second, int):
                    value[at] = arrays[str(first)][second]
                case _ if kind == CALL:
                    value[at] = calls[str(first)](x[0])
                case _ if kind == NEGATE:
                    value[at] = -x[0]
                case _:
                    value[at] = _ARITHMETIC[kind](x[0], x[1])
        return [value[output.index] for output in outputs]


_ARITHMETIC: dict[int, Callable[[float, float], float]] = {
    ADD: lambda a, b: a + b,
    SUBTRACT: lambda a, b: a - b,
    MULTIPLY: lambda a, b: a * b,
    DIVIDE: lambda a, b: a / b,
}
