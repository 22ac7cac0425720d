"""Networks by the names that users write."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from deep_ensembles.networks import vgg
from deep_ensembles.paper.experiments._classification import network_named


def test_own_and_importable_networks() -> None:
    assert network_named("vgg") is vgg
    assert network_named("deep_ensembles.networks.image_networks:vgg") is vgg
    assert network_named("torch.nn:Linear") is nn.Linear
    assert network_named("torch:nn.Linear") is nn.Linear


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resnet", r"one of convnet, .*vgg, or text like package.module:function, got 'resnet'"),
        ("torch.nn:", "one of convnet"),
        (":Linear", "one of convnet"),
        ("torch nn:Linear", "one of convnet"),
        (nn.Linear, "one of convnet"),
        (
            "no_such_package.models:net",
            r"name something that can be imported, got 'no_such.*No module named 'no_such_package'",
        ),
        ("torch.nn:NoSuchLayer", r"name something that can be imported, got 'torch.nn:NoSuchLayer' .*no attribute"),
        ("math:pi", "a function that makes a module, got 'math:pi'"),
    ],
)
def test_names_that_lead_nowhere(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^`network` must (be )?{message}"):
        network_named(text)
