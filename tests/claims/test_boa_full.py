"""The BoA claim at full scale, hours on two cores: ``pytest -m claims tests/claims/test_boa_full.py``.

It needs the claim's model and WikiText-2, works in ``runs/claim-boa-full`` and goes on there when it was stopped. The
verdict is not asserted, for it is what the claim finds out; that it was found in full, and again, is.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from burnish import claims
from burnish.claims import store
from burnish.claims.boa import CLAIM

pytestmark = [pytest.mark.claims, pytest.mark.timeout(0), pytest.mark.enable_socket]

FOLDER = Path(__file__).parents[2] / "runs" / "claim-boa-full"


def test_the_full_claim_is_answered_and_agrees_with_the_committed_evidence() -> None:
    evidence = claims.run("boa", out=FOLDER)
    assert [finding.criterion for finding in evidence.findings] == [c.name for c in CLAIM.criteria]
    assert all(math.isfinite(finding.low) and math.isfinite(finding.high) for finding in evidence.findings)
    kept = store.read("boa")
    if store.freshness(kept, CLAIM.digests()).state != "fresh":
        return
    assert kept is not None
    for found, known in zip(evidence.findings, kept.findings, strict=True):
        assert found.verdict == known.verdict, found.criterion
        assert found.estimate == pytest.approx(known.estimate, rel=0.05), found.criterion
