"""Reports: what a page says of a folder, that it stands alone, and that nothing from outside gets into its code."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from report_sample import (
    Audit,
    arm_results,
    audit,
    claim_folder,
    evidence,
    finding,
    items,
    layer_rows,
    manifest,
    plain_folder,
    write,
)

from burnish.core.claim import Figure
from burnish.core.errors import BadInput
from burnish.report import (
    Column,
    Foot,
    Head,
    Row,
    Section,
    claim_page,
    forest,
    page,
    palette,
    profiles,
    render,
    table,
    words,
)
from burnish.report import run_page as runs
from burnish.report.citation import papers
from burnish.report.folder import LayerRow, read

# -- the pages --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def claim(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Audit]:
    path = render([claim_folder(tmp_path_factory.mktemp("runs") / "boa")])
    return path, audit(path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Audit]:
    path = render([plain_folder(tmp_path_factory.mktemp("runs") / "a")])
    return path, audit(path)


def test_a_claims_page_tells_the_verdict_and_what_stands_behind_it(claim: tuple[Path, Audit]) -> None:
    path, page = claim
    assert path == path.parent / "report.html"
    assert path.parent.name == "boa"
    assert page.headings == [
        "BoA keeps a model closer to the original than GPTQ at the same number of bits",
        "The criteria",
        "The arms",
        "The paper's figures beside ours",
        "Error by layer",
        "Sizes",
        "Time and memory",
        "How it ran",
        "Where the weights come from",
        "Data and digests",
        "The machine",
        "References",
    ]
    for said in (
        "Holds for smollm2-135m: all 5 criteria are met.",
        "3 bits, whole model: BoA's KL from the original is below GPTQ's: −0.080 [−0.098, −0.062]: holds.",
        "weights were dequantized from Q4_1",
        "Table 10, OPT-125M, 3 bits 27.65 233.9 50.75 31.95",
        "whole · 3 bits 26.04 509.0 46.16 41.51",
        "boa, seed 1",
        "538 MB",
        "damping raised to 2 %",
        "Attention-aware Post-training Quantization",
        "burnish claim boa --scale full --out runs/boa",
    ):
        assert said in page.text, said
    # The paper stands in the method's file and in the claim's: it is cited once.
    assert page.text.count("Attention-aware Post-training") == 1


def test_a_plain_runs_page_has_a_headline_and_what_the_folder_holds(plain: tuple[Path, Audit]) -> None:
    _, page = plain
    first, *rest = page.headings
    assert first.replace("\N{NO-BREAK SPACE}", " ") == "boa on smollm2-135m at 3 bits: perplexity 41.1, KL 0.581"
    assert rest == ["What was asked", "The items", "Error by layer", "How it ran", "The machine", "References"]
    assert "The run took 8.3 min and held at most 2.14 GB of memory." in page.text
    # The program's folder is nobody's business.
    assert "burnish compress boa smollm2-135m --bits 3 --out runs/a" in page.text
    assert "/home/me" not in page.text


def test_every_colour_of_the_charts_has_a_dark_counterpart(
    claim: tuple[Path, Audit], plain: tuple[Path, Audit]
) -> None:
    known = {colour.light for colour in palette.ALL}
    for path, _ in (claim, plain):
        page = path.read_text(encoding="utf-8")
        used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-fA-F]{3,8}|rgb[^"]*|[a-z]+)"', page))
        assert used - known <= {"none", "transparent"}
        assert len(used & known) > 3
        assert all(f'[fill="{colour}"]' in page for colour in known)
    assert len(known) == len(palette.ALL)


def test_charts_are_drawn_for_both_widths_and_described(claim: tuple[Path, Audit]) -> None:
    page = claim[0].read_text(encoding="utf-8")
    drawings = re.findall(r'<svg class="(wide|narrow)" role="img" aria-label="([^"]+)" viewBox="0 0 ([\d.]+)', page)
    assert [kind for kind, _, _ in drawings] == ["wide", "narrow"] * 6
    assert all(float(width) <= (760 if kind == "wide" else 360) for kind, _, width in drawings)
    assert all(len(label) > 20 for _, label, _ in drawings)


def test_several_runs_are_compared_and_then_told(tmp_path: Path) -> None:
    write(tmp_path / "a" / "run.json", manifest())
    write(tmp_path / "b" / "run.json", manifest(status="failed", error="DoesNotFit: too big", metrics={"ppl": 45.7}))
    path = render([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    page = audit(path)
    assert path == tmp_path / "report.html"
    assert page.headings[0] == "2 runs side by side"
    assert {"#run-1", "#run-2"} <= set(page.links)
    assert "The run failed: DoesNotFit: too big" in page.text
    assert "✓ done 41.1 0.581 [0.550, 0.612] 0.614 8.3 min 2.14 GB" in page.text
    assert "✕ failed 45.7 – – 8.3 min 2.14 GB" in page.text


def test_what_is_not_there_is_not_told(tmp_path: Path) -> None:
    write(tmp_path / "run.json", {"status": "done"})
    page = audit(render([tmp_path], tmp_path / "elsewhere" / "page.html"))
    assert page.headings == [tmp_path.name]
    assert "<svg" not in (tmp_path / "elsewhere" / "page.html").read_text()


# -- what comes from outside ------------------------------------------------------------------------------------

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>\x00'


def test_text_from_outside_stays_text(tmp_path: Path) -> None:
    criterion = finding(EVIL, f"{EVIL}: {EVIL}", 0.1, 0.2).model_copy(update={"note": EVIL})
    arm = arm_results()[-1].model_copy(update={"label": EVIL, "cell": {EVIL: EVIL}, "weights": EVIL})
    arm = arm.model_copy(update={"measures": {EVIL: {"estimate": 1.0, "low": 0.5, "high": 2.0}}})
    texts = dict.fromkeys(("claim", "sentence", "model", "scale", "multiplicity", "command", "date"), EVIL)
    pairs = {key: {EVIL: EVIL} for key in ("data", "environment", "digests")}
    shown = [Figure(where=EVIL, numbers={EVIL: 1.0}, measure=EVIL, source=EVIL)]
    told = evidence(findings=[criterion] * 2, arms=[arm], figures=shown, lineage=[EVIL], **texts, **pairs)
    for name in ("claim", "plain"):
        folder = tmp_path / name
        request = {"use": EVIL, "settings": {EVIL: EVIL}, "goods": {EVIL: EVIL}}
        metrics = {EVIL: 1.0, "text": EVIL}
        write(folder / "run.json", manifest(request=request, metrics=metrics, error=EVIL, status=EVIL, command=[EVIL]))
        write(folder / "layers.json", [{"arm": EVIL, "block": 0, "role": EVIL, "error": 0.1, "note": EVIL}])
        write(folder / "sizes.json", {EVIL: 10})
        event = {"kind": "link", "step": EVIL, "key": EVIL, "seconds": 1}
        (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
        rows = {"item_id": [EVIL] * 3, "model": [EVIL] * 3, EVIL: [1.0, 2.0, 4.0]}
        pq.write_table(pa.table(rows), folder / "items.parquet")
        pq.write_table(pa.table({EVIL: [EVIL]}), folder / "table.parquet")
    (tmp_path / "claim" / "evidence.json").write_text(told.model_dump_json())
    path = render([tmp_path / "claim", tmp_path / "plain"])
    page = audit(path)
    assert page.text.count("<script>alert(1)</script>") > 40
    assert "<script" not in path.read_text(encoding="utf-8").lower()


@pytest.mark.parametrize("name", ["run.json", "evidence.json", "layers.json", "sizes.json"])
@pytest.mark.parametrize(
    "content", ["", "{", "null ,", "7", '"text"', '{"a": "\\ud800"}', '[{"block": []}]', "[" * 9999]
)
def test_a_damaged_file_is_told_and_harms_nothing_else(tmp_path: Path, name: str, content: str) -> None:
    write(tmp_path / "run.json", manifest(request={"use": "nothing"}))
    (tmp_path / name).write_text(content)
    page = audit(render([tmp_path]))
    assert re.search(f"{name}[^.]* (is|are) damaged", page.text)


def test_damaged_parts_of_a_file_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "run.json", manifest(minutes="soon", seed=[]))
    good, bad = layer_rows(("boa",))[0], {"arm": "boa", "block": "first"}
    write(tmp_path / "layers.json", [good, bad])
    (tmp_path / "events.jsonl").write_text(
        '{"kind": "link"\n{"kind": "link", "step": "s", "key": "k", "seconds": 2}\n{"at'
    )
    (tmp_path / "items.parquet").write_text("no")
    (tmp_path / "table.parquet").write_text("no")
    found = read(tmp_path)
    assert [len(found.layers), len(found.events)] == [1, 1]
    assert found.manifest.metrics["ppl"] == 41.1
    assert [note.partition(":")[0].partition(" is")[0] for note in found.notes] == [
        "layers.json",
        "events.jsonl",
        "run.json",
        "items.parquet",
        "table.parquet",
    ]
    assert "1 of 2 rows are damaged" in found.notes[0]
    assert "minutes, seed" in found.notes[2]


def test_folders_without_a_run_are_refused_together(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to report"):
        render([])
    with pytest.raises(BadInput, match=r"no run\.json in"):
        render([tmp_path])
    with pytest.raises(BadInput) as caught:
        render([tmp_path, tmp_path / "absent"])
    assert f"there is no run.json in {tmp_path}\n" in caught.value.problem
    assert f"there is no folder {tmp_path / 'absent'}" in caught.value.problem
    write(tmp_path / "run.json", {})
    with pytest.raises(BadInput, match="cannot be written"):
        render([tmp_path], tmp_path)


# -- the pieces -------------------------------------------------------------------------------------------------


def test_pages_of_other_parts_can_be_made_of_the_same_pieces() -> None:
    rows = [{"who": "<b>", "count": 12345, "share": None}, {"who": "b", "count": 2, "share": 0.25, "in": "there"}]
    body = table(rows, ["who", Column("count", "how many"), "share"], caption="Who & what", group="in")
    made = page(Head("A page"), [Section("One", body, parts=[Section("Two", Markup(""))])], Foot(["do it"]))
    found = Audit(made)
    assert found.wrong == []
    assert found.headings == ["A page", "One"]
    assert "who how many share <b> 12,345 – there b 2 0.250" in found.text
    assert made.count('class="number"') == 6
    assert "This command gives it again: do it" in found.text


def test_forest_keeps_scales_apart_and_draws_what_has_no_bounds() -> None:
    rows = [
        Row("far", -8.0, -9.0, -7.0, 0.0, verdict="holds"),
        Row("near", -0.08, -0.1, -0.06, 0.0, verdict="holds"),
        Row("near too", -0.05, -0.1, 0.02, 0.0, verdict="undecided"),
        Row("unbounded \x00", 0.4, -math.inf, math.inf, 0.5, verdict="undecided"),
        Row("unknown", math.nan, -math.inf, math.inf, 0.5),
    ]
    drawn = forest(rows)
    narrow = drawn.partition('<svg class="narrow"')[2].partition(">")[2]
    assert narrow.count("margin 0<") == 2
    assert narrow.count("margin 0.5<") == 1
    assert "✓ −8.0 [−9.0,\N{NO-BREAK SPACE}−7.0]" in narrow
    assert "? 0.400 [−∞,\N{NO-BREAK SPACE}∞]" in narrow
    assert "unknown" not in narrow
    assert forest([]) == forest(rows[-1:]) == ""


def test_findings_of_several_cells_stand_under_what_they_share() -> None:
    texts = ["3 bits: A is lower.", "2 bits: A is lower.", "3 bits: B is lower.", "no cell"]
    rows = claim_page.rows_of([finding("f", text, 0.1, 0.2) for text in texts])
    assert [(row.group, row.label) for row in rows] == [
        ("A is lower.", "3 bits"),
        ("A is lower.", "2 bits"),
        ("", "3 bits: B is lower."),
        ("", "no cell"),
    ]


def test_an_arm_belongs_to_every_cell_that_agrees_with_its_own() -> None:
    places = dict(claim_page.places_of(evidence()))
    assert [name.replace("\N{NO-BREAK SPACE}", " ") for name in places] == [
        "qkv · 3 bits",
        "whole · 3 bits",
        "qkv · 2 bits",
    ]
    for members in places.values():
        assert [arm.arm for arm in members] == ["fp", "rtn", "gptq", "gptq", "boa", "boa"]
    looks = claim_page.looks_of(evidence())
    assert list(looks) == ["unquantized", "rtn", "gptq", "boa"]
    assert looks["boa"].colour == palette.SERIES[0].light


@pytest.mark.parametrize(
    ("halves", "said"),
    [
        ([0.01, 0.02], "Holds for smollm2-135m: all 2 criteria are met."),
        ([0.01], "Holds for smollm2-135m: its one criterion is met."),
        ([0.01, 0.2], "Undecided for smollm2-135m: the interval of 1 of 2 criteria reaches across the margin"),
        ([0.01, -0.2], "Does not hold for smollm2-135m: 1 of 2 criteria lies on the wrong side of the margin."),
        ([], "Undecided for smollm2-135m: no criterion was measured."),
    ],
)
def test_the_verdict_is_said_in_words(halves: list[float], said: str) -> None:
    found = [finding("f", f"text {half}", -0.1 if half > 0 else 0.3, abs(half)) for half in halves]
    verdicts = [one.verdict for one in found]
    order = ["does not hold", "undecided", "holds"]
    verdict = min(verdicts, key=order.index, default="undecided")
    told = evidence(findings=found, verdict=verdict)
    assert words.verdict_sentence(told).startswith(said)
    assert (words.deciding(told) or finding("f", "", 0, 1)).verdict == verdict


def test_methods_that_see_no_text_have_their_weights_errors_shown() -> None:
    rows = [LayerRow(block=block, role="q", weight_error=0.01 * (block + 1), bits=4) for block in range(3)]
    section = runs.layers(rows, {}, {}, "rtn")
    assert section is not None
    assert "‖ΔW‖²" in section.body
    assert "0.0300" in section.body
    assert runs.layers([], {}, {}) is None


def test_an_arm_has_the_same_look_in_every_chart() -> None:
    known = palette.looks(["rtn", "boa"], "boa")
    rows = [LayerRow(arm=arm, block=block, role="q", error=0.1) for arm in ("rtn", "boa", "new") for block in (0, 1)]
    section = runs.layers(rows, {}, known)
    assert section is not None
    legend = re.findall(
        r'fill="(#\w+)"[^>]*opacity="1"/>.*?<text[^>]*>(\w+)</text>', section.body.partition("</svg>")[0]
    )
    shown = {name: colour for colour, name in legend if name in ("rtn", "boa", "new")}
    assert shown == {name: look.colour for name, look in palette.looks(["rtn", "boa", "new"], "boa").items()}
    assert shown["boa"] == known["boa"].colour


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.0, 1.0] * 40, "share of the items with each value"),
        (list(np.linspace(0, 1, 40)), "one tick an item"),
        (list(np.linspace(0, 1, 90) ** 2), "share of the items"),
        ([1.0, 1.0 + 1e-15] * 40, "share of the items with each value"),
        ([3.0] * 9, ""),
        ([], ""),
    ],
)
def test_items_are_drawn_as_their_number_and_values_ask(values: list[float], kind: str) -> None:
    drawn, found = profiles.distribution({"a": np.array(values)}, "nll", palette.looks(["a"]))
    assert found == kind
    assert bool(drawn) == bool(kind)


def test_nothing_heavy_is_imported_before_it_is_used(tmp_path: Path) -> None:
    write(tmp_path / "run.json", manifest())
    code = (
        "import sys, pathlib, burnish.report as report\n"
        f"report.render([pathlib.Path({str(tmp_path)!r})])\n"
        "print([name for name in ('torch', 'transformers', 'datasets', 'altair', 'vl_convert') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    # The page cites the method's paper all the same: it is read off the source.
    assert "Attention-aware" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert papers(["boa", "no such method", "burnish.claims.decide"]) == papers(["boa"])


# -- the words --------------------------------------------------------------------------------------------------


def test_numbers_are_written_as_people_write_them() -> None:
    cases = {12345.6: "12,346", 509.0: "509", 41.08: "41.1", -0.0801: "−0.0801", 1e-7: "1.00×10⁻⁷", -1e12: "−1.00×10¹²"}
    assert {value: words.number(value) for value in cases} == cases
    assert [words.number(v) for v in (math.inf, -math.inf, math.nan, True, None, 1234)] == [
        "∞",
        "−∞",
        "not a number",
        "yes",
        "–",
        "1,234",
    ]
    assert words.interval(-0.0801, -0.0982, -0.0613) == ("−0.080", "[−0.098,\N{NO-BREAK SPACE}−0.061]")
    assert words.interval(509, 470.2, 561.9) == ("509", "[470,\N{NO-BREAK SPACE}562]")
    assert [words.duration(s) for s in (0.42, 41, 59.9, 332, 8000)] == [
        "0.42 s",
        "41 s",
        "60 s",
        "5.5 min",
        "2.22 h",
    ]
    assert [words.size(s) for s in (538_090_408, 2048, 12)] == ["538 MB", "2.05 kB", "12.0 bytes"]
    assert words.command_line(["/x/bin/burnish", "run", "a b.toml"]) == "burnish run 'a b.toml'"
    assert words.command_line(["/x/burnish/__main__.py", "env"]) == "burnish env"
    assert words.command_line(["/x/pytest/__main__.py", "-q"]) == "python -m pytest -q"
    assert words.command_line(["examples/01.py"]) == "python examples/01.py"


@given(st.floats(-1e300, 1e300), st.integers(2, 6))
def test_a_written_number_is_the_number_to_the_digits_asked_for(value: float, digits: int) -> None:
    text = words.number(value, digits).replace("−", "-").replace(",", "")
    mantissa, _, power = text.partition("×10")
    exponent = int(power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)
    assert float(f"{mantissa}e{exponent}") == pytest.approx(value, rel=0.6 * 10 ** (1 - digits), abs=0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_an_interval_keeps_its_order_and_its_ends_apart(values: list[float]) -> None:
    low, middle, high = sorted(values)
    texts = [*words.interval(middle, low, high)[1].strip("[]").split(",\N{NO-BREAK SPACE}")]
    ends = [float(text.replace("−", "-").replace(",", "").replace("×10⁻", "e-").translate(_PLAIN)) for text in texts]
    assert ends[0] <= ends[1]
    if high - low > 1e-5:
        assert ends[0] < ends[1]


_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


# -- the colours ------------------------------------------------------------------------------------------------

CONES = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""Linear RGB as it is seen with cones missing: Machado, Oliveira and Fernandes 2009, severity 1."""


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio."""
    dark, bright = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_read_and_told_apart_by_everybody(mode: str) -> None:
    shade = {colour.name: getattr(colour, mode) for colour in palette.ALL}
    for text in ("ink", "muted", "link", "holds", "fails", "undecided"):
        assert all(contrast(shade[text], shade[ground]) >= 4.5 for ground in ("page", "panel")), text
    assert all(contrast(shade[text], shade["shade"]) >= 4.5 for text in ("ink", "muted", "holds", "fails", "undecided"))
    series = [getattr(colour, mode) for colour in palette.SERIES]
    assert all(contrast(colour, shade["page"]) >= 3 for colour in series)
    for cones, matrix in CONES.items():
        for one, other in combinations(series, 2):
            apart = lab(np.array(matrix) @ linear(one)) - lab(np.array(matrix) @ linear(other))
            assert np.linalg.norm(apart) >= 20, (cones, one, other)


# -- recipes and what they made ---------------------------------------------------------------------------------


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """The folder of a recipe that rounded a model, measured it, and compared two counts."""
    folder = tmp_path / "recipe"
    asked = {"recipe": {"title": "Round and measure", "steps": [{"use": "gptq"}, {"use": "divergence"}]}}
    write(folder / "run.json", manifest(request=asked, metrics={"calibration_windows": 4}))
    write(folder / "parts/1-gptq/layers.json", layer_rows(("gptq",), named=False))
    write(folder / "parts/1-gptq/artifact/burnish.json", {"name": "tiny", "format": "hf"})
    (folder / "parts/2-divergence").mkdir()
    items(folder / "parts/2-divergence/items.parquet", 24)
    measured = {"windows": 24, "kl": 0.5, "kl_low": 0.4, "kl_high": 0.6, "ppl": 41.0, "text": "words"}
    rows = [
        {"key": "1-gptq", "value": {"metrics": {"calibration_windows": 4, "layers_with_notes": 4}, "minutes": 1.0}},
        {"key": "2-divergence", "value": {"metrics": measured, "minutes": 0.5}},
        {"key": "../3", "value": {"metrics": {}}},
    ]
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_recipes_page_tells_each_step_and_heads_with_what_was_measured(steps: Path) -> None:
    page = audit(render([steps]))
    first, *rest = page.headings
    assert first.replace("\N{NO-BREAK SPACE}", " ") == "Round and measure: perplexity 41.0, KL 0.500"
    assert rest[1:4] == ["The saved model", "Step 1: gptq", "Step 2: divergence"]
    first, second = page.text.split("It took")[1:]
    assert "by block; log scale" in first
    assert "24 rows in items.parquet" in second
    assert "KL 0.50 [0.40, 0.60]" in page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "layers with notes: linear maps of which the method noted something unusual" in page.text
    assert "a damaged line was left out" in page.text
    path = steps / "parts/1-gptq/artifact"
    assert f"from_pretrained('{path}')" in page.text
    assert f"burnish generate {path} --prompt" in page.text


def test_a_training_is_shown_step_by_step(tmp_path: Path) -> None:
    folder = plain_folder(tmp_path / "r")
    rows = [
        {"step": n, "loss": 5.0 - n / 100, "rate": 1e-3} | ({"held": 6.25 - n / 100} if n % 50 == 0 else {})
        for n in range(1, 151)
    ]
    lines = [json.dumps(row) for row in rows]
    part = folder / "parts" / "2-pretrain"
    part.mkdir(parents=True)
    (folder / "losses.jsonl").write_text("\n".join([*lines, '{"step": 151, "lo']))
    (part / "losses.jsonl").write_text(lines[0] + "\n" + '{"step": 2, "loss": "high"}')
    found = read(folder)
    assert [len(losses) for losses in found.losses.values()] == [150, 1]
    assert any("losses.jsonl" in note for note in found.notes)
    text = render([folder]).read_text()
    assert "How it learned" in text
    assert "How it learned: 2-pretrain" in text
    assert "the mean of 3 steps each" in text
    assert all(value in text for value in ("5.75", "5.25", "4.75"))  # held out


def test_a_file_that_is_no_report_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path / "run.json", manifest())
    page = render([tmp_path])
    assert render([tmp_path]) == page
    page.write_text("<h1>mine</h1>")
    with pytest.raises(BadInput, match="is no report of burnish") as caught:
        render([tmp_path])
    assert "--out" in caught.value.fix
    assert page.read_text() == "<h1>mine</h1>"
    (tmp_path / "link").symlink_to("nowhere/else")
    for out, match in ((Path("/dev/null"), "is no file"), (tmp_path / "link", "leads nowhere"), (tmp_path, "no file")):
        with pytest.raises(BadInput, match=match):
            render([tmp_path], out)


def test_bounds_join_their_estimates() -> None:
    folded = words.folded({"n": 3, "kl_2": 1.0, "kl_low_2": 0.5, "kl_high_2": 2.0, "x_low": 1, "ppl": 4.0, "kl": 3.0})
    assert list(folded) == ["ppl", "kl", "n", "kl_2", "x_low"]
    assert folded["kl_2"] == {"estimate": 1.0, "low": 0.5, "high": 2.0}


def test_criteria_say_what_is_estimated() -> None:
    one = finding("x", "x", 0.1, 0.2)
    kinds = {"difference": "difference of KL", "ratio": "ratio of KL", "excess_ratio": "ratio of added KL", "": ""}
    for statistic, said in kinds.items():
        assert words.quantity(one.model_copy(update={"statistic": statistic, "measure": "kl"})) == said
    logs = one.model_copy(update={"statistic": "difference", "measure": "nll"})
    assert words.quantity(logs) == "difference of log-perplexity"
