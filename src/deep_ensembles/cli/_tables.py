"""Commands for tables: fit, predict, evaluate, explain, compare, show."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Option, Typer

from deep_ensembles.cli._output import comma_list, note, show, user_errors

if TYPE_CHECKING:
    from deep_ensembles.tabular import PredictedRow, TableModel, TableSettings

_DATA = "A CSV, TSV or Parquet file, several, or a folder of parts."
Data = Annotated[list[Path], Argument(metavar="DATA", help=_DATA)]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model folder that `deep-ensembles fit` wrote.")]
Target = Annotated[str | None, Option(help="The column to predict; needed unless a file of settings names it.")]
Task = Annotated[str | None, Option(help="regression or classification; found out by default.")]
Head = Annotated[
    str | None,
    Option(help="The distribution to predict: poisson, logit_normal:low=0,high=100, … (docs/heads.md; chosen by default)"),
]
Bounds = Annotated[str | None, Option(help="Possible numbers, as in 0,100 or 0, (no largest): predictions stay inside.")]
Drop = Annotated[str | None, Option(help="Columns that are no inputs, with commas between; quote names with one.")]
Kinds = Annotated[str | None, Option(help="Kinds of columns, as in zip=category,id=drop; found out by default.")]
Weights = Annotated[str | None, Option(help="A column, no input, of what rows count in training.")]
Group = Annotated[str | None, Option(help="A column, no input; rows of a group are held out together.")]
Time = Annotated[str | None, Option(help="A column; the latest rows are held out. It is an input too, unless dropped.")]
Effort = Annotated[str | None, Option(help="fast tries one network, default several, best more and larger ones.")]
Members = Annotated[int | None, Option(min=2, help="How many networks. (chosen by default)")]
TimeLimit = Annotated[float | None, Option(min=0, help="Seconds for training, for all that is tried.")]
Seed = Annotated[int | None, Option(min=0, help="The same seed gives the same model. (0 by default)")]
Config = Annotated[Path | None, Option(help="A file of settings; what `fit` prints will do.")]
Coverage = Annotated[float, Option(min=0, max=1, help="The share of cases that intervals should hold.")]
Errors = Annotated[str, Option(help="Values that cannot be read: refuse, or take as missing.")]
FitErrors = Annotated[str | None, Option(help="Values that cannot be read: refuse (by default), or take as missing.")]
Recalibration = Annotated[
    str | None, Option(help="auto, none, variance_scaling, temperature, isotonic or conformal. (auto by default)")
]
_DIGEST = "[0-9a-f]" * 12
Json = Annotated[bool, Option("--json", help="Print JSON for machines, nothing else.")]


def fit(
    context: Context,
    data: Data,
    out: Annotated[Path, Option(help="The model folder to write.")],
    target: Target = None,
    task: Task = None,
    head: Head = None,
    bounds: Bounds = None,
    drop: Drop = None,
    kinds: Kinds = None,
    errors: FitErrors = None,
    weights: Weights = None,
    group: Group = None,
    time: Time = None,
    members: Members = None,
    effort: Effort = None,
    holdout: Annotated[
        float | None, Option(min=0, max=0.9, help="Share of rows that no network sees. (0; with --time 0.2)")
    ] = None,
    recalibration: Recalibration = None,
    epsilon: Annotated[
        float | None, Option(min=0, help="Adversarial training: 0.01 in the paper. (none by default)")
    ] = None,
    max_epochs: Annotated[int | None, Option(min=1, help="Passes over the rows at most. (chosen by default)")] = None,
    time_limit: TimeLimit = None,
    seed: Seed = None,
    config: Config = None,
    report: Annotated[Path | None, Option(help="Also write a page about the held-out rows, as in report.html.")] = None,
    force: Annotated[bool, Option("--force", help="Replace a model that is there.")] = False,
) -> None:
    """Learn to predict a column of a table, and say how sure predictions are. Stopped, the same command goes on.

    All rows are used: networks hold them out in turn, and what is printed is about rows that a network never saw.

    Examples:

      deep-ensembles fit houses.csv --target price --out houses-model

      deep-ensembles fit visits/ --target returns --group patient --out visits

      deep-ensembles fit claims.csv --target claims --head negative_binomial --out claims
    """
    with user_errors(f"stopped; the same command goes on where it was, from what it left beside {out}"):
        from deep_ensembles.report import Report
        from deep_ensembles.tabular import fit_table, scores_listing
        from deep_ensembles.tabular.files import PAGES, check_output
        from deep_ensembles.training import Checkpoint

        settings = _settings(context)
        state, read = _state(out, data, settings), [*data, *([] if config is None else [config])]
        # Who stopped a training that replaces a model has asked for that.
        check_output(out, inputs=read, replace=force or any(state.parent.glob(f"{glob.escape(state.name)}*")))
        if report is not None:
            check_output(report, PAGES, inputs=[*read, out])
        fitted = fit_table(data, settings, log=show, checkpoint=Checkpoint(state, every_seconds=30), verbose=1)
        fitted.model.save(out)
        for old in out.parent.glob(f".{glob.escape(out.name)}.{_DIGEST}.checkpoint*"):
            old.unlink()
        in_turn = "" if fitted.model.facts["rows"]["held_out"] else " in turn"
        show(scores_listing(fitted.evaluation, f"Scores of the {fitted.evaluation.n_rows} rows held out{in_turn}"))
        show(fitted.evaluation.summary)
        if report is not None:
            Report(fitted.evaluation, f"{settings.target}: rows held out{in_turn}").save(report)
            show(f"wrote  {report}")
        show(f"wrote  {out}\n\n{settings.text()}")


def predict(
    model: Model,
    data: Annotated[list[Path] | None, Argument(metavar="DATA", help=f"{_DATA} Not with --row.")] = None,
    out: Annotated[Path | None, Option(help="The file to write: .csv, .tsv, .csv.gz, .tsv.gz or .parquet.")] = None,
    row: Annotated[str | None, Option(help="One row instead of a table, as in speed=12,dist=30; it is printed.")] = None,
    coverage: Coverage = 0.9,
    quantiles: Annotated[str | None, Option(help="Levels with commas between them, each a column: 0.1,0.5.")] = None,
    abstain_below: Annotated[float | None, Option(help="Mark rows of less confidence for a person (classes).")] = None,
    abstain_above: Annotated[float | None, Option(help="Mark rows of larger std for a person (numbers).")] = None,
    keep: Annotated[str | None, Option(help="Columns to carry over, with commas between; quote names with one.")] = None,
    errors: Errors = "refuse",
    safe_cells: Annotated[
        bool, Option("--safe-cells", help="Put an apostrophe before text that a spreadsheet would run as a formula.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Predict the rows of a table, in order, or one row, with how sure each prediction is.

    For numbers: mean, std, aleatoric_std (noise), epistemic_std (what networks disagree about), lower, upper. For classes:
    label, confidence, entropy, disagreement, p_<class>. With the head quantiles also a median, with ordinal lower and upper.

    Examples:

      deep-ensembles predict houses-model new.csv --out predictions.csv --keep id

      deep-ensembles predict visits new.parquet --out p.csv --abstain-below 0.8

      deep-ensembles predict cars --row speed=12,dist=30
    """
    if row is None and (not data or out is None):
        raise BadParameter("DATA and --out are needed, or one row with --row")
    if row is not None and data:
        raise BadParameter("--row is instead of DATA; leave one of them out")
    with user_errors():
        import torch

        from deep_ensembles.tabular import predict_row, predict_table

        options: dict[str, Any] = {"coverage": coverage, "errors": errors, "keep": tuple(comma_list(keep) or ())}
        options |= {"abstain_below": abstain_below, "abstain_above": abstain_above, "quantiles": _numbers(quantiles)}
        options |= {"safe_cells": safe_cells}
        # Batches side by side are quicker than threads within small operations.
        torch.set_num_threads(1)
        loaded = _table_model(model)
        if row is not None:
            _show_row(predict_row(loaded, _cells(row, loaded), out, **options), as_json)
            return
        result = predict_table(loaded, data, out or "", workers=os.cpu_count() or 1, verbose=1, **options)
        if as_json:
            show(json.dumps({"wrote": str(out), **asdict(result)}, indent=1))
            return
        if result.ignored:
            shown = ", ".join(result.ignored[:10]) + (", …" if len(result.ignored) > 10 else "")
            note(f"columns that the model does not know are ignored: {shown}")
        if result.unseen:
            worst = sorted(result.unseen.items(), key=lambda item: -item[1])
            shown = ", ".join(f"{name} {rows}" for name, rows in worst[:5]) + (", …" if len(worst) > 5 else "")
            note(f"rows with values that training did not see, by column: {shown}; be careful with their predictions")
        marked = "" if result.abstained is None else f", {result.abstained} of them for a person"
        show(f"wrote  {out}  ({result.rows} rows{marked})")


def _show_row(predicted: PredictedRow, as_json: bool) -> None:
    if as_json:
        from deep_ensembles._files import json_ready

        show(json.dumps(json_ready(asdict(predicted)), allow_nan=False, indent=1))
        return
    show(predicted.listing())
    if predicted.gaps:
        note(f"not given, and filled as gaps were in training: {', '.join(predicted.gaps[:10])}")
    if predicted.unseen:
        note(f"training did not see the value of {', '.join(predicted.unseen[:10])}; be careful with the prediction")


def evaluate(
    model: Model,
    data: Data,
    report: Annotated[Path | None, Option(help="The page to write, as in report.html.")] = None,
    coverage: Coverage = 0.9,
    errors: Errors = "refuse",
    as_json: Json = False,
) -> None:
    """Judge predictions for rows whose outcome is known, and write a page to look at and send on.

    Examples:

      deep-ensembles evaluate houses-model sold.csv --report report.html

      deep-ensembles evaluate houses-model sold.csv --json
    """
    with user_errors():
        from deep_ensembles.tabular import evaluate_table, scores_listing
        from deep_ensembles.tabular.files import PAGES, check_output

        if report is not None:
            check_output(report, PAGES, inputs=data)
        wanted: dict[str, Any] = {"coverage": coverage, "errors": errors, "explained": report is not None}
        result = evaluate_table(_table_model(model), data, verbose=1, **wanted)
        if report is not None:
            result.save(report)
        if as_json:
            show(json.dumps(result.evaluation.as_dict(), allow_nan=False, indent=1))
            return
        if left_out := result.evaluation.about.get("Left out"):
            show(f"note: left out are {left_out}")
        show(scores_listing(result.evaluation, f"Scores of {result.evaluation.n_rows} rows"))
        show(result.evaluation.summary)
        if report is not None:
            show(f"wrote  {report}")


def explain(
    model: Model,
    data: Data,
    row: Annotated[int | None, Option(min=1, help="Why this row is unsure, counted from 1 as in the file.")] = None,
    errors: Errors = "refuse",
    as_json: Json = False,
) -> None:
    """Say which columns drive predictions and their spread; with --row, which columns make that row unsure.

    Columns are shuffled one by one, so rows should be ones that the model has not seen. For one row contributions to noise
    and to ignorance add up to its uncertainty (Shapley values, with the error of sampling).

    Examples:

      deep-ensembles explain houses-model sold.csv

      deep-ensembles explain houses-model sold.csv --row 12
    """
    with user_errors():
        from deep_ensembles.tabular import explain_table

        found = explain_table(_table_model(model), data, row=row, errors=errors)
        show(json.dumps(found.as_dict(), allow_nan=False, indent=1) if as_json else found.listing())


def compare(
    context: Context,
    data: Data,
    target: Target = None,
    folds: Annotated[int, Option(min=2, help="Folds of the cross-validation.")] = 5,
    task: Task = None,
    head: Head = None,
    bounds: Bounds = None,
    drop: Drop = None,
    kinds: Kinds = None,
    errors: FitErrors = None,
    weights: Weights = None,
    group: Group = None,
    time: Time = None,
    members: Members = None,
    effort: Effort = None,
    time_limit: TimeLimit = None,
    seed: Seed = None,
    only: Annotated[
        str | None, Option(help="Methods to compare with, with commas between, as in random forest,CatBoost.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Compare a deep ensemble with models that people know, on your table, by cross-validation.

    Those are one network, MC-dropout, an MSE ensemble, scikit-learn's linear model, random forest and gradient boosting, and
    CatBoost and NGBoost where they are installed. The deep ensemble is what `fit` makes of each fold, which takes as long;
    --effort fast is quicker.

    Differences are paired by fold; p is of a test that allows for folds that share training rows.

    Example: deep-ensembles compare houses.csv --target price
    """
    with user_errors():
        from deep_ensembles.tabular import compare_table

        # Where JSON is wanted nothing else may be printed.
        log = (lambda content: None) if as_json else show
        comparison = compare_table(data, _settings(context), folds, only=comma_list(only), log=log, verbose=1)
        if as_json:
            show(json.dumps(comparison.as_dict(), allow_nan=False, indent=1))
            return
        for listing in comparison.listings():
            show(listing)


def show_command(model: Model, as_json: Json = False) -> None:
    """Show what a model is: its target, columns, held-out scores, what was chosen, and how to use it. Needs no data.

    Example: deep-ensembles show houses-model
    """
    with user_errors():
        from deep_ensembles.tabular import show_model

        summary = show_model(model)
        if as_json:
            show(json.dumps(summary.as_dict(), allow_nan=False, indent=1))
            return
        for listing in summary.listings():
            show(listing)


def _settings(context: Context) -> TableSettings:
    """Settings of the command line, by the names of `TableSettings`, over those of a file."""
    from deep_ensembles.tabular import TableSettings, read_settings

    options = context.params | {"drop": comma_list(context.params["drop"]), "kinds": _pairs(context.params["kinds"])}
    known = {} if options["config"] is None else read_settings(options["config"])
    known |= {field.name: value for field in fields(TableSettings) if (value := options.get(field.name)) is not None}
    if "target" not in known:
        raise BadParameter("--target is needed")
    return TableSettings(**known)


def _state(out: Path, data: list[Path], settings: TableSettings) -> Path:
    """Where the state of a training is kept: beside the model, and apart for other settings or data."""
    seen = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in data if path.exists()]
    digest = hashlib.sha256(f"{settings.text()}{seen}".encode()).hexdigest()
    return out.absolute().with_name(f".{out.absolute().name}.{digest[:12]}.checkpoint")


def _table_model(path: Path) -> TableModel:
    from deep_ensembles.saving import load
    from deep_ensembles.tabular import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise ValueError(f"{path} holds a {type(model).__name__}, no model of a table; fit one with `deep-ensembles fit`")
    return model


def _pairs(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    parts = [item.rpartition("=") for item in comma_list(text) or []]
    if any(not name or not kind for name, _, kind in parts):
        raise ValueError(f"`kinds` must be like zip=category,id=drop, got {text!r}")
    return {name.strip(): kind.strip() for name, _, kind in parts}


def _cells(text: str, model: TableModel) -> dict[str, str]:
    """The values of a row by column, as in speed=12,dist=30."""
    cells: dict[str, str] = {}
    for item in comma_list(text) or []:
        # A name may have an equals sign in it.
        known = next((name for name in model.schema.names if item.startswith(f"{name}=")), item.partition("=")[0])
        name = known.strip()
        if not name or len(known) == len(item):
            raise ValueError(f'`row` must be like speed=12,dist=30, got {item!r}; quote what has a comma, as in "size=1,5"')
        if name in cells:
            raise ValueError(f"`row` must have each column once, got {name!r} twice")
        cells[name] = item[len(known) + 1 :].strip()
    return cells


def _numbers(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(map(float, comma_list(text) or ()))
    except ValueError as error:
        raise ValueError(f"`quantiles` must be numbers with commas between them, got {text!r}") from error


def add_to(app: Typer) -> None:
    """Give the application these commands."""
    for command in (fit, predict, evaluate, explain, compare):
        app.command()(command)
    app.command("show")(show_command)
