"""A run: one folder that holds what was asked, what happened and what came out.

Every finished unit of work is on disk before the next one starts, so a run that was stopped, by Ctrl-C, a kill or a
power cut, goes on where it was when the same command is given again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from burnish.core.errors import BadInput
from burnish.core.files import write_json
from burnish.core.journal import Journal
from burnish.core.progress import Progress, track

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
R = TypeVar("R")
Status = Literal["running", "done", "failed", "stopped"]

BOOKKEEPING = frozenset({"run.json", "request.toml", "events.jsonl", ".lock"})
"""Files of a run that hold no result."""


class Link(Protocol):
    """One unit of sequential work whose result is tensors, e.g. one transformer block."""

    @property
    def key(self) -> str:
        """A name that is the same in every run of the same request."""

    def state(self) -> Mapping[str, Any]:
        """What this unit made: names to tensors."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Put back what an earlier run of the same request made."""


L = TypeVar("L", bound=Link)


class Run:
    """A folder on disk; use it as a context manager, so that its status is true when the work ends.

    Args:
        folder: Made if absent.
        request: What was asked, as plain values; a folder that holds another request is refused, unless nothing of
            that one was ever finished (a first try with a mistake in it).
        seed: Every random choice of the run derives from it (see `rng`).

    Raises:
        BadInput: the folder holds a run with other settings, or another process is using it.
    """

    def __init__(self, folder: str | Path, request: Mapping[str, Any] | None = None, *, seed: int = 0) -> None:
        self.folder = Path(folder)
        self.request: dict[str, Any] = json.loads(json.dumps(dict(request or {})))
        self.seed = seed
        self.metrics: dict[str, Any] = {}
        self._began = time.monotonic()
        self._spent = 0.0
        self._unlock: Callable[[], Any] = lambda: None
        self._root: Run = self
        self._open()

    @classmethod
    def scratch(cls, *, seed: int = 0) -> Run:
        """A run in a new temporary folder, for calls from Python that keep nothing."""
        folder = tempfile.mkdtemp(prefix="burnish-")
        run = cls(folder, seed=seed)
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
        return run

    # -- the folder ---------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self.folder.is_file():
            raise BadInput(f"{self.folder} is a file, and a run needs a folder", "choose another --out")
        manifest = self.folder / "run.json"
        fresh = True
        if manifest.exists():
            fresh = not self._adopt(manifest)
        elif self.folder.is_dir() and any(path.name not in BOOKKEEPING for path in self.folder.iterdir()):
            raise BadInput(f"{self.folder} is not empty and holds no run", "choose another --out")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        if fresh:
            import tomli_w

            (self.folder / "events.jsonl").unlink(missing_ok=True)
            (self.folder / "request.toml").write_text(tomli_w.dumps(self.request), encoding="utf-8")
        self._write("running")

    def _adopt(self, manifest: Path) -> bool:
        """Go on with the run in the folder; False: it asked for something else, and finished none of it."""
        try:
            before = json.loads(manifest.read_text(encoding="utf-8"))
            old = before["request"]
        except (ValueError, KeyError):
            raise BadInput(f"{manifest} is damaged", "delete the folder, or choose another --out") from None
        if old != self.request or before.get("seed", 0) != self.seed:
            if before.get("status") != "done" and not self._has_results():
                return False
            there, now = (
                flatten({**request, "seed": seed})
                for request, seed in ((old, before.get("seed", 0)), (self.request, self.seed))
            )
            changed = [
                f"{key}: {there.get(key)!r} there, {now.get(key)!r} now"
                for key in sorted({*there, *now})
                if there.get(key) != now.get(key)
            ]
            raise BadInput.of(
                f"{self.folder} holds a run with other settings", changed, "choose another --out, or delete that folder"
            )
        self.metrics = before.get("metrics", {})
        self._spent = before.get("minutes", 0.0) * 60
        return True

    def _has_results(self) -> bool:
        return any(path.is_file() and path.name not in BOOKKEEPING for path in self.folder.rglob("*"))

    def _take_lock(self) -> None:
        try:
            import fcntl
        except ImportError:
            return
        lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR)
        self._unlock = weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise BadInput(
                f"another process is working in {self.folder}", "wait for it, or choose another --out"
            ) from None

    def _write(self, status: Status, error: str = "") -> None:
        state = {
            "status": status,
            "request": self.request,
            "seed": self.seed,
            "metrics": self.metrics,
            "minutes": round((self._spent + time.monotonic() - self._began) / 60, 4),
            "peak_memory_mb": peak_memory_mb(),
            "environment": environment(),
            "command": list(sys.argv),
            "updated": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if error:
            state["error"] = error
        write_json(self.folder / "run.json", state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._write("done")
        elif issubclass(kind, KeyboardInterrupt):
            self._write("stopped")
        else:
            self._write("failed", f"{kind.__name__}: {error}")
        self.close()

    def close(self) -> None:
        """Let another process use the folder."""
        self._unlock()

    def sub(self, name: str) -> Run:
        """A part of this run (one step of a recipe, one arm of a claim) with journals and blobs of its own."""
        part = object.__new__(Run)
        part.__dict__ = {
            **self.__dict__,
            "folder": self.folder / "parts" / slug(name),
            "metrics": {},
            "_unlock": lambda: None,
        }
        part.folder.mkdir(parents=True, exist_ok=True)
        return part

    @property
    def artifact(self) -> Path:
        """Where what this run made is put, as ordinary files."""
        return self.folder / "artifact"

    # -- work ---------------------------------------------------------------------------------------------------

    def map(
        self,
        work: Callable[[T], R],
        items: Iterable[T],
        *,
        key: Callable[[T], str] = str,
        step: str,
        jobs: int = 1,
    ) -> Iterator[R]:
        """Do `work` on each of some independent items, once ever, and yield the results in the items' order.

        Args:
            work: Gives a value that JSON can hold.
            items: Independent units.
            key: Names an item; two items with one key are one unit.
            step: Names this loop within the run; its journal is ``<step>.jsonl``.
            jobs: Units done at once, through joblib (which reaches a cluster through its Ray or Dask backends).
        """
        todo = list(items)
        journal = Journal(self.folder / f"{slug(step)}.jsonl")
        fresh = list({key(item): item for item in reversed(todo) if key(item) not in journal}.items())[::-1]
        with Progress(step, len(todo), "done") as progress:
            progress.advance(len(todo) - len(fresh))
            if jobs == 1:
                for item in todo:
                    name = key(item)
                    if name not in journal:
                        journal.add(name, work(item))
                        progress.advance()
                    yield journal[name]
                return
            import joblib

            pool = joblib.Parallel(n_jobs=jobs, return_as="generator")
            for (name, _), value in zip(fresh, pool(joblib.delayed(work)(item) for _, item in fresh), strict=True):
                journal.add(name, value)
                progress.advance()
            for item in todo:
                yield journal[key(item)]

    def once(self, name: str, work: Callable[[], R]) -> R:
        """One unit of work with a JSON result, done once ever."""
        journal = Journal(self.folder / "once.jsonl")
        return journal[name] if name in journal else journal.add(name, work())

    def chain(self, links: Iterable[L], *, step: str) -> Iterator[L]:
        """Yield each link of sequential work that is not done yet; restore those that are.

        When the loop's body has ended, the link's `state` is written to a blob, whole or not at all. `links` may be a
        generator: the next link is asked for only after this one was restored or worked on.
        """
        total = len(links) if isinstance(links, Sized) else None
        folder = self.folder / "blobs" / slug(step)
        with Progress(step, total, "blocks") as progress:
            for number, link in enumerate(links):
                path = folder / f"{number:04d}-{slug(link.key)}.safetensors"
                state = self._whole_blob(path)
                if state is not None:
                    link.restore(state)
                    progress.advance(note=f"{link.key} restored")
                    continue
                began = time.monotonic()
                yield link
                save_blob(path, link.state())
                self.event("link", step=step, key=link.key, seconds=round(time.monotonic() - began, 3))
                progress.advance(note=link.key)

    def blob(self, path: Path) -> dict[str, Any]:
        """Read tensors that a link wrote."""
        from safetensors.torch import load_file

        return load_file(path)

    def _whole_blob(self, path: Path) -> dict[str, Any] | None:
        """What `blob` reads; None where there is none, or a damaged one: its unit is done again."""
        if not path.exists():
            return None
        from safetensors import SafetensorError

        try:
            return self.blob(path)
        except (SafetensorError, OSError) as error:
            self.event("damaged", file=path.name, error=str(error))
            return None

    def track(self, items: Iterable[T], title: str, total: float | None = None, unit: str = "") -> Iterator[T]:
        """Yield `items`, showing progress."""
        return track(items, title, total, unit)

    def rng(self, name: str) -> np.random.Generator:
        """A random generator of this run's own, the same for the same seed and name."""
        import numpy as np

        return np.random.Generator(np.random.PCG64(self.seed_of(name)))

    def seed_of(self, name: str) -> int:
        """A 63-bit seed for `name`, e.g. for ``torch.Generator().manual_seed``."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{name}".encode()).digest()[:8], "big") >> 1

    # -- results ------------------------------------------------------------------------------------------------

    def event(self, kind: str, **fields: Any) -> None:
        """Append one line to ``events.jsonl``."""
        row = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "kind": kind, **fields}
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as out:
            out.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The lines of ``events.jsonl``, or those of one kind."""
        path = self.folder / "events.jsonl"
        if not path.exists():
            return []
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return [row for row in rows if not kind or row["kind"] == kind]

    def metric(self, **values: Any) -> None:
        """Record headline figures; they stand in ``run.json`` and `burnish runs` can query them."""
        self.metrics.update(values)
        if self is self._root or self._root.folder == self.folder:
            self._write("running")

    def items(self, rows: Any) -> Path:
        """Write per-item rows (a list of dicts, or a pyarrow table) as ``items.parquet``."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
        path = self.folder / "items.parquet"
        pq.write_table(table, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)
        return path


def ensure(run: Run | None) -> Run:
    """The given run, or a scratch one: lets methods be called from Python without a folder."""
    return run if run is not None else Run.scratch()


def save_blob(path: Path, tensors: Mapping[str, Any]) -> None:
    """Write tensors to a safetensors file, whole or not at all."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
    os.replace(temporary, path)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def slug(name: str) -> str:
    """`name` as a file name: no separators, no leading dot, nothing that a shell or a file system minds."""
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in name).strip("-.") or "x"
    return kept if len(kept) <= 80 else kept[:60] + "-" + hashlib.sha256(name.encode()).hexdigest()[:12]


def peak_memory_mb() -> float:
    """The most resident memory that this process has had, in MB."""
    try:
        import resource
    except ImportError:
        import psutil

        return round(psutil.Process().memory_info().peak_wset / 1e6, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


def environment() -> dict[str, str]:
    """What figures depend on: the machine and the versions of the packages that compute them."""
    facts = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": str(os.cpu_count()),
    }
    for package in ("burnish", "torch", "transformers", "numpy", "scipy"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    return facts
