"""Exports: what is written holds exactly what was measured, and what cannot be written so is refused by name."""

from __future__ import annotations

import importlib
import json
import shutil
from collections import namedtuple

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, quants
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from burnish.compress.gptq import GPTQ
from burnish.compress.quarot import QuaRot
from burnish.compress.rtn import RTN
from burnish.compress.smoothquant import SmoothQuant
from burnish.core.errors import BadInput, DoesNotFit, Mismatch, UnknownName, Unsupported
from burnish.models import Lineage, Model, check_export, export, load
from burnish.models.export import FORMATS, gguf_metadata
from burnish.models.export.contents import Rounded
from burnish.models.reload import LIMITS, RECORD, Comparison, compare, read_record
from burnish.nn.activation import InputStage, TokenGrid
from burnish.nn.grid import Grid, GridSpec, Quantized

torch.set_num_threads(1)

gguf = importlib.import_module("burnish.models.export.gguf")


@pytest.fixture(scope="module")
def tiny():
    return load("tiny", device="cpu")


@pytest.fixture
def probe(tiny):
    return torch.arange(40)[None] % tiny.config.vocab_size


def reloaded(folder, **more):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more).eval()


def assert_same(model, net, probe):
    """Equal logits, and equal weights to the bit."""
    with torch.no_grad():
        ours, theirs = model.net(probe).logits, net(probe).logits
    assert (ours - theirs).abs().max() <= 1e-5
    found = net.state_dict()
    for name, tensor in model.net.state_dict().items():
        assert torch.equal(tensor, found[name]), name


def staged(model, bits, grid):
    """Rounded to whole symmetric rows, and activations on a grid."""
    model = model.fork()
    for site in model.sites():
        site.round(GridSpec(bits, sym=True))
        site.stage(InputStage(grid))
    return model.then("test", ("inputs of linear layers on 8-bit grids, one a token",))


# -- activations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 8])
def test_token_grid_is_that_of_compressed_tensors(bits):
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

    x = torch.randn(2, 50, 33, generator=torch.Generator().manual_seed(0)) * torch.logspace(-14, 3, 50)[None, :, None]
    x[0, 3] = 0
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=True, strategy="token", dynamic=True)
    scale, zero = compute_dynamic_scales_and_zp(x, args, nn.Identity())
    assert torch.equal(TokenGrid(bits)(x), fake_quantize(x, scale, zero, args))


# -- compressed-tensors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "group", "sym"), [(2, -1, False), (3, 32, False), (3, -1, True), (4, 64, True), (8, 32, False)]
)
def test_compressed_tensors_reload_to_the_same_model(tiny, probe, tmp_path, bits, group, sym):
    model = RTN(bits=bits, group=group, sym=sym)(tiny)
    folder = export(model, tmp_path / "out", "compressed-tensors")
    assert_same(model, reloaded(folder), probe)
    assert AutoTokenizer.from_pretrained(folder)("a b")["input_ids"] == tiny.tokenizer("a b")["input_ids"]
    assert json.loads((folder / "burnish.json").read_text())["steps"][-1].startswith("RTN")
    packed = sum(t.nbytes for n, t in load_file(folder / "model.safetensors").items() if n.endswith("weight_packed"))
    assert packed == sum(site.weight.numel() for site in model.sites()) * bits // 8


def test_layers_that_were_not_rounded_are_ignored(tiny, probe, tmp_path):
    model = RTN(bits=3, group=-1, layers=("q", "v"))(tiny)
    folder = export(model, tmp_path / "out", "compressed-tensors")
    ignored = json.loads((folder / "config.json").read_text())["quantization_config"]["ignore"]
    assert "lm_head" in ignored
    assert "model.layers.0.mlp.up_proj" in ignored
    assert "model.layers.0.self_attn.q_proj" not in ignored
    assert_same(model, reloaded(folder), probe)


def test_several_kinds_of_grid_in_one_model(tiny, probe, tmp_path):
    model = RTN(bits=8, group=-1, sym=True, layers=("o", "down"))(
        RTN(bits=4, group=32, sym=True, layers=("q", "up"))(tiny)
    )
    folder = export(model, tmp_path / "out", "compressed-tensors")
    net = reloaded(folder)
    with torch.no_grad():
        assert (net(probe).logits - model.net(probe).logits).abs().max() <= 1e-5
    mixed = RTN(bits=4, group=32, layers=("o",))(model)
    with pytest.raises(Unsupported, match="several kinds of grid, some of them asymmetric"):
        export(mixed, tmp_path / "mixed", "compressed-tensors")


def test_weights_and_activations_in_8_bits(tiny, probe, tmp_path):
    model = staged(tiny, 8, TokenGrid(8))
    folder = export(model, tmp_path / "out", "compressed-tensors")
    assert json.loads((folder / "config.json").read_text())["quantization_config"]["format"] == "int-quantized"
    assert load_file(folder / "model.safetensors")["model.layers.0.mlp.up_proj.weight"].dtype == torch.int8
    net = reloaded(folder)
    with torch.no_grad():
        ours, theirs, plain = model.net(probe).logits, net(probe).logits, tiny.net(probe).logits
    assert (ours - theirs).abs().max() <= 1e-5
    assert (plain - theirs).abs().max() > 1e-3
    for format in ("hf", "gptq", "gguf"):
        with pytest.raises(Unsupported, match="activations while it runs"):
            export(model, tmp_path / format, format)
    with pytest.raises(Unsupported, match=r"clip=0\.9"):
        export(staged(tiny, 8, TokenGrid(8, clip=0.9)), tmp_path / "clipped", "compressed-tensors")


def test_groups_that_do_not_divide_a_layer_are_refused_with_one_that_does(tiny, tmp_path):
    model = RTN(bits=4, group=256)(tiny)  # 128 and 384 inputs
    with pytest.raises(Unsupported, match="groups of 256 do not divide") as caught:
        export(model, tmp_path / "out", "compressed-tensors")
    assert "--group 128" in caught.value.fix
    assert not list(tmp_path.iterdir())


# -- gptq ---------------------------------------------------------------------------------------------------------


def unpacked(words, bits, axis):
    """Independent of the library: bit after bit, least significant first."""
    words = np.moveaxis(words.numpy().view(np.uint32), axis, 0)
    flat = (words[:, None] >> np.arange(32, dtype=np.uint32)[None, :, None]) & 1
    flat = flat.reshape(-1, bits, words.shape[1])
    return np.moveaxis((flat << np.arange(bits, dtype=np.uint32)[None, :, None]).sum(1), 0, axis)


@pytest.mark.parametrize(
    ("bits", "group", "sym"), [(4, 32, True), (4, 256, False), (8, -1, False), (8, 64, True), (3, 32, False)]
)
def test_gptq_checkpoints_hold_codes_zeros_and_scales(tiny, tmp_path, bits, group, sym):
    model = RTN(bits=bits, group=group, sym=sym, layers=("q", "k", "down"))(tiny)
    folder = export(model, tmp_path / "out", "gptq")
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert (config["bits"], config["group_size"], config["sym"], config["desc_act"]) == (bits, group, sym, False)
    assert config["checkpoint_format"] == ("gptq" if sym else "gptq_v2")
    assert r"-:^model\.layers\.0\.self_attn\.v_proj$" in config["dynamic"]
    tensors = load_file(folder / "model.safetensors")
    for site in model.sites():
        if site.quantized is None:
            assert torch.equal(tensors[f"{site.name}.weight"], site.weight.half())
            continue
        part = {key: tensors[f"{site.name}.{key}"] for key in ("qweight", "qzeros", "scales", "g_idx")}
        inputs = site.linear.in_features
        codes, zeros = unpacked(part["qweight"], bits, 0), unpacked(part["qzeros"], bits, 1) + int(sym)
        assert codes.shape == (inputs, site.linear.out_features)
        assert np.array_equal(part["g_idx"], np.arange(inputs) // (inputs if group == -1 else group))
        scale, zero = part["scales"].float().numpy()[part["g_idx"]], zeros[part["g_idx"]].astype(np.float32)
        assert np.array_equal(((codes - zero) * scale).T, site.weight.numpy())


# -- gguf ---------------------------------------------------------------------------------------------------------

KINDS = [
    (GridSpec(4, True, 32), "Q4_0"),
    (GridSpec(4, False, 32, "float"), "Q4_1"),
    (GridSpec(8, True, 32), "Q8_0"),
]


@pytest.mark.parametrize(("spec", "kind"), KINDS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 5), groups=st.integers(1, 4))
def test_blocks_decode_to_the_weights(spec, kind, seed, rows, groups):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, spec.top + 1, (rows, groups * 32), generator=generator).byte()
    scale = (torch.rand(rows, groups, generator=generator) * 3).half().float()
    zero = torch.randn(rows, groups, generator=generator).half().float()
    zero = zero if spec.float_zero else torch.full_like(zero, spec.middle)
    quantized = Quantized(codes, Grid(spec, scale, zero))
    layer = Rounded("x", nn.Linear(groups * 32, rows), quantized, None)
    order = torch.randperm(rows, generator=generator).numpy()
    data = gguf.blocks(layer, kind, order)
    assert np.array_equal(quants.dequantize(data, GGMLQuantizationType[kind]), quantized.weight().numpy()[order])


@pytest.mark.parametrize(("spec", "kind"), KINDS)
def test_gguf_reloads_to_the_same_model(tiny, probe, tmp_path, spec, kind):
    model = RTN(bits=spec.bits, group=32, sym=spec.sym, zero=spec.zero)(tiny)
    folder = export(model, tmp_path / "out", "gguf")
    types = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(folder / "model.gguf").tensors}
    assert types["blk.0.attn_q.weight"] == kind
    assert types["blk.0.attn_norm.weight"] == "F32"
    assert "output.weight" not in types  # tied
    net = reloaded(folder, gguf_file="model.gguf", quantization_config=GgufConfig(dequantize=True))
    assert_same(model, net, probe)


def test_gguf_of_another_family_has_its_biases_and_its_own_head(tiny, probe, tmp_path):
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = Qwen2Config(**shape, num_key_value_heads=2, vocab_size=tiny.config.vocab_size + 7, dtype=torch.float32)
    net = Qwen2ForCausalLM(config).eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.2)
    model = RTN(bits=4, group=32, sym=True, layers=("q", "k", "down"))(Model(net, tiny.tokenizer, Lineage("small")))
    folder = export(model, tmp_path / "out", "gguf")
    reader = GGUFReader(folder / "model.gguf")
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert (types["blk.0.attn_q.bias"], types["blk.0.attn_v.weight"], types["output.weight"]) == ("F32", "F32", "F32")
    assert reader.fields["tokenizer.ggml.tokens"].contents()[-1] == f"[PAD{config.vocab_size - 1}]"
    net = reloaded(folder, gguf_file="model.gguf", quantization_config=GgufConfig(dequantize=True))
    assert_same(model, net, probe)


def test_a_model_from_a_gguf_file_keeps_its_metadata_and_its_unrounded_blocks(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_CACHE", str(tmp_path / "cache"))
    first = export(RTN(bits=8, group=32, sym=True)(tiny), tmp_path / "first", "gguf") / "model.gguf"
    again = load(str(first), device="cpu")
    again = RTN(bits=4, group=32, sym=True, layers=("gate",))(again)
    reader = GGUFReader(export(again, tmp_path / "second", "gguf") / "model.gguf")
    types = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert (types["blk.1.ffn_gate.weight"], types["blk.1.ffn_up.weight"]) == ("Q4_0", "Q8_0")
    before, now = GGUFReader(first).fields, reader.fields
    kept = [key for key in before if not key.startswith(("GGUF.", "general.file_type"))]
    assert {key: now[key].contents() for key in kept} == {key: before[key].contents() for key in kept}
    assert now["general.file_type"].contents() == 2


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def cutting(*steps, **merging):
    return {"model": {"type": "BPE", **merging}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def test_tokenizers_that_llama_cpp_has_rules_for_are_named():
    last = {**BYTES, "use_regex": False}
    qwen, llama = gguf_metadata.SPLITS
    assert gguf_metadata.splitting("m", cutting(BYTES)) == "gpt-2"
    assert gguf_metadata.splitting("m", cutting(DIGITS, BYTES)) == "smollm"
    assert gguf_metadata.splitting("m", cutting(split(qwen), last)) == "qwen2"
    assert gguf_metadata.splitting("m", cutting(split(llama), last, ignore_merges=True)) == "llama-bpe"


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"model": {"type": "WordPiece"}, "pre_tokenizer": BYTES},
        cutting(split(r"\w+"), {**BYTES, "use_regex": False}),
        cutting(split(list(gguf_metadata.SPLITS)[1]), {**BYTES, "use_regex": False}),  # merges inside whole words
        cutting({**BYTES, "add_prefix_space": True}),
        cutting({"type": "Digits", "individual_digits": False}, BYTES),
        {**cutting(BYTES), "normalizer": {"type": "Lowercase"}},
    ],
)
def test_other_tokenizers_are_refused(parts):
    with pytest.raises(Unsupported, match="tokenizer"):
        gguf_metadata.splitting("m", parts)


def test_architectures_without_a_gguf_writer_are_refused(tiny, tmp_path):
    shape = {"hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 64}
    net = OPTForCausalLM(OPTConfig(**shape, word_embed_proj_dim=32, max_position_embeddings=32)).eval()
    model = RTN(bits=4, group=32, sym=True)(Model(net, tiny.tokenizer, Lineage("small-opt")))
    with pytest.raises(Unsupported, match="no GGUF writer for the architecture 'opt'"):
        export(model, tmp_path / "out", "gguf")


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "format", "why", "fix"),
    [
        (RTN(bits=4, group=128), "gguf", "groups of 128, asymmetric with an integer zero", "--bits 4 --group 32 --sym"),
        (GPTQ(bits=3, group=32, sym=True), "gguf", "no type of block holds 3 bits", "--zero float"),
        (GPTQ(bits=8, group=-1, sym=True), "gguf", "whole rows", "--bits 8 --group 32 --sym"),
        (RTN(bits=4, group=32, zero="float"), "compressed-tensors", "zero points are integers", "--zero integer"),
        (RTN(bits=4, group=32, zero="float"), "gptq", "zero points are integers", "--zero integer"),
        (RTN(bits=4, group=48), "gptq", "loaders know groups of", "--group 128"),
        (SmoothQuant(), "gptq", "activations on 8-bit grids", "compressed-tensors"),
        (SmoothQuant(), "gguf", "activations on 8-bit grids", "compressed-tensors"),
        *((QuaRot(kv_bits=kv), format, "rotates activations", "divergence") for kv in (4, 16) for format in FORMATS),
        (SmoothQuant(), "hf", "activations on 8-bit grids", "compressed-tensors"),
    ],
)
def test_settings_that_a_format_cannot_hold_are_refused_before_anything_runs(method, format, why, fix):
    with pytest.raises(Unsupported, match=why) as caught:
        check_export(method, format)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("method", "format"),
    [
        (RTN(bits=2, group=-1), "compressed-tensors"),
        (SmoothQuant(), "compressed-tensors"),
        (RTN(bits=4, group=128), "gptq"),
        (RTN(bits=4, group=32, sym=True), "gguf"),
        (RTN(bits=4, group=32, zero="float"), "gguf"),
    ],
)
def test_settings_that_a_format_can_hold_pass(method, format):
    check_export(method, format)


@pytest.mark.parametrize("format", list(FORMATS))
@pytest.mark.parametrize("bits", [4, 16])
def test_a_rotated_model_is_refused_everywhere(tiny, tmp_path, format, bits):
    model = QuaRot(bits=4, a_bits=bits, kv_bits=bits, weights="rtn")(tiny)
    with pytest.raises(Unsupported, match="rotated by a Hadamard matrix"):
        export(model, tmp_path / "out", format)
    assert not list(tmp_path.iterdir())


def test_what_was_never_rounded_or_changed_since_is_refused(tiny, tmp_path):
    with pytest.raises(Unsupported, match="none of its linear layers lies on a grid"):
        export(tiny, tmp_path / "out", "gptq")
    with pytest.raises(UnknownName, match="gguf"):
        export(tiny, tmp_path / "out", "ggufs")
    model = RTN(bits=4, group=32)(tiny)
    linear = next(model.sites()).linear
    linear.weight = nn.Parameter(linear.weight * 2, requires_grad=False)
    with pytest.raises(Mismatch, match=r"q_proj was changed after it was rounded"):
        export(model, tmp_path / "out", "compressed-tensors")


# -- the folder ---------------------------------------------------------------------------------------------------


def test_an_export_that_fails_leaves_the_earlier_one(tiny, tmp_path, monkeypatch):
    folder = export(RTN(bits=4, group=32)(tiny), tmp_path / "out", "hf")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(type(tiny.tokenizer), "save_pretrained", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(RTN(bits=3, group=32)(tiny), folder, "gptq")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_export_replaces_an_export_and_nothing_else(tiny, tmp_path):
    model = RTN(bits=4, group=32)(tiny)
    folder = export(model, tmp_path / "out", "hf")
    export(model, folder, "gptq")
    assert read_record(folder).facts["format"] == "gptq"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(BadInput, match="no exported model"):
        export(model, tmp_path / "mine", "hf")
    with pytest.raises(BadInput, match="is a file"):
        export(model, tmp_path / "mine" / "thesis.tex", "hf")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("format", list(FORMATS))
def test_a_full_disk_is_found_first(tiny, tmp_path, monkeypatch, format):
    usage = namedtuple("usage", "total used free")(10, 10, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DoesNotFit, match="GB of disk"):
        export(RTN(bits=4, group=32, sym=True)(tiny), tmp_path / "out", format)
    assert not list(tmp_path.iterdir())


# -- the record and the comparison --------------------------------------------------------------------------------


def comparison(**changes):
    same = {"logits": 0.0, "kl": 0.0, "nll": 3.0, "base_nll": 3.0, "weights": (), "tokens": True}
    return Comparison(loader="transformers", format="hf", limits=LIMITS["transformers"], **{**same, **changes})


def test_what_a_comparison_finds_wrong():
    assert comparison().faults() == []
    assert comparison(weights=None).faults() == []
    assert "largest logit difference: 0.001" in comparison(logits=1e-3).faults()[0]
    assert "other tokens" in comparison(tokens=False).faults()[0]
    assert comparison(weights=("a", "b", "c", "d")).faults()[-1] == "weights: a, b, c and 1 more"
    broken = comparison(logits=float("nan"), kl=float("nan"), nll=float("nan"))
    assert len(broken.faults()) == 3


def test_the_record_holds_what_the_model_computes(tiny, tmp_path):
    model = RTN(bits=3, group=32)(tiny)
    record = read_record(export(model, tmp_path / "out", "hf"))
    with torch.no_grad():
        logits = model.net(record.tokens[None]).logits[0]
    assert torch.equal(record.logits, logits[-record.facts["last"] :])
    nll = nn.functional.cross_entropy(logits[:-1], record.tokens[1:])
    assert -record.logprobs.mean() == pytest.approx(float(nll), abs=1e-5)
    assert tiny.tokenizer.decode(record.ids) == record.facts["text"]
    assert (tmp_path / "out" / RECORD).stat().st_size < 5e6


def test_folders_without_a_record_and_wrong_loaders_are_refused(tiny, tmp_path, monkeypatch):
    with pytest.raises(BadInput, match=f"has no {RECORD}"):
        compare(tmp_path)
    folder = export(RTN(bits=4, group=32, sym=True)(tiny), tmp_path / "artifact", "gguf")
    with pytest.raises(Unsupported, match="it does not read gguf"):
        compare(tmp_path, "gptqmodel")  # the run folder around it
    monkeypatch.delenv("BURNISH_NODE_MODULES", raising=False)
    with pytest.raises(Unsupported, match="node-llama-cpp was not found") as caught:
        compare(folder, "llama.cpp")
    assert "npm install --ignore-scripts node-llama-cpp" in caught.value.fix
    with pytest.raises(BadInput, match="cannot be run"):
        compare(folder, "transformers", python=str(tmp_path / "no-such-python"))
    (folder / RECORD).write_bytes(b"torn")
    with pytest.raises(BadInput, match="is damaged"):
        compare(folder)


def test_a_gguf_writer_that_is_wrong_is_found(tiny, tmp_path, monkeypatch):
    halves = gguf.blocks
    monkeypatch.setattr(gguf, "blocks", lambda layer, kind, rows=None: np.roll(halves(layer, kind, rows), 1, axis=0))
    with pytest.raises(Mismatch, match=r"q_proj\.weight do not decode"):
        export(RTN(bits=4, group=32, sym=True)(tiny), tmp_path / "out", "gguf")
