"""Panels as SVG; colours are CSS classes, so that a page can be light or dark."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from deep_ensembles.report.charts import Columns, Grid, Image, Line, Panel, Points, Ranges, Span
from deep_ensembles.report.words import round_step

# In units of the drawing; text is 13 of them high, which stays legible where a telephone shows it 340 pixels wide.
_WIDTH, _HEIGHT = 420.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 12.0, 46.0
_LEGEND_LINE = 19.0
_CHARACTER = 7.7
_MANY_CLASSES = 12
_TICKS = 5
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

Limits = tuple[float, float]
# Where on an axis a text stands.
Places = list[tuple[float, str]]


class Axes(NamedTuple):
    """Where numbers are in the drawing."""

    x_limits: Limits
    y_limits: Limits
    top: float
    left: float
    bottom: float
    right: float = _WIDTH - _RIGHT
    logarithmic: bool = False

    def x(self, value: float) -> float:
        return self.left + self._share(value, *self.x_limits) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self._share(value, *self.y_limits) * (self.bottom - self.top)

    def _share(self, value: float, low: float, high: float) -> float:
        if self.logarithmic:
            return math.log(max(value, low) / low) / math.log(high / low)
        return (value - low) / (high - low)

    def points(self, xs: Any, ys: Any) -> list[tuple[float, float]]:
        """Where the points with finite coordinates are."""
        pairs = zip(np.asarray(xs, float).tolist(), np.asarray(ys, float).tolist(), strict=True)
        return [(self.x(x), self.y(y)) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]


def draw(panel: Panel, name: str, description: str) -> str:
    """The panel as an SVG element.

    Arguments:
        panel: what to draw; images (`Image`) are refused.
        name: what a screen reader calls it.
        description: for readers who cannot see it.

    Example:
        >>> draw(Panel([Line([0, 1], [0, 1], "ideal")]), "curve", "A straight line.")[:44]
        '<svg class="figure" viewBox="0 0 420 330" ro'
    """
    legend, n_lines = _legend(panel)
    x_limits, y_limits = _limits(panel)
    if panel.logarithmic:
        x_places, y_places = _powers(*x_limits), _powers(*y_limits)
    else:
        x_places, y_places = _places(panel.x_ticks, x_limits), _places(panel.y_ticks, y_limits)
    across, aside = (max((len(text) for _, text in places), default=0) for places in (x_places, y_places))
    slanted = bool(panel.x_ticks and x_places) and across * _CHARACTER > (_WIDTH - 120) / len(x_places)
    below = 40.0 + 0.75 * _CHARACTER * across if slanted else _BOTTOM
    left = min(130.0, max(_LEFT, 32.0 + _CHARACTER * aside))
    height = _HEIGHT + (_LEGEND_LINE * max(0, n_lines - 1)) + (below - _BOTTOM)
    axes = Axes(x_limits, y_limits, _TOP + _LEGEND_LINE * n_lines, left, height - below, logarithmic=panel.logarithmic)
    if panel.x_ticks is None:
        x_places = _spaced(x_places, axes.right - left)
    has_rules = not any(isinstance(layer, Grid) for layer in panel.layers)
    parts = [_tag("desc", description), *_y_axis(axes, y_places, has_rules), *_x_axis(axes, x_places, slanted)]
    parts += [*(_layer(layer, axes) for layer in panel.layers), *_labels(panel, axes, height), *legend]
    size = f'viewBox="0 0 {_short(_WIDTH)} {_short(height)}"'
    return f'<svg class="figure" {size} role="img" aria-label="{escape(name)}">{"".join(parts)}</svg>'


def _limits(panel: Panel) -> tuple[Limits, Limits]:
    for layer in panel.layers:
        if isinstance(layer, Grid):
            rows, columns = layer.cells.shape
            return (-0.5, columns - 0.5), (rows - 0.5, -0.5)
    # On a logarithmic axis bars may end near 0; they are cut off.
    layers = [layer for layer in panel.layers if not (panel.logarithmic and isinstance(layer, Span))]
    xs, ys = zip(*(_coordinates(layer) for layer in layers), strict=True) if layers else ((), ())
    if panel.logarithmic:
        (left, right), (low, high) = (_padded([np.log(np.asarray(values, float)) for values in axis]) for axis in (xs, ys))
        return (math.exp(left), math.exp(right)), (math.exp(low), math.exp(high))
    return panel.x_limits or _padded(xs), panel.y_limits or _padded(ys)


def _coordinates(layer: Any) -> tuple[Any, Any]:
    """All numbers of a layer, along both axes."""
    if isinstance(layer, Image):
        raise TypeError(f"`layer` must be drawn with numbers, got {type(layer).__name__}")
    if isinstance(layer, Columns):
        return layer.edges, np.append(np.asarray(layer.heights, float), 0.0)
    return layer.x, [layer.low, layer.high] if isinstance(layer, Span) else layer.y


def _padded(coordinates: Sequence[Any]) -> Limits:
    """Limits with room around all finite numbers."""
    values = np.concatenate([np.asarray(values, float).ravel() for values in coordinates] or [np.empty(0)])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        around = abs(low) * 0.1 or 1.0
        return low - around, high + around
    edge = 0.04 * (high - low)
    return (low if low == 0 else low - edge), high + edge


def _places(names: Sequence[str] | None, limits: Limits) -> Places:
    if names is None:
        values = ticks(*limits)
        step = values[1] - values[0] if len(values) > 1 else limits[1] - limits[0]
        return [(value, tick_text(value, float(f"{step:.6g}"))) for value in values]
    if len(names) > _MANY_CLASSES:
        return []
    return [(float(i), name if len(name) <= 14 else name[:13] + "…") for i, name in enumerate(names)]


def _powers(low: float, high: float) -> Places:
    """Round numbers on a logarithmic axis: 1, 2 and 5 times powers of ten, or where these are many some powers alone.

    Example:
        >>> [text for _, text in _powers(0.8, 150.0)], [text for _, text in _powers(1.0, 1e9)]
        (['1', '2', '5', '10', '20', '50', '100'], ['1', '100', '10k', '1M', '100M'])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / 8))
    factors = (1, 2, 5) if high <= 1e3 * low else (1,)
    values = [float(f"{factor}e{power}") for power in range(first, last + 1, every) for factor in factors]
    return [(value, tick_text(value, value)) for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def _spaced(places: Places, width: float) -> Places:
    """Every place, or every second and so on, such that texts do not touch."""
    step = 1
    while sum(len(text) * _CHARACTER + 8 for _, text in places[::step]) > width:
        step += 1
    return places[::step]


def _y_axis(axes: Axes, places: Places, has_rules: bool) -> list[str]:
    parts = []
    for value, text in places:
        y = axes.y(value)
        if has_rules:
            parts.append(_tag("line", class_="rule", x1=axes.left, x2=axes.right, y1=y, y2=y))
        parts.append(_tag("text", text, class_="tick", x=axes.left - 6, y=y + 4.5, text_anchor="end"))
    return parts


def _x_axis(axes: Axes, places: Places, slanted: bool) -> list[str]:
    parts = []
    for value, text in places:
        x, anchor = axes.x(value), "end" if slanted else "middle"
        turn = f"rotate(-40 {_short(x)} {_short(axes.bottom + 12)})" if slanted else None
        parts.append(_tag("text", text, class_="tick", x=x, y=axes.bottom + 17, text_anchor=anchor, transform=turn))
    return [*parts, _tag("line", class_="axis", x1=axes.left, x2=axes.right, y1=axes.bottom, y2=axes.bottom)]


def _labels(panel: Panel, axes: Axes, height: float) -> list[str]:
    x, y = (axes.left + axes.right) / 2, (axes.top + axes.bottom) / 2
    turn = f"rotate(-90 14 {_short(y)})"
    return [
        _tag("text", panel.x_label, class_="label", x=x, y=height - 8, text_anchor="middle"),
        _tag("text", panel.y_label, class_="label", x=14, y=y, text_anchor="middle", transform=turn),
    ]


def _layer(layer: Any, axes: Axes) -> str:
    if isinstance(layer, Grid):
        return _cells(layer, axes)
    if isinstance(layer, Columns):
        return _columns(layer, axes)
    if isinstance(layer, Line):
        points = axes.points(layer.x, layer.y)
        return _line(layer, points) + "".join(_dot(x, y, layer.role) for x, y in points if layer.markers)
    if isinstance(layer, Points):
        return "".join(_dot(x, y, layer.role, layer.marker) for x, y in axes.points(layer.x, layer.y))
    if isinstance(layer, Ranges):
        low, high = (axes.points(layer.x, np.clip(ends, *axes.y_limits)) for ends in (layer.low, layer.high))
        bars = "".join(f"M{_short(x)} {_short(a)}V{_short(b)}" for (x, a), (_, b) in zip(low, high, strict=True))
        return _tag("path", class_=f"range {layer.role}", d=bars)
    outline = axes.points(layer.x, layer.low) + axes.points(layer.x, layer.high)[::-1]
    return _tag("polygon", class_=f"band {layer.role}", points=_point_list(outline))


def _columns(layer: Columns, axes: Axes) -> str:
    edges, heights = (np.asarray(values, float).tolist() for values in (layer.edges, layer.heights))
    parts = []
    for low, high, size in zip(edges[:-1], edges[1:], heights, strict=True):
        x, y = axes.x(low), axes.y(size)
        width, height = max(1.0, axes.x(high) - x - 1), max(0.0, axes.y(0.0) - y)
        parts.append(_tag("rect", class_=f"column {layer.role}", x=x, y=y, width=width, height=height))
    return "".join(parts)


def _cells(layer: Grid, axes: Axes) -> str:
    rows, columns = layer.cells.shape
    wide, high = axes.x(1) - axes.x(0), axes.y(1) - axes.y(0)
    gap = 1.0 if columns <= _MANY_CLASSES else 0.0
    peak = 1.0 if layer.texts is None else 0.65  # so that text on it stays legible
    parts = [_tag("rect", class_="empty", x=axes.x(-0.5), y=axes.y(-0.5), width=wide * columns, height=high * rows)]
    for (i, j), value in np.ndenumerate(layer.cells):
        if value > 0:
            x, y, shade = axes.x(j - 0.5), axes.y(i - 0.5), _short(0.06 + (peak - 0.06) * float(value), 3)
            parts.append(_tag("rect", class_="cell", x=x, y=y, width=wide - gap, height=high - gap, fill_opacity=shade))
        if layer.texts is not None:
            x, y, text = axes.x(j), axes.y(i) + 4.5, layer.texts[i][j]
            parts.append(_tag("text", text, class_="count", x=x, y=y, text_anchor="middle"))
    return "".join(parts)


def _legend(panel: Panel) -> tuple[list[str], int]:
    """Marks and names of the labelled layers, as many on a line as fit, and the number of lines."""
    parts: list[str] = []
    n_lines, x = 0, math.inf
    for layer in panel.layers if panel.legend else ():
        if label := getattr(layer, "label", ""):
            length = 36 + _CHARACTER * len(label)
            if x + length > _WIDTH:
                n_lines, x = n_lines + 1, _LEFT
            y = 13 + _LEGEND_LINE * (n_lines - 1)
            parts += [_sample(layer, x, y), _tag("text", label, class_="legend", x=x + 24, y=y + 4.5)]
            x += length
    return parts, n_lines


def _sample(layer: Any, x: float, y: float) -> str:
    """A layer's mark in the legend."""
    if isinstance(layer, Points):
        return _dot(x + 10, y, layer.role, layer.marker)
    if isinstance(layer, Line):
        return _line(layer, [(x, y), (x + 20, y)])
    kind = "column" if isinstance(layer, Columns) else "band"
    return _tag("rect", class_=f"{kind} {layer.role}", x=x, y=y - 5, width=20, height=10)


def _line(layer: Line, points: list[tuple[float, float]]) -> str:
    dashes = "6 5" if layer.dashed else None
    return _tag("polyline", class_=f"line {layer.role}", stroke_dasharray=dashes, points=_point_list(points))


def _dot(x: float, y: float, role: str, marker: str = "o") -> str:
    if marker == "x":
        return _tag("path", class_=f"cross {role}", d=f"M{_short(x)} {_short(y)}m-4-4l8 8m0-8l-8 8")
    return _tag("circle", class_=f"dot {role}", cx=x, cy=y, r=2.5 if marker == "." else 3.5)


def _point_list(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{_short(x)},{_short(y)}" for x, y in points)


def _tag(kind: str, text: str | None = None, **attributes: float | str | None) -> str:
    """An element; attributes that are None are left out.

    Example:
        >>> _tag("text", "<", class_="tick", x=1.04, text_anchor="end")
        '<text class="tick" x="1" text-anchor="end">&lt;</text>'
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    pairs = "".join(f' {name}="{value if isinstance(value, str) else _short(value)}"' for name, value in given.items())
    return f"<{kind}{pairs}/>" if text is None else f"<{kind}{pairs}>{escape(text)}</{kind}>"


def _short(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from one limit to the other.

    Example:
        >>> ticks(0.0, 1.0), ticks(-3.2, 4.9)
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-2.0, 0.0, 2.0, 4.0])
    """
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
    unit, letter = next(((unit, letter) for unit, letter in _UNITS if step >= unit), (1.0, ""))
    sign, size = "−" if value < 0 else "", abs(value) / unit
    if step < 1e-3:
        return sign + f"{size:.3g}"
    digits = max(0, -math.floor(math.log10(step / unit) + 1e-9))
    return sign + f"{size:.{digits}f}" + (letter if value else "")
