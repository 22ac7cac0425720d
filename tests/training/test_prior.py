"""Weight decay is a Gaussian prior: the optimum of a linear network is ridge regression, the mode of a posterior."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from torch import Tensor, nn

from deep_ensembles import Cosine, Normal, Point, fit_ensemble, log_score, mlp, squared_error

N_ROWS = 200
# Full batches, and a rate that ends at zero: the optimum itself, not a cloud around it.
TO_THE_END = {"batch_size": N_ROWS, "max_epochs": 2000, "learning_rate": 0.03, "schedule": Cosine(), "n_members": 1}


def table() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_diabetes(return_X_y=True)
    return 20 * X[:N_ROWS] + 0.5, y[:N_ROWS] / 50


def linear(n_outputs: int) -> partial[nn.Module]:
    return partial(mlp, 10, n_outputs, (), dtype=torch.float64)


@pytest.mark.parametrize("decay", [0.003, 0.3, 3.0])
def test_the_optimum_of_a_linear_network_is_ridge_regression(decay):
    """mean (y - wx - b)² + λ/2 (‖w‖² + b²) is ridge regression with α = N λ/2; standardised data need no bias."""
    X, y = table()
    model = fit_ensemble(linear(1), X, y, head=Point(), scoring_rule=squared_error, weight_decay=decay, random_state=0,
                         **TO_THE_END)  # fmt: skip
    ridge = Ridge(alpha=N_ROWS * decay / 2, tol=1e-12).fit((X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std())
    assert model.members.parameters.views["0.weight"].flatten().numpy() == pytest.approx(ridge.coef_, rel=1e-5, abs=1e-6)
    assert model.members.parameters.views["0.bias"].item() == pytest.approx(0, abs=1e-6)
    expected = y.mean() + y.std() * ridge.predict((X - X.mean(0)) / X.std(0))
    assert model(X).mean.numpy() == pytest.approx(expected, rel=1e-5)


def test_biases_have_the_prior_too():
    """Without standardisation: ridge regression on the inputs and a column of ones, shrunk like the others."""
    X, y = table()
    model = fit_ensemble(linear(1), X, y, head=Point(), scoring_rule=squared_error, weight_decay=1.0, random_state=0,
                         standardize_inputs=False, standardize_targets=False, **TO_THE_END)  # fmt: skip
    ridge = Ridge(alpha=N_ROWS * 0.5, fit_intercept=False, tol=1e-12).fit(np.c_[X, np.ones(N_ROWS)], y)
    views = model.members.parameters.views
    learned = np.r_[views["0.weight"].flatten().numpy(), views["0.bias"].numpy().ravel()]
    assert learned == pytest.approx(ridge.coef_, rel=1e-5, abs=1e-6)


def test_a_normal_head_ends_at_the_mode_of_the_posterior():
    """λ = 1/(N τ²) for a prior of variance τ² on every parameter: minus the log posterior is least there."""
    X, y = table()
    deviation = 0.5
    model = fit_ensemble(linear(2), X, y, weight_decay=1 / (N_ROWS * deviation**2), random_state=0, **TO_THE_END)
    x, t = (torch.tensor((part - part.mean(0)) / part.std(0)) for part in (X, y))

    def minus_log_posterior(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.tensor(parameters, requires_grad=True)
        weight, bias = leaf[:20].reshape(2, 10), leaf[20:]
        prior = torch.distributions.Normal(torch.tensor(0.0, dtype=torch.float64), deviation)
        value: Tensor = log_score(Normal()(x @ weight.T + bias), t).sum() - prior.log_prob(leaf).sum()
        return value.item(), torch.autograd.grad(value, leaf)[0].numpy()

    mode = minimize(minus_log_posterior, np.zeros(22), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    views = model.members.parameters.views
    learned = np.r_[views["0.weight"].flatten().numpy(), views["0.bias"].numpy().ravel()]
    assert learned == pytest.approx(mode, rel=1e-4, abs=1e-5)
