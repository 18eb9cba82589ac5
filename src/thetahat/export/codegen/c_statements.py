"""C statements of an expression graph: one per node that is used, products inside sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from thetahat.export.codegen.expression_graph import (
    ADD,
    CALL,
    CONSTANT,
    DIVIDE,
    INPUT,
    MULTIPLY,
    NEGATE,
    SUBTRACT,
    Expression,
    Graph,
)

SYMBOLS = {ADD: "+", SUBTRACT: "-", MULTIPLY: "*", DIVIDE: "/"}
# functions of one number; `{x}` is it, `{f}` the suffix of libm's functions of floats
CALLS = {
    "sin": "sin{f}({x})",
    "cos": "cos{f}({x})",
    "tanh": "tanh{f}({x})",
    "exp": "exp{f}({x})",
    "abs": "fabs{f}({x})",
    "sign": "(real)(({x} > 0) - ({x} < 0))",
}
Targets = Sequence[tuple[str, Expression]]  # what is assigned, in this order


class Statements:
    """Writes the statements that compute some outputs of a graph."""

    def __init__(self, graph: Graph, *, single: bool, names: Mapping[int, str] | None = None):
        self.graph, self.single = graph, single
        self.suffix = "f" if single else ""
        self._names: dict[int, str] = dict(names or {})  # of nodes that are computed already

    def literal(self, value: float) -> str:
        """Return a constant as C reads it."""
        text = repr(float(value))
        if "e" not in text and "." not in text:
            text += ".0"
        return text + self.suffix

    def lines(self, targets: Targets) -> list[str]:
        """Return statements that compute the targets and assign each as soon as it is known."""
        graph = self.graph
        order = graph.needed(expression for _, expression in targets)
        uses = Counter(k for at in order for k in graph.operands(at))
        uses.update(expression.index for _, expression in targets)
        inside = {at for at in order if self._inside(at, uses)}
        reader: dict[int, list[str]] = {}
        for target, expression in targets:
            reader.setdefault(expression.index, []).append(target)
        out: list[str] = []
        for at in order:
            if at not in self._names:
                kind = graph.nodes[at][0]
                if at in inside or kind in (CONSTANT, INPUT):
                    self._names[at] = self._text(at)
                else:
                    out.append(f"const real t{at} = {self._text(at)};")
                    self._names[at] = f"t{at}"
            out += [f"{target} = {self._bare(at)};" for target in reader.pop(at, ())]
        return out

    def _inside(self, at: int, uses: Counter[int]) -> bool:
        """Whether a node is written inside the one that reads it."""
        kind = self.graph.nodes[at][0]
        return kind == NEGATE or (kind == MULTIPLY and uses[at] == 1)

    def _bare(self, at: int) -> str:
        text = self._names[at]
        return text[1:-1] if text.startswith("(") and text.endswith(")") else text

    def _text(self, at: int) -> str:
        kind, first, second = self.graph.nodes[at]
        names = [self._names[k] for k in self.graph.operands(at)]
        if kind == CONSTANT and isinstance(first, float):
            return self.literal(first) if first >= 0.0 else f"({self.literal(first)})"
        if kind == INPUT:
            return f"{first}[{second}]"
        if kind == CALL:
            return CALLS[str(first)].format(x=names[0], f=self.suffix)
        if kind == NEGATE:
            return f"(-{names[0]})"
        return f"({names[0]}{SYMBOLS[kind]}{names[1]})"
