"""One command a method, made from the method's own fields and goods the first time it is asked for.

Every flag is read as text, so that all that is wrong with a command line is found, and said, at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from burnish import catalogue, workflow
from burnish.cli import fields, look, results
from burnish.cli.flags import GOODS, OPTIONS, SETTINGS
from burnish.cli.options import Looking, Options, Saving
from burnish.core.errors import BadInput, Unsupported
from burnish.core.method import Good, Method
from burnish.core.method import faults as faults_of

METHOD = "method "
VERB = "verb "
"""What stands before a name that cyclopts asks this module for, as in "burnish.cli.commands:verb compress"."""


def __getattr__(name: str) -> Any:
    """What cyclopts asks for: "verb compress" is that verb's group of commands, "method boa" that method's command."""
    if name.startswith(VERB):
        return verb_app(name.removeprefix(VERB))
    if name.startswith(METHOD):
        return method_app(catalogue.find(name.removeprefix(METHOD)))
    raise AttributeError(name)


def verb_app(verb: str) -> App:
    """The commands of one verb: its methods."""
    app = App(name=verb, help=catalogue.VERBS[verb], help_format="plaintext", group_commands="Methods")
    groups: dict[str, App] = {}
    usable = [entry for entry in catalogue.entries(verb) if not entry.fault]
    for entry in usable:
        first, _, second = entry.name.partition(" ")
        at = app
        if second:
            if first not in groups:
                groups[first] = App(name=first, help_format="plaintext", group_commands="Methods")
                app.command(groups[first])
            at = groups[first]
        at.command(f"{__name__}:{METHOD}{entry.name}", name=second or first, help=catalogue.summary_of(entry.target))
    if not usable:
        app.help = f"{catalogue.VERBS[verb]} There are no methods for it yet."
        app.default(_nothing_yet(verb))
    return app


def _nothing_yet(verb: str) -> Callable[..., None]:
    def refuse(*words: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
        raise Unsupported(
            f"`burnish {verb}`",
            "this version of burnish has no methods for it yet",
            "`burnish list` shows the methods that there are",
        )

    return refuse


def method_app(entry: catalogue.Entry) -> App:
    """The command of one method."""
    act = command(entry)
    cls = catalogue.load(entry.name)
    takes = [good.name.upper() for good in arguments(cls)]
    # The summary is what the verb's list shows, and stands above; the rest of the docstring comes below.
    rest = [inspect.cleandoc(cls.__doc__ or "").partition("\n")[2].strip(), cls.paper.cite() if cls.paper else ""]
    return App(
        name=entry.name.split()[-1],
        usage=" ".join(["Usage: burnish", entry.verb, entry.name, *takes, "[OPTIONS]"]),
        default_command=act,
        help_epilogue="\n\n".join(filter(None, rest)),
        help_format="plaintext",
    )


def arguments(cls: type[Method]) -> list[Good]:
    """The goods that are given by their place: the first, those that must be given, and those that the method names."""
    named = getattr(cls, "arguments", ())
    return [
        good
        for number, good in enumerate(cls.goods())
        if number == 0 or (good.required and not _default(good)) or good.name in named
    ]


def command(entry: catalogue.Entry) -> Callable[..., None]:
    """A function whose arguments are some goods of a method, and whose flags are its fields and its other goods.

    Raises:
        BadInput: the method has a setting or a good with the name of one of the options.
    """
    cls = catalogue.load(entry.name)
    goods, placed = cls.goods(), arguments(cls)
    options: type[Options] = Saving if cls.gives() == "Model" else Looking if cls.gives() == "Table" else Options
    _check_names(entry, cls, goods, options)
    spoken = f"burnish {entry.verb} {entry.name}"

    def act(*words: str, **given: Any) -> None:
        names = [*(good.name for good in goods if good not in placed), *cls.model_fields, *options.model_fields]
        # The last one may be several: it takes all words that are left.
        many = bool(placed) and _may_be_many(placed[-1])
        found, wrong = fields.split_words(
            words, [*map(fields.flag, names), "--help"], len(words) if many else len(placed)
        )
        if many and len(found) > len(placed):
            found[len(placed) - 1 :] = ["\n".join(found[len(placed) - 1 :])]
        given |= {good.name: word for good, word in zip(placed, found, strict=False)}
        sources, lacking = _sources(goods, placed, given)
        method = _build(cls, given, wrong)
        asked = _read(options, given, wrong)
        wrong += lacking + workflow.goods_faults(entry.name, cls, sources)
        if method is not None and isinstance(asked, Saving) and asked.runtime == "packed":
            wrong += workflow.packed_faults(method)
        if wrong and method is not None and isinstance(asked, Saving):
            wrong += workflow.format_faults(method, asked.saved_as)
        if wrong or method is None or asked is None:
            count = f"{len(wrong)} fault{'s' * (len(wrong) > 1)}"
            raise BadInput.of(f"`{spoken}` has {count}", wrong, f"`{spoken} --help` lists what it takes")
        _run(entry.name, method, sources, asked)

    signature = inspect.Signature(_parameters(cls, goods, placed, options))
    act.__signature__ = signature  # type: ignore[attr-defined]
    act.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    act.__name__ = entry.name.replace(" ", "_").replace("-", "_")
    return act


def _run(use: str, method: Method, sources: Mapping[str, str], asked: Options) -> None:
    out = asked.out or workflow.folder_of(use, method, sources)
    kept: dict[str, Any] = {"format": asked.saved_as} if isinstance(asked, Saving) else {}
    if asked.dry_run:
        results.show_plan(workflow.plan_method(use, method, sources, out, seed=asked.seed, **kept))
        return
    place = workflow.Place(asked.device, asked.dtype, look.note)
    look.note(f"run folder: {out}")
    if isinstance(asked, Saving):
        kept |= {"reload": asked.reload, "loader": "packed" if asked.runtime == "packed" else "auto"}
    result = workflow.run_method(use, method, sources, out, seed=asked.seed, place=place, **kept)
    results.show(result, json=isinstance(asked, Looking) and asked.json_)


# -- what was given ---------------------------------------------------------------------------------------------


def _sources(goods: Sequence[Good], placed: Sequence[Good], given: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Take the goods out of what was given, with their defaults; and a line for each that is missing."""
    sources, lacking = {}, []
    for good in goods:
        source = given.pop(good.name, None) or _default(good)
        if source:
            sources[good.name] = str(source)
        elif good.required:
            spoken = good.name.upper() if good in placed else fields.flag(good.name)
            lacking.append(f"{spoken}: is missing; it is {_describe(good)}")
    return sources, lacking


def _build(cls: type[Method], given: dict[str, Any], wrong: list[str]) -> Method | None:
    settings = {
        name: fields.from_text(field.annotation, given.pop(name))
        for name, field in cls.model_fields.items()
        if name in given
    }
    try:
        return cls.build(settings)
    except BadInput as error:
        wrong += [_as_flag(line.strip(), cls) for line in error.problem.splitlines()[1:]]
        return None


def _read(options: type[Options], given: dict[str, Any], wrong: list[str]) -> Options | None:
    try:
        return options.model_validate(
            {name: fields.from_text(options.model_fields[name].annotation, value) for name, value in given.items()}
        )
    except ValidationError as error:
        wrong += [_as_flag(line, options) for line in faults_of(error, options)]
        return None


def _as_flag(line: str, model: type[BaseModel]) -> str:
    """A fault of a field, with the field as its flag."""
    where, colon, text = line.partition(":")
    name, dot, rest = where.partition(".")
    return f"{fields.flag(name)}{dot}{rest}{colon}{text}" if name in model.model_fields else line


# -- what is offered --------------------------------------------------------------------------------------------


def _parameters(
    cls: type[Method], goods: Sequence[Good], placed: Sequence[Good], options: type[Options]
) -> list[inspect.Parameter]:
    # They take whatever is no known flag, so that unknown flags are reported together with all other faults.
    told = [_told(good) if len(placed) == 1 else f"{good.name.upper()}: {_told(good)}" for good in placed]
    names = " ".join(good.name.upper() + "..." * _may_be_many(good) for good in placed)
    shape: dict[str, Any] = {"name": names, "help": ". ".join(told)}
    shape |= {"group": GOODS, "show_default": False} if placed else {"name": "words", "show": False}
    words = Annotated[str, Parameter(allow_leading_hyphen=True, **shape)]
    # Named as a good, for names of goods and of settings are known to differ.
    name = placed[0].name if placed else "words"
    found = [inspect.Parameter(name, inspect.Parameter.VAR_POSITIONAL, annotation=words)]
    for good in goods:
        if good not in placed:
            shown = Parameter(metavar="source", help=_told(good), group=GOODS, show_default=False)
            found.append(
                inspect.Parameter(
                    good.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, shown]
                )
            )
    for group, model in ((SETTINGS, cls), (OPTIONS, options)):
        for name, field in model.model_fields.items():
            found.append(_parameter(name, field, group))
    return found


def _told(good: Good) -> str:
    """A good in the help: what it is, and its default."""
    default = _default(good)
    text = _describe(good) + (f" [default: {default}]" if default else " [required]" if good.required else "")
    return text[0].upper() + text[1:]


def _parameter(name: str, field: FieldInfo, group: Any) -> inspect.Parameter:
    many = fields.is_many(field.annotation)
    default = "required" if field.is_required() else f"default: {fields.default_text(field)}"
    notes = [fields.bounds_text(field), "separate several by commas" if many else "", default]
    notes = [note for note in notes if note not in ("", "default: none", "default: ")]
    shown: dict[str, Any] = {
        "help": f"{field.description or ''}" + (f" [{'; '.join(notes)}]" if notes else ""),
        "group": group,
    }
    if fields.is_switch(field.annotation):
        shown["negative"] = "" if field.default is False and group is OPTIONS else None
        annotation: Any = bool
    else:
        annotation = list[str] if many else str
        metavar = fields.type_text(field.annotation)
        shown |= {"metavar": metavar.removesuffix("|none") if field.default is None else metavar, "negative": ""}
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation | None, Parameter(show_default=False, **shown)],
    )


def _may_be_many(good: Good) -> bool:
    kind = catalogue.GOODS.get(good.kind)
    return kind is not None and kind.many


def _default(good: Good) -> str:
    kind = catalogue.GOODS.get(good.kind)
    return (kind.default or {}).get(good.name, "") if kind is not None else ""


_SOURCES = {
    "Model": "a built-in model's name, a folder, a GGUF file, or a hub name",
    "Dataset": "a data file, a hub name, or one of burnish's own texts",
    "LLM": "a model, the URL of a server, or a recording",
    "Scores": "a run folder, or a Parquet file of scores",
    "Table": "a run folder, or a Parquet file",
    "Path": "a file or a folder",
    "Logs": "files, folders, or patterns such as 'logs/*.eval', one or more",
}


def _describe(good: Good) -> str:
    kind = good.kind.lower() if _may_be_many(good) else f"a {good.kind}"
    return f"{kind}: {_SOURCES[good.kind]}" if good.kind in _SOURCES else kind


def _check_names(entry: catalogue.Entry, cls: type[Method], goods: Sequence[Good], options: type[Options]) -> None:
    names = [*cls.model_fields, *(good.name for good in goods)]
    taken = sorted({name for name in names if name in options.model_fields or names.count(name) > 1})
    if taken:
        raise BadInput(
            f"the method {entry.name!r} of the package {entry.package} has settings or goods with names that are "
            f"taken: {', '.join(taken)}",
            "rename them in the method",
        )
