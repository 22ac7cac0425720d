"""What columns are worth, against functions whose answer is known."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributions import Categorical, Normal

from deep_ensembles import DeepEnsembleClassifier, DeepEnsembleRegressor
from deep_ensembles.mixture import Mixture
from deep_ensembles.report.explain import Influences, Reasons, influences, reasons
from deep_ensembles.tabular import TableSettings, explain_table, fit_table

X = np.random.default_rng(0).normal(size=(300, 4))
COLUMNS, NAMES = [[0], [1], [2, 3]], ["mean", "noise", "both"]


def predict(inputs: np.ndarray) -> Mixture:
    """Column 0 moves the mean, column 1 the noise, and columns 2 and 3 how much two members differ."""
    x = torch.from_numpy(inputs)
    apart = x[:, 2].square() + x[:, 3].square()
    mean = torch.stack([2 * x[:, 0] + apart.sqrt(), 2 * x[:, 0] - apart.sqrt()])
    return Mixture(Normal(mean, x[:, 1].exp().sqrt().expand(2, -1)))


def test_a_column_is_worth_what_it_does():
    found = influences(predict, X, COLUMNS, NAMES, 2 * X[:, 0])
    by_name = {each.column: each for each in found.columns}
    assert found.columns[0].column == "mean"
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert by_name["mean"].error == pytest.approx(2 * np.abs(X[:, [0]] - X[:, 0]).mean(), rel=0.1)
    assert by_name["mean"].spread == pytest.approx(0.0, abs=1e-9)
    assert by_name["noise"].error == pytest.approx(0.0, abs=1e-9)
    assert by_name["noise"].spread > 5 * by_name["noise"].spread_error > 0
    assert by_name["both"].spread > 0
    assert "absolute error grows by" in found.listing().text()


def test_without_targets_only_the_spread_is_explained():
    found = influences(predict, X, COLUMNS, NAMES)
    assert found.error is None
    assert all(each.error is None for each in found.columns)
    assert "grows" not in found.listing().text()


def test_shapley_values_of_a_sum_are_its_terms():
    row = np.array([1.0, 2.0, 3.0, 0.5])
    found = reasons(predict, row, X, COLUMNS, NAMES)
    by_name = {each.column: each for each in found.contributions}
    apart = np.square(X[:, 2:]).sum(1)
    for name, part, exact in (
        ("noise", "aleatoric", np.exp(2.0) - np.exp(X[:, 1]).mean()),
        ("both", "epistemic", 9.25 - apart.mean()),
        ("mean", "aleatoric", 0.0),
        ("mean", "epistemic", 0.0),
    ):
        value, error = getattr(by_name[name], part), getattr(by_name[name], f"{part}_error")
        assert abs(value - exact) <= 5 * error + 1e-9, name
    for place, part in enumerate(("aleatoric", "epistemic")):
        added = sum(getattr(each, part) for each in found.contributions)
        assert found.usual[place] + added == pytest.approx(found.row[place], rel=1e-9, abs=1e-9)


def test_contributions_of_classes_add_up():
    weights = torch.tensor([[1.0, -1.0], [0.5, 2.0]], dtype=torch.float64)

    def classes(inputs: np.ndarray) -> Mixture:
        logits = torch.from_numpy(inputs[:, :2]) * weights[:, None]
        return Mixture(Categorical(logits=logits))

    found = reasons(classes, X[0], X, [[0], [1], [2], [3]], list("abcd"))
    unused = [each for each in found.contributions if each.column in "cd"]
    assert all(abs(each.aleatoric) + abs(each.epistemic) < 1e-9 for each in unused)
    assert "nats" in found.listing().note
    added = sum(each.epistemic for each in found.contributions)
    assert found.usual[1] + added == pytest.approx(found.row[1], abs=1e-9)


def test_many_columns_are_listed_in_part():
    found = influences(predict, X, [[0], [1], *([[2]] * 30)], [f"c{i}" for i in range(32)], X[:, 0])
    assert len(found.listing().rows) == 20
    assert "12 more columns matter less" in found.listing().note
    why = reasons(predict, X[0], X, [[0], [1], *([[2]] * 30)], [f"c{i}" for i in range(32)], n_orders=4)
    assert why.listing().rows[-2][0] == "12 more columns"


def test_estimators_explain():
    y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=300)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = DeepEnsembleRegressor(effort="fast", max_epochs=20, random_state=0).fit(frame, y)
    found = model.explain(frame, y)
    assert isinstance(found, Influences)
    assert found.columns[0].column == "a"
    why = model.explain(frame, row=3)
    assert isinstance(why, Reasons)
    assert sum(why.row) == pytest.approx(float(model.predict_distribution(frame[3:4]).variance[0]), rel=1e-4)
    with pytest.raises(ValueError, match="`row` must be from 0 to 299"):
        model.explain(frame, row=300)
    classifier = DeepEnsembleClassifier(effort="fast", max_epochs=20, random_state=0).fit(X, X[:, 1] > 0)
    assert classifier.explain(X, X[:, 1] > 0).columns[0].column == "x1"


def test_tables_explain(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(X[:, 1] > 0, "up", "down"))
    frame["y"] = frame["a"] + 3.0 * (frame["kind"] == "up")
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = fit_table(tmp_path / "t.csv", TableSettings(target="y", effort="fast", max_epochs=20, drop=("b",))).model
    found = explain_table(model, tmp_path / "t.csv")
    assert isinstance(found, Influences)
    assert [each.column for each in found.columns][:2] == ["kind", "a"]
    frame.drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
    assert explain_table(model, tmp_path / "new.csv").error is None
    assert isinstance(explain_table(model, tmp_path / "t.csv", row=2), Reasons)
    with pytest.raises(ValueError, match="`row` must be from 1 to 300"):
        explain_table(model, tmp_path / "t.csv", row=301)
