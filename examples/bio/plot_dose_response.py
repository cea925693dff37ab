"""
Dose-response curves beyond Hill
================================

A kinase-inhibitor screen on sarcoma lines: Hill fits, a drug-mean curve with a residual Gaussian process and ARCANet predict
the one dose of every curve that was held out.
"""

# %%
# The screen
# ----------
# Three replicates per dose become one value; their scatter is the noise floor that no model can beat.
import matplotlib.pyplot as plt
import numpy as np

from assay._core.smoke import pick
from assay.bio.dose_response import ARCANet, DrugMeanCurve, HillModel, datasets, noise_floor, splits

data = datasets.load_sarcoma(n_drugs=pick(24, 4))
train, test = next(splits.smoothing(data, 5, random_state=0))
print(
    f"{len(data.drugs)} drugs, {len(data.cells)} lines, {data.n_curves} curves; noise floor {noise_floor(data, test):.2g}"
)

# %%
# Four models, one interface
# --------------------------
models = {
    "Hill 2P": HillModel(2),
    "Hill 4P": HillModel(4),
    "drug mean + GP": DrugMeanCurve(residual="gp"),
    "ARCANet": ARCANet(random_state=0, epochs=pick(None, 2)),
}
for name, model in models.items():
    model.fit(data, train)
    row, column = np.nonzero(test)
    found = model.predict(data.drugs[data.drug_index[row]], data.cells[data.cell_index[row]], data.dose[row, column])
    print(f"{name:15s} held-out MSE {np.mean((found - data.effect[row, column]) ** 2):.4f}")

# %%
# One curve
# ---------
# The band is the 95 % interval of a new measurement; the diamond was not seen by any model.
steepest = int(np.argmax(np.nanmax(data.effect, 1) - data.effect[:, 0]))
drug, cell = data.drugs[data.drug_index[steepest]], data.cells[data.cell_index[steepest]]
grid = np.logspace(np.log10(data.dose[steepest, 0]), np.log10(np.nanmax(data.dose[steepest])), 100)

fig, ax = plt.subplots(figsize=(6.5, 4.0), layout="constrained")
mean, std = models["ARCANet"].predict(drug, cell, grid, return_std=True)
ax.fill_between(grid, 100 * (mean - 1.96 * std), 100 * (mean + 1.96 * std), color="C0", alpha=0.15, linewidth=0)
ax.plot(grid, 100 * mean, color="C0", label="ARCANet")
ax.plot(grid, 100 * models["Hill 4P"].predict(drug, cell, grid), "--", color="C1", label="Hill 4P")
seen, held = train[steepest], test[steepest]
ax.plot(data.dose[steepest, seen], 100 * data.effect[steepest, seen], "o", color="#3A3F47", markersize=4)
ax.plot(
    data.dose[steepest, held],
    100 * data.effect[steepest, held],
    "D",
    markerfacecolor="white",
    color="#C00000",
    label="held out",
)
ax.set_xscale("log")
ax.set_xlabel("dose (µM)")
ax.set_ylabel("inhibition (%)")
ax.set_title(f"{drug} on {cell}")
ax.legend(frameon=False)
plt.show()
