"""The page in a browser: opened from disk, on a telephone, in the dark, on paper, and by keyboard."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal

from deep_ensembles._random import seeded
from deep_ensembles.distributions import LogNormal, Poisson, StudentT
from deep_ensembles.mixture import Mixture
from deep_ensembles.report import Batch, Report, evaluate, first_member, unseen_values
from deep_ensembles.report.words import count, number, percent, threshold_text

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")

CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
NASTY = "</script><script>alert(1)</script><b>'\"&"
KINDS = {"numbers": (300, 0), "tiny": (5, 0), "two": (200, 2), "three": (400, 3), "sixty": (900, 60)}
KINDS |= {"counts": (300, -1), "heavy": (300, -2), "prices": (300, -3)}


def unusual(kind: int, location: np.ndarray, spread: np.ndarray) -> tuple[Mixture, np.ndarray]:
    """Counts, tails without a variance, numbers of very different sizes."""
    places, scales = torch.from_numpy(location), torch.from_numpy(spread)
    families = {-1: Poisson(places.exp()), -2: StudentT(torch.full_like(places, 1.5), places, scales)}
    mixture = Mixture(families.get(kind) or LogNormal(3 * places, scales))
    with seeded(0):
        return mixture, mixture.sample().numpy()


def made(n_rows: int, n_classes: int) -> Report:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n_rows, 5))
    names = ["age", "a rather long name of a column", "averyveryveryverylongnamewithoutanyspaceatall", "s1", NASTY]
    settings: dict[str, Any] = {
        "columns": dict(zip(names, features.T, strict=True)),
        "unseen": unseen_values(names, features, [-2.0] * 5, [2.0] * 5),
        "about": {"Data": NASTY},
    }
    if n_classes < 0:
        prediction, target = unusual(n_classes, rng.normal(0, 1, (4, n_rows)), rng.uniform(0.5, 2, (4, n_rows)))
    elif n_classes:
        logits = rng.normal(0, 2, (1, n_rows, n_classes)) + rng.normal(0, 0.6, (4, n_rows, n_classes))
        prediction = Mixture(Categorical(logits=torch.from_numpy(logits)))
        target = Categorical(logits=torch.from_numpy(0.8 * logits[0])).probs.cumsum(-1).numpy()
        target = (target < rng.uniform(size=(n_rows, 1))).sum(1).clip(0, n_classes - 1)
        settings |= {"constant": Categorical(probs=torch.ones(n_classes)), "labels": [NASTY, *map(str, range(1, n_classes))]}
    else:
        means, deviations = rng.normal(0, 2, (4, n_rows)), rng.uniform(0.5, 2, n_rows)
        prediction = Mixture(Normal(torch.from_numpy(means), torch.from_numpy(deviations).expand(4, -1)))
        target = rng.normal(means.mean(0), deviations)
        settings["constant"] = Normal(torch.tensor(0.0), torch.tensor(2.0))
    return Report(evaluate(Batch(prediction, target, first_member(prediction)), **settings), f"Report on {NASTY}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        path = CHROMIUM or started.chromium.executable_path
        if not Path(path).exists():
            pytest.skip("needs a chromium browser")
        running = started.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Report, Path]]:
    folder = tmp_path_factory.mktemp("reports")
    made_ones = {name: made(*sizes) for name, sizes in KINDS.items()}
    return {name: (report, report.save(folder / f"{name}.html")) for name, report in made_ones.items()}


def opened(browser: Any, path: Path, width: int = 1200, **settings: Any) -> Any:
    context = browser.new_context(viewport={"width": width, "height": 800}, **settings)
    page = context.new_page()
    page.trouble = []
    page.on("console", lambda message: page.trouble.append(message.text))
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("dialog", lambda dialog: page.trouble.append("a dialog"))
    page.on("request", lambda request: request.url.startswith("file:") or page.trouble.append(request.url))
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize("kind", KINDS)
def test_it_opens_from_disk_quietly_and_loads_nothing(browser: Any, reports: Any, kind: str) -> None:
    page = opened(browser, reports[kind][1])
    assert page.trouble == []
    assert page.title() == f"Report on {NASTY}"
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(each => Number(each.tagName[1]))")
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    page.context.close()


@pytest.mark.parametrize("kind", ["numbers", "three"])
def test_the_slider_tells_what_to_trust(browser: Any, reports: Any, kind: str) -> None:
    report, path = reports[kind]
    page = opened(browser, path)
    slider = page.get_by_role("slider")
    assert slider.is_visible()
    slider.focus()
    slider.press("End")
    last = report.evaluation.thresholds[-1]
    wanted = percent(last.wanted) if kind == "three" else number(last.wanted)
    for expected in (
        threshold_text(last.threshold, at_least=kind == "three"),
        percent(last.kept),
        f"{count(last.rows)} of {count(report.evaluation.n_rows)}",
    ):
        assert expected in page.locator("#answer").inner_text()
    assert page.locator("#wanted-value").inner_text() == wanted == slider.get_attribute("aria-valuetext")
    mark = page.locator("#kept circle").get_attribute("cx")
    slider.press("ArrowLeft")
    assert percent(report.evaluation.thresholds[-2].kept) in page.locator("#answer").inner_text()
    assert page.locator("#kept circle").get_attribute("cx") != mark
    assert page.trouble == []
    page.context.close()


def test_without_scripts_a_table_says_it(browser: Any, reports: Any) -> None:
    report, path = reports["numbers"]
    page = opened(browser, path, java_script_enabled=False)
    assert not page.get_by_role("slider").is_visible()
    table = page.locator("#trust table").inner_text()
    for line in (report.evaluation.thresholds[0], report.evaluation.thresholds[-1]):
        assert threshold_text(line.threshold, at_least=False) in table
    page.context.close()


@pytest.mark.parametrize("width", [390, 800, 1200])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_sticks_out(browser: Any, reports: Any, kind: str, width: int) -> None:
    page = opened(browser, reports[kind][1], width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    right = "all => all.filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.outerHTML.slice(0, 80))"
    assert page.eval_on_selector_all("body *", right) == []
    inside = """all => all.filter(e => { const box = e.getBoundingClientRect(), svg = e.closest('svg');
        const all = svg.getBoundingClientRect(); return box.width && (box.left < all.left - 1 || box.right > all.right + 1 ||
        box.top < all.top - 1 || box.bottom > all.bottom + 1) }).map(e => e.textContent)"""
    assert page.eval_on_selector_all("svg text", inside) == []
    page.context.close()


@pytest.mark.parametrize("kind", [*KINDS, "wide"])
def test_it_is_short_whatever_the_table(browser: Any, reports: Any, kind: str, tmp_path: Path) -> None:
    """Below 12 000 pixels at 1 280 wide and 1.5 MB, with 2 300 columns and names of a thousand letters too."""
    path = reports[kind][1] if kind != "wide" else tmp_path / "wide.html"
    if kind == "wide":
        rng = np.random.default_rng(0)
        values, names = rng.normal(size=(63, 2300)), [f"{i} {'long name ' * 100}" for i in range(2300)]
        logits = torch.from_numpy(rng.normal(size=(2, 63, 40)))
        shown: dict[str, Any] = {"columns": dict(zip(names, values.T, strict=True)), "labels": names[:40]}
        shown |= {
            "unseen": unseen_values(names, values, [-1.0] * 2300, [1.0] * 2300),
            "about": dict.fromkeys("abcdef", names[0]),
        }
        Report(evaluate((Mixture(Categorical(logits=logits)), rng.integers(40, size=63)), **shown), names[0]).save(path)
    page = opened(browser, path, 1280)
    assert page.evaluate("document.documentElement.scrollHeight") < 12_000
    assert path.stat().st_size < 1_500_000
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["numbers", "three"])
@pytest.mark.parametrize("width", [390, 1200])
def test_it_is_accessible(browser: Any, reports: Any, kind: str, scheme: str, width: int) -> None:
    page = opened(browser, reports[kind][1], width, color_scheme=scheme)
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.context.close()


@pytest.mark.parametrize("kind", ["numbers", "sixty"])
def test_it_prints(browser: Any, reports: Any, kind: str, tmp_path: Path) -> None:
    page = opened(browser, reports[kind][1], color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media=None, color_scheme=None)
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    page.context.close()


def test_it_shows_in_a_notebook_cell(browser: Any, reports: Any, tmp_path: Path) -> None:
    cell = tmp_path / "cell.html"
    cell.write_text(f"<!DOCTYPE html><title>cell</title><body>{reports['three'][0]._repr_html_()}", "utf-8")
    page = opened(browser, cell)
    assert page.frame_locator("iframe").get_by_role("slider").is_visible()
    assert page.trouble == []
    page.context.close()
