"""What a compressor's settings say about its result, before anything is computed.

Settings have the same names in every compressor: `spec` is the grid of the weights, `a_bits` the bits of an activation,
`kv_bits` those of keys and values, a `rotation_seed` belongs to rotations that go on while the model runs, `matrices` to
learned transforms that do, and `patterns` to sparse factors that stand for a weight; `quantizer` names one that may;
`rotation` is one that is gone where activations are left whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish.core.errors import Unsupported
from burnish.core.method import Method
from burnish.nn.grid import GridSpec


@dataclass(frozen=True)
class Intent:
    """What a method will make.

    Attributes:
        name: The method's class.
        spec: Grid of its weights; None when the settings do not say it.
        a_bits: Bits of the inputs of linear layers; 16 when they stay floating-point.
        online: What else happens while the model runs; empty for a plain model.
    """

    name: str
    spec: GridSpec | None
    a_bits: int
    online: str

    @classmethod
    def of(cls, method: Method) -> Intent:
        """Read off a method's settings."""
        spec = getattr(method, "spec", None)
        changes = []
        if "rotation_seed" in type(method).model_fields:
            changes.append("it rotates activations while the model runs")
        if "matrices" in type(method).model_fields:
            changes.append("its learned transforms change activations while the model runs")
        a_bits = int(getattr(method, "a_bits", 16))
        if "rotation" in type(method).model_fields and a_bits < 16:
            changes.append("it rotates and rounds activations while the model runs")
        if "patterns" in type(method).model_fields:
            changes.append("it puts products of sparse factors in the place of weights")
        if "quantizer" in type(method).model_fields and a_bits < 16:
            changes.append("it rounds activations while the model runs, as its quantizer does")
        if getattr(method, "kv_bits", 16) < 16:
            changes.append("it puts keys and values on grids while the model runs")
        return cls(
            type(method).__name__,
            spec if isinstance(spec, GridSpec) else None,
            a_bits,
            " and ".join(changes),
        )

    def refuse(self, format: str, faults: list[str], fix: str) -> None:
        """Raise Unsupported with all faults, if there are any."""
        if faults:
            raise Unsupported(f"{format} for {self.name}", "; ".join(faults), fix)

    def refuse_online(self, format: str, activations: bool = False) -> None:
        """Refuse what happens while the model runs and this format cannot say.

        Args:
            format: Its name.
            activations: Whether the format has grids for the inputs of linear layers.
        """
        if self.online:
            raise Unsupported(f"{format} for {self.name}", f"{self.online}, and {NO_FORMAT}", MEASURE_HERE)
        if self.a_bits < 16 and not activations:
            raise Unsupported(
                f"{format} for {self.name}",
                f"it puts activations on {self.a_bits}-bit grids while the model runs, which {format} cannot say",
                "use --format compressed-tensors",
            )


NO_FORMAT = (
    "no file format can say so to the tools that read it (compressed-tensors has a transform_config, and transformers "
    "ignores it in silence: the model would load and be wrong)"
)
MEASURE_HERE = "measure the model in burnish instead: a recipe whose next step is divergence"
