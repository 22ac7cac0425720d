"""Which settings for which data: what is chosen, what is not, and that it is kept, said and repeated."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from deep_ensembles import (
    Categorical,
    Checkpoint,
    ComplementaryFolds,
    DeepEnsembleClassifier,
    DeepEnsembleRegressor,
    FastGradientSign,
    GaussianMixture,
    Normal,
    Point,
    StudentT,
    fit_ensemble,
    load,
    mlp,
    periodic_mlp,
    selection,
    squared_error,
)
from deep_ensembles.ensemble import Ensemble
from deep_ensembles.execution import InProcess, Processes
from deep_ensembles.recipes import PAPER, SCALES, Candidate, Choices, Task, batch_size, repeated_columns, target_step
from deep_ensembles.selection import mixture_shares
from deep_ensembles.training.checkpoint import CheckpointWriter

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = X[:, 0] + 0.3 * RNG.normal(size=120)
LABELS = (Y > 0).astype(int)
MANY = RNG.normal(size=(800, 3))
QUICK: dict[str, Any] = {"max_epochs": 4, "random_state": 0}


def task(inputs: np.ndarray = X, targets: np.ndarray = Y, **others: Any) -> Task:
    return Task(inputs, targets, 0, 1, Normal(), **others)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings of every call of `fit_ensemble` by the recipe."""
    calls: list[dict[str, Any]] = []

    def recording(*arrays: Any, **settings: Any) -> Any:
        calls.append(settings)
        return fit_ensemble(*arrays, **settings)

    monkeypatch.setattr(selection, "fit_ensemble", recording)
    return calls


class TestShares:
    @pytest.mark.parametrize("seed", range(4))
    def test_equal_an_optimiser(self, seed: int) -> None:
        """The most probable shares under a prior that counts like a few rows."""
        logs = np.random.default_rng(seed).normal(size=(3, 80))

        def loss(shares: np.ndarray) -> float:
            likelihood = np.logaddexp.reduce(logs + np.log(shares)[:, None], axis=0).sum()
            return float(-likelihood - selection._PRIOR_ROWS / 3 * np.log(shares).sum())

        unit = {"type": "eq", "fun": lambda shares: shares.sum() - 1}
        best = minimize(loss, np.full(3, 1 / 3), bounds=[(1e-6, 1)] * 3, constraints=[unit], method="SLSQP",
                        options={"ftol": 1e-12, "maxiter": 1000})  # fmt: skip
        assert best.x.min() > selection._LEAST_SHARE
        np.testing.assert_allclose(mixture_shares(logs), best.x, rtol=0, atol=2e-3)

    @given(st.integers(1, 6), st.integers(1, 30), st.integers(0, 99))
    def test_add_up_and_are_none_or_enough(self, n: int, rows: int, seed: int) -> None:
        shares = mixture_shares(3 * np.random.default_rng(seed).normal(size=(n, rows)))
        assert shares.sum() == pytest.approx(1)
        assert all(share == 0 or share >= selection._LEAST_SHARE for share in shares)

    def test_equal_ensembles_share_equally(self) -> None:
        np.testing.assert_allclose(mixture_shares(np.zeros((4, 50))), 0.25)


class TestTargetStep:
    @given(st.floats(1e-6, 1e6), st.floats(-100, 100))
    def test_units_do_not_matter(self, unit: float, shift: float) -> None:
        y = np.tile([3.0, 5.0, 6.0, 5.0, 8.0], 20)
        assert target_step(unit * (y + shift))[0] == pytest.approx(1 / y.std(), rel=1e-2)

    def test_numbers_that_lie_on_none(self) -> None:
        assert target_step(np.random.default_rng(0).normal(size=100)) == (0.0, 1.0)
        assert target_step(np.full(100, 7.0)) == (0.0, 0.01)
        assert target_step(np.tile([0.0, 1.0, np.pi], 40)) == (0.0, 3 / 120)

    def test_is_the_least_variance_of_a_head(self) -> None:
        grades = np.round(2 * Y)
        step, _ = target_step(grades)
        model = DeepEnsembleRegressor(2, effort="fast", **QUICK).fit(X, grades)
        assert model.ensemble_.head == StudentT(min_variance=step**2 / 12)


class TestCandidates:
    def test_bins_and_adversarial_training_are_tried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = recorded(monkeypatch)
        DeepEnsembleRegressor(**QUICK).fit(X, Y)
        assert {call.get("perturbation") for call in calls} == {None, FastGradientSign(0.01)}
        calls.clear()
        DeepEnsembleRegressor(perturbation=None, **QUICK).fit(X, Y)
        assert not any(call.get("perturbation") for call in calls)

    @pytest.mark.parametrize(("is_rounded", "has_floor"), [(True, True), (False, False)])
    def test_rounding_is_assumed_unless_errors_are_smaller(self, is_rounded: bool, has_floor: bool) -> None:
        inputs = np.random.default_rng(3).uniform(0, 6, size=(300, 2))
        inputs = inputs if is_rounded else inputs.round()
        settings: dict[str, Any] = {"max_epochs": 60, "perturbation": None, "random_state": 0}
        model = DeepEnsembleRegressor(**settings).fit(inputs, (inputs @ [1.0, 2.0]).round())
        head = model.ensemble_.head
        assert (head.min_variance > type(head).min_variance) == has_floor

    def test_normals_are_tried_unless_they_would_be_worse_around_the_same_predictions(self, monkeypatch) -> None:
        """Heavy tails show in what a Student-t head predicts out of fold; normal noise does not rule normals out."""
        calls, generator = recorded(monkeypatch), np.random.default_rng(7)
        inputs = generator.normal(size=(400, 2))
        for noise, is_tried in ((generator.standard_t(2, size=400), False), (generator.normal(size=400), True)):
            calls.clear()
            DeepEnsembleRegressor(max_epochs=40, perturbation=None, random_state=0).fit(inputs, inputs[:, 0] + noise)
            assert any(isinstance(call["head"], Normal) for call in calls) == is_tried

    @given(st.permutations([0.1, 0.3, 1.0]), st.permutations([1.0, 2.0, 3.0]))
    def test_the_next_frequency_is_tried_where_an_end_is_better(self, scales: list[float], scores: list[float]) -> None:
        """In whatever order trials come; bins do not count."""
        by_scale = dict(zip(scales, scores, strict=True))
        trials = [selection._Trial(Candidate(Normal(), 0.1, (8,), has_bins=True), None, np.zeros(1))]
        trials += [
            selection._Trial(Candidate(Normal(), key, (8,)), None, np.array([score])) for key, score in by_scale.items()
        ]
        end = min(0.1, 1.0, key=by_scale.__getitem__)
        beyond = [{0.1: 0.03, 1.0: 3.0}[end]] if by_scale[end] < by_scale[0.3] else []
        assert [candidate.scale for candidate in selection._next_frequencies(trials, SCALES)] == beyond

    def test_without_folds_nothing_is_compared(self) -> None:
        for targets in (Y, np.round(3 * Y)):  # the second lie on a lattice
            model = DeepEnsembleRegressor(folds=None, **QUICK).fit(X, targets)
            assert model.chosen_["networks"] == {"waves 0.1, bins": 1.0}

    def test_candidates_are_the_same_bits_in_processes(self) -> None:
        models = [DeepEnsembleRegressor(**QUICK, execution=execution).fit(X, Y) for execution in (InProcess(), Processes(2))]
        assert models[0].chosen_ == models[1].chosen_
        assert np.array_equal(models[0].predict(X), models[1].predict(X))

    def test_bins_weigh_in_where_trees_would(self) -> None:
        inputs = np.random.default_rng(3).uniform(-1, 1, size=(400, 2))
        steps = np.floor(4 * inputs[:, 0]) + 0.05 * np.random.default_rng(4).normal(size=400)
        model = DeepEnsembleRegressor(max_epochs=160, perturbation=None, head=Normal(), random_state=0).fit(inputs, steps)
        assert model.chosen_["networks"]["waves 0.1, bins"] > 0.5

    @pytest.mark.parametrize("has_effects", [True, False])
    def test_numbers_that_repeat_have_vectors_where_each_has_an_effect_of_its_own(self, has_effects: bool, tmp_path) -> None:
        generator = np.random.default_rng(5)
        place, shops = generator.integers(60, size=600), generator.permutation(1000)[:60]
        inputs = np.column_stack([generator.normal(size=600), shops[place]])
        effects = generator.normal(size=60) if has_effects else np.sin(shops / 200)
        targets = inputs[:, 0] + effects[place] + 0.1 * generator.normal(size=600)
        settings: dict[str, Any] = {"max_epochs": 60, "perturbation": None, "head": Normal(), "random_state": 0}
        model = DeepEnsembleRegressor(**settings).fit(inputs, targets)
        assert has_effects == all("values" in name for name in model.chosen_["networks"])
        assert has_effects == any("values" in name for name in model.chosen_["networks"])
        model.save(tmp_path / "model")
        assert np.array_equal(load(tmp_path / "model").predict(inputs), model.predict(inputs))
        if has_effects:
            known, unknown = (model.predict(np.array([[0.0, shop]]), return_std=True)[1] for shop in (shops[0], 1234))
            assert unknown > 2 * known

    def test_columns_whose_numbers_repeat(self) -> None:
        generator = np.random.default_rng(6)
        columns = (generator.integers(40, size=500), generator.integers(100, size=500), generator.normal(size=500))
        ((column, count),) = repeated_columns(np.column_stack(columns))
        assert column == 1
        assert 90 <= count <= 100
        assert not repeated_columns(np.column_stack(columns), {1: 100})
        assert repeated_columns(generator.integers(300, size=(2000, 50))) == tuple((i, 200) for i in range(50))

    def test_many_rows_need_no_adversary(self) -> None:
        few, many = (Task(np.zeros((n, 1)), np.zeros(n), 0, 1, Normal()) for n in (2000, 20_000))
        assert Choices({}).tries_adversary(few)
        assert not Choices({}).tries_adversary(many)

    def test_networks_with_and_without_bins_are_one_ensemble(self) -> None:
        builds = [partial(periodic_mlp, 3, 2, (6,), n_frequencies=4, n_bins=3, sets_bins=bins) for bins in (True, False)]
        both = [fit_ensemble(build, X, Y, n_members=2, max_epochs=2, random_state=0) for build in builds]
        joined = Ensemble.joined(both, [0.5, 0.5])
        means = torch.cat([ensemble(X).components.mean for ensemble in both])
        torch.testing.assert_close(joined(X).components.mean, means)

    def test_a_constant_says_the_shares_of_classes_among_the_rows_of_each_member(self) -> None:
        labels = np.r_[np.zeros(90), np.ones(30)].astype(np.int64)[RNG.permutation(120)]
        about = Task(X, labels, 2, 2, Categorical())
        search = selection._Search(about, Choices({"max_epochs": 2}), 0)
        [trial] = search.train([Candidate(Categorical(), 0.3, (8,))], about)
        constant = search.constant(trial, about).ensemble
        for member in range(constant.n_members):
            seen = (constant.out_of_fold_members != member).all(0)
            prior = selection._PRIOR_ROWS
            share = (labels[seen].sum() + prior / 2) / (seen.sum() + prior)
            probabilities = constant.subset([member])(X[:4]).probs[:, 1]
            torch.testing.assert_close(probabilities, torch.full((4,), share), rtol=1e-5, atol=1e-6, check_dtype=False)
        assert len(np.unique(constant.out_of_fold(X).probs[:, 1].numpy())) <= constant.n_members
        assert search.constant(trial, about).scores.mean() == pytest.approx(np.log(2) * 0.81, abs=0.03)


def test_the_fast_effort_takes_fewer_and_smaller_networks_for_many_rows() -> None:
    X = np.random.default_rng(0).normal(size=(100_000, 2))
    usual = 5, (128, 128)
    for n, effort, wanted in ((99_999, "fast", usual), (100_000, "fast", (3, (64, 64))), (100_000, "default", usual)):
        choices, of_rows = Choices({}, effort=effort), task(X[:n], X[:n, 0])
        assert (choices.n_members(of_rows), choices.candidates(of_rows)[2]) == wanted
    explicit = Choices({"n_members": 7, "hidden_sizes": (9,)}, effort="fast")
    assert (explicit.n_members(of_rows), explicit.candidates(of_rows)[2]) == (7, (9,))


def test_epochs_fall_with_the_rows() -> None:
    sizes, choices = (10, 2000, 8000, 12_000, 10**6), Choices({})
    epochs = [choices.training(task(np.zeros((n, 1)), np.zeros(n)))["max_epochs"] for n in sizes]
    assert epochs == [600, 600, 300, 244, 12]
    labels = np.arange(100) % 2
    assert choices.training(Task(np.zeros((100, 1)), labels, 2, 2, Categorical()))["max_epochs"] == 300


def test_batches_grow_with_the_rows() -> None:
    sizes = [batch_size(n) for n in (1, 100, 1_000, 5_000, 20_000, 50_000, 10**6, 10**9)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (32, 256)


class TestTogether:
    def test_equal_rows(self) -> None:
        x = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 4.0]])
        a, b, c, d = task(x, x[:, 0]).together
        assert a == c
        assert len({a, b, d}) == 3

    def test_groups_and_equal_rows_join(self) -> None:
        """Row 0 equals row 1, which is of the group of row 2, which equals row 3: all are one."""
        x = np.array([[1.0], [1.0], [2.0], [2.0], [3.0], [4.0], [5.0], [6.0]])
        together = task(x, x[:, 0], groups=np.array([0, 1, 1, 2, 3, 4, 5, 6])).together
        assert len(set(together[:4])) == 1
        assert len(set(together)) == 5

    def test_groups_that_equal_rows_would_all_join_stay_apart(self) -> None:
        x = np.array([[1.0], [1.0], [2.0], [2.0], [3.0], [4.0]])
        groups = np.array([0, 1, 1, 2, 2, 3])
        np.testing.assert_array_equal(task(x, x[:, 0], groups=groups).together, groups)

    def test_a_few_categories_are_no_copies(self) -> None:
        x = np.repeat(np.arange(6.0), 20)[:, None]
        assert len(set(task(x, x[:, 0]).together)) == 120

    @pytest.mark.parametrize("kind", [DeepEnsembleRegressor, DeepEnsembleClassifier])
    def test_one_fold_holds_them(self, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = recorded(monkeypatch)
        x, groups = np.repeat(X[:40], 3, axis=0), np.repeat(np.arange(10), 12)
        kind(effort="fast", **QUICK).fit(x, np.repeat(LABELS[:40], 3), groups=groups)
        dealt = [call["folds"](np.arange(120), call["n_members"], np.random.default_rng()) for call in calls]
        folds = dealt[0]
        assert len(folds) == 6
        assert all(np.array_equal(a, b) for other in dealt for a, b in zip(folds, other, strict=True))
        for one in range(5):
            for other in range(one):
                assert set(groups[folds[one]]).isdisjoint(groups[folds[other]])
                assert set(map(bytes, x[folds[one]])).isdisjoint(map(bytes, x[folds[other]]))

    def test_fewer_groups_than_folds(self) -> None:
        model = DeepEnsembleRegressor(effort="fast", **QUICK).fit(X, Y, groups=np.arange(120) % 3)
        assert model.ensemble_.out_of_fold_members is not None

    def test_one_group_per_row_is_asked_for(self) -> None:
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            DeepEnsembleRegressor(**QUICK).fit(X, Y, groups=np.arange(119))


def test_explicit_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorded(monkeypatch)
    folds = ComplementaryFolds(2)
    given = {"learning_rate": 0.02, "batch_size": 17, "drop_last": False, "averaging": 2.0, "patience": 3, "folds": folds}
    model = DeepEnsembleRegressor(3, head=StudentT(), hidden_sizes=(7,), **given, **QUICK).fit(X, Y)
    assert len(calls) > 1
    for call in calls:
        assert {name: call[name] for name in given} == given
        assert (call["n_members"], call["head"]) == (3, StudentT())
    assert {call["max_epochs"] for call in calls[:-1]} == {2}  # of trials
    assert calls[-1]["max_epochs"] == 4
    assert model.ensemble_.n_members == 3
    assert model.chosen_["hidden_sizes"] == [7]
    assert model.chosen_["learning_rate"] == 0.02


def test_heads_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorded(monkeypatch)
    model = DeepEnsembleRegressor(**QUICK).fit(X, Y)
    assert {type(call["head"]) for call in calls} == {StudentT, Normal}
    assert model.chosen_["head"] == repr(model.ensemble_.head)
    assert model.ensemble_.n_members == model.chosen_["n_members"]
    many = np.random.default_rng(0).normal(size=(1000, 2))
    heads = Choices({}).heads(task(many, many[:, 0]))
    assert [type(head) for head in heads] == [StudentT, Normal, GaussianMixture]


@pytest.mark.parametrize(("rows", "finalists", "folds"), [(120, 5, 6), (400, 2, 10)])
def test_the_best_networks_are_trained_to_the_end_on_more_folds(
    rows: int, finalists: int, folds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch)
    model = DeepEnsembleRegressor(**QUICK).fit(MANY[:rows], MANY[:rows, 0])
    last = [call for call in calls if call["max_epochs"] == 4]
    assert 1 <= len(last) <= finalists
    assert {(call["n_members"], call["folds"].n_folds) for call in last} == {(10, folds)}
    assert {(call["n_members"], call["folds"].n_folds) for call in calls if call["max_epochs"] == 2} == {(3, 3)}
    assert model.ensemble_.n_members == 10 * len(model.chosen_["networks"])


def test_fast_trains_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorded(monkeypatch)
    DeepEnsembleRegressor(effort="fast", **QUICK).fit(MANY, MANY[:, 0])
    DeepEnsembleClassifier(effort="fast", **QUICK).fit(MANY, MANY[:, 0] > 0)
    assert len(calls) == 2


def test_best_is_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = recorded(monkeypatch)
    many = RNG.normal(size=(240, 3))
    model = DeepEnsembleRegressor(effort="best", max_epochs=1, random_state=0).fit(many, many[:, 0])
    assert {call["n_members"] for call in calls} == {3, 20}
    assert model.chosen_["hidden_sizes"] == [128, 128, 128]


@pytest.mark.parametrize("kind", [DeepEnsembleRegressor, DeepEnsembleClassifier])
def test_what_was_chosen_is_kept(kind: Any, tmp_path: Path) -> None:
    model = kind(**QUICK).fit(X, LABELS)
    assert json.loads(json.dumps(model.chosen_)) == model.chosen_
    for name in ("n_members", "hidden_sizes", "head", "networks", "recalibration", "max_epochs", "learning_rate"):
        assert name in model.chosen_
    assert " at 0x" not in str(model.chosen_)
    networks = model.chosen_["networks"]
    assert networks is None or sum(networks.values()) == pytest.approx(1, abs=0.01)
    model.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.chosen_ == model.chosen_
    assert back.get_params() == model.get_params()
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_the_same_seed_gives_the_same_model() -> None:
    one, two, other = (
        DeepEnsembleRegressor(max_epochs=3, random_state=seed).fit(X, Y).predict_interval(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("rows", [80, 120], ids=["one batch", "several batches"])
@pytest.mark.parametrize("kind", [DeepEnsembleRegressor, DeepEnsembleClassifier])
def test_the_preset_is_fit_ensemble_with_the_papers_settings(kind: Any, rows: int) -> None:
    targets = Y if kind is DeepEnsembleRegressor else LABELS
    model = kind(preset="paper", random_state=0).fit(X[:rows], targets[:rows])
    dtype = torch.float64 if rows <= 100 else None  # what fits into one batch is trained in double precision
    build = partial(mlp, 3, 2, (50,), "relu", dtype=dtype)
    settings = {name: PAPER[name] for name in ("n_members", "max_epochs", "batch_size", "learning_rate")}
    assert settings == {"n_members": 5, "max_epochs": 40, "batch_size": 100, "learning_rate": 0.01}
    plain = fit_ensemble(build, X[:rows], targets[:rows], random_state=0, **settings)
    assert torch.equal(plain.members.parameters.flat, model.ensemble_.members.parameters.flat)
    assert model.ensemble_.recalibration is None
    assert model.ensemble_.out_of_fold_members is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"effort": "most"}, "`effort` must be one of fast, default, best, got 'most'"),
        ({"effort": None}, "`effort` must be one of fast, default, best, got None"),
        ({"preset": "fast"}, "`preset` must be None or \"paper\", got 'fast'"),
    ],
)
def test_wrong_values_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeepEnsembleRegressor(**settings).fit(X, Y)


def test_a_time_limit_ends_the_search() -> None:
    started = time.monotonic()
    model = DeepEnsembleRegressor(max_epochs=10**6, patience=10**6, time_limit=1.0, random_state=0).fit(X, Y)
    assert time.monotonic() - started < 60
    assert np.isfinite(model.predict(X)).all()


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("at", [3, 9, 14])
def test_a_killed_default_fit_goes_on(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the first network that is tried or a later one, with a file name as text."""
    calm = DeepEnsembleRegressor(**QUICK).fit(X, Y)
    checkpoint = Checkpoint(str(tmp_path / "state"), every_epochs=1)
    write, written = CheckpointWriter.write, []

    def interrupting(self: CheckpointWriter, *args: object) -> None:
        write(self, *args)  # type: ignore[arg-type]
        written.append(1)
        if len(written) == at:
            raise Interrupted

    monkeypatch.setattr(CheckpointWriter, "write", interrupting)
    model = DeepEnsembleRegressor(checkpoint=checkpoint, **QUICK)
    with pytest.raises(Interrupted):
        model.fit(X, Y)
    model.fit(X, Y)
    np.testing.assert_array_equal(model.predict_interval(X), calm.predict_interval(X))
    assert model.chosen_ == calm.chosen_


def test_few_rows_and_odd_columns_have_an_answer() -> None:
    odd = np.column_stack([X, np.zeros(120), X[:, 0], X[:, 1] > 0])
    for n in (2, 5, 12, 30):
        model = DeepEnsembleRegressor(**QUICK).fit(odd[:n], Y[:n])
        assert np.isfinite(model.predict_interval(odd)).all()
        labels = np.arange(n) % 2
        assert np.isfinite(DeepEnsembleClassifier(**QUICK).fit(odd[:n], labels).predict_proba(odd)).all()


def test_weights_of_zero_are_no_rows() -> None:
    weight = np.r_[np.ones(100), np.zeros(20)]
    poisoned = np.where(weight > 0, Y, 1e6)
    model = DeepEnsembleRegressor(**QUICK).fit(X, poisoned, sample_weight=weight)
    assert np.abs(model.predict(X)).max() < 100


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_several_labels_at_once(effort: str) -> None:
    labels = (X > 0).astype(int)
    model = DeepEnsembleClassifier(effort=effort, max_epochs=20, random_state=0).fit(X, labels)
    assert model.predict_proba(X).shape == (120, 3)


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_several_targets(effort: str) -> None:
    model = DeepEnsembleRegressor(effort=effort, **QUICK).fit(X, X[:, :2])
    assert model.predict(X).shape == (120, 2)


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_points_have_no_density_to_choose_by(effort: str) -> None:
    model = DeepEnsembleRegressor(effort=effort, head=Point(), scoring_rule=squared_error, **QUICK).fit(X, Y)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_a_head_without_a_mean(effort: str) -> None:
    model = DeepEnsembleRegressor(effort=effort, head=StudentT(degrees_of_freedom=0.8), **QUICK).fit(X, Y)
    assert np.isfinite(model.predict_interval(X)).all()


def test_rounded_targets_are_never_predicted_more_surely_than_they_were_rounded() -> None:
    inputs = np.random.default_rng(1).uniform(size=(300, 2))
    targets = np.round(10 * inputs[:, 0])
    mixture = (
        DeepEnsembleRegressor(effort="fast", max_epochs=60, random_state=0).fit(inputs, targets).predict_distribution(inputs)
    )
    assert float(mixture.aleatoric.min()) >= 1 / 12 - 1e-3


def test_one_target_far_away_does_not_coarsen_the_others():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 3))
    y = 100 + 10 * X[:, 0] + generator.normal(size=300)
    far = y.copy()
    far[7] = 1e6
    usual, mended = (DeepEnsembleRegressor(effort="fast", random_state=0).fit(X, targets) for targets in (y, far))
    assert usual.chosen_["standardize_targets"] is True
    assert "RobustScaling" in mended.chosen_["standardize_targets"]
    widths = [np.median(np.diff(model.predict_interval(X, coverage=0.9))) for model in (usual, mended)]
    assert widths[1] < 2 * widths[0] < 20
