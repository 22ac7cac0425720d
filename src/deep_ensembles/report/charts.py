"""What a figure shows, as plain data; `report.figures` and `report.svg` draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

# What a mark stands for; its colour is the drawing's choice.
Role: TypeAlias = Literal["ours", "other", "third", "fourth", "truth", "data", "muted"]


@dataclass(frozen=True)
class Line:
    """A line through points, with markers or dashes on request."""

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    role: Role = "ours"
    dashed: bool = False
    markers: bool = False


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    label: str = ""
    role: Role = "ours"


@dataclass(frozen=True)
class Points:
    """Single points, with horizontal bars of half-length `x_error` if given."""

    x: ArrayLike
    y: ArrayLike
    label: str = ""
    role: Role = "data"
    x_error: ArrayLike | None = None
    marker: str = "o"


@dataclass(frozen=True)
class Image:
    """Pixels: `[height, width]` grey or `[height, width, 3]` colours."""

    pixels: np.ndarray


@dataclass(frozen=True)
class Ranges:
    """A vertical bar from `low` to `high` at each place."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    label: str = ""
    role: Role = "ours"


@dataclass(frozen=True)
class Columns:
    """Columns from 0 to `heights` that stand between neighbouring `edges`, of which there is one more."""

    edges: ArrayLike
    heights: ArrayLike
    label: str = ""
    role: Role = "ours"


@dataclass(frozen=True)
class Grid:
    """Cells `[row, column]` between 0 (empty) and 1 (full), row 0 on top at height 0, with a text in each on request."""

    cells: np.ndarray
    texts: Sequence[Sequence[str]] | None = None


Layer: TypeAlias = Line | Band | Points | Image | Ranges | Columns | Grid


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Arguments:
        layers: what is drawn, the lowest first.
        title, x_label, y_label: texts.
        x_limits, y_limits: what is shown; chosen to fit if None.
        x_ticks, y_ticks: names for the places 0, 1, … on an axis.
        square: whether it is as high as wide.
        legend: whether labels are listed inside.
    """

    layers: Sequence[Layer]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_ticks: Sequence[str] | None = None
    y_ticks: Sequence[str] | None = None
    square: bool = False
    legend: bool = True


@dataclass(frozen=True)
class Row:
    """Panels side by side.

    Arguments:
        panels: from left to right.
        title: above them.
        height: in inches.
        widths: of the panels, relative.
    """

    panels: Sequence[Panel]
    title: str = ""
    height: float = 4.0
    widths: Sequence[float] | None = None


@dataclass(frozen=True)
class Figure:
    """Rows of panels, and what a person who cannot see it should read instead."""

    rows: Sequence[Row]
    title: str = ""
    width: float = 13.0
    description: str = ""
