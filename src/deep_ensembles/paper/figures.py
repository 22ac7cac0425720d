"""Draws figures; the only file that knows the plotting library."""

import io
from pathlib import Path
from typing import Any

from deep_ensembles._files import write_atomically
from deep_ensembles.report.charts import Band, Figure, Grid, Image, Layer, Line, Panel, Points, Ranges

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas
except ImportError as error:
    raise ImportError("figures need matplotlib: pip install 'deep-ensembles[report]'") from error

_INK = "#1f2933"
_COLOURS = {
    "ours": "#2563a8",
    "other": "#c2571a",
    "third": "#2a7f5f",
    "fourth": "#7a4fa3",
    "truth": "#2563a8",
    "data": "#b3261e",
    "muted": "#8a94a0",
}
_PIXELS_PER_INCH = 120


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure; the format is the file's ending. The same figure gives the same bytes."""
    buffer = io.BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": "deep-ensembles"}):
        draw(figure).savefig(buffer, dpi=_PIXELS_PER_INCH, format=path.suffix[1:], metadata=metadata)
    write_atomically(path, buffer.getvalue())
    return path


def draw(figure: Figure) -> Canvas:
    """The figure on a canvas."""
    canvas = Canvas(figsize=(figure.width, sum(row.height for row in figure.rows)), layout="constrained", facecolor="white")
    canvas.get_layout_engine().set(w_pad=0.08, h_pad=0.08)  # type: ignore[union-attr, call-arg]
    if figure.title:
        canvas.suptitle(figure.title, color=_INK, fontsize=13)
    parts: Any = canvas.subfigures(len(figure.rows), 1, height_ratios=[row.height for row in figure.rows], squeeze=False)
    for part, row in zip(parts[:, 0], figure.rows, strict=True):
        if row.title:
            part.suptitle(row.title, color=_INK, fontsize=11)
        axes = part.subplots(1, len(row.panels), width_ratios=row.widths, squeeze=False)[0]
        for axis, panel in zip(axes, row.panels, strict=True):
            _draw_panel(axis, panel)
    return canvas


def _draw_panel(axis: Any, panel: Panel) -> None:
    for layer in panel.layers:
        _draw_layer(axis, layer)
    is_image = any(isinstance(layer, Image) for layer in panel.layers)
    axis.set_title(panel.title, color=_INK, fontsize=9 if is_image else 11)
    axis.set(xlabel=panel.x_label, ylabel=panel.y_label, box_aspect=1 if panel.square else None)
    for name, limits, ticks in (("x", panel.x_limits, panel.x_ticks), ("y", panel.y_limits, panel.y_ticks)):
        if limits is not None:
            axis.set(**{f"{name}lim": limits})
        if ticks is not None:
            axis.set(**{f"{name}ticks": range(len(ticks)), f"{name}ticklabels": ticks})
    if is_image:
        axis.set_axis_off()
    elif panel.legend and axis.get_legend_handles_labels()[1]:
        axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=_INK)


def _draw_layer(axis: Any, layer: Layer) -> None:
    if isinstance(layer, Image):
        axis.imshow(layer.pixels, cmap="gray_r" if layer.pixels.ndim == 2 else None, interpolation="nearest")
        return
    if isinstance(layer, Grid):
        axis.imshow(layer.cells, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for row, texts in enumerate(layer.texts or ()):
            for column, text in enumerate(texts):
                axis.text(column, row, text, ha="center", va="center", color=_INK, fontsize=8)
        return
    style: dict[str, Any] = {"color": _COLOURS[layer.role], "label": layer.label or None}
    if isinstance(layer, Band):
        axis.fill_between(layer.x, layer.low, layer.high, alpha=0.28, linewidth=0, **style)
    elif isinstance(layer, Ranges):
        axis.vlines(layer.x, layer.low, layer.high, alpha=0.5, linewidth=1.2, **style)
    elif isinstance(layer, Line):
        dashes, marker = "--" if layer.dashed else "-", "o" if layer.markers else None
        axis.plot(layer.x, layer.y, dashes, marker=marker, markersize=4.5, linewidth=1.5, **style)
    elif isinstance(layer, Points):
        style |= {"markersize": 4.5, "capsize": 2, "elinewidth": 1.2}
        axis.errorbar(layer.x, layer.y, xerr=layer.x_error, fmt=layer.marker, **style)
    else:
        axis.stairs(layer.heights, layer.edges, fill=True, alpha=0.7, **style)
