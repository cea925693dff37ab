"""What the monitor says of networks that were really trained: with and without normalisation, and of a transformer."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from assay.training.rotational import RotationMonitor
from assay.training.rotational import _experiments as ex
from assay.training.rotational._nets import CharGPT

# Minutes of training have no place among the default tests.
pytestmark = pytest.mark.slow


def _licence_text() -> str:
    """The licence files of numpy: 98,000 characters of English in the 2.x wheels."""
    files = [f for f in importlib.metadata.files("numpy") or [] if "LICENSE" in f.name and f.suffix in ("", ".txt")]
    text = "".join(f.read_text(encoding="utf-8") for f in files)
    if len(text) < 20_000:
        pytest.skip("this build of numpy ships without the text of its licences")
    return text


def test_a_character_transformer_is_predicted_roughly_and_flagged():
    text = _licence_text()
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(c) for c in text])
    torch.manual_seed(0)
    net = CharGPT(len(characters), width=32, depth=2, heads=2, context=32)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=0.4)
    monitor, losses, steps = RotationMonitor(net, optimizer, interval=2, window=None), [], 400
    with monitor:
        for step in range(steps):
            # 250 steps are one and a half half-lives of the norm
            if step == 250:
                monitor.reset()
            starts = torch.randint(0, len(ids) - 33, (32,))
            block = torch.stack([ids[s : s + 33] for s in starts])
            optimizer.zero_grad()
            loss = F.cross_entropy(net(block[:, :-1]).flatten(0, 1), block[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-20:]) < 0.7 * np.mean(losses[:5])
    report = monitor.report().set_index("layer")
    # Pre-norm: what enters a linear layer is normalised, what leaves it is not. The tied head counts once.
    assert len(report) == 10
    assert not report["scale_invariant"].any()
    # The mean shares alone (.03 and less) would have passed for orthogonal gradients.
    assert (report["radial_rms"] > 0.1).all()
    inner = report[report.index.str.startswith("blocks")]
    assert inner["radial"].abs().max() < 0.05
    # So the prediction is a rough guide here: right on the whole, off by up to a half in one layer.
    assert inner["ratio"].median() == pytest.approx(1.0, abs=0.2)
    assert inner["ratio"].between(0.6, 1.7).all()


@pytest.mark.parametrize(("norm", "lr"), [("bn", 0.1), ("ln", 0.1), ("none", 0.02)])
def test_convolutions_by_their_normalisation(norm, lr):
    data, size, steps = ex.digits(), {"width": 8}, 400
    net = ex.make_network(data, size, 0, norm=norm)
    optimizer = ex.make_optimizer("sgdm", net, lr=lr, weight_decay=5e-3)
    monitor = RotationMonitor(net, optimizer, interval=2, window=None)
    ex.train(net, optimizer, data, steps, 0, batch=32, noise=1.0, monitor=monitor, reset_at=200)
    report = monitor.report().set_index("layer")
    convs = report[report.index.str.startswith("conv")]
    expected = {"bn": "neuron", "ln": "layer", "none": "none"}[norm]
    assert convs["invariance"].tolist() == [expected] * 3
    assert report.loc["head.weight", "invariance"] == "none"
    if norm == "bn":
        # What is scale-invariant rotates as predicted; nine inputs of the first layer are too few for a random walk.
        np.testing.assert_allclose(convs["ratio"].iloc[1:], 1.0, atol=0.15)
    else:
        # The gradients of single neurons are not orthogonal, and the spread of their speeds shows it.
        assert convs["spread"].mean() > 0.1
