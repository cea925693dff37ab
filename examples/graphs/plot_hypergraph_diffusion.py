"""
A few labels, spread over groups
================================

8,124 mushrooms are described by 22 categories; 60 of them are labelled edible or poisonous. Every value of every column
("odor = foul") is a *hyperedge*: a group of mushrooms that ought to be alike. Diffusing the 60 labels over the groups
classifies the rest, says which groups decided, and certifies how exactly the problem was solved.
"""

# %%
# The table and its hyperedges
# ----------------------------

import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import make_moons

from assay.data import sample_path
from assay.graphs.hypergraph_diffusion import (
    Hypergraph,
    HypergraphLabelPropagation,
    HypergraphLocalClustering,
    hypergraph_pagerank,
)

table = pd.read_csv(sample_path("hypergraph-diffusion", "agaricus-lepiota.data.gz"))
truth = table.pop("edibility").map({"e": "edible", "p": "poisonous"}).to_numpy().astype(object)
H = Hypergraph.from_categorical(table)
print(H)

# %%
# Sixty labels
# ------------

rng = np.random.default_rng(0)
shown = rng.choice(len(truth), 60, replace=False)
labels = np.full(len(truth), "", dtype=object)
labels[shown] = truth[shown]
model = HypergraphLabelPropagation().fit(H, labels)
hidden = labels == ""
print(
    f"error on the hidden labels {np.mean(model.transduction_[hidden] != truth[hidden]):.1%}, readout {model.readout_}"
)
print(f"within {model.relative_gap_:.2%} of the optimum, certified")

# %%
# Why this one?
# -------------
#
# The hyperedges of mushroom 17 with the scores inside; the strongest pull towards its class comes first.

model.explain(17).round(4).head(6)

# %%
# Which mushroom should an expert look at next?

for i in model.suggest(3):
    print(f"row {i}: {truth[i]}, predicted {model.transduction_[i]}, margin {model.margin_[i]:.2g}")

# %%
# The paper's steps and ours
# --------------------------
#
# Constant steps reach a neighbourhood of the optimum and stay there; steps that use strong convexity go on. The certified
# gap of both is an upper bound of the true error. Exact block ascent needs a handful of sweeps.

s = np.where(labels == "edible", 1.0, np.where(labels == "poisonous", -1.0, 0.0))
steps = 100 if os.environ.get("ASSAY_SMOKE") else 500
fig, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for name, options in {
    "constant steps (paper)": {"solver": "subgradient", "schedule": "paper", "step": 0.1},
    "strong convexity steps": {"solver": "subgradient"},
    "block ascent": {"solver": "dual", "max_iter": 40},
}.items():
    _, history = hypergraph_pagerank(H, s, tol=None, return_history=True, **({"max_iter": steps} | options))
    gap = np.array(history["gap"]) / abs(history["objective"][-1])
    ax.loglog(history["n_iter"], np.maximum(gap, 1e-12), label=name)
ax.set(xlabel="steps or sweeps", ylabel="certified gap / |f|")
ax.legend()
plt.show()

# %%
# Points instead of a table
# -------------------------
#
# A point and its nearest neighbours are a hyperedge as well. Ten labels are enough for two moons, and new points are placed
# without solving again.

X, y = make_moons(400, noise=0.08, random_state=0)
moons = HypergraphLabelPropagation(hypergraph="knn").fit(X, np.where(np.arange(400) < 10, y, -1))
print(f"{np.mean(moons.transduction_ == y):.1%} of the moons are right")
new, new_y = make_moons(100, noise=0.08, random_state=1)
print(f"{np.mean(moons.predict(new) == new_y):.1%} of a hundred new points")

# %%
# A cluster around a vertex
# -------------------------

cluster = HypergraphLocalClustering([0], lam=0.05).fit(moons.hypergraph_)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].scatter(*X.T, s=12, c=np.where(cluster.labels_ == 1, "#D55E00", "#8A8F98"))
axes[0].scatter(*X[0], s=80, facecolors="none", edgecolors="black")
axes[0].set(xlabel="x", ylabel="y", title=f"conductance {cluster.conductance_:.2g}")
axes[1].plot(cluster.profile_["size"], cluster.profile_["conductance"])
axes[1].set(xlabel="vertices in the set", ylabel="conductance", title="sweep")
plt.show()
