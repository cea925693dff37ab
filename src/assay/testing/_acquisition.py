"""The contract of kind "acquisition": what BoTorch promises to `optimize_acqf` and to those who write new acquisitions."""
# ruff: noqa: PT018 - one assert, one message

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ._cases import Case, Check, CheckResult, not_applicable, run_checks

# The same point in batches of other sizes takes other BLAS kernels: a few thousand float64 ulps after a Cholesky factor.
_ROUNDING: Any = {"rtol": 1e-7, "atol": 1e-9}


def _space(case: Case) -> tuple[Tensor, int]:
    """Bounds (2 x d) and q of a case."""
    given = case.inputs()
    bounds = torch.as_tensor(given[0], dtype=torch.float64)
    assert bounds.ndim == 2 and bounds.shape[0] == 2, f"data() must give (bounds of shape 2 x d, q), got {bounds.shape}"
    return bounds, int(given[1]) if len(given) > 1 else 1


def _draw(case: Case, *batch: int, seed: int = 0) -> Tensor:
    """Designs ``batch x q x d``, inside the bounds."""
    bounds, q = _space(case)
    g = torch.Generator().manual_seed(seed)
    u = torch.rand(*batch, q, bounds.shape[1], generator=g, dtype=torch.float64)
    return bounds[0] + (0.02 + 0.96 * u) * (bounds[1] - bounds[0])


def check_is_acquisition(case: Case) -> None:
    """It is a BoTorch AcquisitionFunction with a model, and a call gives a tensor."""
    from botorch.acquisition import AcquisitionFunction

    acqf = case.make()
    assert isinstance(acqf, AcquisitionFunction), f"{type(acqf).__name__} is no AcquisitionFunction"
    assert getattr(acqf, "model", None) is not None, "it has no model"
    value = acqf(_draw(case, 3))
    assert isinstance(value, Tensor), f"a call gives {type(value).__name__}"


def check_shapes(case: Case) -> None:
    """``batch x q x d`` gives ``batch``, also for one row and for a batch of two dimensions; ``q x d`` gives one value."""
    acqf = case.make()
    for batch in ((1,), (5,), (2, 3)):
        value = acqf(_draw(case, *batch))
        assert value.shape == torch.Size(batch), f"a batch of shape {batch} gives {tuple(value.shape)}"
    assert acqf(_draw(case)).numel() == 1, "q x d must give one value"


def check_dtype(case: Case) -> None:
    """Designs in float64 give float64."""
    value = case.make()(_draw(case, 3))
    assert value.dtype == torch.float64, f"float64 designs give {value.dtype}"


def check_finite(case: Case) -> None:
    """Values and gradients are finite inside the bounds and at their corners."""
    bounds, q = _space(case)
    corners = bounds.unsqueeze(1).repeat(1, q, 1)
    # q equal points are a singular joint: the first stands in the corner, the others on the way to the centre
    corners = corners + torch.linspace(0, 0.6, q)[None, :, None].to(corners) * (bounds.mean(0) - corners)
    X = torch.cat([_draw(case, 20), corners]).requires_grad_(True)
    value = case.make()(X)
    assert torch.isfinite(value).all(), f"values: {value.detach().tolist()}"
    (gradient,) = torch.autograd.grad(value.sum(), X)
    assert torch.isfinite(gradient).all(), "a gradient is not finite"


def check_gradient(case: Case) -> None:
    """The gradient is that of central differences to 1e-4 of its size."""
    acqf = case.make()
    bounds, q = _space(case)
    X = _draw(case, 4, seed=1).requires_grad_(True)
    value = acqf(X)
    assert value.requires_grad, "the value does not depend on the designs"
    (gradient,) = torch.autograd.grad(value.sum(), X)
    X = X.detach()
    numeric = torch.zeros_like(X)
    for i in range(q):
        for j in range(bounds.shape[1]):
            # 1e-5 of the range: the error of a central difference is then far below the tolerance on both sides
            h = 1e-5 * float(bounds[1, j] - bounds[0, j])
            step = torch.zeros_like(X)
            step[..., i, j] = h
            with torch.no_grad():
                numeric[..., i, j] = (acqf(X + step) - acqf(X - step)) / (2 * h)
    size = numeric.abs().amax().clamp_min(1e-8)
    worst = float((gradient - numeric).abs().amax() / size)
    assert worst < 1e-4, f"autograd and central differences differ by {worst:.2g} of the largest entry"


def check_rows_independent(case: Case) -> None:
    """A design's value does not depend on its neighbours in the batch, nor on its place."""
    acqf = case.make()
    X = _draw(case, 7, seed=2)
    with torch.no_grad():
        together = acqf(X)
        alone = torch.cat([acqf(x.unsqueeze(0)) for x in X])
        order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
        turned = acqf(X[order])
    assert torch.allclose(together, alone, **_ROUNDING), "a design has another value alone than in a batch"
    assert torch.allclose(together[order], turned, **_ROUNDING), "a design's value depends on its place in the batch"


def check_gradient_rows_independent(case: Case) -> None:
    """A design's value has no gradient with respect to another design of the batch."""
    X = _draw(case, 3, seed=3).requires_grad_(True)
    (gradient,) = torch.autograd.grad(case.make()(X)[0], X)
    assert not gradient[1:].any(), "the value of the first design depends on the others"


def check_points_exchangeable(case: Case) -> None:
    """The order of the q points of a design does not matter."""
    _, q = _space(case)
    if q < 2:
        raise not_applicable("it values one point at a time")
    X = _draw(case, 4, seed=4)
    acqf = case.make()
    with torch.no_grad():
        a, b = acqf(X), acqf(X.flip(-2))
    # Quasi-random base samples belong to places, so that exchanged points see others: equal up to sampling error.
    spread = a.abs().amax().clamp_min(1e-3)
    assert torch.allclose(a, b, rtol=0.1, atol=0.1 * float(spread)), f"exchanged points: {a.tolist()} and {b.tolist()}"


def check_deterministic(case: Case) -> None:
    """Two calls, and two fresh ones, give the same bits whatever the global generator holds."""
    X = _draw(case, 5, seed=5)
    values = []
    acqf = case.make()
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            values += [acqf(X), case.make()(X)]
    assert torch.equal(values[0], values[2]), "two calls differ: base samples must be fixed"
    assert torch.allclose(values[1], values[3], **_ROUNDING), (
        "two acquisitions made alike differ: make() must be seeded"
    )


def check_input_untouched(case: Case) -> None:
    """Designs are not written to."""
    X = _draw(case, 4, seed=6)
    before = X.clone()
    case.make()(X)
    assert torch.equal(X, before), "the designs were changed"


def _state(model: Any, X: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model may speak about its data; that is not what is looked at
        return {k: v.clone() for k, v in model.state_dict().items()}, model.posterior(X).mean.clone()


def check_model_untouched(case: Case) -> None:
    """Calls and gradients leave the model's parameters and predictions as they were."""
    acqf = case.make()
    bounds, _ = _space(case)
    model = acqf.model
    width = getattr(getattr(model, "network", None), "d", bounds.shape[1])
    points = torch.rand(6, 1, width, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    before, mean = _state(model, points)
    X = _draw(case, 4, seed=8).requires_grad_(True)
    acqf(X).sum().backward()
    after, mean_after = _state(model, points)
    assert before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before), (
        "a parameter or buffer of the model changed"
    )
    assert torch.allclose(mean, mean_after, **_ROUNDING), "the model predicts something else after a call"


def check_no_grad_equal(case: Case) -> None:
    """Without gradients the values are the same."""
    acqf = case.make()
    X = _draw(case, 4, seed=9)
    with torch.no_grad():
        plain = acqf(X)
    assert not plain.requires_grad, "under no_grad the value must not require a gradient"
    graph = acqf(X.clone().requires_grad_(True)).detach()
    assert torch.allclose(plain, graph, **_ROUNDING), "values with and without gradients differ"


def check_wrong_width_refused(case: Case) -> None:
    """Designs with a column too many are refused."""
    acqf = case.make()
    X = _draw(case, 2)
    wide = torch.cat([X, X[..., :1]], dim=-1)
    try:
        acqf(wide)
    except Exception:  # which one is the library's choice
        return
    raise AssertionError(f"{wide.shape[-1]} columns were accepted where there are {X.shape[-1]}")


def check_optimize_acqf(case: Case) -> None:
    """`botorch.optim.optimize_acqf` finds a point inside the bounds that beats 64 random ones."""
    from botorch.optim import optimize_acqf

    acqf = case.make()
    bounds, q = _space(case)
    value: Any
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch's advice on starts and line searches is not under test
        torch.manual_seed(0)
        found, value = optimize_acqf(
            acqf, bounds=bounds, q=q, num_restarts=2, raw_samples=64, options={"maxiter": 20, "seed": 0}
        )
    assert found.shape == (q, bounds.shape[1]), f"the candidate has shape {tuple(found.shape)}"
    assert (found >= bounds[0] - 1e-9).all() and (found <= bounds[1] + 1e-9).all(), (
        "the candidate lies outside the bounds"
    )
    with torch.no_grad():
        best = float(acqf(_draw(case, 64, seed=10)).max())
    slack = 1e-6 + 0.01 * abs(best)
    assert float(value) >= best - slack, f"optimize_acqf found {float(value):.4g}, a random point has {best:.4g}"


CHECKS: tuple[Check, ...] = (
    check_is_acquisition,
    check_shapes,
    check_dtype,
    check_finite,
    check_gradient,
    check_rows_independent,
    check_gradient_rows_independent,
    check_points_exchangeable,
    check_deterministic,
    check_input_untouched,
    check_model_untouched,
    check_no_grad_equal,
    check_wrong_width_refused,
    check_optimize_acqf,
)


def checks(case: Case) -> list[tuple[str, Check]]:
    """The checks of this kind."""
    return [(check.__name__, check) for check in CHECKS]


def check_acquisition(case: Case) -> list[CheckResult]:
    """Check the contract of a BoTorch acquisition function.

    Parameters
    ----------
    case : Case
        ``make()`` gives a fresh acquisition function, the same each time; ``data()`` gives ``(bounds, q)``: a tensor
        ``2 x d`` and the number of points per design.

    Returns
    -------
    list of CheckResult
        One per check, in order.

    Raises
    ------
    AssertionError
        Names every check that failed.

    Examples
    --------
    >>> import torch
    >>> from assay.testing import Case, checks_for
    >>> case = Case("EI", "acquisition", make=lambda: None, data=lambda: (torch.tensor([[0.0], [1.0]]), 1))
    >>> [name for name, check in checks_for(case)][:2]
    ['check_is_acquisition', 'check_shapes']
    """
    return run_checks(case, checks(case))
