"""Algorithm 1 for the standard cut on a torch device: segmented maxima by `scatter_reduce`, all columns at once."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from assay._core.devices import resolve_device
from assay._core.errors import InputError

from ._hypergraph import Hypergraph
from ._solve import Array, Diffusion, _note, _Problem, relative

# Every check copies two vectors to the host: rarer than on the CPU, where it costs a tenth of the time.
_CHECK_EVERY = 20


class _Standard:
    """Subgradient over degree and deltas of max - min on a device; ties share by degree as in the compiled loop."""

    def __init__(self, H: Hypergraph, device: torch.device) -> None:
        B = H.incidence
        self.n, self.m = H.n_nodes, H.n_edges
        self.node = torch.as_tensor(B.indices.astype(np.int64), device=device)
        edge = np.repeat(np.arange(H.n_edges), np.diff(B.indptr))
        self.edge = torch.as_tensor(edge, device=device)
        self.w = torch.as_tensor(H.edge_weight, device=device)[:, None]
        self.d = torch.as_tensor(H.degree, device=device)[:, None]

    def bounds(self, member: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        index = self.edge[:, None].expand_as(member)
        empty = member.new_zeros(self.m, member.shape[1])
        high = empty.scatter_reduce(0, index, member, "amax", include_self=False)
        low = empty.scatter_reduce(0, index, member, "amin", include_self=False)
        return high, low

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        member = x[self.node]
        high, low = self.bounds(member)
        delta = high - low
        degree = self.d[self.node]
        share = torch.zeros_like(member)
        for bound, sign in ((high, 1.0), (low, -1.0)):
            tied = (member == bound[self.edge]).to(x.dtype)
            total = x.new_zeros(self.m, x.shape[1]).index_add_(0, self.edge, tied * degree)
            share += sign * tied * (self.w * delta / total)[self.edge]
        return x.new_zeros(self.n, x.shape[1]).index_add_(0, self.node, share), delta


def subgradient_on_device(
    H: Hypergraph,
    s: Array,
    lam: float,
    cut: Any,
    solver: str,
    schedule: str,
    step: float,
    max_iter: int,
    average: bool | str,
    tol: float | None,
    device: str,
) -> Diffusion:
    """Algorithm 1 on `device`, in float64; the certificate is evaluated there too."""
    if not (isinstance(cut, str) and cut == "standard") or solver not in ("auto", "subgradient") or average == "best":
        raise InputError(
            f"device={device!r} runs Algorithm 1 for cut='standard' with average True or False; use device='cpu'."
        )
    where = resolve_device(device)
    problem = _Problem(H, s, lam, "standard")
    evaluate = _Standard(H, where)

    def move(a: Array) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(a), device=where)

    target, right, d, w = move(problem.target), move(problem.s), evaluate.d, evaluate.w
    x = torch.zeros_like(target)
    mean_x, mean_a = torch.zeros_like(x), torch.zeros_like(x)
    mean_phi = x.new_zeros(H.n_edges, x.shape[1])
    lower = np.full(x.shape[1], -np.inf)
    f = np.zeros(x.shape[1])
    history: dict[str, list[Any]] = {"n_iter": [], "objective": [], "gap": [], "seconds": []}
    began = time.perf_counter()
    t = 0
    for t in range(1, max_iter + 1):
        a, delta = evaluate(x)
        if schedule == "strong":
            h, share = 2.0 / (lam * (t + 1) + 2.0 / step), 2.0 / (t + 1)
        else:
            h, share = 2.0 * step / (1.0 + lam), 1.0 / t
            if schedule == "sqrt":
                h /= np.sqrt(t)
        mean_x += share * (x - mean_x)
        mean_a += share * (a - mean_a)
        mean_phi += share * (w * delta - mean_phi)
        x = x - h * (a + lam * x - target)
        if t % _CHECK_EVERY == 0 or t == max_iter:
            point = mean_x if average is True else x
            high, low = evaluate.bounds(point[evaluate.node])
            value = (0.5 * w * (high - low) ** 2).sum(0) + (0.5 * lam * d * point**2 - right * point).sum(0)
            bound = -(0.5 / lam * d * (target - mean_a) ** 2).sum(0) - (0.5 / w * mean_phi**2).sum(0)
            f = value.cpu().numpy()
            lower = np.maximum(lower, bound.cpu().numpy())
            gap = np.maximum(f - lower, 0.0)
            _note(history, t, f, gap, began)
            if tol is not None and bool(np.all(relative(gap, f) <= tol)):
                break
    point = mean_x if average is True else x
    return Diffusion(point.cpu().numpy(), f, lower, t, history)
