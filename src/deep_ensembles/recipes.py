"""Which settings for which data: the default, and the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import torch

from deep_ensembles._checks import check_integer, require
from deep_ensembles._splits import united
from deep_ensembles._tensors import is_structured
from deep_ensembles.heads import GaussianMixture, HeadFunction, Normal, StudentT
from deep_ensembles.networks import mlp, periodic_mlp
from deep_ensembles.networks.mlp import checked_sizes
from deep_ensembles.training import Adam, Cosine, Recipe, RobustScaling
from deep_ensembles.training.blocks import BlockSource

Auto = Literal["auto"]
EFFORTS = ("fast", "default", "best")

# The paper's protocol (its section 3.2): five networks of one hidden layer, 40 epochs, no rows held out.
PAPER: dict[str, Any] = {
    "n_members": 5,
    "hidden_sizes": (50,),
    "activation": "relu",
    "max_epochs": 40,
    "batch_size": 100,
    "learning_rate": 0.01,
}
SMALL_ROWS = 4500  # up to which all rows are tried, and members are ten, so that each sees nine tenths of the rows
SCALES = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the frequencies of waves, each about three times the one before
LEAST_DIFFERENT = 0.25  # the share of different rows from which equal ones are taken for copies
_OUTLYING = 5.0  # times that a deviation is too large from which it is not the unit of targets
_DOUBLE_ROWS = 100  # up to which networks are of double precision
_MOST_EMBEDDED = 200  # columns with waves and bins
_MOST_EQUAL = 0.9  # of the rows of such a column; words, of which most rows have none, need no waves
_BINS = 48  # of each of them
_LEAST_REPEATS, _MOST_VALUES = 2, 2000  # rows per value, and values, of columns in which each value can have a vector
_MOST_VECTORS = 10_000  # of all columns: the most frequent values have one
EPSILON = 0.01  # of adversarial training, the paper's
_ADVERSARIAL_ROWS = 20_000  # from which rows lie so close together that it blurs more than it smooths
_ROW_VISITS = {"fast": 1e6, "default": 4e6, "best": 8e6}  # rows that a network sees in all, counted in every epoch anew
_EPOCHS = {"fast": 100, "default": 600, "best": 800}
_MEDIUM_ROWS = {"fast": 3000, "default": 2000, "best": 2000}  # from which epochs are fewer
_MOST_EPOCHS_OF_CLASSES = 300  # which gain nothing from more
_SMALL_NETWORK_ROWS, _SMALL_SIZES = 100_000, (64, 64)  # from which "fast" takes small networks, and their layers
_SMALL_EMBEDDING = {"n_bins": 24, "n_frequencies": 8}
_HIDDEN_SIZES = {"fast": (128, 128), "default": (128, 128), "best": (128, 128, 128)}


def is_auto(value: Any) -> bool:
    """Whether a setting is left to the recipe."""
    return isinstance(value, str) and value == "auto"


@dataclass(frozen=True)
class Task:
    """What is to be learnt, as far as settings depend on it.

    Arguments:
        inputs: `[row, column]`.
        targets: numbers `[row]` or `[row, target]`, class numbers, labels, or times that may be censored.
        n_classes: how many classes there are; 0 for numbers.
        n_outputs: how many numbers, classes or labels a head predicts.
        default_head: the plain head for such targets.
        sample_weight, groups: of the rows; rows of a group are held out together.
        levels: the columns that are numbers of categories, and how many levels each has.
        source: all rows, read in blocks, where these are a sample of them.
    """

    inputs: np.ndarray
    targets: Any
    n_classes: int
    n_outputs: int
    default_head: HeadFunction
    sample_weight: np.ndarray | None = None
    groups: np.ndarray | None = None
    levels: Mapping[int, int] | None = None
    source: BlockSource | None = None

    @cached_property
    def counted(self) -> np.ndarray:
        """The numbers of the rows that count: those with a weight above 0."""
        return np.arange(len(self.inputs)) if self.sample_weight is None else np.flatnonzero(self.sample_weight > 0)

    @property
    def n_rows(self) -> int:
        """How many rows count."""
        return len(self.counted) if self.source is None else self.source.n_rows

    @property
    def is_wide(self) -> bool:
        """Whether there are so many columns, or so few rows, that a linear model is hard to beat."""
        return self.n_rows < max(200, 4 * self.inputs.shape[1])

    @cached_property
    def outlying(self) -> float:
        """How often larger the standard deviation of targets is than the middle half of the rows says."""
        if self.n_classes or is_structured(self.targets) or not self.n_rows:
            return 1.0
        counted = self.targets[self.counted]
        low, high = np.quantile(counted, (0.25, 0.75), axis=0)
        middle, whole = np.asarray((high - low) / 1.349), np.std(counted, axis=0)
        return float(np.max(np.divide(whole, middle, out=np.ones_like(middle), where=middle > 0)))

    @property
    def has_outliers(self) -> bool:
        """Whether a few targets are so far away that the standard deviation says nothing of the others."""
        return self.outlying > _OUTLYING

    @cached_property
    def together(self) -> np.ndarray:
        """The number of each row's group: rows that a user's group or equal inputs hold together.

        Where most rows share their inputs with many others, as of a few categories, equal inputs are no copies.
        """
        equal = _equal_rows(self.inputs)
        if int(equal.max()) + 1 < LEAST_DIFFERENT * len(equal):
            return np.arange(len(equal)) if self.groups is None else self.groups
        return equal if self.groups is None else united(self.groups, equal)

    def subset(self, rows: np.ndarray) -> Task:
        """The same for some rows."""
        weights, groups = (None if part is None else part[rows] for part in (self.sample_weight, self.groups))
        known: dict[str, Any] = {"sample_weight": weights, "groups": groups, "source": None}
        return replace(self, inputs=self.inputs[rows], targets=self.targets[rows], **known)


def _equal_rows(inputs: np.ndarray) -> np.ndarray:
    """A number for each row, the same for equal ones, counted as they come."""
    rows = np.ascontiguousarray(inputs) + 0.0  # no -0.0
    bytes_of_rows = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, numbers = np.unique(bytes_of_rows, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers.ravel()]


@dataclass(frozen=True)
class Candidate:
    """What is compared by out-of-fold scores: a head, and a network.

    Arguments:
        scale: of the frequencies of its waves; 0 for no waves.
        hidden_sizes: of its hidden layers; none for a linear model.
        has_bins: whether it sees bins of each number beside the waves.
        repeated: columns of numbers that repeat, and how many values of each have a vector.
        epsilon: of adversarial training, in parts of the range of each input.
        is_constant: whether it says the shares of classes of every row.
    """

    head: Any
    scale: float
    hidden_sizes: tuple[int, ...]
    has_bins: bool = False
    repeated: tuple[tuple[int, int], ...] = ()
    epsilon: float = 0.0
    is_constant: bool = False

    @property
    def family(self) -> tuple[Any, ...]:
        """What ensembles must share to be joined into one."""
        return self.head, self.scale > 0, self.hidden_sizes, self.repeated

    @property
    def network(self) -> str:
        """What tells it from others of its family, in words."""
        if self.is_constant:
            return "constant"
        words = [f"waves {self.scale:g}"] if self.scale else ["no waves"]
        words += ["bins"] if self.has_bins else []
        words += ["values"] if self.repeated else []
        return ", ".join([*words, f"adversarial {self.epsilon:g}"] if self.epsilon else words)


@dataclass(frozen=True)
class Choices:
    """From task, rows and columns to every setting, but for what is compared.

    Arguments:
        explicit: settings that are not to be chosen: any of the estimators'.
        preset: "paper" for the paper's protocol.
        effort: "fast" tries one network, "best" more and larger ones than usual.
    """

    explicit: Mapping[str, Any]
    preset: str | None = None
    effort: str = "default"

    def __post_init__(self) -> None:
        require(self.effort in EFFORTS, "effort", f"one of {', '.join(EFFORTS)}", self.effort)
        require(self.preset in (None, "paper"), "preset", 'None or "paper"', self.preset)
        if "n_members" in self.explicit:
            check_integer("n_members", self.explicit["n_members"], low=1)

    def training(self, task: Task, is_linear: bool = False) -> dict[str, Any]:
        """The settings of `fit_ensemble` for these rows, what is explicit among them."""
        known = (*Recipe.__dataclass_fields__, "perturbation", "scoring_rule")
        usual = self._usual(task)
        usual |= self._descent(task) if self.preset is None and (is_linear or task.inputs.shape[1] > task.n_rows) else {}
        return usual | {name: value for name, value in self.explicit.items() if name in known}

    def _usual(self, task: Task) -> dict[str, Any]:
        if self.preset == "paper":
            return {name: PAPER[name] for name in ("max_epochs", "batch_size", "learning_rate")}
        most, visits, medium = (part[self.effort] for part in (_EPOCHS, _ROW_VISITS, _MEDIUM_ROWS))
        epochs = int(np.clip(min(visits / task.n_rows, most * (medium / task.n_rows) ** 0.5), 12, most))
        epochs = min(epochs, _MOST_EPOCHS_OF_CLASSES) if task.n_classes else epochs
        return {
            "max_epochs": epochs,
            "batch_size": batch_size(task.n_rows),
            "drop_last": True,
            "learning_rate": 0.005 * min(1.0, 100 / task.inputs.shape[1]),
            "schedule": Cosine(),
            "averaging": 10.0,
            "clip_norm": 1.0,
            "early_stopping": task.n_rows > 1,
            "patience": max(20, epochs // 4),
            "patience_factor": None if "patience" in self.explicit else 1.25,
            "standardize_inputs": RobustScaling(),
            "standardize_targets": RobustScaling() if task.has_outliers else True,
        }

    @staticmethod
    def _descent(task: Task) -> dict[str, Any]:
        """Steps along the gradient itself, for linear models and where columns are many.

        Adam changes all weights by the same step, which finds worse weights there; a large ε leaves gradients as they are.
        The rate is what the largest eigenvalue of such inputs allows.
        """
        n, d = task.n_rows, task.inputs.shape[1]
        rate = min(1.0, 2 * n / (d**0.5 + n**0.5) ** 2)
        if task.n_classes:
            return {"optimizer": Adam(epsilon=1.0), "learning_rate": rate, "clip_norm": None}
        return {"optimizer": Adam(epsilon=1.0), "learning_rate": 0.1 * rate}

    def _takes_small_networks(self, task: Task) -> bool:
        """Whether networks are fewer and smaller than usual."""
        return self.preset is None and self.effort == "fast" and task.n_rows >= _SMALL_NETWORK_ROWS

    def n_members(self, task: Task) -> int:
        """How many networks a candidate has."""
        most = SMALL_ROWS if self.effort != "fast" else 0
        several = 10 if task.n_rows <= most or task.is_wide else 3 if self._takes_small_networks(task) else 5
        usual = PAPER["n_members"] if self.preset == "paper" else several * (2 if self.effort == "best" else 1)
        return self.explicit.get("n_members", usual)

    def heads(self, task: Task, has_floor: bool = True) -> list[Any]:
        """Heads to compare, the plainest first; with a floor under the variance where targets lie on a lattice."""
        if self.explicit.get("head") is not None:
            return [self.explicit["head"]]
        is_fixed = self.explicit.get("network") is not None or "head" in self.explicit or self.preset == "paper"
        if is_fixed or task.n_classes or is_structured(task.targets):
            return [task.default_head]
        step, distinct = target_step(task.targets)
        floor = has_floor * (step * (task.outlying if task.has_outliers else 1.0)) ** 2 / 12
        kinds: list[type] = [StudentT]
        if self.effort != "fast" and np.ndim(task.targets) == 1:
            kinds += [Normal, GaussianMixture] if task.n_rows >= 1000 and distinct > 0.5 else [Normal]
        return [kind(min_variance=max(kind.min_variance, floor)) for kind in kinds]  # type: ignore[attr-defined]

    def candidates(self, task: Task) -> tuple[list[Any], tuple[float, ...], tuple[int, ...]]:
        """Heads and scales of frequencies to compare, and the sizes of hidden layers."""
        usual = PAPER["hidden_sizes"] if self.preset == "paper" else _HIDDEN_SIZES[self.effort]
        usual = _SMALL_SIZES if self._takes_small_networks(task) else usual
        sizes = tuple(checked_sizes(self.explicit.get("hidden_sizes", usual)))
        plain = self.preset == "paper" or self.explicit.get("network") is not None or bool(self.explicit.get("batch_norm"))
        return self.heads(task), (0.0,) if plain or not embedded_columns(task.inputs, task.levels) else SCALES, sizes

    def tries_linear(self, task: Task) -> bool:
        """Whether a network without hidden layers is among the candidates."""
        is_asked = self.explicit.get("network") is not None or "hidden_sizes" in self.explicit
        return not is_asked and (task.n_classes > 0 or task.is_wide)

    def tries_adversary(self, task: Task) -> bool:
        """Whether adversarial training is among the candidates."""
        is_open = self.preset is None and "perturbation" not in self.explicit
        return is_open and task.n_rows < _ADVERSARIAL_ROWS and not is_structured(task.targets)

    def build(self, candidate: Candidate, task: Task) -> Callable[[], Any]:
        """The factory of a candidate's networks."""
        size = getattr(candidate.head, "raw_size", lambda n: n)(task.n_outputs)
        explicit, n_inputs = self.explicit, task.inputs.shape[1]
        if explicit.get("network") is not None:
            return explicit["network"](n_inputs, size)
        named: dict[str, Any] = {"dropout": explicit.get("dropout", 0.0), "activation": explicit.get("activation", "silu")}
        # Where rows are few, double precision costs nothing, and makes a row of weight 2 the same as two rows, and any order
        # of rows the same, to many digits.
        named["dtype"] = torch.float64 if len(task.inputs) <= _DOUBLE_ROWS else None
        if self.preset == "paper" or explicit.get("batch_norm"):
            named["activation"] = explicit.get("activation", PAPER["activation"])
            norm = explicit.get("batch_norm", False)
            return partial(mlp, n_inputs, size, candidate.hidden_sizes, batch_norm=norm, **named)
        embedded = embedded_columns(task.inputs, task.levels)
        named["levels"] = task.levels
        named["columns"] = None if len(embedded) == n_inputs else tuple(embedded)
        if candidate.scale:
            named |= {"frequency_scale": candidate.scale, "sets_bins": candidate.has_bins}
            named |= {"repeated": dict(candidate.repeated)} if candidate.repeated else {}
            named |= _SMALL_EMBEDDING if self._takes_small_networks(task) else {"n_bins": _BINS}
        else:
            named["n_frequencies"] = 0
        return partial(periodic_mlp, n_inputs, size, candidate.hidden_sizes, **named)


def embedded_columns(inputs: np.ndarray, levels: Mapping[int, int] | None = None) -> list[int]:
    """Columns of more than two different numbers, not nearly all of them the same, unless there are very many."""
    sample = inputs[:: max(1, len(inputs) // 2000)]
    counts = {i: np.unique(sample[:, i], return_counts=True)[1] for i in range(sample.shape[1]) if i not in (levels or ())}
    columns = [i for i, count in counts.items() if len(count) > 2 and count.max() <= _MOST_EQUAL * len(sample)]
    return columns if len(columns) <= _MOST_EMBEDDED else []


def repeated_columns(inputs: np.ndarray, levels: Mapping[int, int] | None = None) -> tuple[tuple[int, int], ...]:
    """Columns of more different numbers than there are bins, which several rows have each, and how many have a vector."""
    sample = inputs[:: max(1, len(inputs) // 20_000)]
    counts = {i: len(np.unique(sample[:, i])) for i in embedded_columns(inputs, levels)}
    most = min(_MOST_VALUES, len(sample) // _LEAST_REPEATS)
    columns = [(i, count) for i, count in counts.items() if _BINS < count <= most]
    return tuple((i, min(count, _MOST_VECTORS // len(columns))) for i, count in columns)


def batch_size(n_rows: int) -> int:
    """Rows per step: few where there are few, so that an epoch has some dozen steps; never so many that steps become few.

    Example:
        >>> [batch_size(n) for n in (100, 1_000, 5_000, 1_000_000)]
        [32, 64, 128, 256]
    """
    return next((size for limit, size in ((500, 32), (2000, 64), (8000, 128)) if n_rows < limit), 256)


def target_step(targets: np.ndarray) -> tuple[float, float]:
    """The step of the lattice that targets lie on, in standard deviations (0 if they lie on none), and the share of
    different values.

    Values that are rounded to a step h are uncertain by a variance of at least h²/12, whatever is known of them.

    Example:
        >>> step, distinct = target_step(np.array([3.0, 5.0, 6.0, 5.0] * 10))
        >>> round(step, 3), distinct
        (0.918, 0.075)
    """
    column = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)[:, 0]
    column = column / (np.abs(column).max() or 1.0)  # squares must neither under- nor overflow
    values, deviation = np.unique(column), float(column.std())
    distinct = len(values) / len(column)
    gaps = np.diff(values)
    if distinct > 0.25 or len(values) < 2 or deviation == 0:
        return 0.0, distinct
    steps = gaps / gaps.min()
    on_lattice = bool(np.abs(steps - steps.round()).max() < 1e-3)
    return float(gaps.min()) / deviation if on_lattice else 0.0, distinct
