"""How well uncertainty tells unknown cases from known ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from deep_ensembles._checks import check_number
from deep_ensembles._tensors import vector


@dataclass(frozen=True)
class Detection:
    """Areas under the curves of a detector of unknown cases, and its false alarms at the wanted recall."""

    auroc: float
    aupr: float
    aupr_known: float
    fpr: float


def ood_detection(known: Any, unknown: Any, recall: float = 0.95) -> Detection:
    r"""Out-of-distribution detection by a threshold on uncertainty, with unknown cases as the positive class.

    - `auroc`: $P(u_\mathrm{unknown} > u_\mathrm{known}) + \frac12 P(u_\mathrm{unknown} = u_\mathrm{known})$.
    - `aupr`: average precision of finding the unknown; `aupr_known`: of finding the known by low uncertainty. Both depend
      on how many cases of each kind there are: chance is the share of the positive kind.
    - `fpr`: the smallest share of known cases that are flagged where at least `recall` of the unknown are. Some texts
      take the known as positive instead; that figure is `ood_detection(-unknown, -known).fpr`.

    Cases of equal score are flagged together, as in scikit-learn, whose functions are used.

    References:
        Hendrycks & Gimpel (2017); Liang, Li, Srikant (2018).

    Arguments:
        known: uncertainty (entropy, disagreement, one minus confidence, …) of cases like the training data; higher means
            more unknown.
        unknown: the same of cases unlike it.
        recall: the share of unknown cases to be found, for `fpr`.

    Shape:
        known `[case]`, unknown `[other case]` → four numbers.

    Example:
        >>> ood_detection(known=[0.1, 0.2, 0.6], unknown=[0.5, 0.8, 0.9]).fpr
        0.3333333333333333
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve  # late, as it takes a second

    check_number("recall", recall, low=0, high=1, above=True)
    scores = [vector("known", known), vector("unknown", unknown)]
    score, is_unknown = np.concatenate(scores), np.repeat([False, True], [len(part) for part in scores])
    # Points on a straight piece of the curve are kept: the wanted recall may lie there.
    false_alarms, detected, _ = roc_curve(is_unknown, score, drop_intermediate=False)
    return Detection(
        auroc=float(roc_auc_score(is_unknown, score)),
        aupr=float(average_precision_score(is_unknown, score)),
        aupr_known=float(average_precision_score(~is_unknown, -score)),
        fpr=float(false_alarms[np.searchsorted(detected, recall)]),
    )
