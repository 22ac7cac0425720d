"""The paper's numbers: Table 1 and the two appendix tables, as printed."""

from __future__ import annotations

# data set -> method -> (mean, ±); None where the paper prints none. ± is a standard deviation over splits, but PBP's is a
# standard error. ML-5 is "Deep Ensembles" of Table 1, whose ± for naval and protein differ from the appendix's.
_Numbers = dict[str, dict[str, tuple[float, float | None]]]

_METHODS = ("PBP", "MC-dropout", "MSE-5", "MSE-10", "ML-1", "ML-1+AT", "ML-5")

_RMSE = """
boston-housing          3.01 0.18  2.97 0.85  3.09 0.84  3.10 0.83  3.17 1.00  3.18 0.99  3.28 1.00
concrete                5.67 0.09  5.23 0.53  5.73 0.50  5.76 0.50  6.08 0.56  6.09 0.54  6.03 0.58
energy                  1.80 0.05  1.66 0.19  1.61 0.19  1.62 0.18  2.11 0.30  2.09 0.29  2.09 0.29
kin8nm                  0.10 0.00  0.10 0.00  0.08 0.00  0.08 0.00  0.09 0.00  0.09 0.00  0.09 0.00
naval-propulsion-plant  0.01 0.00  0.01 0.00  0.00 0.00  0.00 0.00  0.00 0.00  0.00 0.00  0.00 0.00
power-plant             4.12 0.03  4.02 0.18  4.08 0.15  4.07 0.15  4.10 0.15  4.10 0.15  4.11 0.17
protein                 4.73 0.01  4.36 0.04  4.49 0.04  4.50 0.02  4.64 0.01  4.75 0.11  4.71 0.06
wine-quality-red        0.64 0.01  0.62 0.04  0.64 0.04  0.64 0.04  0.64 0.04  0.64 0.04  0.64 0.04
yacht                   1.02 0.05  1.11 0.38  2.78 0.59  2.68 0.57  1.43 0.57  1.47 0.58  1.58 0.48
year-prediction-msd     8.88 -     8.85 -     8.92 -     8.95 -     8.89 -     9.02 -     8.89 -
"""

_NLL = """
boston-housing           2.57 0.09   2.46 0.25  17.28  6.17  10.61 4.37   2.55 0.36   2.57 0.37   2.41 0.25
concrete                 3.16 0.02   3.04 0.09  16.07  5.75   8.96 1.73   3.22 0.31   3.21 0.26   3.06 0.18
energy                   2.04 0.02   1.99 0.09   9.54  4.54   6.70 2.39   1.61 0.40   1.51 0.28   1.38 0.22
kin8nm                  -0.90 0.01  -0.95 0.03   2.12  0.97   0.11 0.20  -1.11 0.04  -1.12 0.04  -1.20 0.02
naval-propulsion-plant  -3.73 0.01  -3.80 0.05  -5.68  0.34  -5.85 0.15  -5.65 0.28  -4.08 0.13  -5.63 0.05
power-plant              2.84 0.01   2.80 0.05  35.78 12.87  22.04 4.42   2.82 0.04   2.82 0.04   2.79 0.04
protein                  2.97 0.00   2.89 0.01  40.98  7.43  25.73 1.59   2.87 0.03   2.91 0.03   2.83 0.02
wine-quality-red         0.97 0.01   0.93 0.06  33.73 10.75  20.55 3.72   1.95 4.08   1.58 2.30   0.94 0.12
yacht                    1.63 0.02   1.55 0.12  10.18  4.86   6.85 2.84   1.26 0.29   1.28 0.36   1.18 0.21
year-prediction-msd      3.60 -      3.59 -     39.02  -     21.45 -      3.41 -      3.39 -      3.35 -
"""


def _read(text: str) -> _Numbers:
    numbers: _Numbers = {}
    for line in text.split("\n")[1:-1]:
        name, *words = line.split()
        pairs = zip(words[::2], words[1::2], strict=True)
        values = [(float(mean), None if spread == "-" else float(spread)) for mean, spread in pairs]
        numbers[name] = dict(zip(_METHODS, values, strict=True))
    return numbers


REGRESSION = {"rmse": _read(_RMSE), "nll": _read(_NLL)}


def printed(metric: str, dataset: str, method: str) -> tuple[float | None, float | None]:
    """The paper's mean and ± of a metric; (None, None) where it prints none.

    Example:
        >>> printed("nll", "concrete", "ML-5"), printed("crps", "concrete", "ML-5")
        ((3.06, 0.18), (None, None))
    """
    return REGRESSION.get(metric, {}).get(dataset, {}).get(method, (None, None))


def within(metric: str, dataset: str, method: str, ours: float, splits: int) -> bool | None:
    """Whether our mean is at most the paper's plus its standard deviation over splits, in the paper's two digits.

    PBP's printed ± is a standard error, rounded; it is turned into a deviation. None where the paper prints none.

    Example:
        >>> within("nll", "concrete", "ML-5", 3.2449, 20), within("nll", "concrete", "ML-5", 3.2451, 20)
        (True, False)
    """
    mean, spread = printed(metric, dataset, method)
    if mean is None:
        return None
    spread = spread or 0.0
    if method == "PBP":
        spread = (spread + 0.005) * splits**0.5
    return round(ours, 2) <= round(mean + spread, 2)
