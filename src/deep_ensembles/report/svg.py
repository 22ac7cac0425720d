"""Panels as SVG text; colours are CSS classes, so that a page can be light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from deep_ensembles.panels import Band, Columns, Grid, Layer, Line, Panel, Points, Ranges
from deep_ensembles.report.ticks import tick_text, ticks

# In units of the picture; text is 13 of them high, which stays legible where a telephone shows it 340 pixels wide.
_WIDTH, _HEIGHT = 420.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 12.0, 12.0, 46.0
_LEGEND_LINE = 19.0
_CHARACTER = 7.7
_MANY = 12


@dataclass(frozen=True)
class Axes:
    """Where numbers are on the picture."""

    x_limits: tuple[float, float]
    y_limits: tuple[float, float]
    top: float
    left: float
    bottom: float

    def x(self, value: float) -> float:
        low, high = self.x_limits
        return self.left + (value - low) / (high - low) * (_WIDTH - _RIGHT - self.left)

    def y(self, value: float) -> float:
        low, high = self.y_limits
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)


def draw(panel: Panel, name: str, description: str) -> str:
    """The panel as an SVG element.

    Arguments:
        panel: what to draw; pictures (`Image`) are not known here.
        name: what a screen reader calls it, and the prefix of its ids: unique on a page.
        description: what someone who cannot see it should read instead.

    Example:
        >>> draw(Panel([Line([0, 1], [0, 1], "ideal")]), "curve", "A straight line.")[:44]
        '<svg class="figure" viewBox="0 0 420 330" ro'
    """
    legend = _legend(panel)
    x_limits, y_limits = _limits(panel)
    left, low_edge = _margins(panel, y_limits)
    top = _TOP + _LEGEND_LINE * len(legend)
    height = _HEIGHT + (_LEGEND_LINE * max(0, len(legend) - 1)) + (low_edge - _BOTTOM)
    axes = Axes(x_limits, y_limits, top, left, height - low_edge)
    parts = [f'<svg class="figure" viewBox="0 0 {_short(_WIDTH)} {_short(height)}" role="img" aria-label="{escape(name)}">']
    parts += [f"<desc>{escape(description)}</desc>", _frame(panel, axes)]
    parts += [_layer(layer, axes) for layer in panel.layers]
    parts += [_labels(panel, axes, height), *_legend_marks(legend), "</svg>"]
    return "".join(parts)


def _limits(panel: Panel) -> tuple[tuple[float, float], tuple[float, float]]:
    grid = next((layer for layer in panel.layers if isinstance(layer, Grid)), None)
    if grid is not None:
        rows, columns = grid.cells.shape
        return (-0.5, columns - 0.5), (rows - 0.5, -0.5)
    spans = [_span(layer) for layer in panel.layers]
    x = panel.x_limits or _padded([each for span in spans for each in span[0]])
    y = panel.y_limits or _padded([each for span in spans for each in span[1]])
    return x, y


def _span(layer: Layer) -> tuple[list[float], list[float]]:
    """All finite numbers of a layer, along both axes."""
    if isinstance(layer, Columns):
        return _finite(layer.edges), [0.0, *_finite(layer.heights)]
    if isinstance(layer, (Band, Ranges)):
        return _finite(layer.x), [*_finite(layer.low), *_finite(layer.high)]
    if isinstance(layer, (Line, Points)):
        return _finite(layer.x), _finite(layer.y)
    return [], []


def _finite(values: object) -> list[float]:
    array = np.asarray(values, dtype=np.float64)
    return (
        [float(array[np.isfinite(array)].min()), float(array[np.isfinite(array)].max())] if np.isfinite(array).any() else []
    )


def _padded(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        around = abs(low) * 0.1 or 1.0
        return low - around, high + around
    edge = 0.04 * (high - low)
    return (low if low == 0 else low - edge), high + edge


def _margins(panel: Panel, y_limits: tuple[float, float]) -> tuple[float, float]:
    """The room for ticks and names on the left and below."""
    below = _BOTTOM
    longest = max((len(text) for _, text in _places(panel.y_ticks, y_limits)), default=0)
    left = min(130.0, max(_LEFT, 32.0 + _CHARACTER * longest))
    if panel.x_ticks is not None and len(panel.x_ticks) <= _MANY and _slanted(panel.x_ticks):
        below = 40.0 + 0.75 * _CHARACTER * max(len(_cut(each)) for each in panel.x_ticks)
    return left, below


def _slanted(names: Sequence[str]) -> bool:
    return max(len(_cut(each)) for each in names) * _CHARACTER > (_WIDTH - 120) / len(names)


def _cut(name: str) -> str:
    return name if len(name) <= 14 else name[:13] + "…"


def _frame(panel: Panel, axes: Axes) -> str:
    right, parts = _WIDTH - _RIGHT, []
    grid = any(isinstance(layer, Grid) for layer in panel.layers)
    for value, text in _places(panel.y_ticks, axes.y_limits):
        y = axes.y(value)
        if not grid:
            parts.append(
                f'<line class="rule" x1="{_short(axes.left)}" x2="{_short(right)}" y1="{_short(y)}" y2="{_short(y)}"/>'
            )
        parts.append(
            f'<text class="tick" x="{_short(axes.left - 6)}" y="{_short(y + 4.5)}" text-anchor="end">{escape(text)}</text>'
        )
    slanted = panel.x_ticks is not None and len(panel.x_ticks) <= _MANY and _slanted(panel.x_ticks)
    places = _places(panel.x_ticks, axes.x_limits)
    for value, text in _apart(places, right - axes.left) if panel.x_ticks is None else places:
        x, low = _short(axes.x(value)), _short(axes.bottom + 17)
        turn = f' transform="rotate(-40 {x} {_short(axes.bottom + 12)})"' if slanted else ""
        anchor = "end" if slanted else "middle"
        parts.append(f'<text class="tick" x="{x}" y="{low}" text-anchor="{anchor}"{turn}>{escape(text)}</text>')
    left, floor = _short(axes.left), _short(axes.bottom)
    parts.append(f'<line class="axis" x1="{left}" x2="{_short(right)}" y1="{floor}" y2="{floor}"/>')
    return "".join(parts)


def _places(names: Sequence[str] | None, limits: tuple[float, float]) -> list[tuple[float, str]]:
    if names is None:
        found = ticks(*limits)
        step = found[1] - found[0] if len(found) > 1 else limits[1] - limits[0]
        return [(value, tick_text(value, float(f"{step:.6g}"))) for value in found]
    return [(float(i), _cut(name)) for i, name in enumerate(names)] if len(names) <= _MANY else []


def _apart(places: list[tuple[float, str]], width: float) -> list[tuple[float, str]]:
    """Every place, or every second and so on, so that texts do not touch."""
    step = 1
    while sum(len(text) * _CHARACTER + 8 for _, text in places[::step]) > width:
        step += 1
    return places[::step]


def _layer(layer: Layer, axes: Axes) -> str:
    if isinstance(layer, Grid):
        return _cells(layer, axes)
    if isinstance(layer, Line):
        points = _points(layer.x, layer.y, axes)
        dashes = ' stroke-dasharray="6 5"' if layer.dashed else ""
        line = f'<polyline class="line {layer.role}"{dashes} points="{" ".join(f"{x},{y}" for x, y in points)}"/>'
        return line + ("".join(_dot(x, y, layer.role) for x, y in points) if layer.markers else "")
    if isinstance(layer, Points):
        return "".join(_dot(x, y, layer.role, layer.marker) for x, y in _points(layer.x, layer.y, axes))
    if isinstance(layer, Columns):
        return _columns(layer, axes)
    if isinstance(layer, Ranges):
        low, high = (
            _points(layer.x, np.clip(np.asarray(each, float), *axes.y_limits), axes) for each in (layer.low, layer.high)
        )
        path = "".join(f"M{x} {a}V{b}" for (x, a), (_, b) in zip(low, high, strict=True))
        return f'<path class="range {layer.role}" d="{path}"/>'
    if isinstance(layer, Band):
        there, back = _points(layer.x, layer.low, axes), _points(layer.x, layer.high, axes)[::-1]
        return f'<polygon class="band {layer.role}" points="{" ".join(f"{x},{y}" for x, y in there + back)}"/>'
    raise TypeError(f"`layer` must be drawn with numbers, got {type(layer).__name__}")


def _points(xs: object, ys: object, axes: Axes) -> list[tuple[str, str]]:
    pairs = zip(np.asarray(xs, float).tolist(), np.asarray(ys, float).tolist(), strict=True)
    known = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    return [(_short(axes.x(x)), _short(axes.y(y))) for x, y in known]


def _dot(x: str, y: str, role: str, marker: str = "o") -> str:
    if marker == "x":
        return f'<path class="cross {role}" d="M{x} {y}m-4-4l8 8m0-8l-8 8"/>'
    return f'<circle class="dot {role}" cx="{x}" cy="{y}" r="{2.5 if marker == "." else 3.5}"/>'


def _columns(layer: Columns, axes: Axes) -> str:
    edges, heights = (np.asarray(each, float).tolist() for each in (layer.edges, layer.heights))
    parts = []
    for low, high, size in zip(edges[:-1], edges[1:], heights, strict=True):
        x, y, bottom = axes.x(low), axes.y(size), axes.y(0.0)
        width = max(1.0, axes.x(high) - x - 1)
        parts.append(f'<rect class="column {layer.role}" x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" '
                     f'height="{_short(max(0.0, bottom - y))}"/>')  # fmt: skip
    return "".join(parts)


def _cells(layer: Grid, axes: Axes) -> str:
    rows, columns = layer.cells.shape
    wide, high = axes.x(1) - axes.x(0), axes.y(1) - axes.y(0)
    gap = 1.0 if columns <= _MANY else 0.0
    peak = 1.0 if layer.texts is None else 0.65  # so that text on it stays legible
    corner = f'x="{_short(axes.x(-0.5))}" y="{_short(axes.y(-0.5))}"'
    parts = [f'<rect class="empty" {corner} width="{_short(wide * columns)}" height="{_short(high * rows)}"/>']
    for (i, j), value in np.ndenumerate(layer.cells):
        if value > 0:
            place = f'x="{_short(axes.x(j - 0.5))}" y="{_short(axes.y(i - 0.5))}"'
            size = f'width="{_short(wide - gap)}" height="{_short(high - gap)}"'
            parts.append(
                f'<rect class="cell" {place} {size} fill-opacity="{_short(0.06 + (peak - 0.06) * float(value), 3)}"/>'
            )
        if layer.texts is not None:
            parts.append(f'<text class="count" x="{_short(axes.x(j))}" y="{_short(axes.y(i) + 4.5)}" '
                         f'text-anchor="middle">{escape(layer.texts[i][j])}</text>')  # fmt: skip
    return "".join(parts)


def _labels(panel: Panel, axes: Axes, height: float) -> str:
    middle_x, middle_y = _short((axes.left + _WIDTH - _RIGHT) / 2), _short((axes.top + axes.bottom) / 2)
    return (
        f'<text class="label" x="{middle_x}" y="{_short(height - 8)}" text-anchor="middle">{escape(panel.x_label)}</text>'
        f'<text class="label" x="14" y="{middle_y}" text-anchor="middle" transform="rotate(-90 14 {middle_y})">'
        f"{escape(panel.y_label)}</text>"
    )


def _legend(panel: Panel) -> list[list[Layer]]:
    """The labelled layers, as many on a line as fit."""
    lines: list[list[Layer]] = []
    used = math.inf
    for layer in panel.layers if panel.legend else ():
        label = getattr(layer, "label", "")
        if label:
            length = 36 + _CHARACTER * len(label)
            if used + length > _WIDTH - _LEFT:
                lines.append([])
                used = 0.0
            lines[-1].append(layer)
            used += length
    return lines


def _legend_marks(lines: list[list[Layer]]) -> list[str]:
    parts = []
    for number, line in enumerate(lines):
        x, y = _LEFT, 13 + _LEGEND_LINE * number
        for layer in line:
            role, label = getattr(layer, "role", "ours"), getattr(layer, "label", "")
            parts.append(_sample(layer, role, x, y))
            parts.append(f'<text class="legend" x="{_short(x + 24)}" y="{_short(y + 4.5)}">{escape(label)}</text>')
            x += 36 + _CHARACTER * len(label)
    return parts


def _sample(layer: Layer, role: str, x: float, y: float) -> str:
    if isinstance(layer, Points):
        return _dot(_short(x + 10), _short(y), role, layer.marker)
    if isinstance(layer, (Columns, Band)):
        kind = "column" if isinstance(layer, Columns) else "band"
        return f'<rect class="{kind} {role}" x="{_short(x)}" y="{_short(y - 5)}" width="20" height="10"/>'
    if isinstance(layer, Ranges):
        return f'<path class="range {role}" d="M{_short(x + 10)} {_short(y - 7)}V{_short(y + 7)}"/>'
    dashes = ' stroke-dasharray="6 5"' if isinstance(layer, Line) and layer.dashed else ""
    return f'<polyline class="line {role}"{dashes} points="{_short(x)},{_short(y)} {_short(x + 20)},{_short(y)}"/>'


def _short(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"
