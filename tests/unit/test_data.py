"""The data layer: readers, provenance, WikiText and the built-in corpus."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.core.errors import BadInput, UnknownName
from burnish.data import corpus_id, detokenize, provenance, read, save
from burnish.data.corpus import SPLITS, Document, corpus, paragraphs, split_of, word_runs
from burnish.data.wikitext import articles

TEXTS = ["First document.\nTwo lines, «quoted».", "Second document."]
WIKITEXT = " \n = One = \n \n Text of one . \n \n = = Part = = \n \n More . \n \n = Two = \n \n Text of two . \n"


# -- imports --------------------------------------------------------------------------------------------------------


def test_importing_the_layer_imports_no_heavy_package() -> None:
    code = (
        "import sys, burnish.data, burnish.data.text, burnish.data.corpus, burnish.data.windows, burnish.data.files;"
        "print(*({'torch', 'datasets', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_the_package_offers_its_functions_and_nothing_else() -> None:
    import burnish.data

    assert {"read", "provenance", "save", "TINY"} <= set(dir(burnish.data))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = burnish.data.nothing  # type: ignore[attr-defined]


# -- readers --------------------------------------------------------------------------------------------------------


def written(folder: Path, suffix: str) -> Path:
    """A file with `TEXTS` and a column ``n`` in the format of `suffix`."""
    path = folder / f"rows{suffix}"
    rows = [{"text": text, "n": number} for number, text in enumerate(TEXTS)]
    table = pa.Table.from_pylist(rows)
    if suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif suffix == ".csv":
        pa.csv.write_csv(table, path)
    elif suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        data = "\n".join([json.dumps(rows[0], ensure_ascii=False), "", json.dumps(rows[1])]).encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".parquet", ".csv"])
def test_every_table_format_gives_the_same_documents(tmp_path: Path, suffix: str) -> None:
    dataset = read(written(tmp_path, suffix))
    assert dataset["text"][:] == TEXTS
    assert dataset["n"][:] == [0, 1]
    assert read(str(written(tmp_path, suffix)))["text"][:] == TEXTS


def test_a_plain_text_is_one_document_without_mark_and_carriage_returns(tmp_path: Path) -> None:
    (tmp_path / "a.TXT").write_bytes("\ufeffeins\r\n\r\nzwei ü\r\n".encode())
    assert read(tmp_path / "a.TXT")["text"][:] == ["eins\n\nzwei ü\n"]


def test_a_raw_file_is_cut_into_articles(tmp_path: Path) -> None:
    (tmp_path / "wiki.raw").write_text(WIKITEXT, encoding="utf-8")
    texts = read(tmp_path / "wiki.raw")["text"][:]
    assert [text.split("\n")[1] for text in texts] == [" = One = ", " = Two = "]
    assert "".join(texts) == WIKITEXT


def test_rows_may_be_bare_strings_and_lack_columns(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('["one", {"text": "two", "n": 2}]', encoding="utf-8")
    dataset = read(tmp_path / "a.json")
    assert dataset["text"][:] == ["one", "two"]
    assert dataset["n"][:] == [None, 2]


def test_the_only_string_column_becomes_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,story\n1,once\n2,upon\n", encoding="utf-8")
    dataset = read(tmp_path / "a.csv")
    assert dataset.column_names == ["n", "text"]
    assert dataset["text"][:] == ["once", "upon"]


def test_a_text_column_of_digits_stays_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\n007\n", encoding="utf-8")
    assert read(tmp_path / "a.csv")["text"][:] == ["007"]


@pytest.mark.parametrize("header", ["a,b\nx,y\n", "a\n1\n", 'text,a\n,"x"\n'])
def test_without_a_clear_text_the_columns_are_named(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(header, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read(tmp_path / "a.csv")
    assert "'a'" in caught.value.problem or "no text" in caught.value.problem


def test_a_numeric_column_called_text_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": 1, "other": "x"}', encoding="utf-8")
    with pytest.raises(BadInput, match="'text', 'other'"):
        read(tmp_path / "a.jsonl")


def test_rows_without_text_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": null}\n{"text": " \\n"}\n{"text": "kept", "n": 3}', encoding="utf-8")
    dataset = read(tmp_path / "a.jsonl")
    assert (dataset["text"][:], dataset["n"][:]) == (["kept"], [3])
    assert provenance(dataset)["documents"] == 1


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("gone.txt", None, "no file"),
        ("empty.txt", b"", "is empty"),
        ("blank.txt", b" \n\n", "holds no text"),
        ("none.jsonl", b"\n", "no column"),
        ("latin.txt", b"caf\xe9", "latin.txt is not UTF-8: byte 0xe9 at offset 3"),
        ("latin.jsonl", b'{"text": "caf\xe9"}', "byte 0xe9 at offset 13"),
        ("latin.csv", b"text\ncaf\xe9\n", "byte 0xe9 at offset 8"),
        ("a.docx", b"x", "unknown suffix '.docx'"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n\n[1]\n3\nnull', "line 2: "),
        ("a.jsonl", b'{"text": "\\ud800"}', "column 'text'"),
        ("a.jsonl", b'{"text": "a", "n": 1}\n{"text": "b", "n": "x"}', "column 'n'"),
        ("a.jsonl.gz", b'{"text": "a"}', "not a whole gzip file"),
        ("cut.jsonl.gz", gzip.compress(b'{"text": "a"}' * 9, mtime=0)[:-6], "not a whole gzip file"),
        ("a.json", b'{"text": "a"}', "not an object"),
        ("a.json", b"[", "not a JSON list"),
        ("a.json", b"[" * 100_000, "not a JSON list"),
        ("a.parquet", b"PAR1 but not really", "not a sound Parquet file"),
        ("a.csv", b"text,b\nx,y,z\n", "not CSV"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, data: bytes | None, problem: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput) as caught:
        read(str(tmp_path / name))
    assert problem in caught.value.problem
    assert name in caught.value.problem
    assert caught.value.fix


def test_parquet_strings_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    wrong = pa.array([b"caf\xe9"]).view(pa.string())
    pa.parquet.write_table(pa.table({"text": wrong}), tmp_path / "a.parquet")
    with pytest.raises(BadInput, match=r"a\.parquet is not a sound Parquet file"):
        read(tmp_path / "a.parquet")


def test_all_malformed_lines_are_listed_up_to_a_few(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{\n[1]\n' + "{\n" * 5, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read(tmp_path / "a.jsonl")
    for part in ("line 2: ", "line 3: an object or a string is expected, not a list", "line 6: ", "and 2 more"):
        assert part in caught.value.problem
    assert "line 7" not in caught.value.problem


def test_unknown_suffixes_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"x")
    with pytest.raises(BadInput, match=re.escape(".txt, .raw, .jsonl, .jsonl.gz, .json, .parquet, .csv")):
        read(tmp_path / "a.pdf")


def test_a_saved_dataset_is_read_back_from_its_folder_and_from_the_run_above(tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "n": [1, 2, 3]}).select([2, 0])
    save(dataset, tmp_path / "run" / "artifact")
    for folder in (tmp_path / "run", tmp_path / "run" / "artifact"):
        assert read(folder).to_dict() == {"text": ["c", "a"], "n": [3, 1]}
    with pytest.raises(BadInput, match="holds no dataset"):
        read(tmp_path)


# -- names ----------------------------------------------------------------------------------------------------------


def test_the_builtin_corpus_is_read_by_name() -> None:
    assert read("builtin")["text"][:] == read("builtin:calibration")["text"][:]
    dataset = read("builtin", split="test")
    documents = corpus("test")
    assert [Document(row["name"], row["text"]) for row in dataset] == documents
    assert provenance(dataset)["source"] == f"builtin:test of Python {corpus_id()['python']}"


def test_unknown_and_contradicting_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="calibration"):
        read("builtin:calibratoin")
    with pytest.raises(UnknownName, match="wikitext2"):
        read("wikitext2:train")
    for source in ("builtin:test", "wikitext2:test", "org/name:config:test"):
        with pytest.raises(BadInput, match="contradict"):
            read(source, split="valid")
    with pytest.raises(BadInput, match="has no split"):
        read(written(tmp_path, ".csv"), split="test")


def test_wikitext2_is_found_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wikitext2").mkdir()
    for name in ("valid.txt", "wiki.test.raw"):
        (tmp_path / "wikitext2" / name).write_text(WIKITEXT, encoding="utf-8")
    monkeypatch.setenv("BURNISH_DATA", str(tmp_path))
    valid, test = read("wikitext2"), read("wikitext2:test")
    assert valid["text"][0] == "\n= One =\n\nText of one.\n\n== Part ==\n\nMore.\n"
    assert "".join(test["text"]) == WIKITEXT
    assert provenance(valid)["source"] == "wikitext2:valid (valid.txt)"
    assert read("wikitext2:validation")["text"][:] == valid["text"][:]


def test_without_files_wikitext2_comes_from_the_hub_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, config: str | None, split: str | None) -> datasets.Dataset:
        asked.append((name, config, split))
        lines = [line + "\n" for line in WIKITEXT.split("\n")[:-1]]
        return datasets.Dataset.from_dict({"text": [line if line.strip() else "" for line in lines]})

    monkeypatch.delenv("BURNISH_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert "".join(read("wikitext2:test")["text"]) == WIKITEXT
    assert len(read("wikitext2:valid")) == 2
    assert asked == [
        ("Salesforce/wikitext", "wikitext-2-raw-v1", "test"),
        ("Salesforce/wikitext", "wikitext-2-raw-v1", "validation"),
    ]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*args: object, **kwargs: object) -> datasets.Dataset:
        raise ConnectionError("Couldn't reach the hub\nwith a long story")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)


@pytest.mark.usefixtures("offline")
def test_offline_the_error_names_the_file_and_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_DATA", str(tmp_path))
    with pytest.raises(BadInput) as caught:
        read("wikitext2:test")
    for part in ("wiki.test.raw", str(tmp_path), "Salesforce/wikitext", "Couldn't reach the hub"):
        assert part in str(caught.value)
    with pytest.raises(BadInput, match=r"'org/name'.*Couldn't reach the hub") as caught:
        read("org/name:config:test")
    assert "long story" not in caught.value.problem


def test_a_hub_id_names_configuration_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    one = datasets.Dataset.from_dict({"story": ["x"]})
    answers = {
        ("org/name", "config", "test"): one,
        ("org/name", None, None): datasets.DatasetDict(train=one, test=one),
        ("org/single", None, None): datasets.DatasetDict(train=one),
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, split: answers[name, config, split])
    assert read("org/name:config:test")["text"][:] == ["x"]
    assert read("org/name:config", split="test")["text"][:] == ["x"]
    assert read("org/single")["text"][:] == ["x"]
    with pytest.raises(BadInput, match="several splits: train, test"):
        read("org/name")


@pytest.mark.parametrize("source", ["a b", "a/b/c/d", "", "id:config:split:more"])
def test_what_is_neither_file_nor_name_is_refused_without_asking_the_hub(source: str) -> None:
    with pytest.raises(BadInput, match="no file and no name"):
        read(source)


# -- provenance -----------------------------------------------------------------------------------------------------


def test_provenance_follows_the_rows() -> None:
    dataset = read("builtin:test")
    whole = provenance(dataset)
    assert whole == provenance(read("builtin:test"))
    assert whole["characters"] == sum(len(document.text) for document in corpus("test"))
    part = provenance(dataset.select(range(3)))
    assert (part["source"], part["documents"]) == (whole["source"], 3)
    assert part["sha256"] != whole["sha256"]


def test_provenance_tells_how_the_text_is_divided() -> None:
    digests = {
        provenance(datasets.Dataset.from_dict({"text": texts}))["sha256"]
        for texts in (["ab", "c"], ["a", "bc"], ["abc"])
    }
    assert len(digests) == 3
    assert provenance(datasets.Dataset.from_dict({"text": ["a"]}))["source"] == "unknown"


# -- WikiText -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spaced", "ordinary"),
    [
        (" = Title of it = ", "= Title of it ="),
        (" = = M @-@ 82 ( Michigan ) = = ", "== M-82 (Michigan) =="),
        ("a <unk> , red @-@ tipped , 2 @,@ 032 to 0 @.@ 7 kg .", "a <unk>, red-tipped, 2,032 to 0.7 kg."),
        ("5 – 6 cm ( 11 – 13 lb ) ; minorities – that", "5–6 cm (11–13 lb); minorities – that"),
        ("I isn 't , he 's , they 've , is n't , don ’ t", "I isn't, he's, they've, isn't, don’t"),
        ('the " <unk> " , and " cutter " !', 'the "<unk>", and "cutter"!'),
        ("Linnaeus ' concept , the Knights ' win", "Linnaeus' concept, the Knights' win"),
        ("the ' anti @-@ <unk> ' concept", "the 'anti-<unk>' concept"),
        ("known as ' turf <unk> ' .", "known as 'turf <unk>'."),
        ("the U.S. ' s law and the ' 70s", "the U.S.'s law and the '70s"),
        ("the <unk> ' practice of rowing", "the <unk>' practice of rowing"),
        ("grossing $ 348 @,@ 000 or 50 % [ ... ] 8 ° C", "grossing $348,000 or 50% [...] 8°C"),
        ("33 km / h , F ‑ 86 ; what ?", "33 km/h, F‑86; what?"),
        ("it was ' big ' , as ' small '", "it was 'big', as 'small'"),
        ("", ""),
    ],
)
def test_detokenize(spaced: str, ordinary: str) -> None:
    assert detokenize(spaced) == ordinary


@given(st.text(alphabet="ab .,'\"()@-<>=\n", max_size=80))
def test_detokenize_changes_nothing_but_spaces_and_joins(text: str) -> None:
    def letters(of: str) -> str:
        return re.sub(r"[ @]", "", of)

    assert letters(detokenize(text)) == letters(text)
    assert detokenize(text).count("\n") == text.count("\n")


@given(st.lists(st.sampled_from([" ", "", " = A = ", " = = B = = ", " text . ", " = Not a title "])))
def test_articles_put_together_are_the_file(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = articles(text)
    assert "".join(found) == text
    assert all(part.strip() for part in found[1:])


# -- the built-in corpus --------------------------------------------------------------------------------------------


def test_the_corpus_is_large_and_divided_about_50_20_30() -> None:
    sizes = [sum(len(document.text) for document in corpus(split)) for split in SPLITS]
    assert sum(sizes) > 1_000_000
    for size, share in zip(sizes, (0.5, 0.2, 0.3), strict=True):
        assert size / sum(sizes) == pytest.approx(share, abs=0.1)


def test_a_document_is_in_the_split_of_its_name_and_in_no_other() -> None:
    names = [document.name for split in SPLITS for document in corpus(split)]
    assert len(set(names)) == len(names)
    for split in SPLITS:
        assert all(split_of(document.name) == split for document in corpus(split))
    # The hash of the name decides, so these stay what they are in every version of Python.
    assert split_of("module:json.decoder") == "calibration"
    assert split_of("module:typing") == "validation"
    assert split_of("topic:dict") == "test"


def test_no_paragraph_stands_in_two_splits() -> None:
    """Neither the same paragraph nor one most of whose words stand in the same order in an earlier split."""
    earlier: set[str] = set()
    for split in SPLITS:
        own = [word_runs(part) for document in corpus(split) for part in paragraphs(document.text)]
        assert not [runs for runs in own if 2 * len(runs & earlier) > len(runs)]
        earlier.update(*own)
    assert len(earlier) > 100_000


def test_word_runs_see_through_case_and_punctuation() -> None:
    assert word_runs("Return the *Value*.") == word_runs("return  the value") == {"return the value"}
    assert len(word_runs(" ".join("abcdefghij"))) == 3
    assert word_runs("***") == set()


def test_the_corpus_is_reference_and_docstrings() -> None:
    found = {document.name: document.text for split in SPLITS for document in corpus(split)}
    assert "SequenceMatcher" in found["module:difflib"]
    assert "dictionary" in found["topic:dict"].lower()
    assert not [name for name in found if re.search(r"\.(test|tests|idlelib|site-packages)\b|:(test|idlelib)\b", name)]
    assert all(len(text) >= 200 and "\n\n\n" not in text for text in found.values())


def test_docstrings_are_read_and_nothing_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from burnish.data import corpus as package

    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text(
        f'"""{"The module. " * 30}"""\nraise SystemExit\ndef f():\n    """short"""\nif True:\n'
        f'    class C:\n        """{"The class. " * 30}"""\nX = "\\d"\n'
    )
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "a.py").write_text(f'"""{"A test. " * 30}"""')
    (tmp_path / "latin.py").write_bytes(b'"""caf\xe9"""')
    (tmp_path / "wrong.py").write_text('"""A sample."""\nprint "hello"\n')
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere.py")
    monkeypatch.setattr(package.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    [document] = package._modules()
    assert document.name == "module:inner"
    assert paragraphs(document.text) == [("The module. " * 30).strip(), ("The class. " * 30).strip()]


def test_a_python_without_sources_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from burnish.data import corpus as package

    monkeypatch.setattr(package, "_topics", lambda: iter(()))
    monkeypatch.setattr(package, "_modules", lambda: iter(()))
    with pytest.raises(BadInput, match="without its documentation"):
        package._splits.__wrapped__()


def test_reading_the_corpus_leaves_garbage_collection_as_it_was() -> None:
    import gc

    from burnish.data import corpus as package

    with package._collection_paused():
        assert not gc.isenabled()
        with package._collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_corpus_is_the_same_in_another_process() -> None:
    code = "from burnish.data import corpus_id; print(corpus_id()['sha256'])"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == corpus_id()["sha256"]
