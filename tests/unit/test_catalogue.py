"""The catalogue: names, plug-ins and their faults, summaries without imports."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from burnish import catalogue
from burnish.core.errors import BadInput, MissingExtra, UnknownName
from burnish.core.method import Method

Install = Callable[..., Path]

WORDS = '''
from burnish.core.method import Method

class Words(Method):
    """Count words.

    And more.
    """
'''


@pytest.fixture(autouse=True)
def fresh() -> object:
    catalogue._plugins.cache_clear()
    yield
    catalogue._plugins.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with entry points on the path: files by name, and the text of entry_points.txt."""

    def put(points: str, package: str = "burnish-try", **files: str) -> Path:
        info = tmp_path / f"{package.replace('-', '_')}-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
        (info / "entry_points.txt").write_text(points)
        for name, text in files.items():
            path = tmp_path / (name.replace(".", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            for module in (name, name.partition(".")[0]):
                monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        return tmp_path

    monkeypatch.syspath_prepend(tmp_path)
    return put


def test_importing_it_is_light() -> None:
    code = (
        "import sys, burnish.catalogue; print([m for m in ('torch', 'transformers', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", catalogue.METHODS)
def test_every_line_names_a_verb_and_a_class(name: str) -> None:
    entry = catalogue.find(name)
    assert entry.verb in catalogue.VERBS
    assert entry.target.startswith(f"burnish.{entry.verb}.")
    assert entry.target.count(":") == 1


def test_kinds_are_of_methods_that_there_are() -> None:
    assert catalogue.METHODS.keys() >= catalogue.BASELINES | catalogue.TOOLS
    assert not catalogue.BASELINES & catalogue.TOOLS
    assert {e.kind for e in catalogue.entries()} <= {"baseline", "paper", "tool", "plug-in"}
    assert catalogue.find("boa").kind == "paper"
    assert catalogue.find("rtn").kind == "baseline"


def test_goods_are_loaded_the_quickest_first_and_models_last() -> None:
    assert list(catalogue.GOODS)[-1] == "Model"
    for kind in catalogue.GOODS.values():
        assert bool(kind.save) == bool(kind.place)


def test_unknown_names_offer_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"did you mean boa\?"):
        catalogue.load("bao")
    with pytest.raises(UnknownName, match="claim called 'xyz'"):
        catalogue.claim("xyz")
    with pytest.raises(UnknownName, match="recipe called 'xyz'"):
        catalogue.recipe("xyz")


def test_recipes_are_found_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "RECIPES", tmp_path)
    (tmp_path / "compress").mkdir()
    (tmp_path / "compress" / "half.toml").write_text("title = 'Half'")
    assert catalogue.recipes() == {"half": tmp_path / "compress" / "half.toml"}
    assert catalogue.recipe("half").read_text() == "title = 'Half'"


def test_a_plug_in_is_listed_with_its_summary_and_loads(install: Install) -> None:
    install("[burnish.evaluate]\nwords = try_words:Words\n", try_words=WORDS)
    entry = catalogue.find("words")
    assert (entry.kind, entry.package, entry.fault, entry.verb) == ("plug-in", "burnish-try", "", "evaluate")
    assert catalogue.summary("words") == "Count words."
    assert "try_words" not in sys.modules
    assert catalogue.module_of("words") == "try_words"
    assert issubclass(catalogue.load("words"), Method)
    assert [e.name for e in catalogue.entries("evaluate")][-1] == "words"


def test_a_summary_is_followed_through_imports_that_are_not_made(install: Install) -> None:
    install(
        "[burnish.evaluate]\nwords = try_pack:Words\n",
        **{"try_pack.__init__": "raise RuntimeError\nfrom .inner import Words", "try_pack.inner": WORDS},
    )
    assert catalogue.find("words").fault == ""
    assert catalogue.summary("words") == "Count words."
    assert "try_pack" not in sys.modules


FAULTS = {
    "[burnish.evaluate]\nwords = try_gone:Words": "the module try_gone is not there",
    "[burnish.evaluate]\nwords = try_words.gone:Words": "the module try_words.gone is not there",
    "[burnish.evaluate]\nwords = try_words:Wordz": "the module try_words has no Wordz",
    "[burnish.evaluate]\nwords = try_words": "does not have the form module:Class",
    "[burnish.evaluate]\nwords = try_torn:Words": "the module try_torn is not Python",
    "[burnish.evaluate]\nWords! = try_words:Words": "a name is one or two words",
    "[burnish.cook]\nwords = try_words:Words": "there is no verb 'cook'",
    "[burnish.evaluate]\nrtn = try_words:Words": "the name is taken by burnish.compress.rtn:RTN",
    "[burnish.evaluate]\nrtn fast = try_words:Words": "the name is taken by burnish.compress.rtn:RTN",
}


@pytest.mark.parametrize("points", FAULTS)
def test_a_broken_plug_in_is_listed_with_its_fault_and_harms_nothing(points: str, install: Install) -> None:
    install(points + "\n", try_words=WORDS, try_torn="def (")
    broken = [entry for entry in catalogue.entries() if entry.package == "burnish-try"]
    assert len(broken) == 1
    assert FAULTS[points] in broken[0].fault
    assert catalogue.find("rtn").package == "burnish"
    assert [e.name for e in catalogue.entries() if e.package == "burnish"] == list(catalogue.METHODS)


def test_two_plug_ins_of_one_name_leave_the_first(install: Install) -> None:
    install("[burnish.evaluate]\nwords = try_words:Words\n", "burnish-b", try_words=WORDS)
    install("[burnish.evaluate]\nwords = try_other:Words\n", "burnish-a", try_other=WORDS)
    assert catalogue.find("words").package == "burnish-a"
    assert [e.package for e in catalogue.entries() if e.fault] == ["burnish-b"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("class Words: pass", "is not a burnish Method"),
        ("1 / 0\nclass Words: pass", "ZeroDivisionError"),
        ("import try_absent\nclass Words: pass", "No module named 'try_absent'"),
    ],
)
def test_a_plug_in_that_breaks_when_loaded_is_named(source: str, why: str, install: Install) -> None:
    install("[burnish.evaluate]\nwords = try_words:Words\n", try_words=source)
    with pytest.raises(BadInput, match=f"'words' of the package burnish-try cannot be used: .*{why}") as caught:
        catalogue.load("words")
    assert caught.value.fix == "mend or remove it: pip uninstall burnish-try"


def test_a_method_whose_file_imports_a_missing_extra_says_so(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.EXTRAS, "chem", ("try_chemistry",))
    install("[burnish.evaluate]\nwords = try_words:Words\n", try_words="import try_chemistry\n" + WORDS)
    with pytest.raises(MissingExtra, match=r'pip install "burnish\[chem\]"'):
        catalogue.load("words")


def test_the_facade_offers_classes_by_name_and_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import burnish
    from burnish.core.run import Run

    assert burnish.Run is Run
    assert {"load", "Recipe", "check_method", "BoA", "RTN"} <= set(dir(burnish))
    assert burnish.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'Bao'"):
        _ = burnish.Bao
    monkeypatch.setitem(catalogue.METHODS, "same", "burnish.core.method:Method")
    assert burnish.Method is Method
    vars(burnish).pop("Method")
