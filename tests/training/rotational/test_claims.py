"""The claims' declarations and the experiments behind them, at sizes of a second."""

import numpy as np
import pytest
import torch

from assay.training.rotational import _experiments as ex
from assay.training.rotational import claims

TINY = {"steps": 6, "sgdm_steps": 6, "width": 4, "batch": 16, "noise": 1.0}


@pytest.fixture(scope="module")
def digits():
    return claims.load_digits()


def test_every_claim_reads_a_number_that_its_experiment_gives(digits):
    sizes = {
        "random_walk": {"dims": [32], "products": [1e-3], "half_lives": 0.1, "measure": 50, "neurons": 2},
        "half_life": {"product": 5e-3, "dim": 16, "neurons": 2},
        "warmup": {**TINY, "warmup": 2, "lr": 0.1, "weight_decay": 0.02},
        "lr_sweep": {**TINY, "steps": 20, "product": 1e-3, "lrs": [1e-3, 1e-2]},
        "standardisation": {**TINY, "lr": 0.1, "weight_decay": 5e-3},
    }
    cells = {}
    for claim in claims.CLAIMS:
        for arm in claim.arms:
            key = claim.experiment, arm
            if key not in cells:
                function = getattr(claims, claim.experiment)
                cells[key] = function(arm, 3, digits, sizes.get(claim.experiment, TINY), "cpu")
            value = cells[key][claim.metric]
            # The lag check needs long, wide walks; here its list is empty.
            if claim.id != "rotational/lag-angles":
                assert np.size(value) > 0
                assert np.isfinite(value).all(), claim.id


def test_cells_are_deterministic(digits):
    a, b = (claims.zero_shot("rvadamw", 4, digits, TINY, "cpu") for _ in range(2))
    assert a == b


def test_arms_of_a_pair_start_from_the_same_weights(digits):
    nets = [ex.make_network(digits.data, TINY, 5) for _ in range(2)]
    ex.make_optimizer("adamw", nets[0], 1e-3, 0.1)
    assert all(torch.equal(p, q) for p, q in zip(nets[0].parameters(), nets[1].parameters()))


def test_imbalance_scales_the_steps_it_says(digits, monkeypatch):
    found = {}
    real = ex.train

    def watch(net, optimizer, data, steps, seed, **options):
        weight = net.conv2.weight
        before, after = options["before_step"], options["after_step"]

        def both():
            plain = weight.detach().clone()
            after()
            old, new = found["old"].flatten(1), weight.detach().flatten(1)
            angle = lambda a, b: torch.acos(torch.nn.functional.cosine_similarity(a.double(), b.double()))
            found["factor"] = angle(old, new) / angle(old, plain.flatten(1))
            found["norms"] = new.norm(dim=1) / old.norm(dim=1)

        def first():
            found["old"] = weight.detach().clone()
            before()

        return real(net, optimizer, data, 3, seed, **{**options, "before_step": first, "after_step": both})

    monkeypatch.setattr(ex, "train", watch)
    ex.imbalance("quarter", 0, digits.data, TINY)
    factors = np.sort(found["factor"].numpy())
    half = len(factors) // 2
    # tan(angle), not the angle, is scaled: at these angles the difference is below a percent.
    np.testing.assert_allclose(factors[:half], 0.25, rtol=0.02)
    np.testing.assert_allclose(factors[half:], np.sqrt(2 - 1 / 16), rtol=0.02)
    np.testing.assert_allclose(found["norms"], 1.0, rtol=1e-5)


def test_cifar16_is_read_from_zip_files(tmp_path, monkeypatch):
    import io
    import zipfile

    from PIL import Image

    from assay import MissingData

    folder = tmp_path / "bidst"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, part, count in (("cifar10_train10k.zip", "train", 3), ("cifar10_test2k.zip", "test", 2)):
        with zipfile.ZipFile(folder / name, "w") as archive:
            for label in ("cat", "dog"):
                for i in range(count):
                    file = io.BytesIO()
                    Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(file, "JPEG")
                    archive.writestr(f"{part}/{label}/{i:04d}.jpg", file.getvalue())
    monkeypatch.setenv("ASSAY_DATA_DIR", str(tmp_path))
    source = claims.load_cifar16()
    assert source.data.x_train.shape == (6, 3, 16, 16)
    assert source.data.y_test.tolist() == [0, 0, 1, 1]
    assert source.data.x_train.mean().abs() < 1e-5
    monkeypatch.setenv("ASSAY_DATA_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "nocache"))
    with pytest.raises(MissingData):
        claims.load_cifar16()


@pytest.mark.claim
@pytest.mark.parametrize("experiment", ["random_walk", "half_life"])
def test_closed_forms_at_quick_size(experiment):
    for claim in claims.CLAIMS:
        if claim.experiment == experiment and claim.id != "rotational/lag-angles":
            cell = getattr(claims, experiment)(claim.ours, 1000, None, claim.tiers["quick"].size, "cpu")
            assert max(cell[claim.metric]) <= claim.test.le
