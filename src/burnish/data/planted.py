"""Small workspaces with planted truths: for every requirement it is known whether it is satisfied, and why not.

Eight made-up projects of the kind that DevAI asks for, eight requirements each. Of each kind of requirement half are
satisfied; the others fail in a way of their own: a file is missing or empty, holds something else, or only promises what
is asked. Some of these a look at the file system finds; others only reading does. Everything follows from the seed.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.core.files import write_text


@dataclass(frozen=True)
class Project:
    """What one project is about, and what a wrong solution does instead."""

    name: str
    dataset: str
    other_dataset: str
    step: str
    step_code: str
    model: str
    model_code: str
    other_model: str
    other_model_code: str
    protocol: str
    protocol_code: str
    metric: str
    other_metric: str
    figure: str


PROJECTS = (
    Project(
        "apples", "Orchard", "Vineyard", "Standardization of the features", "StandardScaler().fit_transform(rows)",
        "support vector machine", "SVC(kernel='rbf')", "decision tree", "DecisionTreeClassifier(max_depth=4)",
        "5-fold cross-validation", "cross_val_score(model, rows, labels, cv=5)", "accuracy", "training time", "confusion_matrix",
    ),
    Project(
        "bikes", "CityBikes", "CityTrains", "Removal of rows with missing values", "[row for row in rows if None not in row]",
        "random forest", "RandomForestRegressor(n_estimators=100)", "linear regression", "LinearRegression()",
        "A hold-out split of 20 percent", "train_test_split(rows, labels, test_size=0.2)", "mean absolute error", "accuracy",
        "residuals",
    ),
    Project(
        "clouds", "SkyImages", "RoadImages", "Random horizontal flipping of the images", "RandomHorizontalFlip(p=0.5)(rows)",
        "convolutional network", "Sequential(Conv2d(3, 16, 3), ReLU(), Flatten(), LazyLinear(4))", "multilayer perceptron",
        "Sequential(Flatten(), LazyLinear(64), ReLU(), LazyLinear(4))", "Early stopping",
        "EarlyStopping(patience=3).watch(model)", "F1 score", "number of epochs", "learning_curve",
    ),
    Project(
        "drums", "Beats", "Speeches", "Computation of mel spectrograms", "melspectrogram(y=rows, sr=22050)",
        "LSTM", "LSTM(input_size=128, hidden_size=64)", "k-nearest-neighbour classifier", "KNeighborsClassifier(5)",
        "A learning-rate schedule with cosine decay", "CosineAnnealingLR(optimizer, T_max=20)", "word error rate", "loudness",
        "spectrogram",
    ),
    Project(
        "emails", "InboxMail", "InboxNews", "Removal of stop words", "[w for w in rows if w not in STOP_WORDS]",
        "naive Bayes classifier", "MultinomialNB(alpha=1.0)", "logistic regression", "LogisticRegression(max_iter=200)",
        "Stratified splitting", "StratifiedShuffleSplit(n_splits=1).split(rows, labels)", "precision", "vocabulary size",
        "word_cloud",
    ),
    Project(
        "fares", "TaxiRides", "FerryRides", "Min-max scaling", "MinMaxScaler().fit_transform(rows)",
        "gradient boosting model", "GradientBoostingRegressor(n_estimators=200)", "ridge regression", "Ridge(alpha=1.0)",
        "A grid search over hyperparameters", "GridSearchCV(model, {'max_depth': [2, 3, 4]}).fit(rows, labels)",
        "root mean squared error", "row count", "feature_importance",
    ),
    Project(
        "grids", "MazeWorld", "CartWorld", "Normalization of the rewards", "(rows - rows.mean()) / rows.std()",
        "Q-learning agent", "QTable(states=64, actions=4).update(alpha=0.1, gamma=0.9)", "random agent",
        "RandomPolicy(actions=4)", "Epsilon-greedy exploration", "epsilon_greedy(model, epsilon=0.1)", "mean return",
        "wall-clock time", "returns",
    ),
    Project(
        "houses", "HomePrices", "CarPrices", "One-hot encoding of the categories", "OneHotEncoder().fit_transform(rows)",
        "linear regression", "LinearRegression()", "constant predictor", "DummyRegressor(strategy='mean')",
        "Leave-one-out validation", "LeaveOneOut().split(rows)", "R-squared", "file size", "predictions",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What one requirement of every project asks for."""

    category: str
    """One of DevAI's."""
    prerequisites: tuple[int, ...]
    """Places of the kinds that it builds on."""
    criterion: str
    """With a project's fields, and the paths of its results, to be filled in."""


KINDS = (
    Kind("Dataset or Environment", (), 'The "{dataset}" dataset is loaded in `src/data_loader.py`.'),
    Kind("Data preprocessing and postprocessing", (0,), "{step} is performed in `src/data_loader.py`."),
    Kind("Machine Learning Method", (), 'A "{model}" is implemented in `src/model.py`.'),
    Kind("Performance Metrics", (1, 2), "{protocol} is used in `src/train.py`."),
    Kind("Performance Metrics", (3,), "The {metric} is saved as `{metric_path}`."),
    Kind("Visualization", (3,), "A figure is saved as `{figure_path}`."),
    Kind(
        "Other",
        (4, 5),
        "A report that describes the preprocessing, the model and the evaluation is saved as `results/report.md`.",
    ),
    Kind("Other", (), "The random seed of the training is fixed, so that results can be repeated."),
)
Files = dict[str, "str | bytes"]


def plant(folder: Path | str, seed: int = 0, projects: int = len(PROJECTS)) -> tuple[Path, Path]:
    """Write the workspaces, and their tasks with the truth filled in, below a folder.

    Args:
        folder: Made if absent.
        seed: Which requirements are satisfied, and how the others fail.
        projects: How many of the eight.

    Returns:
        The folder of the tasks, and that of the workspaces.
    """
    folder = Path(folder)
    truths = _truths(seed, projects)
    for number, project in enumerate(PROJECTS[:projects]):
        rng = random.Random(f"{seed}/{project.name}")
        files, task = _make(project, truths[number], rng)
        for path, content in files.items():
            place = folder / "workspaces" / project.name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)
        write_text(folder / "tasks" / f"{project.name}.json", json.dumps(task, indent=1))
    return folder / "tasks", folder / "workspaces"


def _truths(seed: int, projects: int) -> list[list[bool]]:
    """For each project whether each requirement is satisfied: of each kind half, in an order of its own."""
    rng = random.Random(f"{seed}/truths")
    columns = []
    for _ in KINDS:
        column = [place % 2 == 0 for place in range(projects)]
        rng.shuffle(column)
        columns.append(column)
    return [list(row) for row in zip(*columns, strict=True)]


def _make(project: Project, truth: list[bool], rng: random.Random) -> tuple[Files, dict[str, Any]]:
    loader = _loader(project, truth, rng)
    files: Files = {"src/data_loader.py": loader, "README.md": f"# {project.name}\n\nRun `python src/train.py`.\n"}
    files |= _model(project, truth[2], rng)
    files["src/train.py"] = _train(project, truth, rng)
    metric = f"results/metrics/{_slug(project.metric)}.txt"
    figure = f"results/figures/{project.figure}.png"
    files |= _saved(metric, f"{project.metric}: 0.{rng.randrange(60, 99)}\n", truth[4], rng, _wrong_metric(project))
    files |= _saved(figure, _png(rng), truth[5], rng, lambda: "the figure will be drawn here\n")
    files |= _report(project, truth[6], rng)
    named = {**vars(project), "metric_path": metric, "figure_path": figure}
    criteria = [kind.criterion.format(**named) for kind in KINDS]
    requirements = [
        {
            "requirement_id": number,
            "prerequisites": list(kind.prerequisites),
            "criteria": criterion,
            "category": kind.category,
            "satisfied": truth[number],
        }
        for number, (kind, criterion) in enumerate(zip(KINDS, criteria, strict=True))
    ]
    query = f"Build a {project.model} for the {project.dataset} data. " + " ".join(criteria)
    return files, {"name": project.name, "query": query, "requirements": requirements, "preferences": []}


def _loader(project: Project, truth: list[bool], rng: random.Random) -> str:
    dataset = project.dataset if truth[0] else project.other_dataset
    if truth[1]:
        step = f"    rows = {project.step_code}\n"
    else:
        step = rng.choice(["", f"    # TODO: {project.step.lower()}\n", f"    # rows = {project.step_code}\n"])
    return (
        '"""Load the data."""\n\nimport csv\n\n\ndef load():\n'
        f'    """Read the {dataset} data."""\n    with open("data/{dataset.lower()}.csv") as file:\n'
        f"        rows = list(csv.reader(file))\n{step}    labels = [row[-1] for row in rows]\n    return rows, labels\n"
    )


def _model(project: Project, truth: bool, rng: random.Random) -> Files:
    way = "right" if truth else rng.choice(["missing", "other", "stub"])
    if way == "missing":
        return {}
    name, code = (
        (project.model, project.model_code) if way == "right" else (project.other_model, project.other_model_code)
    )
    if way == "stub":
        name, code = project.model, "None  # not implemented yet"
        return {"src/model.py": f'"""The {name}."""\n\n\ndef build():\n    raise NotImplementedError("{name}")\n'}
    return {"src/model.py": f'"""The {name}."""\n\n\ndef build():\n    """Make the model."""\n    return {code}\n'}


def _train(project: Project, truth: list[bool], rng: random.Random) -> str:
    seed = "random.seed(7)\n\n" if truth[7] else ""
    if truth[3]:
        line = f"    result = {project.protocol_code}\n"
    else:
        line = rng.choice(
            ["    result = model.fit(rows, labels)\n", f"    # {project.protocol} comes later\n    result = None\n"]
        )
    return (
        '"""Train the model."""\n\nimport random\n\nfrom data_loader import load\nfrom model import build\n\n'
        f"{seed}\ndef main():\n    rows, labels = load()\n    random.shuffle(rows)\n    model = build()\n{line}"
        '    print(result)\n\n\nif __name__ == "__main__":\n    main()\n'
    )


def _wrong_metric(project: Project) -> Callable[[], str]:
    return lambda: f"{project.other_metric}: 42\n"


def _saved(path: str, right: str | bytes, truth: bool, rng: random.Random, wrong: Callable[[], str]) -> Files:
    """A result file that is there, or missing, empty, or something else."""
    way = "right" if truth else rng.choice(["missing", "empty", "wrong"])
    return {} if way == "missing" else {path: right if way == "right" else "" if way == "empty" else wrong()}


def _report(project: Project, truth: bool, rng: random.Random) -> Files:
    parts = {
        "Preprocessing": f"{project.step} was performed on the {project.dataset} data.",
        "Model": f"The model is a {project.model}.",
        "Evaluation": f"{project.protocol} was used; the {project.metric} is in results/metrics.",
    }
    if not truth:
        way = rng.choice([*parts, "missing", "empty"])
        if way == "missing":
            return {}
        parts = {} if way == "empty" else {name: text for name, text in parts.items() if name != way}
    text = "".join(f"## {name}\n\n{words}\n\n" for name, words in parts.items())
    return {"results/report.md": f"# Report\n\n{text}" if parts else ""}


def _png(rng: random.Random, side: int = 24) -> bytes:
    """A small grey picture with something on it."""
    rows = b"".join(b"\0" + bytes(rng.randrange(256) for _ in range(side)) for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _slug(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
