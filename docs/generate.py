"""Writes the pages of methods, papers and claims, and the navigation, from docstrings, fields, papers and evidence."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from burnish import catalogue, claims
from burnish.cli.commands import arguments
from burnish.core.claim import Evidence
from burnish.core.errors import Unsupported
from burnish.core.method import Good, Method
from burnish.models.export import FORMATS, check_export

DOCS = Path(__file__).parent
CONFIG = DOCS.parent / "mkdocs.yml"


def _spoken(good: Good) -> str:
    """How a positional argument is written."""
    many = good.kind in catalogue.GOODS and catalogue.GOODS[good.kind].many
    return good.name.upper() + ("..." if many else "")


def method_page(name: str) -> str:
    """One method: what it is, how it works, its settings, its goods, its paper."""
    cls = catalogue.load(name)
    goods = cls.goods()
    given = " ".join(_spoken(good) for good in arguments(cls))
    lines = [f"# {name}", "", (cls.__doc__ or "").strip().splitlines()[0], ""]
    lines += ["```console", f"$ {_command(_verb(name), name, cls, given)}", "```", ""]
    lines += [(sys.modules[cls.__module__].__doc__ or "").strip(), "", "## Settings", ""]
    lines += ["| setting | default | what it is |", "|---|---|---|"]
    for field_name, field in cls.model_fields.items():
        default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
        text = (field.description or "").replace("\n", " ").replace("|", "\\|")
        lines.append(f"| `{field_name}` | {default} | {text} |")
    lines += ["", "## Goods", ""]
    lines += [f"- `{good.name}`: {good.kind}{'' if good.required else ', optional'}" for good in goods]
    lines += ["", f"Gives: {cls.gives() or 'nothing'}.", ""]
    if cls.paper is not None:
        lines += ["## Paper", "", cls.paper.cite() + (f" <{cls.paper.url}>" if cls.paper.url else ""), ""]
    return "\n".join(lines)


def papers_page() -> str:
    """Every paper that a method comes from."""
    lines = ["# Papers", "", "Each method's defaults and figures come from its paper; its page says where.", ""]
    for name in catalogue.METHODS:
        paper = catalogue.load(name).paper
        if paper is not None:
            lines.append(f"- [{name}](methods/{_slug(name)}.md): {paper.cite()}")
    return "\n".join([*lines, ""])


def claims_page() -> str:
    """Every claim: its sentence, the verdict, each criterion with its interval, where and how it was measured."""
    lines = [
        "# Claims",
        "",
        "What papers say, asked again here. Every figure below is read from the committed evidence.",
        "",
    ]
    for row in claims.evidence_rows():
        lines += [f"## {row.title}", "", row.sentence, "", f"**Verdict: {row.verdict}.** `{row.command}`", ""]
        evidence = claims.read(row.claim)
        lines += [f"The paper: {row.paper}.", "", *(_evidence(evidence) if evidence is not None else [])]
    return "\n".join(lines).rstrip() + "\n"


def _evidence(evidence: Evidence) -> list[str]:
    held = sum(finding.verdict == "holds" for finding in evidence.findings)
    where = ", ".join(filter(None, [evidence.model, evidence.date[:10]]))
    lines = [f"Here ({where}): {held} of {len(evidence.findings)} criteria hold.", ""]
    lines += ["| criterion | estimate | interval | margin | verdict |", "|---|---|---|---|---|"]
    for f in evidence.findings:
        ends = f"{f.low:.3g} to {f.high:.3g}"
        lines.append(f"| {f.text} | {f.estimate:.3g} | {ends} | {f.side} {f.margin:g} | {f.verdict} |")
    measures = list(dict.fromkeys(measure for arm in evidence.arms for measure in arm.measures))
    lines += ["", "| arm | " + " | ".join(measures) + " |", "|---" * (len(measures) + 1) + "|"]
    for arm in evidence.arms:
        cells = [_bounded(arm.measures.get(measure)) for measure in measures]
        lines.append(f"| {arm.label} | " + " | ".join(cells) + " |")
    facts = [*(f"{name}: {text}" for name, text in evidence.data.items()), *evidence.lineage]
    return [*lines, "", "Weights and text:", "", *(f"- {fact}" for fact in facts), ""]


def _bounded(value: dict[str, float] | None) -> str:
    return "" if not value else f"{value['estimate']:.4g} [{value['low']:.4g}, {value['high']:.4g}]"


def _command(verb: str, name: str, cls: type[Method], goods: str) -> str:
    """How it is called: with the first format that can hold its result or, where none can, by its recipe."""
    said = f"burnish {verb} {name} {goods}"
    if cls.gives() != "Model":
        return said
    for format in FORMATS:
        try:
            check_export(cls.build({}), format)
        except Unsupported:
            continue
        return said + (f" --format {format}" if format != next(iter(FORMATS)) else "")
    return f"burnish recipe copy {name} my.toml && burnish run my.toml"


def _verb(name: str) -> str:
    return catalogue.METHODS[name].split(".")[1]


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def navigation() -> str:
    """The configuration with every method's page under its verb."""
    lines = ["  - Methods:"]
    for verb in dict.fromkeys(map(_verb, catalogue.METHODS)):
        lines.append(f"      - {verb}:")
        lines += [f"          - methods/{_slug(name)}.md" for name in catalogue.METHODS if _verb(name) == verb]
    text = CONFIG.read_text(encoding="utf-8")
    return re.sub(r"  - Methods:\n(?:      .*\n)+", "\n".join([*lines, ""]), text)


def pages() -> dict[Path, str]:
    """Path to text of every generated file."""
    made = {DOCS / "methods" / f"{_slug(name)}.md": method_page(name) for name in catalogue.METHODS}
    return {**made, DOCS / "papers.md": papers_page(), DOCS / "claims.md": claims_page(), CONFIG: navigation()}


def main() -> int:
    """Write the pages, or with --check say which are out of date."""
    stale = []
    for path, text in pages().items():
        if "--check" in sys.argv:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(str(path))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write("out of date, run `python docs/generate.py`: " + ", ".join(stale) + "\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
