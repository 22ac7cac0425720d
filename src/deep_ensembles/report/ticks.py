"""Round numbers along an axis."""

from __future__ import annotations

import math

_TICKS = 5
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from one limit to the other.

    Example:
        >>> ticks(0.0, 1.0), ticks(-3.2, 4.9)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-2.0, 0.0, 2.0, 4.0])
    """
    step = round_step(high - low, 1)
    for parts in range(1, 4 * _TICKS):
        step = round_step(high - low, parts)
        if (high - low) / step >= _TICKS - 1:
            break
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def tick_text(value: float, step: float) -> str:
    """A tick's number with as many digits as its step has.

    Example:
        >>> tick_text(0.2, 0.05), tick_text(-20000.0, 5000.0), tick_text(2e6, 1e6)
        ('0.20', '−20k', '2M')
    """
    unit, letter = next(((each, letter) for each, letter in _UNITS if step >= each), (1.0, ""))
    sign, size = "−" if value < 0 else "", abs(value) / unit
    if step < 1e-3:
        return sign + f"{size:.3g}"
    digits = max(0, -math.floor(math.log10(step / unit) + 1e-9))
    return sign + f"{size:.{digits}f}" + (letter if value else "")


def round_step(size: float, parts: int) -> float:
    """The largest of 1, 2 or 5 times a power of ten that makes at least so many parts.

    Example:
        >>> round_step(1.0, 40), round_step(37.0, 5)
        (0.02, 5.0)
    """
    power = 10.0 ** math.floor(math.log10(size / parts))
    factor = max(each for each in (1, 2, 5) if each * power <= size / parts * (1 + 1e-9))
    return float(f"{factor * power:.1g}")
