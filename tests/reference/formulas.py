"""Formulas over scalars, as docs/pipeline.md defines them. Python parses them: their grammar is a part of its own."""

import ast
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class OutOfRange(Exception):
    """An integer operation overflows, or divides by 0."""


class Node(NamedTuple):
    """A part of a formula. It is an INT64 or a FLOAT64, whatever the values of its operands are."""

    is_int: bool
    value: Callable  # of a mapping {name: int or float}

    def as_float(self) -> Callable:
        return (lambda env: float(self.value(env))) if self.is_int else self.value


def _mod(a, b):
    if isinstance(a, int):
        if b == 0:
            raise OutOfRange
        return a % b
    return math.nan if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b) else a % b


def _pick(comes_first) -> Callable:
    def picked(a, b):
        if isinstance(a, float) and (math.isnan(a) or math.isnan(b)):
            return math.nan
        return a if comes_first(a, b) else b

    return picked


def _real(function) -> Callable:
    """Returns a function of numpy as one of floats that raises and warns of nothing."""

    @np.errstate(all="ignore")
    def real(*operands):
        return float(function(*map(np.float64, operands)))

    return real


# What stays INT64 among integers.
_WHOLE = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mult": lambda a, b: a * b,
    "USub": lambda a: -a,
    "abs": abs,
    "min": _pick(lambda a, b: a < b),
    "max": _pick(lambda a, b: a > b),
    "mod": _mod,
}
# What is always FLOAT64.
_REAL = {name: _real(getattr(np, name)) for name in ("floor", "exp", "log", "sqrt", "tanh")} | {
    "Div": _real(np.divide),
    "pow": _real(np.power),
    "sign": lambda x: math.copysign(1.0, x) if x != 0 and not math.isnan(x) else x,
    "sigmoid": _real(lambda x: 1 / (1 + np.exp(-x))),
}
_COMPARISONS = {
    "Lt": lambda a, b: a < b,
    "LtE": lambda a, b: a <= b,
    "Gt": lambda a, b: a > b,
    "GtE": lambda a, b: a >= b,
    "Eq": lambda a, b: a == b,
    "NotEq": lambda a, b: a != b,
}
# Functions whose last bits differ between libraries.
_INEXACT = {"exp", "log", "pow", "tanh", "sigmoid"}


def _called(function: Callable, operands: list[Node], is_int: bool) -> Callable:
    parts = [node.value if is_int else node.as_float() for node in operands]
    return lambda env: function(*[part(env) for part in parts])


def _operation(name: str, operands: list[Node]) -> Node:
    is_int = name in _WHOLE and all(node.is_int for node in operands)
    value = _called((_WHOLE | _REAL)[name], operands, is_int)

    def checked(env):
        number = value(env)
        if not -(2**63) <= number < 2**63:
            raise OutOfRange
        return number

    return Node(is_int, checked if is_int else value)


class Formula:
    """A formula, compiled. `names` are those that it reads; `is_int` says whether it is INT64."""

    def __init__(self, text: str, integers: set[str], constants: dict[str, float]):
        self._integers, self._constants = integers, constants
        self.names: list[str] = []
        self.is_exact = True
        text = re.sub(r"\bif\s*\(", "if_(", text)  # a function here, a keyword there
        text = re.sub(r"(?<![\w.])0+(?=\d)", "", text)  # zeros before a number mean nothing
        self._node = self._compiled(ast.parse(f"({text})", mode="eval").body)
        self.is_int = self._node.is_int

    def __call__(self, env):
        """Returns the value for some values of the names, or raises OutOfRange."""
        return self._node.value(env)

    def _compiled(self, tree: ast.expr) -> Node:
        match tree:
            case ast.Constant(value=number):
                return Node(isinstance(number, int), lambda env: number)
            case ast.Name(id=name):
                return self._named(name)
            case ast.Attribute(value=ast.Name(id="out"), attr=name):
                return self._named("out." + name)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                condition = self._compiled(operand).value
                return Node(True, lambda env: int(condition(env) == 0))
            case ast.UnaryOp(op=op, operand=operand):
                return _operation(type(op).__name__, [self._compiled(operand)])
            case ast.BinOp(left=left, op=op, right=right):
                return _operation(type(op).__name__, [self._compiled(left), self._compiled(right)])
            case ast.BoolOp(op=op, values=values):
                decide, parts = (any if isinstance(op, ast.Or) else all), [self._compiled(v).value for v in values]
                return Node(True, lambda env: int(decide(part(env) != 0 for part in parts)))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                operands = [self._compiled(left), self._compiled(right)]
                compare = _called(_COMPARISONS[type(op).__name__], operands, all(node.is_int for node in operands))
                return Node(True, lambda env: int(compare(env)))
            case ast.Call(func=ast.Name(id="if_"), args=[condition, left, right]):
                return self._choice(*map(self._compiled, (condition, left, right)))
            case ast.Call(func=ast.Name(id=name), args=operands):
                self.is_exact &= name not in _INEXACT
                return _operation(name, [self._compiled(operand) for operand in operands])
        raise ValueError(ast.unparse(tree))

    @staticmethod
    def _choice(condition: Node, a: Node, b: Node) -> Node:
        is_int = a.is_int and b.is_int
        left, right = (a.value, b.value) if is_int else (a.as_float(), b.as_float())
        return Node(is_int, lambda env: left(env) if condition.value(env) != 0 else right(env))

    def _named(self, name: str) -> Node:
        if name in self._constants:
            return Node(False, lambda env: self._constants[name])
        self.names.append(name)
        return Node(name in self._integers, lambda env: env[name])
