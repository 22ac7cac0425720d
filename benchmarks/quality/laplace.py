"""A Laplace approximation of the last layer: one network trained on squared error, Bayesian in its last layer alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.distributions import Normal

from benchmarks.quality.methods import Fitted
from deep_ensembles import Looped, fit_ensemble, heads, mlp, squared_error

HIDDEN = (50, 50)
TRAINING = {"max_epochs": 300, "batch_size": 100, "learning_rate": 0.003, "early_stopping": True, "patience": 30}
N_UPDATES = 200


def fit_laplace(X: np.ndarray, y: np.ndarray, seed: int) -> Fitted:
    """The network, then the posterior of its last layer with the prior and noise that make the targets most probable.

    For squared error the approximation is exact, a Bayesian linear regression on the last hidden layer.
    """
    centre, spread = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1.0)
    shift, scale = y.mean(), y.std() or 1.0
    inputs, targets = (X - centre) / spread, (y - shift) / scale
    hidden = _hidden_layers(inputs, targets, seed)
    mean, covariance, noise = most_probable(hidden(inputs), targets)

    def predict(new: np.ndarray) -> Normal:
        features = hidden((new - centre) / spread)
        variance = np.einsum("nf,fg,ng->n", features, covariance, features) + noise
        return Normal(torch.from_numpy(features @ mean * scale + shift), torch.from_numpy(np.sqrt(variance) * scale))

    return Fitted(predict, {"noise": float(np.sqrt(noise) * scale)})


def _hidden_layers(inputs: np.ndarray, targets: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Standardised inputs → the last hidden layer of a trained network, and a column of ones."""
    ensemble = fit_ensemble(
        lambda: mlp(inputs.shape[1], 1, HIDDEN), inputs, targets, head=heads.Point(), scoring_rule=squared_error,
        n_members=1, random_state=seed, members=Looped, standardize_inputs=False, standardize_targets=False, **TRAINING,
    )  # fmt: skip
    network = ensemble.members.modules[0].eval()[:-1]

    def hidden(rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            features = network(torch.as_tensor(rows, dtype=torch.float32)).double().numpy()
        return np.concatenate([features, np.ones((len(rows), 1))], axis=1)

    return hidden


def most_probable(features: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean, covariance and noise variance of a linear regression with the greatest evidence.

    The precisions α of the weights and β of the noise are updated until they no longer change: α = γ/‖w‖², β = (n - γ)/‖r‖²,
    with γ the number of weights that the data determine.

    References:
        MacKay (1992).
    """
    values, vectors = np.linalg.eigh(features.T @ features)
    values, projected = np.maximum(values, 0.0), vectors.T @ (features.T @ targets)
    alpha, beta = 1.0, 1 / max(float(targets.var()), 1e-12)
    for _ in range(N_UPDATES):
        weights = vectors @ (beta * projected / (alpha + beta * values))
        determined = float((beta * values / (alpha + beta * values)).sum())
        residual = float(np.square(targets - features @ weights).sum())
        before = alpha, beta
        alpha = determined / max(float(weights @ weights), 1e-12)
        beta = max(len(targets) - determined, 1.0) / max(residual, 1e-12)
        if np.allclose(before, (alpha, beta), rtol=1e-6):
            break
    covariance = (vectors / (alpha + beta * values)) @ vectors.T
    return beta * covariance @ (features.T @ targets), covariance, 1 / beta
