"""Commands for tables: fit, predict, evaluate, explain, compare, show."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option, Typer

import deep_ensembles
from deep_ensembles import tabular

# isort: off
from deep_ensembles.cli._options import (
    DATA, DIGEST, OF_FIT, Config, Coverage, Data, Errors, Json, Model, Table, cells, kept, numbers, settings_from,
    state_path, stopped_text, table_model, takes_settings,
)  # fmt: skip

# isort: on
from deep_ensembles.cli._output import Processes, Ray, chosen_execution, comma_list, note, show, user_errors

if TYPE_CHECKING:
    from deep_ensembles.report import Report


@takes_settings()
def fit(
    data: Data,
    out: Annotated[Path, Option(help="The model folder to write.")],
    config: Config = None,
    report: Annotated[Path | None, Option(help="Also write a page about the held-out rows, as in report.html.")] = None,
    processes: Processes = None,
    ray: Ray = None,
    force: Annotated[bool, Option("--force", help="Replace a model that is there.")] = False,
    **options: Any,
) -> None:
    """Learn to predict a column of a table, and say how sure predictions are. Stopped, the same command goes on.

    All rows are used: networks hold them out in turn, and what is printed is about rows that a network never saw.

    Examples:

      deep-ensembles fit houses.csv --target price --out houses-model

      deep-ensembles fit visits/ --target returns --group patient --out visits

      deep-ensembles fit claims.csv --target claims --head negative_binomial --out claims
    """
    states: dict[str, Path] = {}
    written: list[Path] = []
    goes_on = f"the same command goes on from what it left beside {out}"
    with user_errors(lambda: stopped_text(states.values(), goes_on, written)):
        from deep_ensembles.report import Report
        from deep_ensembles.tabular.writing import check_output

        settings = settings_from(config, options)
        parts, read = tabular.settings_of_targets(data, settings), [*data, *([] if config is None else [str(config)])]
        states |= {part.target: state_path(out, data, part) for part in parts}
        # Who stopped a training that replaces a model has asked for that.
        check_output(out, inputs=read, replace=force or bool(kept(states.values())))
        if report is not None and report.resolve() == out.resolve():
            raise ValueError("--out and --report name the same place; name a folder for the model, a file for the report")
        pages = _pages(report, list(states), inputs=[*read, str(out)])
        how: dict[str, Any] = {"log": show, "execution": chosen_execution(processes, ray), "verbose": 1}
        points = {name: deep_ensembles.Checkpoint(state, every_seconds=30) for name, state in states.items()}
        results = [tabular.fit_table(data, part, checkpoint=points[part.target], **how) for part in parts]
        replace(results[0].model, beside=tuple(fitted.model for fitted in results[1:])).save(out)
        written.append(out)
        for old in out.parent.glob(f".{glob.escape(out.name)}.{DIGEST}.checkpoint*"):
            old.unlink()
        for fitted in results:
            name, in_turn = fitted.model.target.name, "" if fitted.model.facts["rows"]["held_out"] else " in turn"
            title = f"Scores of the {fitted.evaluation.n_rows} rows held out{in_turn}"
            show(tabular.scores_listing(fitted.evaluation, title + f": {name}" * (len(results) > 1)))
            show(fitted.evaluation.summary)
            if name in pages:
                _signed(Report(fitted.evaluation, f"{name}: rows held out{in_turn}"), out).save(pages[name])
                show(f"wrote  {pages[name]}")
        show(f"wrote  {out}\n\n{settings.text()}")


def predict(
    model: Model,
    data: Annotated[list[str] | None, Argument(metavar="DATA", help=f"{DATA} Also a pattern. Not with --row.")] = None,
    out: Annotated[
        str | None,
        Option(help="The file to write (.csv, .tsv, .csv.gz, .jsonl, .parquet), - for stdout, or a folder for many files."),
    ] = None,
    row: Annotated[str | None, Option(help="One row instead of a table, as in speed=12,dist=30; it is printed.")] = None,
    coverage: Coverage = 0.9,
    quantiles: Annotated[str | None, Option(help="Levels with commas between them, each a column: 0.1,0.5.")] = None,
    abstain_below: Annotated[float | None, Option(help="Mark rows of less confidence for a person (classes).")] = None,
    abstain_above: Annotated[float | None, Option(help="Mark rows of larger std for a person (numbers).")] = None,
    keep: Annotated[str | None, Option(help="Columns to carry over, with commas between; quote names with one.")] = None,
    errors: Errors = "refuse",
    table: Table = None,
    safe_cells: Annotated[
        bool, Option("--safe-cells", help="Put an apostrophe before text that a spreadsheet would run as a formula.")
    ] = False,
    processes: Processes = None,
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Predict the rows of a table, in order, or one row, with how sure each prediction is; many files to a folder.

    For numbers: mean, std, aleatoric_std (noise), epistemic_std (what networks disagree about), lower, upper. For classes:
    label, confidence, entropy, disagreement, p_<class>. With the head quantiles also a median, with ordinal lower and upper.

    Examples:

      deep-ensembles predict houses-model new.csv --out predictions.csv --keep id

      deep-ensembles predict visits new.parquet --out p.csv --abstain-below 0.8

      deep-ensembles predict visits 'parts/*.parquet' --out predictions --keep id --processes 4

      deep-ensembles predict cars --row speed=12,dist=30
    """
    if row is None and (not data or out is None):
        raise BadParameter("DATA and --out are needed, or one row with --row")
    if row is not None and data:
        raise BadParameter("--row is instead of DATA; leave one of them out")
    to_folder = out not in (None, "-") and not Path(out or "").suffix
    with user_errors(lambda: "stopped; the same command goes on") if to_folder else user_errors():
        import torch

        options: dict[str, Any] = {"coverage": coverage, "errors": errors, "keep": tuple(comma_list(keep) or ())}
        options |= {"abstain_below": abstain_below, "abstain_above": abstain_above, "quantiles": numbers(quantiles)}
        options |= {"safe_cells": safe_cells, "table": table}
        # Batches side by side are quicker than threads within small operations.
        torch.set_num_threads(1)
        loaded = table_model(model)
        if row is not None:
            _show_row(tabular.predict_row(loaded, cells(row, loaded), out, **options), as_json)
            return
        where, cores = chosen_execution(processes, ray), os.cpu_count() or 1
        if to_folder:
            options |= {"execution": where, "workers": cores if where is None else 1}
            result = tabular.predict_files(loaded, data, out or "", verbose=1, **options)
        elif where is not None:
            raise BadParameter("--processes and --ray predict files side by side; name a folder with --out")
        else:
            result = tabular.predict_table(loaded, data, out or "", workers=cores, verbose=1, **options)
        _show_predicted(result, str(out), loaded.target.unit, as_json)


def _note_unseen(unseen: Mapping[str, int]) -> None:
    if unseen:
        worst = sorted(unseen.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{name} {rows}" for name, rows in worst[:5]) + (", …" if len(worst) > 5 else "")
        note(f"rows with values that training did not see, by column: {shown}; be careful with their predictions")


def _show_predicted(result: tabular.Predicted, out: str, unit: str, as_json: bool) -> None:
    """What was written; beside the predictions themselves, where these are printed."""
    if as_json and out != "-":
        show(_json({"wrote": out, **asdict(result), "unit": unit}))
        return
    for text in result.notes:
        note(text)
    if result.ignored:
        shown = ", ".join(result.ignored[:10]) + (", …" if len(result.ignored) > 10 else "")
        note(f"columns that the model does not know are ignored: {shown}")
    _note_unseen(result.unseen)
    marked = "" if result.abstained is None else f", {result.abstained} of them for a person"
    before = f", {result.done_before} of them were there" if result.done_before else ""
    files = f"{result.files} files{before}; " if result.files > 1 or before else ""
    unit = f", in {unit}" * bool(unit)
    tell, where = (note, "to standard output") if out == "-" else (show, out)
    tell(f"wrote  {where}  ({files}{result.rows} row{'s' * (result.rows != 1)}{marked}{unit})")


def _show_row(predicted: tabular.PredictedRow, as_json: bool) -> None:
    if as_json:
        from deep_ensembles._files import json_ready

        show(_json(json_ready(asdict(predicted))))
        return
    show(predicted.listing())
    for text in predicted.notes:
        note(text)
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
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Judge predictions for rows whose outcome is known, and write a page to look at and send on.

    Examples:

      deep-ensembles evaluate houses-model sold.csv --report report.html

      deep-ensembles evaluate houses-model sold.csv --json
    """
    with user_errors():
        models = {part.target.name: part for part in table_model(model).every}
        pages = _pages(report, list(models), inputs=data)
        wanted: dict[str, Any] = {"coverage": coverage, "errors": errors, "table": table, "explained": report is not None}
        results = {name: tabular.evaluate_table(part, data, verbose=1, **wanted) for name, part in models.items()}
        for name, page in pages.items():
            _signed(results[name], model).save(page)
        if as_json:
            show(_json(_by_target({name: result.evaluation for name, result in results.items()})))
            return
        for name, result in results.items():
            if left_out := result.evaluation.about.get("Left out"):
                show(f"note: left out are {left_out}")
            if notes := result.evaluation.about.get("Files"):
                show(f"note: {notes}")
            _note_unseen({each.column: each.rows for each in result.evaluation.unseen or ()})
            n = result.evaluation.n_rows
            title = f"Scores of {n} row{'s' * (n != 1)}" + f": {name}" * (len(results) > 1)
            show(tabular.scores_listing(result.evaluation, title))
            show(result.evaluation.summary)
        for page in pages.values():
            show(f"wrote  {page}")


def explain(
    model: Model,
    data: Data,
    row: Annotated[int | None, Option(min=1, help="Why this row is unsure, counted from 1 as in the file.")] = None,
    errors: Errors = "refuse",
    table: Table = None,
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
        models = table_model(model).every
        wanted: dict[str, Any] = {"row": row, "errors": errors, "table": table}
        wanted |= {} if as_json else {"log": note}
        found = {part.target.name: tabular.explain_table(part, data, **wanted) for part in models}
        if as_json:
            show(_json(_by_target(found)))
            return
        for name, explanation in found.items():
            if len(found) > 1:
                show(f"{name}:")
            show(explanation.listing())


@takes_settings(*OF_FIT)
def compare(
    data: Data,
    folds: Annotated[int, Option(min=2, help="Folds of the cross-validation.")] = 5,
    only: Annotated[
        str | None, Option(help="Methods to compare with, with commas between, as in random forest,CatBoost.")
    ] = None,
    processes: Processes = None,
    ray: Ray = None,
    config: Config = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Compare a deep ensemble with models that people know, on your table, by cross-validation.

    Those are one network, MC-dropout, an MSE ensemble, scikit-learn's linear model, random forest and gradient boosting, and
    CatBoost and NGBoost where they are installed. The deep ensemble is what `fit` makes of each fold, which takes as long;
    --effort fast is quicker.

    Differences are paired by fold; p is of a test that allows for folds that share training rows. Stopped, the same command
    in the same folder goes on where it was.

    Example: deep-ensembles compare houses.csv --target price
    """
    states: list[Path] = []
    goes_on = "the same command goes on where it was, from what it left in this folder"
    with user_errors(lambda: stopped_text(states, goes_on)):
        settings = settings_from(config, options)
        if len(tabular.settings_of_targets(data, settings)) > 1:
            raise ValueError(f"compare takes one target at a time, got {settings.target!r}")
        states.append(state := state_path(Path("compare"), data, settings, folds, only))
        where: dict[str, Any] = {"execution": chosen_execution(processes, ray), "verbose": 1}
        keeps = os.access(state.parent, os.W_OK)
        where["checkpoint"] = deep_ensembles.Checkpoint(state, every_seconds=30) if keeps else None
        # Where JSON is wanted nothing else may be printed.
        log = (lambda content: None) if as_json else show
        comparison = tabular.compare_table(data, settings, folds, only=comma_list(only), log=log, **where)
        for old in kept(states):
            old.unlink()
        _show_whole(comparison, as_json)


def show_command(model: Model, as_json: Json = False) -> None:
    """Show what a model is: its target, columns, held-out scores, what was chosen, and how to use it. Needs no data.

    Example: deep-ensembles show houses-model
    """
    with user_errors():
        _show_whole(tabular.show_model(model), as_json)


def _show_whole(result: Any, as_json: bool) -> None:
    """All listings of a result, or all of it as JSON."""
    for content in [_json(result.as_dict())] if as_json else result.listings():
        show(content)


def _json(content: Any) -> str:
    return json.dumps(content, allow_nan=False, indent=1)


def _by_target(found: Mapping[str, Any]) -> Any:
    """What was found for each target as plain data; of a single one without its name."""
    plain = {name: result.as_dict() for name, result in found.items()}
    return plain if len(plain) > 1 else next(iter(plain.values()))


def _pages(report: Path | None, targets: Sequence[str], inputs: Sequence[str]) -> dict[str, Path]:
    """The page to write for each target, if any: report.html, or of several targets report-price.html and so on."""
    from deep_ensembles.tabular.writing import PAGES, check_output

    if report is None:
        return {}
    stems = {name: "-" + re.sub(r"[^\w-]+", "-", name) if len(targets) > 1 else "" for name in targets}
    pages = {name: report.with_stem(report.stem + end) for name, end in stems.items()}
    for page in pages.values():
        check_output(page, PAGES, inputs=inputs)
    return pages


def _signed(report: Report, model: Path) -> Report:
    """A report that names the model and the command that made it."""
    command = shlex.join(["deep-ensembles", *sys.argv[1:]])
    about = {"Model": str(model), **report.evaluation.about, "Command": command}
    return replace(report, evaluation=replace(report.evaluation, about=about))


def add_to(app: Typer) -> None:
    """Give the application these commands."""
    for command in (fit, predict, evaluate, explain, compare):
        app.command()(command)
    app.command("show")(show_command)
