"""Numbers as text, and sentences that say what they mean."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

FEWEST_ROWS = 10  # below which even an error cannot be told
FEW_ROWS = 100  # below which rows may be too few to tell whether predictions are any good
LEAST_ROWS, MOST_CHANCE = 50, 0.1  # rows, and the part of a share that chance may explain, to say that a promise is kept
CHANGED = "it has changed beyond chance"
CHANCE = "no more than chance explains"
_NONE = 1e-9  # a share that rounding explains
_LEANING = 1.5  # standard errors, from which rows rather leave open whether predictions are better
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


def with_error(value: float, error: float, is_share: bool = False) -> str:
    """A value and its standard error.

    Example:
        >>> with_error(1.23456, 0.0234)
        '1.23 ± 0.023'
    """
    return f"{percent(value)} ± {percent(error)}" if is_share else f"{number(value, 3)} ± {number(error, 2)}"


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
    """What an ensemble changes of a score, with its standard error.

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


Standing = Literal["better", "worse", "mixed", "few rows", "open", "no better"]


def standing(leads: Sequence[Difference], n_rows: int) -> Standing:
    """Whether predictions are better than the same one for every row, by all scores that have an error.

    Beyond chance they are better, worse, or by some scores better and by others worse (mixed). Else rows may be too few to
    tell, or leave it open as a score is better by one and a half errors at least; or predictions are no better.

    Example:
        >>> nll, area = Difference("NLL", -0.09, 0.05), Difference("AUROC", -0.33, 0.08, True, True)
        >>> standing([nll], 400), standing([nll, area], 400), standing([nll], 40)
        ('open', 'better', 'few rows')
    """
    ways = {lead.clear(n_rows) for lead in leads} - {0}
    if ways:
        return "mixed" if len(ways) > 1 else "better" if -1 in ways else "worse"
    if n_rows < FEW_ROWS:
        return "few rows"
    return "open" if any(lead.change < -_LEANING * lead.error for lead in leads) else "no better"


def lead_verdict(leads: Sequence[Difference], n_rows: int) -> str:
    """The standing beside the same prediction for every row, with the numbers that it follows from.

    Example:
        >>> nll, mae = Difference("NLL", -0.5, 0.1), Difference("MAE", 0.01, 0.1)
        >>> lead_verdict([nll, mae], 400)
        'It is better than a constant prediction: its NLL is 0.50 lower (± 0.10).'
        >>> lead_verdict([mae], 400)
        'It is no better than a constant prediction, by these rows: its MAE is 0.010 higher (± 0.10).'
        >>> lead_verdict([mae], 20)
        '20 rows are too few to tell whether it is better than a constant prediction: its MAE is 0.010 higher (± 0.10).'
    """
    better, worse = (_listed([lead.text() for lead in leads if lead.clear(n_rows) == way]) for way in (-1, 1))
    changes, other = better or worse or _listed([lead.text() for lead in leads]), "than a constant prediction"
    return {
        "mixed": f"Compared with a constant prediction, {better}, but {worse}.",
        "better": f"It is better {other}: {changes}.",
        "worse": f"It is worse {other}: {changes}.",
        "few rows": f"{_too_few(n_rows)} whether it is better {other}: {changes}.",
        "open": f"These rows leave open whether it is better {other}: {changes}.",
        "no better": f"It is no better {other}, by these rows: {changes}.",
    }[standing(leads, n_rows)]


def _too_few(n_rows: int) -> str:
    return f"{row_count(n_rows)} {'is' if n_rows == 1 else 'are'} too few to tell"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([*([", ".join(parts[:-1])] if parts[1:] else []), *parts[-1:]])


def gain_verdict(difference: Difference, n_rows: int) -> str:
    """Whether an ensemble is better than one member.

    Example:
        >>> gain_verdict(Difference("NLL", -0.5, 0.1), 100)
        'Beside one member, its NLL is 0.50 lower (± 0.10): the ensemble is better.'
    """
    verdicts = {-1: "the ensemble is better", 0: "no difference beyond chance", 1: "the ensemble is worse"}
    return f"Beside one member, {difference.text()}: {verdicts[difference.clear(n_rows)]}."


def share_verdict(difference: float, chance: float, n_rows: int, words: tuple[str, str, str], slight: float = 0.0) -> str:
    """Whether a share is as promised, or by chance, or not.

    Arguments:
        difference: of the observed share from the promised one.
        chance: two standard errors of it.
        words: for what is as promised, for less, and for more.
        slight: differences up to this are called so.

    Example:
        >>> share_verdict(0.2, 0.1, 100, ("as promised", "too narrow", "too wide"))
        'too wide'
    """
    same, less, more = words
    if abs(difference) > chance:
        return f"{'slightly ' if abs(difference) <= slight else ''}{more if difference > 0 else less}"
    if chance > MOST_CHANCE or n_rows < LEAST_ROWS:
        return f"{_too_few(n_rows)} more, as chance explains {min(100 * chance, 100):.0f} points"
    return f"{same}, within the {100 * chance:.1f} points that chance explains"


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
    verdict = share_verdict(observed - aim, chance, n_rows, ("as promised", "too narrow", "too wide"), 0.05)
    whole = "" if promised is None else f" and promise {percent(aim)}, as they are of whole numbers"
    return f"The {level(wanted)} intervals hold {percent(observed)} of the rows{whole}: {verdict}."


def confidence_verdict(confidence: float, accuracy: float, n_rows: int) -> str:
    """Whether predictions are right as often as they claim, or chance explains the difference.

    Example:
        >>> print(confidence_verdict(0.97, 0.91, 400).replace("\u202f", " "))
        It says it is right in 97.0 % of the rows and is in 91.0 %: overconfident.
    """
    chance = 2 * math.sqrt(max(accuracy * (1 - accuracy), 1 / n_rows) / n_rows)
    verdict = share_verdict(confidence - accuracy, chance, n_rows, ("honest", "underconfident", "overconfident"), 0.03)
    return f"It says it is right in {percent(confidence)} of the rows and is in {percent(accuracy)}: {verdict}."


def bias_verdict(bias: float, error: float, n_rows: int) -> str:
    """Whether predictions are too high or too low on average, or chance explains it.

    Example:
        >>> bias_verdict(-1.5, 0.2, 100)
        'Predictions are 1.50 too low on average (± 0.20), beyond chance.'
        >>> bias_verdict(0.1, 0.2, 100)
        'Predictions are 0.100 too high on average (± 0.20), no more than chance explains.'
        >>> bias_verdict(0.1, 0.0, 1)
        'Predictions are 0.100 too high on average, no more than chance explains.'
    """
    is_chance = n_rows < FEWEST_ROWS or abs(bias) <= chance_factor(n_rows) * error
    told = f"{number(abs(bias), 3)} too {'high' if bias > 0 else 'low'} on average"
    told += f" (± {number(error, 2)})" if error else ""
    return f"Predictions are {told}, {CHANCE if is_chance else 'beyond chance'}."


def parts_verdict(share: float, whole: str) -> str:
    """How much of the uncertainty is disagreement, of which there is none where one network judged each row.

    Example:
        >>> print(parts_verdict(0.25, "variance").replace("\u202f", " "))
        25.0 % of the predicted variance is disagreement between members.
    """
    alone = " Each row was judged by one of them: none is seen." if share < _NONE else ""
    return f"{percent(share)} of the predicted {whole} is disagreement between members.{alone}"


class Ordering(NamedTuple):
    """How well uncertainty orders predictions by their errors.

    Arguments:
        strength: 0 if not at all.
        chance: the strength that chance alone may reach.
        good: the least value that counts as good.

    Example:
        >>> Ordering(0.5, 0.1, 0.2).text, Ordering(0.05, 0.1, 0.2).text
        ('it knows which of its predictions to doubt', 'no more than chance explains')
        >>> Ordering(-0.5, 0.1, 0.2).text
        'the surest of its predictions are the worse ones, beyond chance'
    """

    strength: float
    chance: float
    good: float

    @property
    def text(self) -> str:
        """What that means, in words."""
        if self.strength < -self.chance:
            return "the surest of its predictions are the worse ones, beyond chance"
        if self.strength <= self.chance:
            return CHANCE
        return f"it knows {'' if self.strength >= self.good else 'a little of '}which of its predictions to doubt"


def round_step(size: float, parts: int) -> float:
    """The largest of 1, 2 or 5 times a power of ten that makes at least so many parts.

    Example:
        >>> round_step(1.0, 40), round_step(37.0, 5)
        (0.02, 5.0)
    """
    power = 10.0 ** math.floor(math.log10(size / parts))
    factor = max(factor for factor in (1, 2, 5) if factor * power <= size / parts * (1 + 1e-9))
    return float(f"{factor * power:.1g}")
