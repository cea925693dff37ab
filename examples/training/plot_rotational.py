"""
Which layers learn too fast? Rotation of a network under weight decay
======================================================================

Weight decay and gradient steps balance: after a while every neuron keeps its norm and turns by a fixed angle per step,
which follows from the learning rate, the weight decay and the momentum alone. Here a small network is trained on
handwritten digits while a monitor compares its layers with that prediction, and the same run is repeated with an optimizer
that turns at the predicted speed from the first step.
"""

# %%
# Theory first
# ------------
# A prediction needs no data: what AdamW with these settings does to a neuron of 144 weights.
import torch
from torch import nn

from assay._core.smoke import pick
from assay.training.rotational import RotationMonitor, RVAdamW, advise, equilibrium, simulate_equilibrium, transfer

settings = {"lr": 2e-3, "weight_decay": 0.5}
goal = equilibrium("adamw", **settings, dim=144)
print(f"{1e3 * goal.rotation:.1f} mrad per step at norm {goal.norm:.2f}, half-life {goal.half_life_steps:.0f} steps")

# %%
# A random walk under the real update rule lands on it.
walk = simulate_equilibrium("adamw", dim=144, steps=pick(2000, 400), **settings, seed=0)
print(f"measured {1e3 * walk['rotation']:.1f} mrad at norm {walk['norm']:.2f}")

# %%
# A real network
# --------------
# Two lines put the monitor into any training loop.
from sklearn.datasets import load_digits

images, labels = (torch.from_numpy(a) for a in load_digits(return_X_y=True))
images = ((images - images.mean()) / images.std()).float().reshape(-1, 1, 8, 8)


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def train(make_optimizer, steps):
    net = make_net()
    optimizer = make_optimizer(net.parameters())
    with RotationMonitor(net, optimizer, interval=2) as monitor:
        for _ in range(steps):
            index = torch.randint(0, len(labels), (32,))
            x = images[index] + torch.randn(32, 1, 8, 8)  # noisy, so that the gradient never vanishes
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), labels[index]).backward()
            optimizer.step()
    return monitor


steps = pick(600, 60)
adamw = train(lambda p: torch.optim.AdamW(p, **settings), steps)
columns = ["layer", "norm", "norm_predicted", "angle", "angle_predicted", "ratio", "scale_invariant"]
print(adamw.report()[columns].round(4).to_string(index=False))

# %%
# In words:
print("\n".join(advise(adamw.report())))

# %%
# The same with a rotational optimizer: no transient, every layer at the predicted speed.
rotational = train(lambda p: RVAdamW(p, **settings), steps)
print(rotational.report()[columns].round(4).to_string(index=False))

# %%
# Both over time. The shaded band is 15 % around the prediction.
import matplotlib.pyplot as plt

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, monitor, title in zip(axes, (adamw, rotational), ("AdamW", "RVAdamW")):
    ax.axhspan(0.85, 1.15, color="#DCEBF5")
    for name, part in monitor.series().groupby("layer", sort=False):
        ax.plot(part["step"], part["ratio"].rolling(15, min_periods=1).mean(), label=name.removesuffix(".weight"))
    ax.set(title=title, xlabel="optimizer step", yscale="log", ylim=(0.1, 6))
axes[0].set_ylabel("rotation / prediction")
axes[1].legend()
plt.show()

# %%
# Moving settings
# ---------------
# Four times the batch for the same number of epochs: which lr and weight decay keep the number of half-lives of the run?
print(transfer(**settings, keep="half_lives", adjust="both", change={"batch": 4}))
