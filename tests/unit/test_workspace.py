"""Workspaces: nothing outside is read, every format gives text or a reason, the graph joins what belongs together."""

from __future__ import annotations

import io
import json
import os
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.core.errors import BadInput
from burnish.data.documents import TEXTS, WHOLE, fault, read_document
from burnish.data.planted import plant
from burnish.data.workspace import Refused, Workspace, named_paths, tree

pytest.importorskip("tree_sitter", reason="needs the extra workspaces")


@pytest.fixture
def place(tmp_path):
    root = tmp_path / "workspace-1"
    for path, text in {
        "src/model.py": "class Net:\n    def forward(self, x):\n        return helper(x)\n\n\ndef helper(x):\n    return x\n",
        "src/train.py": "from model import Net\n\n\ndef main():\n    Net().forward(1)\n",
        "results/metrics.txt": "accuracy: 0.9\n",
        ".git/config": "secret",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (tmp_path / "secret.txt").write_text("do not read")
    return root


# -- staying inside ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "src/../../secret.txt", "/etc/passwd", "~/x", "C:/x", "", "  ", "\0", "src/none.py", "x" * 5000,
     "src/model.py/inside", "link.txt", "folder/secret.txt", "..\\secret.txt", "pipe"],
)  # fmt: skip
def test_what_leads_out_is_refused(place, path) -> None:
    (place / "link.txt").symlink_to(place.parent / "secret.txt")
    (place / "folder").symlink_to(place.parent)
    os.mkfifo(place / "pipe")
    workspace = Workspace(place)
    with pytest.raises(Refused):
        workspace.resolve(path)
    with pytest.raises(Refused):
        read_document(workspace, path)


@pytest.mark.parametrize(
    "path",
    ["src/model.py", "./src/model.py", "/src/model.py", "`src/model.py`", "src\\model.py", "workspace-1/src/model.py"],
)
def test_the_usual_spellings_are_understood(place, path) -> None:
    assert Workspace(place).resolve(path) == "src/model.py"
    assert Workspace(place).resolve(str(place / "src")) == "src/"
    for root in ("/", ".", "./", str(place)):
        assert Workspace(place).resolve(root) == "./"
    assert len(Workspace(place).inside("./")) == 3
    assert [found.path for found in Workspace(place).inside("src/")] == ["src/model.py", "src/train.py"]


def test_links_and_generated_folders_are_not_listed(place) -> None:
    (place / "inner.py").symlink_to(place / "src" / "model.py")
    workspace = Workspace(place)
    assert [found.path for found in workspace.files()] == ["results/metrics.txt", "src/model.py", "src/train.py"]
    assert any("link" in line for line in workspace.left_out)
    assert any(".git" in line for line in workspace.left_out)


def test_a_file_that_becomes_a_link_is_not_followed(place) -> None:
    workspace = Workspace(place)
    workspace.files()
    (place / "src" / "model.py").unlink()
    (place / "src" / "model.py").symlink_to(place.parent / "secret.txt")
    with pytest.raises(Refused, match="link"):
        read_document(workspace, "src/model.py")


@given(st.text(max_size=60))
def test_no_proposal_reads_the_secret(tmp_path_factory, text) -> None:
    root = tmp_path_factory.getbasetemp() / "fuzz" / "inside"
    root.mkdir(parents=True, exist_ok=True)
    (root.parent / "secret").write_text("secret")
    try:
        found = Workspace(root).resolve(text)
    except Refused:
        return
    assert (root / found).resolve().is_relative_to(root)


def test_no_folder_is_refused(tmp_path) -> None:
    with pytest.raises(BadInput):
        Workspace(tmp_path / "none")


# -- formats ----------------------------------------------------------------------------------------------------------


def made(place, name: str, content: bytes):
    (place / name).write_bytes(content)
    return read_document(Workspace(place), name)


def test_at_least_the_papers_number_of_formats_is_read() -> None:
    assert len(TEXTS) + len(WHOLE) >= 33


def test_a_huge_file_is_read_at_its_ends_only(place) -> None:
    with (place / "huge.log").open("wb") as file:
        file.write(b"the beginning\n")
        file.truncate(2**30)
        file.seek(0, 2)
        file.write(b"\nthe end")
    # What lies between is a hole of zeros, beyond what is looked at to tell text from data.
    (place / "huge.csv").write_bytes(b"a,b\n" * 5000)
    with (place / "huge.csv").open("r+b") as file:
        file.truncate(2**30)
    for name in ("huge.log", "huge.csv"):
        found = read_document(Workspace(place), name)
        assert len(found.text) < 10**6
        assert found.problem
    with (place / "huge.pdf").open("wb") as file:
        file.truncate(2**30)
    assert "larger than" in read_document(Workspace(place), "huge.pdf").problem


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.py", b"\0\x01\x02binary", "binary data"),
        ("a.pdf", b"%PDF-1.4\nbroken", "broken pdf"),
        ("a.pdf", b"not a pdf at all", "broken pdf"),
        ("a.png", b"\x89PNG\r\n\x1a\nbroken", "broken image"),
        ("a.docx", b"PK\x03\x04broken", "broken"),
        ("a.xlsx", b"nothing", "broken"),
        ("a.pptx", b"", "empty"),
        ("a.wav", b"RIFFbroken", "broken sound"),
        ("a.npy", b"\x93NUMPY\x01\0v\0{'descr': '<f8', 'fortran_order': False, 'shape': (10**12,), }", "broken array"),
        ("a.safetensors", b"\xff" * 16, "longer than the file"),
        ("a.ipynb", b"{}", "broken notebook"),
        ("a.zip", b"PK", "broken archive"),
        ("a.pkl", b"cos\nsystem\n(S'touch pwned'\ntR.", "not looked into"),
        ("a.xyz", b"\0\1\2", "unknown binary format .xyz"),
        ("a.mp4", b"nothing", "not those of its format"),
        ("a.mp4", b"\0\0\0\x20ftypisom", "not seen"),
        ("a.txt", b"caf\xe9", "not UTF-8"),
    ],
)
def test_what_cannot_be_read_has_a_reason(place, name, content, words) -> None:
    assert words in made(place, name, content).problem
    assert not (place / "pwned").exists()


def test_documents_are_read(place) -> None:
    import docx
    import openpyxl
    import pptx
    from PIL import Image
    from pypdf import PdfWriter

    word = docx.Document()
    word.add_paragraph("Evaluation of the model")
    word.save(str(place / "a.docx"))
    book = openpyxl.Workbook()
    book.active.append(["accuracy", 0.93])
    book.save(place / "a.xlsx")
    slides = pptx.Presentation()
    slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = "Results"
    slides.save(str(place / "a.pptx"))
    Image.new("RGB", (30, 20), "white").save(place / "a.png")
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(str(place / "a.pdf"))
    workspace = Workspace(place)
    for name, words in {
        "a.docx": "Evaluation of the model",
        "a.xlsx": "accuracy, 0.93",
        "a.pptx": "Results",
        "a.png": "30 x 20 pixels, RGB, of one colour only",
        "a.pdf": "1 pages",
        "results/metrics.txt": "accuracy",
    }.items():
        found = read_document(workspace, name)
        assert words in found.text, name
        assert not found.problem, name


def test_notebooks_show_source_and_output(place) -> None:
    book = {"cells": [{"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": [{"data": {"text/plain": ["1"]}}]}]}
    assert "x = 1\nx" in made(place, "a.ipynb", json.dumps(book).encode()).text


def test_a_packed_bomb_is_not_unpacked(place) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"word/{number}.xml", b"\0" * (80 * 2**20))
    assert "unpack" in made(place, "a.docx", raw.getvalue()).problem


def test_faults_by_the_standard_library_alone(place) -> None:
    workspace = Workspace(place)
    for name, content, good in (
        ("b.py", b"def f(:", False),
        ("b.py", b"x = 1", True),
        ("b.py", rb"x = '\d' is 1", True),
        ("b.json", b"{", False),
        ("b.png", b"not an image", False),
        ("b.pdf", b"%PDF-1.7", True),
        ("b.txt", b"", False),
        ("b.txt", b" \n", False),
    ):
        (place / name).write_bytes(content)
        assert (fault(workspace, name) == "") == good, (name, content)


# -- maps -------------------------------------------------------------------------------------------------------------


def test_the_graph_joins_definitions_and_uses(place) -> None:
    from burnish.data.codegraph import code_graph

    (place / "src" / "broken.py").write_text("def whole():\n    return Net()\n\ndef half(:\n")
    graph = code_graph(Workspace(place))
    names = {(tag.path, tag.name, tag.kind) for tag in graph.definitions()}
    assert {
        ("src/model.py", "Net", "class"),
        ("src/model.py", "forward", "function"),
        ("src/broken.py", "whole", "function"),
    } <= names
    net = next(tag for tag in graph.definitions() if tag.name == "Net")
    assert graph.users(net) == ["src/broken.py", "src/train.py"]
    assert graph.outline()["src/model.py"] == "class Net, forward, helper"
    assert "does not parse" in graph.problems["src/broken.py"]
    assert ("src/model.py::Net:1", "src/model.py::forward:2") in graph.graph.edges()


def test_a_name_that_is_defined_everywhere_joins_nothing(tmp_path) -> None:
    from burnish.data.codegraph import MOST_DEFINERS, code_graph

    for number in range(MOST_DEFINERS + 1):
        (tmp_path / f"m{number}.py").write_text("def main():\n    pass\n")
    (tmp_path / "z.py").write_text("main()\n")
    graph = code_graph(Workspace(tmp_path))
    assert not [edge for edge in graph.graph.edges(data="kind") if edge[2] == "uses"]


def test_code_is_found_by_name_words_and_meaning(place) -> None:
    from burnish.data.codegraph import code_graph
    from burnish.data.codesearch import CodeSearch

    workspace = Workspace(place)
    graph = code_graph(workspace)
    search = CodeSearch(workspace, graph)
    assert any(found.tag.name == "helper" for found in search.find("A helpr is used"))
    assert any(found.tag.path == "src/train.py" for found in search.find("the train script"))
    for number in range(5):
        (place / "src" / f"part{number}.py").write_text("def forward(x):\n    pass\n")
    many = Workspace(place)
    found = CodeSearch(many, code_graph(many)).find("helper and forward", most=1)
    assert found[0].tag.name == "helper", "a name that many have says less"
    assert CodeSearch(Workspace(place / "results"), code_graph(Workspace(place / "results"))).find("x") == []

    def embed(texts):
        import numpy as np

        return np.array([[1.0, 0.0] if "forward(1)" in text or "query" in text else [0.0, 1.0] for text in texts])

    assert [found.tag.name for found in CodeSearch(workspace, graph, embed).find("query", most=1)][-1] == "main"


def test_the_tree_names_each_folder_once(place) -> None:
    shown = tree(Workspace(place).files(), {"src/model.py": "class Net"})
    assert shown.count("src/") == 1
    assert "  model.py (95 bytes): class Net" in shown or "model.py" in shown
    assert shown.index("results/") < shown.index("src/")


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("The model is saved under `models/saved_models/`.", ["models/saved_models/"]),
        ("It is loaded in 'src/data_loader.py'.", ["src/data_loader.py"]),
        ("saved as results/metrics/accuracy_score.txt.", ["results/metrics/accuracy_score.txt"]),
        ("The repository at `https://github.com/artidoro/qlora` has been downloaded.", []),
        ("uses `torchvision.transforms`, including rotation", []),
        ("Implemented in `src/env.py` and `src/train.py`.", ["src/env.py", "src/train.py"]),
        ("A file prompt.txt is read", ["prompt.txt"]),
    ],
)
def test_paths_are_read_off_requirements(text, paths) -> None:
    assert named_paths(text) == paths


def test_planted_truths_are_half_and_repeatable(tmp_path) -> None:
    tasks, _ = plant(tmp_path / "a")
    plant(tmp_path / "b")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert all((tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes() for path in files)
    truth = [one["satisfied"] for path in tasks.glob("*.json") for one in json.loads(path.read_text())["requirements"]]
    assert len(truth) >= 60
    assert sum(truth) == len(truth) // 2
