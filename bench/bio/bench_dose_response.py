"""Batched Hill fits against a scipy loop, synergy and py50; the ratio per curve is the figure.

Run: ``pytest bench/bio/bench_dose_response.py --benchmark-enable --benchmark-group-by=group``. The loops fit a sample of
curves, ours the whole screen; ``extra_info["ms_per_curve"]`` compares them.
"""

import numpy as np
import pytest

from assay._core.errors import MissingData
from assay.bio.dose_response import datasets, fit_hill

LOOP_CURVES = 20  # a round of the scipy loop then takes 40 to 120 ms


@pytest.fixture(scope="module")
def screen():
    try:
        return datasets.load_ccle(expression=True)  # 6,113 x 8
    except MissingData:
        return datasets.load_sarcoma()  # 2,448 x 11


def scipy_curve(x, y, n_params):
    """One bounded fit from one start, as most pipelines do; the cheapest comparator."""
    from scipy.optimize import least_squares

    lower = np.array([-2.5, -1.0, 0.1, x[0] - 2])[4 - n_params :]
    upper = np.array([1.0, 2.5, 20.0, x[-1] + 2])[4 - n_params :]
    start = np.array([0.0, 0.8, 1.0, x[0] + 0.3 * (x[-1] - x[0])])[4 - n_params :]

    def residual(p):
        e0, einf, k, x50 = np.r_[[0.0, 1.0][: 4 - n_params], p] if n_params < 4 else p
        return e0 + (einf - e0) * 0.5 * (1 + np.tanh(0.5 * k * (x - x50))) - y

    def residual3(p):
        return p[0] * 0.5 * (1 + np.tanh(0.5 * p[1] * (x - p[2]))) - y

    return 2 * least_squares(residual3 if n_params == 3 else residual, start, bounds=(lower, upper)).cost


def gives_up(fit):
    """Whether a peer ends a curve with scipy's RuntimeError (no optimum within its calls); counted, not hidden."""
    try:
        fit()
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("n_params", [2, 3, 4])
@pytest.mark.benchmark(group="hill")
def test_batched(benchmark, screen, n_params):
    benchmark.pedantic(fit_hill, (screen.dose, screen.effect, n_params, screen.mask), rounds=3, warmup_rounds=1)
    if benchmark.stats:
        benchmark.extra_info["ms_per_curve"] = 1e3 * benchmark.stats.stats.median / screen.n_curves


@pytest.mark.parametrize("n_params", [2, 3, 4])
@pytest.mark.benchmark(group="hill")
def test_scipy_loop(benchmark, screen, n_params):
    rows = np.random.default_rng(0).choice(screen.n_curves, LOOP_CURVES, replace=False)
    x, y = screen.log_dose, screen.effect

    def loop():
        return [scipy_curve(x[j, screen.mask[j]], y[j, screen.mask[j]], n_params) for j in rows]

    sse = np.array(benchmark.pedantic(loop, rounds=3, warmup_rounds=1))
    ours = fit_hill(screen.dose[rows], screen.effect[rows], n_params, screen.mask[rows]).sse
    assert (ours <= 1.01 * sse + 1e-9).mean() >= 0.95
    if benchmark.stats:
        benchmark.extra_info["ms_per_curve"] = 1e3 * benchmark.stats.stats.median / len(rows)


@pytest.mark.parametrize("n_params", [2, 4])
@pytest.mark.benchmark(group="hill")
def test_synergy_loop(benchmark, screen, n_params):
    single = pytest.importorskip("synergy.single", reason="peer: pip install synergy")
    rows = np.random.default_rng(0).choice(screen.n_curves, LOOP_CURVES, replace=False)

    def loop():
        return [gives_up(lambda j=j: fit(j)) for j in rows]

    def fit(j):
        model = single.Hill() if n_params == 4 else single.Hill_2P(E0=0.0, Emax=1.0)
        model.fit(screen.dose[j, screen.mask[j]], screen.effect[j, screen.mask[j]])

    gave_up = benchmark.pedantic(loop, rounds=3, warmup_rounds=1)
    benchmark.extra_info["gave_up"] = f"{sum(gave_up)} of {len(rows)}"
    if benchmark.stats:
        benchmark.extra_info["ms_per_curve"] = 1e3 * benchmark.stats.stats.median / len(rows)


@pytest.mark.benchmark(group="hill")
def test_py50_loop(benchmark, screen):
    calculator = pytest.importorskip("py50", reason="peer: pip install py50").Calculator
    import pandas as pd

    rows = np.random.default_rng(0).choice(screen.n_curves, 4, replace=False)  # some seconds per curve
    tables = [
        pd.DataFrame(
            {
                "name": "a",
                "dose": 1e3 * screen.dose[j, screen.mask[j]],
                "effect": 100 * screen.effect[j, screen.mask[j]],
            }
        )
        for j in rows
    ]

    def fit(table):
        calculator(table).calculate_ic50(name_col="name", concentration_col="dose", response_col="effect")

    def loop():
        return [gives_up(lambda table=table: fit(table)) for table in tables]

    gave_up = benchmark.pedantic(loop, rounds=1, warmup_rounds=0)
    benchmark.extra_info["gave_up"] = f"{sum(gave_up)} of {len(rows)}"
    if benchmark.stats:
        benchmark.extra_info["ms_per_curve"] = 1e3 * benchmark.stats.stats.median / len(rows)
