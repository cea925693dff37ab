"""Arithmetic on node outputs, read from text: parsed, checked, never evaluated as code."""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay._core.errors import InputError

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_LONGEST = 2000  # characters; an objective is a line, and a deeply nested one would exhaust the stack


class Expression:
    """An arithmetic expression in named quantities, e.g. ``0.7*cure - 0.1*blend``.

    `names` are the quantities it reads; `not_affine` those in which it is not affine while the others are held. An
    expectation over independent quantities goes through an expression exactly where it is affine.
    """

    def __init__(self, text: str, known: Sequence[str], what: str = "objective") -> None:
        self.text = str(text).strip()
        self._what = what
        if len(self.text) > _LONGEST:
            raise InputError(f"{what}: the expression has {len(self.text)} characters; at most {_LONGEST} are read.")
        try:
            tree = ast.parse(self.text, mode="eval").body
            self._run = self._compile(tree, list(known))
            self.names, self.not_affine = self._degree(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{what} {self.text[:60]!r} is not an arithmetic expression; use + - * / ** and names."
            ) from error

    def __call__(self, values: Mapping[str, Any]) -> Any:
        return self._run(values)

    def _compile(self, node: ast.AST, known: list[str]) -> Callable[[Mapping[str, Any]], Any]:
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self._compile(node.left, known), self._compile(node.right, known)
            apply = _BINARY[type(node.op)]
            if not any(isinstance(part, ast.Name) for part in ast.walk(node)):
                # Numbers alone are worked out once: 9**9**9 or 1/0 must not fail in the middle of a run.
                try:
                    constant = float(apply(left({}), right({})))
                except (ArithmeticError, TypeError) as error:  # TypeError: (-1)**0.5 is complex
                    raise InputError(
                        f"{self._what} {self.text!r}: {ast.unparse(node)} is not a finite number."
                    ) from error
                if not math.isfinite(constant):
                    raise InputError(f"{self._what} {self.text!r}: {ast.unparse(node)} is not a finite number.")
                return lambda values: constant
            return lambda values: apply(left(values), right(values))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self._compile(node.operand, known)
            return (lambda values: -inner(values)) if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.Name):
            if node.id not in known:
                close = difflib.get_close_matches(node.id, known, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}."
                raise InputError(f"{self._what} {self.text!r}: there is no {node.id!r}{hint}")
            name = node.id
            return lambda values: values[name]
        if (
            isinstance(node, ast.Constant)
            and type(node.value) in (int, float)
            and math.isfinite(float(str(node.value)))
        ):
            number = float(str(node.value))
            return lambda values: number
        raise InputError(
            f"{self._what} {self.text!r}: only names, numbers and + - * / ** are allowed, not {type(node).__name__}."
        )

    def _degree(self, node: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
        """(names, names in which the expression may not be affine)."""
        if isinstance(node, ast.Name):
            return frozenset([node.id]), frozenset()
        if isinstance(node, ast.UnaryOp):
            return self._degree(node.operand)
        if isinstance(node, ast.BinOp):
            (left, bent_left), (right, bent_right) = self._degree(node.left), self._degree(node.right)
            names, bent = left | right, bent_left | bent_right
            if isinstance(node.op, ast.Mult):
                bent |= left & right
            elif isinstance(node.op, ast.Div):
                bent |= right
            elif isinstance(node.op, ast.Pow):
                one = isinstance(node.right, ast.Constant) and node.right.value == 1
                bent = bent if one else names
            return names, bent
        return frozenset(), frozenset()
