"""The flags that mean the same in every command: where the work is done, and where its results go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter, validators

from burnish.cli.threads import most_threads

GOODS = Group("Goods", sort_key=1)
SETTINGS = Group("Settings", sort_key=2)
OPTIONS = Group("Options", sort_key=3)

HELP = {
    "out": "Folder of the run. The same command with the same folder goes on where it stopped.",
    "seed": "Every random choice derives from it.",
    "device": "Where models are loaded; auto takes an accelerator if there is one.",
    "dtype": "Type of the numbers that models compute with; auto takes float32 on a CPU.",
    "threads": "CPU threads, at most one a logical CPU; by default OMP_NUM_THREADS, or else the physical cores.",
    "dry_run": "Only show the plan, the settings and, where the method tells, what it will cost.",
    "format": "Form of the saved model: hf is an ordinary folder with the rounded weights, the others are packed.",
    "reload": "Load the saved model in a fresh process, with the tool that its format is for, and compare.",
    "runtime": "packed saves compressed-tensors, and the check at the end runs the model on its codes.",
    "json": "Print JSON, for programs.",
}

Device: TypeAlias = Literal["auto", "cpu", "cuda", "mps"]
Dtype: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]

OutFlag: TypeAlias = Annotated[Path | None, Parameter(name="--out", help=HELP["out"], group=OPTIONS)]
SeedFlag: TypeAlias = Annotated[int, Parameter(name="--seed", help=HELP["seed"], group=OPTIONS)]
DeviceFlag: TypeAlias = Annotated[Device, Parameter(name="--device", help=HELP["device"], group=OPTIONS)]
DtypeFlag: TypeAlias = Annotated[Dtype, Parameter(name="--dtype", help=HELP["dtype"], group=OPTIONS)]
ThreadsFlag: TypeAlias = Annotated[
    int | None,
    Parameter(
        name="--threads", help=HELP["threads"], group=OPTIONS, validator=validators.Number(gte=1, lte=most_threads())
    ),
]
"""Set before anything is imported that reads it: see `burnish.cli.threads`. Commands only check it."""
DryRunFlag: TypeAlias = Annotated[bool, Parameter(name="--dry-run", help=HELP["dry_run"], negative="", group=OPTIONS)]
JsonFlag: TypeAlias = Annotated[bool, Parameter(name="--json", help=HELP["json"], negative="", group=OPTIONS)]
