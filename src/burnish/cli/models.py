"""Commands for models: get, list and import them, let one answer, serve one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Group, Parameter

from burnish import catalogue
from burnish.cli import look
from burnish.cli.flags import JsonFlag, SeedFlag, ThreadsFlag
from burnish.core.errors import BadInput, Unsupported


def register(app: App, do: Group) -> None:
    """Add these commands; `do` is the group of those that work."""
    group = App(name="models", help="Get, list and import models.", help_format="plaintext")
    group.command(get)
    group.command(list_, name="list")
    group.command(import_, name="import")
    app.command(group)
    app.command(generate, group=do)
    app.command(server, group=do)


def get(name: str, /) -> None:
    """Fetch a built-in model, and check it.

    Parameters
    ----------
    name
        The model, as `burnish models list` names it.
    """
    look.say(str(catalogue.reference("burnish.models.fetch:fetch")(name, notify=look.note)))


def list_(*, json: JsonFlag = False) -> None:
    """List the built-in models and those that were imported."""
    rows = catalogue.reference("burnish.models.resolve:shelf_rows")()
    blank = dict.fromkeys(rows[0], "")
    imported = catalogue.reference("burnish.models.resolve:registered")()
    rows += [
        {**blank, "name": name, "origin": str(path), "present": path.exists()}
        for name, path in sorted(imported.items())
    ]
    if json:
        look.as_json(rows)
    else:
        look.records(rows)


def import_(name: str, path: Path, /) -> None:
    """Give a model on this machine a short name.

    Parameters
    ----------
    name
        The name.
    path
        A Hugging Face folder, or a GGUF file.
    """
    look.say(str(catalogue.reference("burnish.models.resolve:register")(name, path)))


def generate(
    model: str,
    /,
    *,
    prompt: Annotated[str, Parameter(help="What the model is asked.")],
    max_tokens: Annotated[int, Parameter(help="Most tokens of the answer.")] = 256,
    temperature: Annotated[float, Parameter(help="0 takes the likeliest token each time.")] = 0.0,
    using: Annotated[list[str] | None, Parameter(name="--with", help="Serving methods.", negative="")] = None,
    runtime: Annotated[
        Literal["plain", "packed"],
        Parameter(help="packed runs a compressed-tensors folder on its codes: less memory, and faster token by token."),
    ] = "plain",
    seed: SeedFlag = 0,
    threads: ThreadsFlag = None,
) -> None:
    """Let a model answer.

    Parameters
    ----------
    model
        A model's name, folder or file, the URL of a server, or a recording.
    """
    from pydantic import ValidationError

    from burnish.core.method import faults
    from burnish.core.run import Run

    if using:
        raise Unsupported("`--with`", "it comes with the serving methods, and this version of burnish has none")
    try:
        sampling = catalogue.reference("burnish.llm:Sampling")(
            max_tokens=max_tokens, temperature=temperature, seed=seed
        )
    except ValidationError as error:
        raise BadInput.of("the model cannot be asked so", faults(error)) from None
    if runtime == "packed":
        opened = catalogue.reference("burnish.engine.fused:open_fused")(model, notify=look.note)
        llm = catalogue.reference("burnish.llm.local:Local")(opened)
    else:
        llm = catalogue.reference("burnish.llm:connect")(model)
    replies = llm.generate([[{"role": "user", "content": prompt}]], sampling, Run.scratch(seed=seed))
    look.say(replies[0].text)
    if runtime == "packed":
        usage, seconds = replies[0].usage, replies[0].seconds
        path = catalogue.reference("burnish.nn.kernels:path_taken")()
        look.note(f"{usage.completion_tokens} tokens in {seconds:.1f} s, by {path}")


def server(*words: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]) -> None:
    """Serve a model over HTTP."""
    raise Unsupported("`burnish server`", "it comes with the serving methods, and this version of burnish has none")
