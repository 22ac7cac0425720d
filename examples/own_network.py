"""An ensemble of convolutional networks, and what it says about images of a kind it has never seen.

Trains on the digits 0–7 of scikit-learn's 8 × 8 images, then looks at 8 and 9.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from torch import nn

from deep_ensembles import FastGradientSign, fit_ensemble


def build() -> nn.Module:
    """Called once per member, under the member's own seed."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 8),
    )


def main() -> None:
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    known = labels < 8
    x_train, x_test, y_train, y_test = train_test_split(images[known], labels[known], random_state=0, stratify=labels[known])
    ensemble = fit_ensemble(
        build, x_train, y_train, perturbation=FastGradientSign(0.01), max_epochs=8, learning_rate=0.003, random_state=0
    )
    prediction, strange = ensemble(x_test), ensemble(images[~known])
    accuracy = (prediction.mode == torch.tensor(y_test)).double().mean()
    print(f"accuracy on known digits        {accuracy:.1%}")
    print(f"mean entropy, known digits      {prediction.entropy().mean():.3f} nats")
    print(f"mean entropy, unknown digits    {strange.entropy().mean():.3f} nats")
    unknown = torch.cat([torch.zeros(len(x_test)), torch.ones(len(images[~known]))])
    for name, known_score, strange_score in (
        ("entropy", prediction.entropy(), strange.entropy()),
        ("disagreement", prediction.disagreement, strange.disagreement),
    ):
        area = roc_auc_score(unknown, torch.cat([known_score, strange_score]))
        print(f"AUROC of {name:12s}           {area:.3f}")


if __name__ == "__main__":
    main()
