"""Numbers as text, and sentences that say what they mean."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

FEWEST_ROWS = 10  # below which even an error cannot be told
FEW_ROWS = 100  # below which rows may be too few to tell whether predictions are any good
LEAST_ROWS, MOST_CHANCE = 50, 0.1  # rows, and the part of a share that chance may explain, to say that a promise is kept
CHANGED = "it has changed beyond chance"
_SPACE = "\u202f"


def count(value: int) -> str:
    """A whole number, thousands apart from five digits on.

    Example:
        >>> count(4573), count(1000000) == "1\u202f000\u202f000"
        ('4573', True)
    """
    return str(value) if abs(value) < 10_000 else f"{value:,}".replace(",", _SPACE)


def row_count(value: int) -> str:
    """A number of rows.

    Example:
        >>> row_count(1), row_count(2)
        ('1 row', '2 rows')
    """
    return f"{count(value)} row{'' if value == 1 else 's'}"


def number(value: float | None, digits: int = 4) -> str:
    """A number to some significant digits; whole numbers up to ten million keep all of theirs.

    Example:
        >>> number(0.41237), number(-3.0), number(3217.6), number(1e-7), number(0.0), number(None)
        ('0.4124', '−3.000', '3218', '1e-07', '0', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    sign, size = "−" if value < 0 else "", abs(value)
    if math.isinf(size):
        return f"{sign}∞"
    if size == 0:
        return "0"
    if 10 ** (digits - 1) <= size < 1e7:
        return sign + count(round(size))
    if not 1e-4 <= size < 1e7:
        return sign + f"{size:.{digits}g}"
    return sign + f"{size:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"


def threshold_text(value: float, at_least: bool) -> str:
    """A threshold to six digits, rounded so that whatever meets the exact one meets it too.

    Example:
        >>> threshold_text(0.12345678, at_least=True), threshold_text(123456.2, at_least=False)
        ('0.123456', '123457')
    """
    if value == 0:
        return "0"
    digits = 5 - math.floor(math.log10(abs(value)))
    rounded = math.floor(value * 10.0**digits) if at_least else math.ceil(value * 10.0**digits)
    return f"{rounded / 10.0**digits:.{max(0, digits)}f}" if -5 <= digits <= 12 else f"{value:.6g}"


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent.

    Example:
        >>> percent(0.8731) == "87.3\u202f%"
        True
    """
    return f"{100 * share:.{digits}f}{_SPACE}%"


def level(share: float) -> str:
    """A share that someone chose, in per cent with no more digits than it has.

    Example:
        >>> level(0.9) == "90\u202f%", level(0.999) == "99.9\u202f%"
        (True, True)
    """
    return f"{100 * share:.10g}{_SPACE}%"


def cell(value: Any) -> str:
    """The value of a cell of the data, of any type, as short text.

    Example:
        >>> cell(0.123456), cell(45678.0), cell(None), cell("x" * 100)[-3:]
        ('0.1235', '45\u202f678', '–', 'xx…')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return count(round(value)) if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return short(str(value), 60)


def short(text: str, most: int = 40) -> str:
    """Text that came from a table, cut where it is long.

    Example:
        >>> short("a long name", 6)
        'a lon…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


class Difference(NamedTuple):
    """How much lower or higher one score is than another's, and the standard error of that over rows.

    Arguments:
        change: less than 0 if ours is better, whichever way the score goes.
        is_share: whether it is of shares, and told in points.
        higher_is_better: whether more of the score is better.
    """

    name: str
    change: float
    error: float
    is_share: bool = False
    higher_is_better: bool = False

    def clear(self, n_rows: int) -> int:
        """-1 if ours is better beyond chance, 1 if it is worse, 0 if these rows cannot tell."""
        if n_rows < FEWEST_ROWS:
            return 0
        margin = chance_factor(n_rows) * self.error
        return -1 if self.change < -margin else int(self.change > margin)

    def text(self) -> str:
        """As in "its NLL is 0.50 lower (± 0.10)"."""
        sizes = abs(self.change), self.error
        size, error = (f"{100 * value:.1f} points" if self.is_share else number(value, 2) for value in sizes)
        name = self.name if self.name.isupper() or self.name.startswith("Brier") else self.name[0].lower() + self.name[1:]
        if self.change == 0:
            return f"its {name} is the same"
        return f"its {name} is {size} {'lower' if (self.change < 0) != self.higher_is_better else 'higher'} (± {error})"


def chance_factor(n_rows: int) -> float:
    """How many standard errors a mean of so many rows may be away by chance, in 19 of 20 cases (Student's t).

    Example:
        >>> [round(chance_factor(n), 1) for n in (5, 20, 1000)]
        [2.7, 2.1, 2.0]
    """
    freedom = max(n_rows - 1, 1)
    return 1.96 + 2.37 / freedom + 2.82 / freedom**2


def lead_verdict(differences: Sequence[Difference], n_rows: int) -> str:
    """Whether predictions are better than the same one for every row, by all scores that tell.

    Example:
        >>> nll, mae = Difference("NLL", -0.5, 0.1), Difference("MAE", 0.01, 0.1)
        >>> lead_verdict([nll, mae], 400)
        'It is better than a constant prediction: its NLL is 0.50 lower (± 0.10).'
        >>> lead_verdict([mae], 400)
        'It is no better than a constant prediction, by these rows: its MAE is 0.010 higher (± 0.10).'
        >>> lead_verdict([mae], 20)
        '20 rows are too few to tell whether it is better than a constant prediction: its MAE is 0.010 higher (± 0.10).'
    """
    better, worse = ([each.text() for each in differences if each.clear(n_rows) == way] for way in (-1, 1))
    if better and worse:
        return f"Compared with a constant prediction, {_listed(better)}, but {_listed(worse)}."
    if better or worse:
        return f"It is {'better' if better else 'worse'} than a constant prediction: {_listed(better or worse)}."
    changes = _listed([each.text() for each in differences])
    if n_rows < FEW_ROWS:
        return f"{_too_few(n_rows)} whether it is better than a constant prediction: {changes}."
    return f"It is no better than a constant prediction, by these rows: {changes}."


def _too_few(n_rows: int) -> str:
    return f"{row_count(n_rows)} {'is' if n_rows == 1 else 'are'} too few to tell"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def gain_verdict(difference: Difference, n_rows: int) -> str:
    """Whether an ensemble is better than one member.

    Example:
        >>> gain_verdict(Difference("NLL", -0.5, 0.1), 100)
        'Beside one member, its NLL is 0.50 lower (± 0.10): the ensemble is better.'
    """
    verdicts = {-1: "the ensemble is better", 0: "no difference beyond chance", 1: "the ensemble is worse"}
    return f"Beside one member, {difference.text()}: {verdicts[difference.clear(n_rows)]}."


def coverage_verdict(wanted: float, observed: float, n_rows: int, promised: float | None = None) -> str:
    """Whether intervals hold as many rows as they should, or chance explains the difference.

    Arguments:
        wanted: the share of rows that they are made for.
        observed: the share inside.
        n_rows: of how many.
        promised: the predicted probability inside; of whole numbers it is more than wanted.

    Example:
        >>> print(coverage_verdict(0.9, 0.873, 4000).replace("\u202f", " "))
        The 90 % intervals hold 87.3 % of the rows: slightly too narrow.
    """
    aim = wanted if promised is None else min(promised, 1.0)
    chance = 2 * math.sqrt(aim * (1 - aim) / n_rows)
    difference = observed - aim
    if abs(difference) <= chance and (chance > MOST_CHANCE or n_rows < LEAST_ROWS):
        verdict = f"{_too_few(n_rows)} more, as chance explains {min(100 * chance, 100):.0f} points"
    elif abs(difference) <= chance:
        verdict = f"as promised, within the {100 * chance:.1f} points that chance explains"
    else:
        verdict = f"{'slightly ' if abs(difference) <= 0.05 else ''}too {'narrow' if difference < 0 else 'wide'}"
    whole = "" if promised is None else f" and promise {percent(aim)}, as they are of whole numbers"
    return f"The {level(wanted)} intervals hold {percent(observed)} of the rows{whole}: {verdict}."


def confidence_verdict(confidence: float, accuracy: float, n_rows: int) -> str:
    """Whether predictions are right as often as they claim, or chance explains the difference.

    Example:
        >>> print(confidence_verdict(0.97, 0.91, 400).replace("\u202f", " "))
        It says it is right in 97.0 % of the rows and is in 91.0 %: overconfident.
    """
    chance = 2 * math.sqrt(max(accuracy * (1 - accuracy), 1 / n_rows) / n_rows)
    difference = confidence - accuracy
    slightly = "slightly " if abs(difference) <= 0.03 else ""
    verdict = f"{slightly}{'over' if difference > 0 else 'under'}confident"
    if abs(difference) <= chance and (chance > MOST_CHANCE or n_rows < LEAST_ROWS):
        verdict = f"{_too_few(n_rows)} more, as chance explains {min(100 * chance, 100):.0f} points"
    elif abs(difference) <= chance:
        verdict = f"honest, within the {100 * chance:.1f} points that chance explains"
    return f"It says it is right in {percent(confidence)} of the rows and is in {percent(accuracy)}: {verdict}."


def order_verdict(strength: float, chance: float, good: float) -> str:
    """Whether predictions are ordered by their uncertainty as by their errors.

    Arguments:
        strength: how well it does so, 0 if not at all.
        chance: the strength that chance alone may reach.
        good: the least value that counts as good.

    Example:
        >>> order_verdict(0.5, 0.1, 0.2), order_verdict(0.05, 0.1, 0.2)
        ('it knows what it does not know', 'no more than chance explains')
    """
    if strength <= chance:
        return "no more than chance explains"
    return "it knows what it does not know" if strength >= good else "it knows only little of what it does not know"


def round_step(size: float, parts: int) -> float:
    """The largest of 1, 2 or 5 times a power of ten that makes at least so many parts.

    Example:
        >>> round_step(1.0, 40), round_step(37.0, 5)
        (0.02, 5.0)
    """
    power = 10.0 ** math.floor(math.log10(size / parts))
    factor = max(factor for factor in (1, 2, 5) if factor * power <= size / parts * (1 + 1e-9))
    return float(f"{factor * power:.1g}")
