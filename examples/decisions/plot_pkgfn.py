"""
Which step to run next
======================

A process has two steps: a cheap calculation and a dear experiment that depends on its result. Running both for every
candidate wastes the budget; the knowledge gradient on the network decides, query by query, which step is worth its cost.
"""

# %%
# A network of two steps
# ----------------------
#
# Node ``calculated`` reads three coordinates of a molecule, node ``experiment`` reads the calculation. They cost 1 and 49.

import os

import matplotlib.pyplot as plt
import numpy as np
import torch

from assay.decisions.pkgfn import (
    BudgetExhausted,
    FunctionNetworkModel,
    FunctionNetworkOptimizer,
    PartialKnowledgeGradientFN,
    optimize_partial_acqf,
    problems,
)

net = problems.FreeSolv3(costs=(1.0, 49.0))
generator = torch.Generator().manual_seed(0)
X = torch.rand(7, 3, generator=generator, dtype=torch.float64)
Y = net.evaluate(X)
initial = {0: (X, Y[:, 0]), 1: (Y[:4, :1], Y[:4, 1])}  # seven calculations, four experiments

# %%
# Ask and tell
# ------------
#
# ``ask`` proposes a node and its input; ``tell`` takes the answer, here from the simulated network.

budget = 55 if os.environ.get("ASSAY_SMOKE") else 150
histories = {}
for method in ("pkgfn", "eifn"):
    opt = FunctionNetworkOptimizer(net, method, budget=budget, seed=0, initial_data=initial)
    while True:
        try:
            query = opt.ask()
        except BudgetExhausted:
            break
        opt.tell(query.node, query.z, opt.simulate(query.node, query.z))
    histories[method] = opt.history
    x, mean, std = opt.recommend()
    print(
        f"{method}: predicted {mean:.1f} +- {std:.1f}, true {float(net.objective(net.evaluate(x[None]))[0]):.1f} kcal/mol"
    )

# %%
# Value against cost
# ------------------

fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for method, frame in histories.items():
    rows = frame[frame["x"].map(lambda x: x is not None)]
    values = [float(net.objective(net.evaluate(torch.tensor([x], dtype=torch.float64)))[0]) for x in rows["x"]]
    ax.step(rows["cumulative_cost"], values, where="post", label={"pkgfn": "p-KGFN", "eifn": "EIFN"}[method])
ax.axhline(net.optimal_value, color="black", linestyle=":", label="optimum")
ax.set(xlabel="cumulative cost", ylabel="true value at the recommendation (kcal/mol)")
ax.legend()
plt.show()

# %%
# The acquisition itself
# ----------------------
#
# It follows BoTorch's conventions. Its value is nil far from where it could change the recommendation, so raw points are
# drawn near it too.

model = FunctionNetworkModel([Z for Z, _ in initial.values()], [y for _, y in initial.values()], net)
A = torch.rand(21, 3, generator=generator, dtype=torch.float64)
for node in (0, 1):
    acqf = PartialKnowledgeGradientFN(model, node, X_discrete=A)
    best = optimize_partial_acqf(acqf, x_star=A[0])
    print(f"{net.node_names[node]}: gain {best.value:.3g} for {best.cost:g}, per unit of cost {best.gain_per_cost:.2g}")

acqf = PartialKnowledgeGradientFN(model, 1, X_discrete=A)
z = np.linspace(float(Y[:, 0].min()) - 5, float(Y[:, 0].max()) + 5, 200)
with torch.no_grad():
    gain = acqf(torch.tensor(z)[:, None, None])
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.plot(z, gain)
ax.plot(Y[:, 0], np.zeros(7), "k|", markersize=12, label="observed calculations")
ax.set(xlabel="calculated free energy (kcal/mol)", ylabel="expected gain of an experiment")
ax.legend()
plt.show()
