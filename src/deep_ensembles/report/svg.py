"""Panels as SVG; colours are CSS classes, so that a page can be light or dark."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from deep_ensembles.report.charts import Columns, Grid, Image, Limits, Line, Panel, Points, Ranges, Span
from deep_ensembles.report.words import round_step, short

# In units of the drawing; text is 13 of them high, which stays legible where a telephone shows it 340 pixels wide.
_WIDTH, _HEIGHT = 420.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 12.0, 46.0
_LEGEND_LINE = 19.0
_CHARACTER = 7.7
_MANY_CLASSES = 12
_TICKS = 5
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

# Where on an axis a text stands.
Places = list[tuple[float, str]]


class Axes(NamedTuple):
    """Where numbers are in the drawing."""

    x_limits: tuple[float, float]
    y_limits: tuple[float, float]
    top: float
    left: float
    bottom: float
    right: float = _WIDTH - _RIGHT

    def x(self, value: float) -> float:
        low, high = self.x_limits
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.y_limits
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

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
    layers = [_in_logarithms(layer) for layer in panel.layers] if panel.logarithmic else panel.layers
    grid = next((layer.cells.shape for layer in layers if isinstance(layer, Grid)), None)
    if grid is not None:
        x_limits, y_limits = (-0.5, grid[1] - 0.5), (grid[0] - 0.5, -0.5)
    else:
        # On a logarithmic axis bars may end near 0; they are cut off.
        drawn = [_coordinates(layer) for layer in layers if not (panel.logarithmic and isinstance(layer, Span))]
        x_limits, y_limits = map(_fitted, (panel.x_limits, panel.y_limits), zip(*drawn, strict=True))
    sides = (panel.x_ticks, x_limits), (panel.y_ticks, y_limits)
    x_places, y_places = (_powers(*ends) if panel.logarithmic else _places(names, ends) for names, ends in sides)
    across, aside = (max((len(text) for _, text in places), default=0) for places in (x_places, y_places))
    slanted = bool(panel.x_ticks and x_places) and across * _CHARACTER > (_WIDTH - 120) / len(x_places)
    below = 40.0 + 0.75 * _CHARACTER * across if slanted else _BOTTOM
    legend, n_lines = _legend(layers if panel.legend else ())
    height = _HEIGHT + (_LEGEND_LINE * max(0, n_lines - 1)) + (below - _BOTTOM)
    left = min(130.0, max(_LEFT, 32.0 + _CHARACTER * aside))
    axes = Axes(x_limits, y_limits, _TOP + _LEGEND_LINE * n_lines, left, height - below)
    x_places = _spaced(x_places, axes.right - left) if panel.x_ticks is None else x_places
    parts = [_tag("desc", description), *_y_axis(axes, y_places, grid is None), *_x_axis(axes, x_places, slanted)]
    parts += [*(_layer(layer, axes) for layer in layers), *_labels(panel, axes, height), *legend]
    size = f'viewBox="0 0 {_short(_WIDTH)} {_short(height)}"'
    return f'<svg class="figure" {size} role="img" aria-label="{escape(name)}">{"".join(parts)}</svg>'


def _in_logarithms(layer: Any) -> Any:
    """The layer with all its numbers as their logarithms."""
    names = ("x", "low", "high") if isinstance(layer, Span) else ("x", "y")
    return layer._replace(**{name: np.log10(np.maximum(getattr(layer, name), 1e-300)) for name in names})


def _coordinates(layer: Any) -> tuple[Any, Any]:
    """All numbers of a layer, along both axes."""
    if isinstance(layer, Image):
        raise TypeError(f"`layer` must be drawn with numbers, got {type(layer).__name__}")
    if isinstance(layer, Columns):
        return layer.edges, np.append(np.asarray(layer.heights, float), 0.0)
    return layer.x, [layer.low, layer.high] if isinstance(layer, Span) else layer.y


def _fitted(limits: Limits | None, coordinates: Sequence[Any]) -> tuple[float, float]:
    """Limits with room around all finite numbers, where they are not given."""
    values = np.concatenate([np.asarray(values, float).ravel() for values in coordinates])
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    edge = 0.04 * (high - low)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        edge = abs(low) * 0.1 or 1.0
    first, last = limits or (None, None)
    return (low - edge if low or not high else low) if first is None else first, high + edge if last is None else last


def _places(names: Sequence[str] | None, limits: tuple[float, float]) -> Places:
    """Names, unless they are many; without names, round numbers from one limit to the other.

    Example:
        >>> [text for _, text in _places(None, (0.0, 1.0))], [place for place, _ in _places(None, (-3.2, 4.9))]
        (['0.0', '0.2', '0.4', '0.6', '0.8', '1.0'], [-2.0, 0.0, 2.0, 4.0])
    """
    if names is not None:
        return [(float(i), short(name, 14)) for i, name in enumerate(names)] if len(names) <= _MANY_CLASSES else []
    step = round_step(limits[1] - limits[0], _TICKS - 1)
    first, last = math.ceil(limits[0] / step - 1e-9), math.floor(limits[1] / step + 1e-9)
    values = [float(f"{i * step:.12g}") for i in range(first, last + 1)]
    return [(value, tick_text(value, step)) for value in values]


def _powers(low: float, high: float) -> Places:
    """Round numbers between two powers of ten: 1, 2 and 5 times such powers, or where these are many some powers alone.

    Example:
        >>> [text for _, text in _powers(-0.1, 2.2)], [text for _, text in _powers(0.0, 9.0)]
        (['1', '2', '5', '10', '20', '50', '100'], ['1', '100', '10k', '1M', '100M'])
    """
    first, last = math.floor(low), math.ceil(high)
    factors, every = (1, 2, 5) if high <= 3 + low else (1,), max(1, math.ceil((last - first) / 8))
    values = [float(f"{factor}e{power}") for power in range(first, last + 1, every) for factor in factors]
    places = ((math.log10(value), tick_text(value, value)) for value in values)
    return [(place, text) for place, text in places if low - 1e-9 <= place <= high + 1e-9]


def _spaced(places: Places, width: float) -> Places:
    """Every place, or every second and so on, such that texts do not touch."""
    step = 1
    while sum(len(text) * _CHARACTER + 8 for _, text in places[::step]) > width:
        step += 1
    return places[::step]


def _y_axis(axes: Axes, places: Places, has_rules: bool) -> list[str]:
    levels = [(axes.y(value), text) for value, text in places]
    rules = [_tag("line", class_="rule", x1=axes.left, x2=axes.right, y1=y, y2=y) for y, _ in levels if has_rules]
    return rules + [_tag("text", text, class_="tick", x=axes.left - 6, y=y + 4.5, text_anchor="end") for y, text in levels]


def _x_axis(axes: Axes, places: Places, slanted: bool) -> list[str]:
    parts, anchor = [], "end" if slanted else "middle"
    for x, text in ((axes.x(value), text) for value, text in places):
        turn = f"rotate(-40 {_short(x)} {_short(axes.bottom + 12)})" if slanted else None
        parts.append(_tag("text", text, class_="tick", x=x, y=axes.bottom + 17, text_anchor=anchor, transform=turn))
    return [*parts, _tag("line", class_="axis", x1=axes.left, x2=axes.right, y1=axes.bottom, y2=axes.bottom)]


def _labels(panel: Panel, axes: Axes, height: float) -> list[str]:
    x, y = (axes.left + axes.right) / 2, (axes.top + axes.bottom) / 2
    turn, style = f"rotate(-90 14 {_short(y)})", {"class_": "label", "text_anchor": "middle"}
    across = _tag("text", panel.x_label, **style, x=x, y=height - 8)
    return [across, _tag("text", panel.y_label, **style, x=14, y=y, transform=turn)]


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


def _legend(layers: Sequence[Any]) -> tuple[list[str], int]:
    """Marks and names of the labelled layers, as many on a line as fit, and the number of lines."""
    parts: list[str] = []
    n_lines, x = 0, math.inf
    for layer in layers:
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
