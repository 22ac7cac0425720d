"""Assumed-density filtering of many runs at once: examples one after another, then the priors of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from deep_ensembles.baselines._pbp_moments import (
    Moments,
    activations,
    evidence_gradient,
    log_evidence,
    matched_gamma,
    output_gradient,
    output_moments,
    rectified,
    total_variances,
)

# Shape and rate of both gamma priors: as if the mean square of 12 weights, and of 12 residuals, had been seen to be 1.
_PRIOR = (6.0, 6.0)
# A weight that knows nothing but its prior has an infinite cavity variance: there is nothing to refine then.
_GREATEST_CAVITY = 1e6
# An update that takes more than this share of a variance is refused.
_GREATEST_SHRINK = 1 - 1e-9


class Filter:
    """The state of training.

    Shape:
        hidden `[run, 2, input + 1, hidden]` and output `[run, 2, hidden + 1]`: means and variances of the weights;
        noise and prior `[run, 2]`: shape and rate of the precisions' gamma distributions. Per weight, what its prior
        factor adds to its own precision `[run, weight]`, and to the prior's shape and rate `[run, weight, 2]`.
    """

    def __init__(self, means: tuple[Tensor, Tensor]) -> None:
        n_runs = len(means[0])
        variance = _PRIOR[1] / (_PRIOR[0] - 1)
        self.hidden, self.output = (torch.stack([mean, torch.full_like(mean, variance)], dim=1) for mean in means)
        self.noise, self.prior = (means[0].new_tensor(_PRIOR).repeat(n_runs, 1) for _ in range(2))
        n_weights = sum(mean[0].numel() for mean in means)
        self._site_precision = means[0].new_full((n_runs, n_weights), 1 / variance)
        self._site_gamma = means[0].new_zeros(n_runs, n_weights, 2)
        self._steps = torch.empty_like(self.hidden)

    def update(self, inputs: Tensor, targets: Tensor, active: Sequence[int]) -> Tensor:
        """Examples `[step, run, 2, 1, input + 1]` and `[step, run, 1]`, at each step for the first few, active runs.

        Returns the summed log-evidence of each run.
        """
        evidence, first = targets.new_zeros(targets.shape[1]), 0
        for n, steps in groupby(active):
            part = slice(first, first + len(list(steps)))
            state = _Active(*(each[:n] for each in (self.hidden, self.output, self.noise, self._steps)))
            examples = zip(inputs[part, :n].unbind(), targets[part, :n].unbind(), strict=True)
            evidence[:n] += torch.stack([state.learn(x, y) for x, y in examples]).sum(0)
            first = part.stop
        return evidence

    def refine_prior(self) -> None:
        """Take each weight's prior factor out, match it anew, and put it back: one sweep of expectation propagation.

        All weights are refined together, each against the prior without its own factor, where the paper goes from weight
        to weight; both settle at the same point, though one sweep per epoch leads there at another pace. The weight itself
        gets a normal factor with the prior's mean variance.
        """
        mean, variance = (torch.cat([self.hidden[:, i].flatten(1), self.output[:, i]], dim=1) for i in range(2))
        cavity = 1 / (1 / variance - self._site_precision)
        centre = mean * cavity / variance
        without = self.prior.unsqueeze(1) - self._site_gamma
        usable = (cavity > 0) & (cavity < _GREATEST_CAVITY) & (without[..., 0] > 1) & (without[..., 1] > 0)
        log_z = log_evidence(centre.unsqueeze(-1), total_variances(cavity.unsqueeze(-1), without))
        site = torch.where(usable.unsqueeze(-1), matched_gamma(without, log_z) - without, self._site_gamma)
        prior = self.prior + (site - self._site_gamma).sum(1)
        usable &= ((prior[:, 0] > 1) & (prior[:, 1] > 0)).unsqueeze(1)
        self.prior = torch.where(usable.any(1, keepdim=True), prior, self.prior)
        self._site_gamma = torch.where(usable.unsqueeze(-1), site, self._site_gamma)
        self._site_precision = torch.where(usable, (without[..., 0] - 1) / without[..., 1], self._site_precision)
        refined = 1 / (1 / cavity + self._site_precision)
        self._put_back(torch.where(usable, centre * refined / cavity, mean), torch.where(usable, refined, variance))

    def _put_back(self, mean: Tensor, variance: Tensor) -> None:
        n_hidden = self.hidden[0, 0].numel()
        for i, moment in enumerate((mean, variance)):
            self.hidden[:, i] = moment[:, :n_hidden].reshape_as(self.hidden[:, i])
            self.output[:, i] = moment[:, n_hidden:]


class _Active(NamedTuple):
    """The runs that still have rows to see in this epoch."""

    hidden: Tensor
    output: Tensor
    noise: Tensor
    steps: Tensor

    def learn(self, x: Tensor, y: Tensor) -> Tensor:
        """Move every distribution by one example per run, in place; the example's log-evidence `[run]`."""
        hidden = rectified(Moments(*(x @ self.hidden).squeeze(2).unbind(1)))
        inputs, weights = activations(hidden.moments), Moments(*self.output.unbind(1))
        predicted = output_moments(weights, inputs)
        residual = y - predicted.mean
        total = total_variances(predicted.variance, self.noise)
        to_weights, to_inputs = output_gradient(weights, inputs, evidence_gradient(residual, total))
        to_hidden = hidden.backward(Moments(to_inputs.mean[:, :-1], to_inputs.variance[:, :-1]))
        _move(self.hidden, torch.mul(_relative_steps(to_hidden).unsqueeze(2), x.mT, out=self.steps))
        _move(self.output, _relative_steps(to_weights))
        log_z = log_evidence(residual, total)
        self.noise.copy_(matched_gamma(self.noise, log_z))
        return log_z[:, 0]


def _relative_steps(by: Moments) -> Tensor:
    """Of $m' = m + v g$ and $v' = v - v^2 c$, the $g$ and $c$, `[run, 2, …]`."""
    return torch.stack([by.mean, by.mean.square().sub_(by.variance, alpha=2)], dim=1)


def _move(weights: Tensor, steps: Tensor) -> None:
    """Apply steps relative to the variances; a weight whose variance would not stay positive stays as it is."""
    mean, variance = weights.unbind(1)
    steps = steps.mul_(variance.unsqueeze(1))
    change, shrink = steps.unbind(1)
    if not float(shrink.amax()) < _GREATEST_SHRINK:
        valid = (shrink < _GREATEST_SHRINK) & shrink.isfinite() & change.isfinite()
        change, shrink = torch.where(valid, change, 0.0), torch.where(valid, shrink, 0.0)
    mean.add_(change)
    variance.addcmul_(variance, shrink, value=-1)
