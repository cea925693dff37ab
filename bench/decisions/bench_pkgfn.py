"""The closed form against BoTorch's fantasy models, and a whole ask against BoTorch's and Ax's; ratios are the figure."""

from __future__ import annotations

import warnings

import pytest
import torch

from assay.decisions.pkgfn import PartialKnowledgeGradientFN, optimize_partial_acqf
from assay.decisions.pkgfn._experiments import _untransformed, chain_model, fantasy_values
from assay.decisions.pkgfn._model import gauss_hermite
from assay.decisions.pkgfn._search import discrete_set, recommend, sobol

N = 60


@pytest.fixture(scope="module")
def chain():
    torch.set_num_threads(1)
    net, model, A = chain_model(0, N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch's advice on scaling: the models are ours
        return net, model, A, [_untransformed(gp.to_botorch()) for gp in model.nodes]


def _step(value, Z):
    z = Z.clone().requires_grad_(True)
    value(z).sum().backward()


@pytest.mark.parametrize(
    "arm", ["closed form", "closed form, no table", "fantasy models, 16 marginal", "fantasy models, 64 joint"]
)
@pytest.mark.parametrize("b", [1, 16])
def test_value_and_gradient(benchmark, chain, b, arm):
    net, model, A, gps = chain
    benchmark.group = f"value and gradient, b = {b}"
    Z = 0.3 * sobol(b, *net.bounds, 1).unsqueeze(1)
    outer, inner = torch.stack(gauss_hermite(8)), torch.stack(gauss_hermite(16))
    many = torch.ones(2, 64, dtype=torch.float64)
    value = {
        "closed form": PartialKnowledgeGradientFN(model, 0, A),
        "closed form, no table": PartialKnowledgeGradientFN(model, 0, A, tabulate=False),
        "fantasy models, 16 marginal": lambda z: fantasy_values(model, gps, z, A, outer, inner, joint=False),
        "fantasy models, 64 joint": lambda z: fantasy_values(model, gps, z, A, outer, many, joint=True),
    }[arm]
    benchmark.pedantic(_step, args=(value, Z), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("arm", ["whole ask", "qKnowledgeGradient", "qLogEI", "ax"])
@pytest.mark.benchmark(group="one query, n = 60")
def test_one_query(benchmark, chain, arm):
    net, model, _, _ = chain
    X, y = model.data[0][0], model.data[1][1]

    def ours():
        x_star, _ = recommend(model, None, [X[int(y.argmax())]], 0)
        A = discrete_set(model, x_star, 0)
        for node in (0, 1):
            optimize_partial_acqf(PartialKnowledgeGradientFN(model, node, A), x_star)

    def botorch():
        from botorch.acquisition import qKnowledgeGradient
        from botorch.acquisition.logei import qLogExpectedImprovement
        from botorch.models import SingleTaskGP
        from botorch.optim import optimize_acqf

        gp = SingleTaskGP(X, y.unsqueeze(-1), torch.full_like(y, 1e-6).unsqueeze(-1))
        acqf = qKnowledgeGradient(gp, 64) if arm == "qKnowledgeGradient" else qLogExpectedImprovement(gp, y.max())
        optimize_acqf(acqf, bounds=net.bounds, q=1, num_restarts=8, raw_samples=192, options={"maxiter": 60})

    if arm == "ax":
        ax = pytest.importorskip("ax.api.client")
        from ax.api.configs import RangeParameterConfig

        client = ax.Client()
        names = [f"x{i}" for i in range(6)]
        client.configure_experiment(
            parameters=[RangeParameterConfig(name=n, bounds=(-2.0, 2.0), parameter_type="float") for n in names]
        )
        client.configure_optimization(objective="y")
        # Its model at once: by default the first suggestion is the centre of the box, and the next ones are random.
        client.configure_generation_strategy(initialization_budget=0, initialize_with_center=False)
        for row, value in zip(X, y):
            index = client.attach_trial(parameters=dict(zip(names, row.tolist())))
            client.complete_trial(trial_index=index, raw_data={"y": float(value)})

        def query():
            client.get_next_trials(max_trials=1)
            (trial,) = [t for t in client._experiment.trials.values() if t.status.is_running]
            assert trial.generator_runs[0]._generation_node_name == "MBM", "the suggestion came from no model"

        benchmark.pedantic(query, rounds=1)
    else:
        benchmark.pedantic(ours if arm == "whole ask" else botorch, rounds=3 if arm == "whole ask" else 1)
