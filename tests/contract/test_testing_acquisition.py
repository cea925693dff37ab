"""Each acquisition check passes on BoTorch's own acquisitions and fails on a twin with exactly its fault."""

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import LogExpectedImprovement, PosteriorMean
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler

from assay.testing import Case, check_acquisition, checks_for
from assay.testing._acquisition import CHECKS

BOUNDS = torch.tensor([[-1.0, 0.0], [1.0, 2.0]], dtype=torch.float64)


def _model():
    g = torch.Generator().manual_seed(0)
    X = BOUNDS[0] + torch.rand(10, 2, generator=g, dtype=torch.float64) * (BOUNDS[1] - BOUNDS[0])
    Y = torch.sin(3 * X[:, :1]) + X[:, 1:] ** 2
    return SingleTaskGP(X, Y, torch.full_like(Y, 1e-4)).eval()


class Plain(AcquisitionFunction):
    """Upper confidence bound for one point, correct; the twins below break one thing each."""

    def __init__(self):
        super().__init__(model=_model())

    def forward(self, X):
        if X.shape[-1] != 2:
            raise ValueError(f"2 columns are needed, got {X.shape[-1]}")
        posterior = self.model.posterior(X)
        return (posterior.mean + posterior.variance.sqrt())[..., 0].mean(-1)


class NotAnAcquisition(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = _model()

    def forward(self, X):
        return self.model.posterior(X).mean[..., 0, 0]


class KeepsPointDimension(Plain):
    def forward(self, X):
        return super().forward(X).unsqueeze(-1)


class OnlyOneBatchDimension(Plain):
    def forward(self, X):
        return super().forward(X.reshape(-1, *X.shape[-2:]))


class SinglePrecision(Plain):
    def forward(self, X):
        return super().forward(X).float()


class InfiniteAtCorners(Plain):
    def forward(self, X):
        # zero at the lower bound: the logarithm and its gradient are infinite there
        return super().forward(X) + 1e-3 * (X - BOUNDS[0]).prod(-1).mean(-1).log()


class DetachedMean(Plain):
    def forward(self, X):
        posterior = self.model.posterior(X)
        return (posterior.mean.detach() + posterior.variance.sqrt())[..., 0].mean(-1)


class CentredInBatch(Plain):
    def forward(self, X):
        value = super().forward(X)
        return value - value.detach().mean()


class PlaceMatters(Plain):
    def forward(self, X):
        value = super().forward(X)
        return value * (1 + 1e-4 * torch.arange(value.numel(), dtype=value.dtype).reshape(value.shape))


class CentredWithGradient(Plain):
    def forward(self, X):
        value = super().forward(X)
        return value - value.mean()


class FirstPointOnly(Plain):
    def forward(self, X):
        return super().forward(X[..., :1, :]) + 0.0 * X.sum((-1, -2))


class FreshSamples(Plain):
    def forward(self, X):
        return super().forward(X) + 1e-3 * torch.randn(X.shape[:-2], dtype=X.dtype)


class UnseededMake(Plain):
    def __init__(self):
        super().__init__()
        self.offset = torch.randn((), dtype=torch.float64)

    def forward(self, X):
        return super().forward(X) + self.offset


class WritesDesigns(Plain):
    def forward(self, X):
        value = super().forward(X)
        X.data.clamp_(min=0.1)
        return value


class TrainsModel(Plain):
    def forward(self, X):
        value = super().forward(X)
        with torch.no_grad():
            self.model.mean_module.raw_constant.add_(0.01)
        return value


class OtherWithoutGradient(Plain):
    def forward(self, X):
        value = super().forward(X)
        return value if X.requires_grad else value.round(decimals=2)


class CutsColumns(Plain):
    def forward(self, X):
        return super().forward(X[..., :2])


class GradientReversed(Plain):
    """Its gradient points the wrong way: an optimiser walks down."""

    def forward(self, X):
        value = super().forward(X)
        return 2 * value.detach() - value


class LeavesBounds(Plain):
    """Higher the nearer a point is to nothing that can be reached: a value that falls when it is optimised."""

    calls = 0

    def forward(self, X):
        type(self).calls += 1
        return super().forward(X) - 10.0 * (X.shape[:-2].numel() <= 4)


def case(name, make, q=1):
    return Case(name, "acquisition", make=make, data=lambda: (BOUNDS, q))


def _q_log_ei():
    sampler = SobolQMCNormalSampler(torch.Size([128]), seed=0)
    return qLogExpectedImprovement(_model(), best_f=2.0, sampler=sampler)


GOOD = [
    case("Plain", Plain),
    case("PosteriorMean", lambda: PosteriorMean(_model())),
    case("LogExpectedImprovement", lambda: LogExpectedImprovement(_model(), best_f=2.0)),
    case("qLogExpectedImprovement", _q_log_ei, q=2),
]
TWINS = [
    ("check_is_acquisition", NotAnAcquisition, 1),
    ("check_shapes", KeepsPointDimension, 1),
    ("check_shapes", OnlyOneBatchDimension, 1),
    ("check_dtype", SinglePrecision, 1),
    ("check_finite", InfiniteAtCorners, 1),
    ("check_gradient", DetachedMean, 1),
    ("check_gradient", GradientReversed, 1),
    ("check_rows_independent", CentredInBatch, 1),
    ("check_rows_independent", PlaceMatters, 1),
    ("check_gradient_rows_independent", CentredWithGradient, 1),
    ("check_points_exchangeable", FirstPointOnly, 2),
    ("check_deterministic", FreshSamples, 1),
    ("check_deterministic", UnseededMake, 1),
    ("check_input_untouched", WritesDesigns, 1),
    ("check_model_untouched", TrainsModel, 1),
    ("check_no_grad_equal", OtherWithoutGradient, 1),
    ("check_wrong_width_refused", CutsColumns, 1),
    ("check_optimize_acqf", LeavesBounds, 1),
]


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")  # the model is small on purpose
@pytest.mark.parametrize("good", GOOD, ids=lambda c: c.name)
def test_good_acquisitions_pass(good):
    status = {r.status for r in check_acquisition(good)}
    assert status <= {"passed", "skipped"}


@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
@pytest.mark.parametrize(("name", "twin", "q"), TWINS, ids=[f"{n}-{t.__name__}" for n, t, _ in TWINS])
def test_check_catches_its_fault(name, twin, q):
    check = dict(checks_for(case(twin.__name__, twin, q)))[name]
    with pytest.raises(AssertionError):
        check()


def test_every_check_has_a_twin():
    assert {name for name, _, _ in TWINS} == {check.__name__ for check in CHECKS}
