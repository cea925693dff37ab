"""Each module check passes on torch's own layers and fails on a twin with exactly its fault."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.testing import Case, check_module, checks_for
from assay.testing._module import CHECKS


class Net(nn.Module):
    """A small network, correct; the twins below break one thing each.

    Shapes
    ------
    x : ``b x 5`` to ``b x 3``.
    """

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.drop(self.norm(torch.tanh(self.first(x)))))

    def save_pretrained(self, folder):
        from safetensors.torch import save_file

        save_file(self.state_dict(), Path(folder) / "model.safetensors")
        (Path(folder) / "config.json").write_text(json.dumps({}))

    @classmethod
    def from_pretrained(cls, folder):
        from safetensors.torch import load_file

        net = cls()
        net.load_state_dict(load_file(Path(folder) / "model.safetensors"))
        return net


class OtherShape(Net):
    def forward(self, x):
        return super().forward(x)[:, :2]


class Undocumented(Net):
    """A network without a word about its dimensions."""

    def forward(self, x):
        return super().forward(x)


class WeightsOutside(Net):
    def __init__(self):
        super().__init__()
        self.extra = [torch.randn(3)]

    def forward(self, x):
        return super().forward(x) + self.extra[0]


class HalfTrain(Net):
    def eval(self):
        self.training = False
        return self


class UpdatesInEval(Net):
    def forward(self, x):
        self.norm.running_mean.add_(0.1)
        return super().forward(x)


class RandomInEval(Net):
    def forward(self, x):
        return super().forward(x) + 1e-3 * torch.randn(3)


class UnusedLayer(Net):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)


class Detaches(Net):
    def forward(self, x):
        return self.last(self.norm(torch.tanh(self.first(x)).detach()))


class SinglePrecision(Net):
    def forward(self, x):
        return super().forward(x).float()


class HardWiredDtype(Net):
    def forward(self, x):
        with torch.no_grad():
            scale = 1.0 if x.dtype == torch.float32 else 1.01
        return super().forward(x) * scale


class MixesBatch(Net):
    def forward(self, x):
        return super().forward(x - x.mean(dim=0))


class InPlace(Net):
    def forward(self, x):
        return super().forward(x.clamp_(min=0))


class SharesStorage(Net):
    def __deepcopy__(self, memo):
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other


class SavesTorch(Net):
    def save_pretrained(self, folder):
        torch.save(self.state_dict(), Path(folder) / "model.pt")
        (Path(folder) / "config.json").write_text("{}")


class ForgetsBuffer(Net):
    @classmethod
    def from_pretrained(cls, folder):
        net = super().from_pretrained(folder)
        net.last.bias.data.zero_()
        return net


def case(make, **kwargs):
    kwargs = {"output_shape": (6, 3), **kwargs}
    return Case(
        make.__name__, "torch module", make=make, data=lambda: (torch.linspace(-1, 1, 30).reshape(6, 5),), **kwargs
    )


def linear():
    return nn.Linear(5, 3)


def attention():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


GOOD = [
    case(Net),
    case(linear),
    Case("attention", "torch module", attention, data=lambda: (torch.linspace(-1, 1, 96).sin().reshape(3, 4, 8),)),
]
TWINS = [
    ("check_shapes", OtherShape),
    ("check_shapes", Undocumented),
    ("check_state_dict_round_trip", WeightsOutside),
    ("check_train_eval", HalfTrain),
    ("check_train_eval", UpdatesInEval),
    ("check_train_eval", RandomInEval),
    ("check_gradients_reach_parameters", UnusedLayer),
    ("check_gradients_reach_parameters", Detaches),
    ("check_float64", SinglePrecision),
    ("check_float64", HardWiredDtype),
    ("check_batch_consistency", MixesBatch),
    ("check_input_not_mutated", InPlace),
    ("check_deepcopy", SharesStorage),
    ("check_save_pretrained", SavesTorch),
    ("check_save_pretrained", ForgetsBuffer),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda c: c.name)
def test_good_modules_pass(good):
    assert {r.status for r in check_module(good)} <= {"passed", "skipped"}


@pytest.mark.parametrize(("name", "twin"), TWINS, ids=[f"{n}-{t.__name__}" for n, t in TWINS])
def test_check_catches_its_fault(name, twin):
    with pytest.raises(AssertionError):
        dict(checks_for(case(twin)))[name]()


def test_every_check_has_a_twin():
    assert {name for name, _ in TWINS} == {check.__name__ for check in CHECKS}
