"""What a layer has learnt, in words: the subspace of each unit and its closed formula."""

from __future__ import annotations

import importlib
import math
import operator
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ._normal_form import _math, classify, normal_form
from ._subspaces import PAPER, SEAM_KAPPA, SOLUTIONS, Form, Kind
from .modules import DEU

_STYLES = ("text", "latex", "sympy")
_DIGITS = 4


class _Term(NamedTuple):
    """scale · t^power · e^(rate·t) · wave(turn·t), wave one of cos, sin, cosh, sinh or nothing."""

    scale: float
    power: int = 0
    rate: float = 0.0
    wave: str = ""
    turn: float = 0.0

    def times(self, factor: float) -> _Term:
        return self._replace(scale=self.scale * factor)

    @property
    def is_constant(self) -> bool:
        return not (self.power or self.rate or self.wave)


class _Pieces(NamedTuple):
    """y = the sum of ``both`` + u(t) · the sum of ``after``; ``smooth`` is for σ(sharpness·t)."""

    both: list[_Term]
    after: list[_Term]
    smooth: float = 0.0
    digits: int = _DIGITS


def subspaces(layer: DEU) -> list[str]:
    """The name of the subspace that each unit of a layer is in.

    ``"001" "010" "011" "100" "101" "110"`` mark with a 1 which of a, b and c count; where all
    three do, Δ = b² - 4ac makes the unit ``"oscillating"``, ``"critical"`` or ``"overdamped"``.
    A continuous layer has no subspaces of its own: it is described by the same table.

    Args:
        layer: a :class:`deu.DEU` of n units.

    Returns:
        n names.

    Example:
        >>> from deu import DEU
        >>> subspaces(DEU(2, init="relu"))
        ['010', '010']
        >>> subspaces(DEU(1, init="spread"))
        ['oscillating']
    """
    a, b, c, _, _ = _read(layer)
    held = torch.stack(classify("paper", a, b, c, layer.eps))
    return [PAPER[row].name for row in held.int().argmax(0).tolist()]


@overload
def formula(layer: DEU, i: int, style: Literal["text", "latex"] = "text") -> str: ...
@overload
def formula(layer: DEU, i: int, style: Literal["sympy"]) -> Any: ...
def formula(layer: DEU, i: int, style: str = "text") -> Any:
    """The activation that unit ``i`` has learnt, as a closed formula.

    .. math:: y(t) = f(t) + c_1 f_1(t) + c_2 f_2(t)

    with the numbers put in, and ``u(t)`` for the unit step. The limits ``max_exponent`` and
    ``bound`` are left out: the formula holds where neither is reached.

    Args:
        layer: a :class:`deu.DEU`.
        i: which of its units, counted from 0.
        style: ``"text"`` and ``"latex"`` give a string, its numbers to four significant digits
            (more where large terms cancel); ``"sympy"`` gives a SymPy expression in the real
            symbol ``t`` that keeps every digit. Next to a seam of the continuous solution
            that expression is a difference of large numbers: evaluate it with ``evalf``.

    Example:
        >>> from deu import DEU
        >>> print(formula(DEU(4, init="relu", solution="paper"), 0))
        y(t) = t·u(t)
        >>> print(formula(DEU(1, init="sine"), 0))
        y(t) = sin(t) + 0.001·u(t)·(1 - cos(t))
        >>> print(formula(DEU(1, init="requ", solution="paper"), 0, style="latex"))
        y(t) = t^{2}\\,u(t)
    """
    if style not in _STYLES:
        raise ValueError(f"style must be one of {', '.join(_STYLES)}; got {style!r}")
    a, b, c, c1, c2 = _unit(layer, i)
    kind, form = normal_form(layer.solution, a, b, c, c1, c2, layer.eps)
    pieces = _pieces(Kind(int(kind)), Form(*(float(number) for number in form)))
    if style == "sympy":
        return _as_sympy(pieces, layer.sharpness)
    return "y(t) = " + _Writer(style == "latex", pieces.digits).unit(pieces, layer.sharpness)


def _equation(layer: DEU, i: int, style: str = "text") -> str:
    """The differential equation that unit ``i`` solves, with the coefficients that count."""
    a, b, c, _, _ = _unit(layer, i)
    rows, snap = SOLUTIONS[layer.solution]
    held = [bool(here) for here in classify(layer.solution, a, b, c, layer.eps)]
    row = rows[held.index(True)]
    values = row.force(_math, *snap(_math, a, b, c, layer.eps))
    write = _Writer(style == "latex", _DIGITS)
    space = r"\," if write.latex else " "
    parts = []
    for value, name in zip(values, ("y''", "y'", "y"), strict=True):
        if value != 0:
            number = write.number(abs(float(value)))
            parts.append((float(value) < 0, name if number == "1" else number + space + name))
    right = write.sigmoid(layer.sharpness) if row.kind == Kind.STEP else "u(t)"
    return f"{_sum(parts)} = {right}"


def _read(layer: DEU) -> tuple[Tensor, ...]:
    """The coefficients of a layer in float64."""
    if not isinstance(layer, DEU):
        raise TypeError(f"expected a deu.DEU layer; got {type(layer).__name__}")
    if is_lazy(layer.a):
        raise ValueError("this LazyDEU has no units yet: give it an input first")
    return tuple(p.detach().cpu().double() for p in layer.coefficients())


def _unit(layer: DEU, i: int) -> tuple[Tensor, ...]:
    coefficients = _read(layer)
    i = operator.index(i)
    if not 0 <= i < layer.num_features:
        raise IndexError(
            f"the layer has {layer.num_features} units, numbered from 0 to "
            f"{layer.num_features - 1}; got i={i}"
        )
    return tuple(p[i] for p in coefficients)


def _pieces(kind: Kind, form: Form) -> _Pieces:
    """A normal form as sums of terms."""
    if kind == Kind.STEP:
        return _Pieces([], [], smooth=form.G)
    if kind == Kind.ENTIRE:
        return _entire_pieces(form)
    p, q, A, B, Q, K, Af, Bf, Pf, Qf, _ = form
    one = _Term(1.0)
    basis: dict[Kind, tuple[_Term, _Term]] = {
        Kind.POLYNOMIAL: (one, one),
        Kind.EXPONENTIAL: (_Term(1.0, rate=p), one),
        Kind.REAL: (_Term(1.0, rate=p), _Term(1.0, rate=q)),
        Kind.OSCILLATING: (_wave("cos", q, p), _wave("sin", q, p)),
        Kind.CRITICAL: (_Term(1.0, rate=p), _Term(1.0, power=1, rate=p)),
    }
    b1, b2 = basis[kind]
    start = -Af - (Bf if kind == Kind.REAL else 0.0)
    both = [b1.times(A), b2.times(B), _Term(Q, power=1), _Term(K)]
    after = [_Term(start), b1.times(Af), b2.times(Bf), _Term(Qf, power=1), _Term(Pf, power=2)]
    return _Pieces(both, after)


def _wave(name: str, turn: float, rate: float) -> _Term:
    """e^(rate·t)·name(turn·t), written with a positive turn."""
    odd = name in ("sin", "sinh")
    return _Term(-1.0 if odd and turn < 0 else 1.0, rate=rate, wave=name, turn=abs(turn))


def _entire_pieces(form: Form) -> _Pieces:
    """A·F' + B·F + u·G·∫F, F'' - 2αF' + κF = 0, by the closed form on this side of the seam."""
    alpha, kappa, A, B, G = form.p, form.q, form.A, form.B, form.G
    d = alpha * alpha - kappa
    if d == 0:
        both = [_Term(A, rate=alpha), _Term(A * alpha + B, power=1, rate=alpha)]
        if alpha == 0:
            after = [_Term(G / 2, power=2)]
        else:
            k = G / kappa
            after = [_Term(k), _Term(-k, rate=alpha), _Term(k * alpha, power=1, rate=alpha)]
    elif d > 0 and abs(kappa) < SEAM_KAPPA * (1 + abs(alpha)):
        far = alpha + math.copysign(math.sqrt(d), alpha)
        near, gap = kappa / far, far - kappa / far
        both = [
            _Term((A * far + B) / gap, rate=far),
            _Term(-(A * near + B) / gap, rate=near),
        ]
        after = [_Term(-G / (gap * far)), _Term(G / (gap * far), rate=far)]
        if near == 0:
            after += [_Term(-G / gap, power=1)]
        else:
            after += [_Term(G / (gap * near)), _Term(-G / (gap * near), rate=near)]
            after = [_Term(after[0].scale + after[2].scale), after[1], after[3]]
    else:
        s, k = math.sqrt(abs(d)), G / kappa
        even, odd = (_wave(n, s, alpha) for n in (("cos", "sin") if d < 0 else ("cosh", "sinh")))
        both = [even.times(A), odd.times((A * alpha + B) / s)]
        after = [_Term(k), even.times(-k), odd.times(k * alpha / s)]
    largest = max(abs(term.scale) for term in both + after)
    # Terms this large cancel down to numbers of order 1: keep as many more digits.
    more = math.ceil(math.log10(largest)) if 1 < largest < math.inf else 0
    return _Pieces(both, after, digits=min(_DIGITS + more, 17))


class _Writer:
    """Formulas as a string, for people or for LaTeX."""

    def __init__(self, latex: bool, digits: int) -> None:
        self.latex, self.digits = latex, digits
        self.dot = r"\," if latex else "·"

    def number(self, x: float) -> str:
        text = f"{x:.{self.digits}g}"
        if "e" not in text:
            return text
        mantissa, exponent = text.split("e")
        if self.latex:
            return rf"{mantissa} \cdot 10^{{{int(exponent)}}}"
        return f"{mantissa}e{int(exponent)}"

    def multiple(self, x: float) -> str:
        """x·t, for the inside of a function."""
        number = self.number(x)
        if number in ("1", "-1"):
            return number[:-1] + "t"
        return number + ("t" if number[-1].isdigit() and "e" not in number else self.dot + "t")

    def sigmoid(self, sharpness: float) -> str:
        return (r"\sigma(" if self.latex else "σ(") + self.multiple(sharpness) + ")"

    def factors(self, term: _Term) -> list[str]:
        """What a term is a multiple of."""
        parts = []
        if term.power:
            square = "t^{2}" if self.latex else "t²"
            parts.append("t" if term.power == 1 else square)
        if term.rate:
            inside = self.multiple(term.rate)
            parts.append(f"e^{{{inside}}}" if self.latex else f"e^({inside})")
        if term.wave:
            name = "\\" + term.wave if self.latex else term.wave
            parts.append(f"{name}({self.multiple(term.turn)})")
        return parts

    def product(self, scale: float, factors: list[str]) -> tuple[bool, str]:
        """Whether the product is negative, and the rest of it."""
        number = self.number(abs(scale))
        if number != "1" or not factors:
            factors = [number, *factors]
        return scale < 0, self.dot.join(factors)

    def terms(self, terms: list[_Term]) -> list[tuple[bool, str]]:
        return [self.product(term.scale, self.factors(term)) for term in terms if term.scale != 0]

    def unit(self, pieces: _Pieces, sharpness: float) -> str:
        parts = self.terms(pieces.both)
        after = [term for term in pieces.after if term.scale != 0]
        if len(after) == 1:
            parts.append(self.product(after[0].scale, [*self.factors(after[0]), "u(t)"]))
        elif after:
            # f is a constant times 1 - ...: written so, or as it is if it has no constant.
            scale = after[0].scale if after[0].is_constant else 1.0
            inside = _sum(self.terms([term.times(1 / scale) for term in after]))
            inside = rf"\left({inside}\right)" if self.latex else f"({inside})"
            parts.append(self.product(scale, ["u(t)", inside]))
        if pieces.smooth:
            parts.append(self.product(pieces.smooth, [self.sigmoid(sharpness)]))
        return _sum(parts)


def _sum(parts: list[tuple[bool, str]]) -> str:
    if not parts:
        return "0"
    negative, text = parts[0]
    text = "-" + text if negative else text
    for negative, part in parts[1:]:
        text += (" - " if negative else " + ") + part
    return text


def _as_sympy(pieces: _Pieces, sharpness: float) -> Any:
    try:
        sympy = importlib.import_module("sympy")
    except ImportError as error:
        raise ImportError(
            "deu.formula(..., style='sympy') needs SymPy: pip install deu[sympy]"
        ) from error
    t = sympy.Symbol("t", real=True)

    def total(terms: list[_Term]) -> Any:
        result = sympy.Integer(0)
        for term in terms:
            if term.scale != 0:
                wave = getattr(sympy, term.wave)(term.turn * t) if term.wave else 1
                rise = sympy.exp(term.rate * t) if term.rate else 1
                result += sympy.Float(term.scale) * t**term.power * rise * wave
        return result

    y = total(pieces.both) + sympy.Heaviside(t, 0) * total(pieces.after)
    if pieces.smooth:
        y += sympy.Float(pieces.smooth) / (1 + sympy.exp(-sharpness * t))
    return y
