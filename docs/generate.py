"""Writes docs/methods/*.md and docs/papers.md from the methods' own docstrings, fields and papers."""

from __future__ import annotations

import sys
from pathlib import Path

from burnish import catalogue
from burnish.core.errors import Unsupported
from burnish.core.method import Method
from burnish.models.export import FORMATS, check_export

DOCS = Path(__file__).parent


def method_page(name: str) -> str:
    """One method: what it is, how it works, its settings, its goods, its paper."""
    cls = catalogue.load(name)
    verb = catalogue.METHODS[name].split(".")[1]
    goods = cls.goods()
    first, flags = goods[0], "".join(f" --{good.name} …" for good in goods[1:] if good.required)
    lines = [f"# {name}", "", (cls.__doc__ or "").strip().splitlines()[0], ""]
    lines += ["```console", f"$ {_command(verb, name, cls, first.name.upper() + flags)}", "```", ""]
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


def papers_page() -> str:
    """Every paper that a method comes from."""
    lines = ["# Papers", "", "Each method's defaults and figures come from its paper; its page says where.", ""]
    for name in catalogue.METHODS:
        paper = catalogue.load(name).paper
        if paper is not None:
            lines.append(f"- [{name}](methods/{name}.md): {paper.cite()}")
    return "\n".join([*lines, ""])


def pages() -> dict[Path, str]:
    """Path to text of every generated page."""
    made = {DOCS / "methods" / f"{name.replace(' ', '-')}.md": method_page(name) for name in catalogue.METHODS}
    return {**made, DOCS / "papers.md": papers_page()}


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
