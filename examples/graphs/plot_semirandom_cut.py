"""
Balanced cuts of messy graphs, with a certificate
=================================================

A planted cut is easy to find until somebody tidies up the inside of its sides. Here an adversary adds dense cliques and
long pendant paths, which make the true cut *easier* in principle, and a spectral method loses it. The semidefinite
relaxation does not, and it says how far from optimal its cut can be at most.
"""

# %%
# A planted cut and a helpful adversary
# -------------------------------------
#
# Every pair across the two sides is an edge with probability ``eta / n``. The adversary may only add edges inside the
# sides or delete edges of the cut.

import os

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from scipy.cluster.hierarchy import dendrogram

from assay.graphs.semirandom_cut import (
    DasguptaHierarchy,
    SemiRandomBisection,
    SemiRandomKWay,
    adversary,
    cut_value,
    dasgupta_cost,
    make_semirandom_cut,
    sweep_cut,
)

n = 400 if os.environ.get("ASSAY_SMOKE") else 2000
moves = [adversary.random(8), adversary.tendrils(0.3, 20), adversary.cliques(2, 40)]
W, y, info = make_semirandom_cut(n, eta=3.0, adversary=moves, random_state=0)
print(f"{n} vertices, {W.nnz // 2} edges, planted cut {info['planted_cut']:.0f}")

# %%
# The spectral cut and ours
# -------------------------
#
# The second eigenvector of the normalised Laplacian is swept with the same balance: both sides hold at least 45 %.

degree = np.asarray(W.sum(axis=1)).ravel()
root = 1 / np.sqrt(np.maximum(degree, 1))
values, vectors = np.linalg.eigh(np.eye(n) - root[:, None] * W.toarray() * root[None, :])
spectral, spectral_cut = sweep_cut(W, vectors[:, 1] * root, balance=0.45)

model = SemiRandomBisection(balance=0.45, random_state=0).fit(W)
print(f"spectral sweep  {spectral_cut:.0f}")
print(f"this method     {model.cut_:.0f}   smaller side {model.balance_:.1%}")
print(
    f"no cut with this balance is below {model.lower_bound_:.0f}: within {model.cut_ / model.lower_bound_ - 1:.0%} of optimal"
)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
axes[0].scatter(*vectors[:, 1:3].T, s=4, c=np.where(y == 1, "#D55E00", "#0072B2"))
axes[0].set(title="spectral embedding", xlabel="second eigenvector", ylabel="third eigenvector")
X = model.embedding_ - model.embedding_.mean(axis=0)
plane = X @ np.linalg.eigh(X.T @ X)[1][:, [-1, -2]]
axes[1].scatter(*plane.T, s=4, c=np.where(y == 1, "#D55E00", "#0072B2"))
axes[1].set(title="embedding of the relaxation", xlabel="first principal component", ylabel="second")
plt.show()

# %%
# The colours are the planted sides. The eigenvectors point at single pendant paths; the relaxation separates the sides.
#
# What misled the spectral method
# -------------------------------

model.explain_adversary()

# %%
# Which vertices could go either way
# ----------------------------------
#
# Reruns with 5 % of the edges dropped: the share in which a vertex keeps its side.

agreement = model.stability(3)
print(f"{(agreement == 1).mean():.0%} of the vertices never change sides")

# %%
# Cut against prefix size
# -----------------------

profile = model.sweep_profile_
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.axvspan(0.45, 0.55, color="#0072B2", alpha=0.1, label="balanced")
ax.plot(profile["share"], profile["cut"], color="#8A8F98")
ax.axhline(model.lower_bound_, color="black", linestyle="--", label="certified lower bound")
ax.axhline(model.cut_, color="#D55E00", label="final cut")
ax.set(xlabel="share of the vertices in the prefix", ylabel="cut (edges)", xlim=(0, 1))
ax.legend()
plt.show()

# %%
# More parts, and a hierarchy
# ---------------------------

club = nx.karate_club_graph()
parts = SemiRandomKWay(4, imbalance=0.1, random_state=0).fit(club)
print("parts of", parts.part_weights_.astype(int).tolist(), "members, edge weight between them", parts.edge_cut_)

novel = nx.les_miserables_graph()
tree = DasguptaHierarchy(n_clusters=5, leaf_size=12, random_state=0).fit(novel)
print(f"Dasgupta cost {tree.cost_:.0f}; recomputed {dasgupta_cost(tree.linkage_, novel):.0f}")

fig, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
dendrogram(tree.linkage_, labels=list(novel.nodes), leaf_rotation=90, leaf_font_size=6, ax=ax, color_threshold=20)
ax.set_yscale("symlog", linthresh=2)
ax.set(ylabel="characters below the merge")
plt.show()

# %%
# The cut is a plain number that can be recounted:

print(cut_value(W, model.labels_) == model.cut_)
