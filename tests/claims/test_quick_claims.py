"""The quick tier of every method's claims: run by `make claims` (pytest -m claim), not by the default tests."""

import warnings

import pytest

from assay._core.registry import cards
from assay.claims import load, load_run, run
from assay.claims._models import Claim

BUDGET_S = 60.0  # CPU seconds of one method's quick claims: 38 methods must fit in 20 minutes on two cores
SLACK = 2.0  # machines differ by as much

METHODS = [slug for slug, card in cards().items() if (card.folder / "claims.py").is_file()]


def wrong(claim: Claim, verdict: str) -> bool:
    """Whether a quick verdict contradicts what the declaration expects."""
    return verdict == "direction does not hold" and claim.expect == "supported"


@pytest.mark.claim
@pytest.mark.timeout(900)
@pytest.mark.parametrize("slug", METHODS)
def test_quick_claims_of(slug, tmp_path):
    # One worker per CPU that pytest-xdist leaves us: methods are what runs in parallel here.
    done = run(f"{slug}/*", tier="quick", jobs=1, out=tmp_path / "run")
    cpu = sum(record.get("cpu_seconds", 0.0) for record in done.records.values())
    print(done.to_frame()[["claim", "comparator", "verdict", "effect", "low", "high", "n_pairs"]].to_string())
    print(f"{cpu:.0f} s CPU in {len(done.records)} cells")
    problems = [f"{v.claim}: {v.verdict} ({v.reason})" for v in done.verdicts if v.verdict == "error"]
    problems += [
        f"{c.id}: {v.verdict}; the declaration expects {c.expect!r}"
        for c, v in zip(done.claims, done.verdicts, strict=True)
        if wrong(c, v.verdict)
    ]
    assert not problems, "\n".join(problems)
    assert cpu <= SLACK * BUDGET_S, (
        f"the quick claims of {slug} took {cpu:.0f} s of CPU; the budget is {BUDGET_S:.0f} s"
    )
    if cpu > BUDGET_S:
        # Not a failure: this machine may be the slow one.
        warnings.warn(f"{slug}: {cpu:.0f} s of CPU, above {BUDGET_S:.0f} s", stacklevel=1)
    if all(v.verdict == "skipped" for v in done.verdicts):
        pytest.skip("; ".join(f"{v.claim}: {v.reason}" for v in done.verdicts))


@pytest.mark.claim
@pytest.mark.timeout(600)
@pytest.mark.parametrize("slug", METHODS)
def test_one_cell_twice_gives_the_same_bits(slug, tmp_path):
    plain = [c for method in load(f"{slug}/*") for c in method.claims if not c.exclusive and "quick" in c.tiers]
    if not plain:
        pytest.skip("every claim of this method measures time or memory")
    both = [run(plain[0].id, tier="quick", seeds=1, jobs=1, out=tmp_path / name) for name in ("one", "two")]
    metrics = [{key: record["metrics"] for key, record in done.records.items()} for done in both]
    if any(record["status"] == "skipped" for record in both[0].records.values()):
        pytest.skip("; ".join(sorted({r["reason"] for r in both[0].records.values() if r["reason"]})))
    # Metrics named after time are not claimed to repeat.
    timed = ("second", "time", "speed", "memory", "_mb")
    for key, first in metrics[0].items():
        for name, value in first.items():
            if not any(word in name.lower() for word in timed):
                assert repr(metrics[1][key][name]) == repr(value), f"{plain[0].id}: {name} differs between two runs"


def test_the_gate_fails_on_the_wrong_direction_and_on_errors(toy_method, tmp_path):
    toy_method(
        "toy_gate",
        """
        CLAIMS = [
            claim("lost", test=Superior()),
            claim("known", test=Superior(), expect="not supported", expect_reason="we found so"),
        ]

        def experiment(arm, seed, data, size, device):
            return {"score": seed % 3 - (1.0 if arm == "ours" else 0.0)}
        """,
    )
    done = run("toy-gate", tier="quick", jobs=1, out=tmp_path / "run")
    found = {c.id: wrong(c, v.verdict) for c, v in zip(done.claims, done.verdicts, strict=True)}
    assert found == {"toy-gate/lost": True, "toy-gate/known": False}
    assert {v.verdict for v in load_run(tmp_path / "run").verdicts} == {"direction does not hold"}
