"""Figures; the only file that knows the plotting library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("figures need matplotlib: pip install 'deep-ensembles[report]'") from error

_INK, _BLUE, _ORANGE, _GREY = "#1f2933", "#2563a8", "#c2571a", "#9aa5b1"
_STYLE = {"color": _INK, "fontsize": 11}


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure; the format is the file's ending."""
    FigureCanvasAgg(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def demo_figure(
    mean: np.ndarray, deviation: np.ndarray, actual: np.ndarray, coverage: np.ndarray, digits: list[dict[str, Any]]
) -> Figure:
    """Predictions with bars, expected against observed coverage, and the most and least certain images.

    Arguments:
        mean, deviation, actual: of the test rows of a regression.
        coverage: `[2, level]`: expected and observed.
        digits: for each image `pixels`, `title` and `certain` (True for the upper row).
    """
    figure = Figure(figsize=(13, 8.2), layout="constrained", facecolor="white")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    upper, lower = parts
    left, right = upper.subplots(1, 2, width_ratios=(1.8, 1))
    _predicted_against_actual(left, mean, deviation, actual)
    _coverage(right, coverage)
    lower.suptitle("Digits: the surest and the least sure of the test images", **_STYLE)
    columns = (len(digits) + 1) // 2
    axes = lower.subplots(2, columns)
    for row, certain in zip(axes, (True, False), strict=True):
        for axis, digit in zip(row, [each for each in digits if each["certain"] is certain], strict=True):
            axis.imshow(digit["pixels"], cmap="gray_r", interpolation="nearest")
            axis.set_title(digit["title"], color=_BLUE if certain else _ORANGE, fontsize=9)
            axis.set_axis_off()
    return figure


def _predicted_against_actual(axis: Any, mean: np.ndarray, deviation: np.ndarray, actual: np.ndarray) -> None:
    order = np.argsort(mean)
    place = np.arange(len(mean))
    low, high = mean[order] - 1.645 * deviation[order], mean[order] + 1.645 * deviation[order]
    outside = (actual[order] < low) | (actual[order] > high)
    axis.fill_between(place, low, high, color=_BLUE, alpha=0.18, linewidth=0, label="90 % interval")
    axis.plot(place, mean[order], color=_BLUE, linewidth=1.5, label="predicted mean")
    axis.plot(place[~outside], actual[order][~outside], ".", color=_INK, markersize=5, label="actual, inside")
    axis.plot(place[outside], actual[order][outside], "x", color=_ORANGE, markersize=6, label="actual, outside")
    axis.set_title("Diabetes: progression after one year, test patients by prediction", **_STYLE)
    axis.set_xlabel("test patient, from the lowest to the highest prediction")
    axis.set_ylabel("disease progression")
    axis.legend(frameon=False, loc="upper left", fontsize=9)
    _plain(axis)


def _coverage(axis: Any, coverage: np.ndarray) -> None:
    expected, observed = coverage
    axis.plot([0, 1], [0, 1], color=_GREY, linewidth=1, label="ideal")
    axis.plot(expected, observed, "o-", color=_BLUE, markersize=5, label="ensemble")
    axis.set_title("Does a p % interval hold p %?", **_STYLE)
    axis.set_xlabel("expected share inside the interval")
    axis.set_ylabel("observed share on test rows")
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 1)
    axis.set_aspect("equal")
    axis.legend(frameon=False, loc="upper left", fontsize=9)
    _plain(axis)


def _plain(axis: Any) -> None:
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(colors=_INK)
