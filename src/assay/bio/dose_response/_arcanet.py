"""The estimator: presets, training, residual correction, prediction and files around the network."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch import Tensor

from assay._core.devices import resolve_device
from assay._core.errors import InputError
from assay._core.files import load_tensors, read_json, save_tensors, write_json
from assay._core.progress import track
from assay._core.seeds import as_rng, derive
from assay.bio.dose_response._data import broadcast_query, training_mask
from assay.bio.dose_response._encoders import GraphTensors
from assay.bio.dose_response._inputs import CellInputs, DrugInputs, DrugMeanPrior, codes
from assay.bio.dose_response._loss import curve_loss
from assay.bio.dose_response._network import ARCANetConfig, ARCANetModule

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike, NDArray

    from assay.bio.dose_response._data import DoseResponseData

__all__ = ["PRESETS", "ARCANet", "ApplicabilityWarning", "Checkpoint"]

# One row per preset. Laptop presets were tuned on CCLE with seeds 0-99; the paper's are its table of hyper-parameters.
PRESETS: dict[str, dict[str, Any]] = {
    "measured": {
        "expression_input": "zscore",
        "prior": None,
        "residual": "gp",
        "lr": 2e-3,
        "epochs": 30,
        "alpha": 0.26,
        "clip": 6.4,
        "schedule": "one_cycle",
        "module": {"p_gene": 0.1, "p_interaction": 0.1, "p_hill": 0.05, "p_fc": 0.1},
    },
    "new_cells": {
        "expression_input": "pca",
        "prior": "drug_mean",
        "residual": "stack",
        "lr": 1e-3,
        "epochs": 15,
        "alpha": 0.26,
        "clip": 6.4,
        "schedule": "one_cycle",
        "module": {"p_gene": 0.2, "p_interaction": 0.3, "p_hill": 0.05, "p_fc": 0.1},
    },
    "new_drugs": {
        "expression_input": "pca",
        "prior": None,
        "residual": None,
        "lr": 1e-3,
        "epochs": 10,
        "alpha": 0.57,
        "clip": 6.4,
        "schedule": "one_cycle",
        "module": {"p_gene": 0.2, "p_drug": 0.3, "p_interaction": 0.3, "p_hill": 0.05, "p_fc": 0.1},
    },
    "paper": {
        "expression_input": "zscore",
        "prior": None,
        "residual": None,
        "lr": 3.7e-5,
        "epochs": 100,
        "alpha": 0.26,
        "clip": 6.4,
        "schedule": "plateau",
        "dim": 624,
        "module": {
            "p_gene": 0.07,
            "p_interaction": 0.31,
            "p_hill": 0.01,
            "regression": 2048,
            "activation": "relu",
            "dose_scale": "identity",
            "attention_heads": 2,
            "graph_heads": 4,
            "graph_layers": 8,
            "full_layers": 3,
        },
    },
    "paper-drugs": {
        "expression_input": "zscore",
        "prior": None,
        "residual": None,
        "lr": 1.7e-4,
        "epochs": 100,
        "alpha": 0.57,
        "clip": 2.4,
        "schedule": "plateau",
        "dim": 468,
        "module": {
            "p_gene": 0.38,
            "p_interaction": 0.46,
            "p_hill": 0.26,
            "regression": 1969,
            "activation": "tanh",
            "dose_scale": "log10",
            "attention_heads": 1,
            "graph_heads": 2,
            "graph_layers": 6,
            "full_layers": 1,
        },
    },
}

BATCH = 256  # curves per step, as in the paper; every laptop preset was tuned with it
CLEAN_SD = 0.05  # replicate deviation below which dropout only blurs what the data show exactly
HOLD_OUT = 0.2  # share of the lines on which the weight of network against ridge is found
POINT_CHUNK = 16384  # points per forward pass: 16384 x 256 floats are 16 MB, which stays near the cache
FAR_TANIMOTO = 0.4  # below this Morgan-2 similarity two drugs seldom share a mechanism
FAR_LINE = 2.0  # times the 95th percentile of the nearest-neighbour distances among training lines
MEMORISED = 0.2  # a network that knew the truth would leave the replicate variance itself; a fifth is past any doubt

_NO_STD = "This model has no measure of its uncertainty: use residual='gp' or n_ensemble >= 3."


class ApplicabilityWarning(UserWarning):
    """A prediction is asked for a drug or a line unlike those the model was trained on."""


class Checkpoint(Protocol):
    """Where an interrupted fit keeps its state: any object with these two methods."""

    def save(self, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
        """Keep the state, replacing the former one."""

    def load(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Return the last state, or None if there is none."""


def one_cycle(step: int, total: int, peak: float) -> tuple[float, float]:
    """Learning rate and first Adam moment of a one-cycle schedule: cosine up over 30 %, cosine down to peak/250000.

    The numbers are those of ``torch.optim.lr_scheduler.OneCycleLR``; as a function of the step it needs no state that
    a checkpoint would have to carry.
    """

    def between(a: float, b: float, share: float) -> float:
        return b + (a - b) / 2.0 * (1.0 + math.cos(math.pi * share))

    turn = 0.3 * total - 1.0
    if step <= turn:
        share = step / turn
        return between(peak / 25.0, peak, share), between(0.95, 0.85, share)
    share = (step - turn) / max(total - 1.0 - turn, 1e-9)
    return between(peak, peak / 25.0 / 1e4, share), between(0.85, 0.95, share)


class _Tables:
    """Input rows of the lines and drugs as tensors, from which batches pick distinct ones."""

    def __init__(self, cells: Any, drugs: Any, device: torch.device) -> None:
        self.cells: Tensor = torch.as_tensor(cells, device=device)
        self.drugs: Any = drugs if isinstance(drugs, GraphTensors) else torch.as_tensor(drugs, device=device)

    def forward_u(self, module: ARCANetModule, cell: Tensor, drug: Tensor) -> Tensor:
        distinct_cells, cell_pos = torch.unique(cell, return_inverse=True)
        distinct_drugs, drug_pos = torch.unique(drug, return_inverse=True)
        return module.encode_pairs(self.cells[distinct_cells], self.drugs[distinct_drugs], cell_pos, drug_pos)


class ARCANet(BaseEstimator):
    r"""Whole dose-response curves from a molecule and a cell line, by a network over latent Hill curves.

    .. math:: \hat E(d, c, z) = w^\top r\bigl(\sigma(b(u_{dc}) - s(u_{dc}) \log_{10} z)\bigr) + \text{prior}
              + \text{residual correction}

    Parameters
    ----------
    preset : {"measured", "new_cells", "new_drugs", "paper", "paper-drugs"}, default "measured"
        What is to be predicted: other doses of measured pairs, unseen lines, unseen drugs; or the paper's settings.
    drug_encoder : {"auto", "fingerprint", "graph", "identity"}, default "auto"
        "auto" takes fingerprints if the data have SMILES (graphs for the paper's presets), else identities.
    cell_encoder : {"auto", "expression", "identity"}, default "auto"
        "auto" takes expression if the data have it, else identities.
    residual : {"auto", "gp", "stack"} or None, default "auto"
        After the network: a Gaussian process on the residuals of measured curves, a blend with an expression ridge
        for unseen lines, or nothing; "auto" takes the preset's.
    prior : {"auto", "drug_mean"} or None, default "auto"
        Curve to which the network adds; "auto" takes the preset's. Never extrapolate doses with it.
    n_ensemble : int, default 1, >= 1
        Networks trained from different initial weights and averaged; from 2 on they give a deviation.
    epochs : int or None, default None
        Passes over the curves; None takes the preset's.
    lr : float or None, default None
        Peak learning rate; None takes the preset's.
    hidden_dim : int, default 128
        Width d of the encodings (624 and 468 in the paper's presets, if left at 128).
    alpha : float or None, default None, in [0, 1]
        Weight of the shape term in :func:`curve_loss`; None takes the preset's.
    T : float, default 2.5
        Factor on the effects inside the shape term.
    device : str or torch.device, default "cpu"
        Where to train and predict.
    random_state : int, Generator or None, default None
        Seed of weights, order of batches and dropout.
    verbose : bool, default False
        Show a progress bar even if standard error is not a terminal.
    expression_input : {"auto", "zscore", "pca"}, default "auto"
        Genes as z-scores, or their first 40 principal components on the training lines.
    module_options : dict or None, default None
        Further fields of :class:`ARCANetConfig`, e.g. ``{"graph_layers": 2}``.

    Attributes
    ----------
    modules_ : list of ARCANetModule
        The trained networks.
    residual_gp_ : ResidualGP or None
        The fitted residual process.
    ridge_, stack_weight_, holdout_std_ : ExpressionRidge, float, float or None
        The ridge of the stack, the network's weight in it, and the deviation of the blend on the inner hold-out.
    history_ : list of dict
        One entry per epoch: phase, epoch, loss, lr.
    clean_ : bool
        Whether replicates were tight enough to train without dropout.

    Notes
    -----
    1. Fits go in *phases*, one network each: the inner hold-out of the stack, then the members of the ensemble.
       Features, scalings and priors are learned anew in each phase from its training points alone.
    2. Batches are equal shares of a random permutation of the curves, so no batch is left with a single curve, which
       batch normalisation could not stand.
    3. If replicates of the training points have a median deviation below 0.05, the "measured" preset trains 60 epochs
       without dropout: in clean data dropout is the larger noise.
    4. The plateau schedule of the paper's presets watches the training loss of an epoch; no data are held out for it.
    5. The paper does not state the dropout of its regression network; its presets use the laptop presets' 0.1.

    References
    ----------
    Alonso Campana, Prasse, Scheffer, Predicting Dose-Response Curves with Deep Neural Networks, ICML 2024.

    Examples
    --------
    >>> from assay.bio.dose_response import ARCANet, datasets
    >>> data = datasets.load_sarcoma(n_drugs=3)
    >>> net = ARCANet(epochs=2, random_state=0).fit(data)
    >>> net.predict("none", data.cells[0], [0.1, 1.0])
    Traceback (most recent call last):
        ...
    assay._core.errors.InputError: Drug none is not in the training data: give a SMILES to all drugs to predict ...
    >>> net.predict(data.drugs[0], data.cells[0], [0.1, 1.0]).shape
    (2,)
    """

    def __init__(
        self,
        preset: Literal["measured", "new_cells", "new_drugs", "paper", "paper-drugs"] = "measured",
        drug_encoder: Literal["auto", "fingerprint", "graph", "identity"] = "auto",
        cell_encoder: Literal["auto", "expression", "identity"] = "auto",
        residual: Literal["auto", "gp", "stack"] | None = "auto",
        prior: Literal["auto", "drug_mean"] | None = "auto",
        n_ensemble: int = 1,
        epochs: int | None = None,
        lr: float | None = None,
        hidden_dim: int = 128,
        alpha: float | None = None,
        T: float = 2.5,
        device: str | torch.device = "cpu",
        random_state: Any = None,
        verbose: bool = False,
        expression_input: Literal["auto", "zscore", "pca"] = "auto",
        module_options: dict[str, Any] | None = None,
    ) -> None:
        self.preset = preset
        self.drug_encoder = drug_encoder
        self.cell_encoder = cell_encoder
        self.residual = residual
        self.prior = prior
        self.n_ensemble = n_ensemble
        self.epochs = epochs
        self.lr = lr
        self.hidden_dim = hidden_dim
        self.alpha = alpha
        self.T = T
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.expression_input = expression_input
        self.module_options = module_options

    # ---------------------------------------------------------------------------------------------- settings

    def _settle(self, data: DoseResponseData, mask: NDArray[np.bool_]) -> dict[str, Any]:
        """Turn "auto" and None into values for these data; every choice that depends on the data is made here."""
        if self.preset not in PRESETS:
            raise InputError(f"Unknown preset {self.preset!r}; choose one of {', '.join(PRESETS)}.")
        choices = {
            "drug_encoder": ("auto", "fingerprint", "graph", "identity"),
            "cell_encoder": ("auto", "expression", "identity"),
            "residual": ("auto", "gp", "stack", None),
            "prior": ("auto", "drug_mean", None),
            "expression_input": ("auto", "zscore", "pca"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"{name}={getattr(self, name)!r} is not one of {', '.join(map(str, allowed))}.")
        if self.n_ensemble < 1:
            raise InputError(f"n_ensemble={self.n_ensemble} must be at least 1.")
        if self.epochs is not None and self.epochs < 1:
            raise InputError(f"epochs={self.epochs} must be at least 1.")
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise InputError(f"lr={self.lr} must be a positive number.")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise InputError(f"alpha={self.alpha} must be between 0 and 1.")
        if not 0 < self.T < math.inf:
            raise InputError(f"T={self.T} must be a positive number.")
        if self.hidden_dim < 1:
            raise InputError(f"hidden_dim={self.hidden_dim} must be at least 1.")
        preset = PRESETS[self.preset]
        has_smiles, has_expression = bool(data.smiles), data.expression is not None
        drug: str = self.drug_encoder
        if drug == "auto":
            structural = "graph" if self.preset.startswith("paper") else "fingerprint"
            drug = structural if has_smiles else "identity"
        cell: str = self.cell_encoder
        if cell == "auto":
            cell = "expression" if has_expression else "identity"
        if drug != "identity" and not has_smiles:
            raise InputError(f"drug_encoder={drug!r} needs SMILES; give them with smiles= when reading the data.")
        if cell == "expression" and not has_expression:
            raise InputError(
                "cell_encoder='expression' needs an expression table; give it with expression= when reading the data."
            )
        if self.preset == "new_cells" and cell == "identity":
            raise InputError(
                "preset='new_cells' needs an expression table: an identity says nothing of an unseen line."
            )
        if self.preset in ("new_drugs", "paper-drugs") and drug == "identity":
            raise InputError(f"preset={self.preset!r} needs SMILES: an identity says nothing of an unseen drug.")
        residual = preset["residual"] if self.residual == "auto" else self.residual
        if residual == "stack" and not has_expression:
            raise InputError("residual='stack' blends with an expression ridge and needs an expression table.")
        module = dict(preset["module"])
        epochs = preset["epochs"]
        spread = data.replicate_sd[mask]
        spread = spread[np.isfinite(spread)]
        clean = self.preset == "measured" and len(spread) > 0 and float(np.median(spread)) < CLEAN_SD
        if clean:
            module = dict.fromkeys(module, 0.0) | {"p_drug": 0.0}
            epochs = 2 * epochs
        dim = preset.get("dim", 128) if self.hidden_dim == 128 else self.hidden_dim
        module = {"dim": dim, "hidden": dim, "regression": 2 * dim} | module | (self.module_options or {})
        return {
            "drug_encoder": drug,
            "cell_encoder": cell,
            "expression_input": preset["expression_input"]
            if self.expression_input == "auto"
            else self.expression_input,
            "residual": residual,
            "prior": preset["prior"] if self.prior == "auto" else self.prior,
            "epochs": epochs if self.epochs is None else int(self.epochs),
            "lr": preset["lr"] if self.lr is None else float(self.lr),
            "alpha": preset["alpha"] if self.alpha is None else float(self.alpha),
            "clip": preset["clip"],
            "schedule": preset["schedule"],
            "module": module,
            "clean": clean,
            "n_ensemble": int(self.n_ensemble),
            "T": float(self.T),
        }

    # -------------------------------------------------------------------------------------------------- fit

    def fit(
        self,
        data: DoseResponseData,
        train_mask: ArrayLike | None = None,
        *,
        callback: Callable[[dict[str, Any]], None] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> ARCANet:
        """Train on the measured points where ``train_mask`` is True.

        Parameters
        ----------
        data : DoseResponseData
            The screen.
        train_mask : array of bool, shape of ``data.mask``, or None
            Points to learn from; None takes all.
        callback : callable or None
            Called after every epoch with ``dict(phase, epoch, loss, lr)``.
        checkpoint : object with ``save(arrays, meta)`` and ``load()``, or None
            Keeps the state after every epoch; a fit that was interrupted goes on from it to the same numbers.

        Returns
        -------
        ARCANet
            The estimator itself.

        Raises
        ------
        InputError
            If the settings do not suit the data, or the checkpoint belongs to another fit.
        """
        mask = training_mask(data, train_mask)
        settings = self._settle(data, mask)
        device = resolve_device(self.device)
        seed = (
            int(as_rng(self.random_state).integers(2**62)) if not _is_int(self.random_state) else int(self.random_state)
        )
        phases: list[tuple[str, NDArray[np.bool_], int]] = []
        if settings["residual"] == "stack":
            phases.append(("holdout", self._inner_mask(data, mask, seed), derive(seed, "holdout")))
        phases += [(f"member{i}", mask, derive(seed, "member", i)) for i in range(settings["n_ensemble"])]
        mark = _fingerprint(settings, data, mask, self.random_state if _is_int(self.random_state) else None)
        # What a resumed fit takes over is decided by the saved seed when random_state is None.
        saved = checkpoint.load() if checkpoint is not None else None
        done: list[dict[str, NDArray[Any]]] = []
        history: list[dict[str, Any]] = []
        current: tuple[dict[str, NDArray[Any]], dict[str, Any]] | None = None
        if saved is not None:
            arrays, meta = saved
            if meta.get("fingerprint") != mark:
                raise InputError("The checkpoint belongs to a fit with other data or settings; start without it.")
            if meta["seed"] != seed:
                seed = int(meta["seed"])
                phases = [(n, self._inner_mask(data, mask, seed) if n == "holdout" else m, 0) for n, m, _ in phases]
                keys = [("holdout",) if n == "holdout" else ("member", int(n[6:])) for n, _, _ in phases]
                phases = [(n, m, derive(seed, *k)) for (n, m, _), k in zip(phases, keys, strict=True)]
            history = list(meta["history"])
            done = [_under(arrays, f"done{k}/") for k in range(meta["phase"])]
            current = arrays, meta

        self.settings_, self.clean_, self.seed_ = settings, settings["clean"], seed
        self.history_ = history
        states: list[dict[str, NDArray[Any]]] = []
        outer: tuple[CellInputs, DrugInputs, DrugMeanPrior | None] | None = None
        self.modules_: list[ARCANetModule] = []
        self.stack_weight_: float | None = None
        self.holdout_std_: float | None = None
        self.ridge_: Any = None
        self.residual_gp_: Any = None
        total = settings["epochs"] * len(phases)
        bar = track(total=total, desc="ARCANet", verbose=True if self.verbose else None)
        with bar:
            bar.update(len(history))
            for k, (name, phase_mask, phase_seed) in enumerate(phases):
                if name == "holdout" or outer is None:
                    inputs = self._inputs(data, phase_mask)
                    outer = None if name == "holdout" else inputs
                else:
                    inputs = outer
                cells, drugs, prior = inputs
                with torch.random.fork_rng(devices=[]):  # building draws weights; the caller's stream stays as it was
                    module = ARCANetModule(self._config(cells, drugs))
                if k < len(done):
                    module.load_state_dict({n: torch.from_numpy(a.copy()) for n, a in done[k].items()})
                    module.to(device)
                else:
                    resume = current if current is not None and current[1]["phase"] == k else None

                    def save(
                        arrays: dict[str, NDArray[Any]],
                        meta: dict[str, Any],
                        k: int = k,
                        states: list[dict[str, NDArray[Any]]] = states,
                    ) -> None:
                        assert checkpoint is not None
                        for i, state in enumerate(states):
                            arrays |= {f"done{i}/{n}": a for n, a in state.items()}
                        checkpoint.save(
                            arrays,
                            {"fingerprint": mark, "seed": seed, "phase": k, "history": self.history_} | meta,
                        )

                    self._train(
                        module, inputs, data, phase_mask, phase_seed, device, name, resume, callback,
                        save if checkpoint is not None else None, bar,
                    )  # fmt: skip
                module.eval()
                states.append({n: t.detach().cpu().numpy() for n, t in module.state_dict().items()})
                self.cells_, self.drugs_, self.prior_, self.modules_ = cells, drugs, prior, [*self.modules_, module]
                if name == "holdout":
                    self._weigh(data, mask & ~phase_mask, phase_mask, device)
                    self.modules_ = []
        self.pairs_ = (data.drug_index.copy(), data.cell_index.copy(), np.asarray(mask.any(axis=1), dtype=bool))
        self._index_pairs()
        if settings["residual"] == "stack":
            from assay.bio.dose_response._stack import FrozenRidge

            self.ridge_ = FrozenRidge.of(self._ridge().fit(data, mask))
        if settings["residual"] == "gp":
            self._fit_gp(data, mask)
        return self

    def _inner_mask(self, data: DoseResponseData, mask: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
        lines = np.unique(data.cell_index[mask.any(axis=1)])
        if len(lines) < 5:
            raise InputError(
                f"residual='stack' finds its weight on a fifth of the lines; {len(lines)} lines are too few, 5 are needed."
            )
        rng = np.random.default_rng(derive(seed, "lines"))
        held = rng.permutation(lines)[: max(1, round(HOLD_OUT * len(lines)))]
        return mask & ~np.isin(data.cell_index, held)[:, None]

    def _inputs(
        self, data: DoseResponseData, mask: NDArray[np.bool_]
    ) -> tuple[CellInputs, DrugInputs, DrugMeanPrior | None]:
        rows = mask.any(axis=1)
        seen_cells = np.bincount(data.cell_index[rows], minlength=len(data.cells)) > 0
        seen_drugs = np.bincount(data.drug_index[rows], minlength=len(data.drugs)) > 0
        s = self.settings_
        cells = CellInputs(s["cell_encoder"], s["expression_input"]).fit(data.cells, data.expression, seen_cells)
        drugs = DrugInputs(s["drug_encoder"]).fit(data.drugs, data.smiles, seen_drugs)
        prior = DrugMeanPrior().fit(data, mask) if s["prior"] == "drug_mean" else None
        return cells, drugs, prior

    def _config(self, cells: CellInputs, drugs: DrugInputs) -> ARCANetConfig:
        s = self.settings_
        return ARCANetConfig(
            n_cell_inputs=cells.n_inputs,
            n_drug_inputs=drugs.n_inputs,
            cell_encoder=s["cell_encoder"],
            drug_encoder=s["drug_encoder"],
            **s["module"],
        )

    def _tables(self, cells: CellInputs, drugs: DrugInputs, device: torch.device) -> _Tables:
        cell_rows = np.arange(len(cells.cells)) if cells.kind == "identity" else cells.features
        return _Tables(cell_rows, self._drug_rows(drugs, device), device)

    @staticmethod
    def _drug_rows(drugs: DrugInputs, device: torch.device) -> Any:
        if drugs.kind == "identity":
            return np.arange(len(drugs.drugs))
        if drugs.kind == "fingerprint":
            return drugs.bits[:, drugs.columns].astype(np.float32)
        from assay.bio._shared.molecules import molecule_graph, pack_graphs

        assert drugs.smiles is not None
        return GraphTensors(pack_graphs([molecule_graph(drugs.smiles[d]) for d in drugs.drugs]), device)

    def _train(
        self,
        module: ARCANetModule,
        inputs: tuple[CellInputs, DrugInputs, DrugMeanPrior | None],
        data: DoseResponseData,
        mask: NDArray[np.bool_],
        seed: int,
        device: torch.device,
        name: str,
        resume: tuple[dict[str, NDArray[Any]], dict[str, Any]] | None,
        callback: Callable[[dict[str, Any]], None] | None,
        save: Callable[[dict[str, NDArray[Any]], dict[str, Any]], None] | None,
        bar: Any,
    ) -> None:
        cells, drugs, prior = inputs
        s = self.settings_
        tables = self._tables(cells, drugs, device)
        rows = np.flatnonzero(mask.any(axis=1))
        n = len(rows)
        kept = mask[rows]

        def tensor(values: NDArray[Any], fill: float) -> Tensor:
            return torch.as_tensor(np.where(kept, values[rows], fill).astype(np.float32), device=device)

        # Masked places hold a dose of 1: any finite one does, it only must not make a NaN.
        dose, effect = tensor(data.dose, 1.0), tensor(data.effect, 0.0)
        measured = torch.as_tensor(kept, device=device)
        offset = None if prior is None else tensor(prior.leave_one_out(data, mask), 0.0)
        cell = torch.as_tensor(data.cell_index[rows].astype(np.int64), device=device)
        drug = torch.as_tensor(data.drug_index[rows].astype(np.int64), device=device)

        cuda = [device.index or 0] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):  # dropout draws from the global stream; the caller's is put back
            torch.manual_seed(seed % 2**63)
            _reset(module)
            with torch.no_grad():
                if prior is None:
                    module.out.bias.fill_(float(data.effect[mask].mean()))
                else:
                    module.out.weight.zero_()
                    module.out.bias.zero_()
            module.to(device)
            parameters = list(module.parameters())
            optimizer = torch.optim.Adam(parameters, lr=s["lr"], fused=True)
            plateau = (
                torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=4)
                if s["schedule"] == "plateau"
                else None
            )
            first = 0
            if resume is not None:
                first = self._restore(resume, module, optimizer, plateau, device)
            n_batches = max(1, math.ceil(n / BATCH))
            total = n_batches * s["epochs"]
            module.train()
            if n == 1:
                module.norm.eval()  # one curve has no batch statistics
            for epoch in range(first, s["epochs"]):
                order = torch.randperm(n)
                loss_sum = 0.0
                for b, index in enumerate(torch.tensor_split(order, n_batches)):
                    index = index.to(device)
                    if plateau is None:
                        lr, momentum = one_cycle(epoch * n_batches + b, total, s["lr"])
                        for group in optimizer.param_groups:
                            group["lr"], group["betas"] = lr, (momentum, 0.999)
                    u = tables.forward_u(module, cell[index], drug[index])
                    bias, slope = module.latent(u)
                    pred = module.respond(bias, slope, dose[index])
                    if offset is not None:
                        pred = pred + offset[index]
                    loss = curve_loss(pred, effect[index], measured[index], s["alpha"], s["T"])
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(parameters, s["clip"])
                    optimizer.step()
                    loss_sum += loss.item() * len(index)
                if not math.isfinite(loss_sum):
                    raise FloatingPointError(f"The loss became {loss_sum} in epoch {epoch + 1}; lower lr.")
                if plateau is not None:
                    plateau.step(loss_sum / n)
                    lr = optimizer.param_groups[0]["lr"]
                record = {"phase": name, "epoch": epoch + 1, "loss": loss_sum / n, "lr": lr}
                self.history_.append(record)
                bar.update(1)
                bar.set_postfix(loss=f"{record['loss']:.4f}")
                if save is not None:
                    arrays, meta = self._snapshot(module, optimizer, plateau, device, epoch + 1)
                    save(arrays, meta | {"epochs": s["epochs"]})
                if callback is not None:
                    callback(dict(record))

    @staticmethod
    def _snapshot(
        module: ARCANetModule, optimizer: Any, plateau: Any, device: torch.device, epoch: int
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        # Copies: on the CPU .numpy() shares memory, and the next epoch would change what was handed out.
        arrays = {f"model/{n}": t.detach().cpu().numpy().copy() for n, t in module.state_dict().items()}
        for i, state in optimizer.state_dict()["state"].items():
            arrays |= {f"adam/{i}/{key}": t.detach().cpu().numpy().copy() for key, t in state.items()}
        arrays["rng"] = torch.get_rng_state().numpy().copy()
        if device.type == "cuda":
            arrays["rng_cuda"] = torch.cuda.get_rng_state(device).numpy().copy()
        meta: dict[str, Any] = {"epoch": epoch, "lr": optimizer.param_groups[0]["lr"]}
        if plateau is not None:
            meta["plateau"] = {"best": plateau.best, "num_bad_epochs": plateau.num_bad_epochs}
        return arrays, meta

    @staticmethod
    def _restore(
        resume: tuple[dict[str, NDArray[Any]], dict[str, Any]],
        module: ARCANetModule,
        optimizer: Any,
        plateau: Any,
        device: torch.device,
    ) -> int:
        arrays, meta = resume
        module.load_state_dict({n: torch.tensor(a) for n, a in _under(arrays, "model/").items()})
        state: dict[int, dict[str, Tensor]] = {}
        for key, a in _under(arrays, "adam/").items():
            i, what = key.split("/")
            state.setdefault(int(i), {})[what] = torch.tensor(a)
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        torch.set_rng_state(torch.tensor(arrays["rng"]))
        if device.type == "cuda":
            torch.cuda.set_rng_state(torch.tensor(arrays["rng_cuda"]), device)
        if plateau is not None:
            plateau.best = meta["plateau"]["best"]
            plateau.num_bad_epochs = meta["plateau"]["num_bad_epochs"]
            optimizer.param_groups[0]["lr"] = meta["lr"]
        return int(meta["epoch"])

    def _ridge(self) -> Any:
        from assay.bio.dose_response._baselines import ExpressionRidge

        return ExpressionRidge()

    def _weigh(
        self, data: DoseResponseData, held: NDArray[np.bool_], inner: NDArray[np.bool_], device: torch.device
    ) -> None:
        """Find the network's share of the blend by least squares on the held-out lines."""
        curve, place = np.nonzero(held)
        drug, cell, dose = data.drug_index[curve], data.cell_index[curve], data.dose[curve, place]
        net = self._network(drug, cell, dose, device)[0]
        ridge = self._ridge().fit(data, inner).predict(data.drugs[drug], data.cells[cell], dose)
        truth = data.effect[curve, place]
        gap = net - ridge
        weight = float(gap @ (truth - ridge) / max(float(gap @ gap), 1e-12))
        self.stack_weight_ = min(1.0, max(0.0, weight))
        self.holdout_std_ = float(np.sqrt(np.mean((truth - ridge - self.stack_weight_ * gap) ** 2)))

    def _fit_gp(self, data: DoseResponseData, mask: NDArray[np.bool_]) -> None:
        from assay.bio.dose_response._metrics import value_variance
        from assay.bio.dose_response._residual import ResidualGP

        curve, place = np.nonzero(mask)
        drug, cell, dose = data.drug_index[curve], data.cell_index[curve], data.dose[curve, place]
        mean = self._network(drug, cell, dose, resolve_device(self.device))[0]
        residual = np.zeros(mask.shape)
        residual[curve, place] = data.effect[curve, place] - mean
        known = value_variance(data)[mask]
        known = known[np.isfinite(known) & (known > 0)]
        own = float(np.median(known)) if len(known) else 0.0
        self.residual_gp_ = ResidualGP(random_state=self.seed_).fit(data, residual, mask, noise_floor=own)
        if len(known):
            floor, left = own, float(np.mean(residual[mask] ** 2))
            # Not the process's noise alone: with a length scale below the dose spacing its amplitude acts as noise.
            if left < MEMORISED * floor:
                warnings.warn(
                    f"The mean squared training residual ({left:.2g}) is far below the variance of the replicates "
                    f"({floor:.2g}): the network has memorised noise, so intervals are too narrow; use fewer epochs or "
                    "more dropout.",
                    stacklevel=3,
                )

    def _index_pairs(self) -> None:
        drug, cell, observed = self.pairs_
        key = drug.astype(np.int64) * len(self.cells_.cells) + cell
        order = np.argsort(key)
        self._pair_key, self._pair_row, self._pair_seen = key[order], order, observed[order]

    def _curve_of(self, drug: NDArray[np.int64], cell: NDArray[np.int64]) -> NDArray[np.int64]:
        key = drug * len(self.cells_.cells) + cell
        at = np.minimum(np.searchsorted(self._pair_key, key), len(self._pair_key) - 1)
        hit = (self._pair_key[at] == key) & self._pair_seen[at] & (drug >= 0) & (cell >= 0)
        return np.where(hit, self._pair_row[at], -1)

    # ---------------------------------------------------------------------------------------------- predict

    def _network(
        self,
        drug: NDArray[np.int64],
        cell: NDArray[np.int64],
        dose: NDArray[np.float64],
        device: torch.device,
        tables: _Tables | None = None,
        prior_drug: NDArray[np.int64] | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and deviation over the ensemble at flat codes and doses, prior included."""
        tables = self._tables(self.cells_, self.drugs_, device) if tables is None else tables
        key = drug.astype(np.int64) * len(tables.cells) + cell
        distinct, inverse = np.unique(key, return_inverse=True)
        pair_drug = torch.as_tensor(distinct // len(tables.cells), device=device)
        pair_cell = torch.as_tensor(distinct % len(tables.cells), device=device)
        position = torch.as_tensor(inverse, device=device)
        z = torch.as_tensor(dose.astype(np.float32), device=device)
        outputs = []
        with torch.inference_mode():
            for module in self.modules_:
                module.eval()
                latent = [
                    module.latent(tables.forward_u(module, pair_cell[a : a + 4096], pair_drug[a : a + 4096]))
                    for a in range(0, len(distinct), 4096)
                ]
                bias, slope = torch.cat([b for b, _ in latent]), torch.cat([s for _, s in latent])
                parts = []
                for a in range(0, len(dose), POINT_CHUNK):
                    at = position[a : a + POINT_CHUNK]
                    parts.append(module.respond(bias[at], slope[at], z[a : a + POINT_CHUNK, None])[:, 0])
                outputs.append(torch.cat(parts).double().cpu().numpy())
        stacked = np.stack(outputs)
        mean = stacked.mean(axis=0)
        if self.prior_ is not None:
            mean = mean + self.prior_.predict(drug if prior_drug is None else prior_drug, dose)
        std = stacked.std(axis=0, ddof=1) if len(stacked) > 1 else np.zeros(len(dose))
        return mean, std

    def _check_fitted(self) -> None:
        if not hasattr(self, "pairs_"):
            raise NotFittedError("This ARCANet is not fitted; call fit or from_pretrained first.")

    def _codes(self, drug: NDArray[Any], cell: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        d, missing = codes(drug, self.drugs_.index)
        if self.drugs_.kind == "identity" and not missing:
            missing = [self.drugs_.drugs[i] for i in np.unique(d) if not self.drugs_.trained[i]]
        if missing:
            raise InputError(
                f"Drug {', '.join(missing[:5])} is not in the training data: give a SMILES to all drugs to predict "
                "unseen ones (predict_curve takes one)."
            )
        c, missing = codes(cell, self.cells_.index)
        if not missing:
            usable = self.cells_.trained if self.cells_.kind == "identity" else self.cells_.known
            missing = [self.cells_.cells[i] for i in np.unique(c) if not usable[i]]
        if missing:
            raise InputError(
                f"Line {', '.join(missing[:5])} is not in the training data and has no expression: give an expression "
                "row to predict it (predict_curve takes one)."
            )
        return d, c

    def predict(self, drug: Any, cell: Any, dose: Any, return_std: bool = False) -> Any:
        """Inhibition of the pairs at the doses.

        Parameters
        ----------
        drug, cell : str or array of str
            Names, broadcast against ``dose``.
        dose : float or array, uM, > 0
            Doses.
        return_std : bool, default False
            Also return the standard deviation of a new measurement.

        Returns
        -------
        mean : ndarray, shape of the broadcast
            Predicted inhibition.
        std : ndarray
            Only with ``return_std``: all sources of :meth:`uncertainty` together.

        Raises
        ------
        InputError
            For unknown names without structure or expression, doses that are not positive, or a deviation from a
            model that has no source of it.
        """
        self._check_fitted()
        drug, cell, dose = broadcast_query(drug, cell, dose)
        d, c = self._codes(drug.ravel(), cell.ravel())
        mean, parts = self._predict_codes(d, c, dose.ravel().astype(float), return_std)
        if not return_std:
            return mean.reshape(dose.shape)
        return mean.reshape(dose.shape), _total(parts).reshape(dose.shape)

    def uncertainty(self, drug: Any, cell: Any, dose: Any) -> dict[str, NDArray[np.float64]]:
        """Standard deviations by source: residual process (``"gp"``), ensemble, inner hold-out, and ``"total"``.

        Parameters
        ----------
        drug, cell, dose
            As in :meth:`predict`.

        Returns
        -------
        dict of str to ndarray
            Only the sources that this model has.
        """
        self._check_fitted()
        drug, cell, dose = broadcast_query(drug, cell, dose)
        d, c = self._codes(drug.ravel(), cell.ravel())
        _, parts = self._predict_codes(d, c, dose.ravel().astype(float), True)
        return {k: v.reshape(dose.shape) for k, v in (parts | {"total": _total(parts)}).items()}

    def _predict_codes(
        self,
        d: NDArray[np.int64],
        c: NDArray[np.int64],
        dose: NDArray[np.float64],
        return_std: bool,
    ) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        device = resolve_device(self.device)
        mean, spread = self._network(d, c, dose, device)
        parts: dict[str, NDArray[np.float64]] = {}
        if len(self.modules_) > 1:
            parts["ensemble"] = spread
        if self.residual_gp_ is not None:
            curve = self._curve_of(d, c)
            correction, deviation = self.residual_gp_.predict(curve, dose)
            mean = mean + correction
            parts["gp"] = deviation
        if self.ridge_ is not None:
            w = self.stack_weight_
            assert w is not None
            known = np.flatnonzero(self.ridge_.knows(d))  # a drug without training lines is the network's alone
            mean[known] = w * mean[known] + (1.0 - w) * self.ridge_.predict(d[known], c[known], dose[known])
            if "ensemble" in parts:
                parts["ensemble"][known] *= w
            assert self.holdout_std_ is not None
            parts["holdout"] = np.full(dose.shape, self.holdout_std_)
        if return_std and not parts:
            raise InputError(_NO_STD)
        return mean, parts

    def predict_curve(
        self,
        doses: ArrayLike,
        *,
        drug: str | None = None,
        cell: str | None = None,
        smiles: str | None = None,
        expression: pd.Series | Mapping[str, float] | None = None,
        return_std: bool = False,
    ) -> Any:
        """Predict one curve, of a drug and a line that may both be new.

        Parameters
        ----------
        doses : array, uM, > 0
            Doses of the curve.
        drug, cell : str or None
            Known names.
        smiles : str or None
            Structure of a new drug, instead of ``drug``.
        expression : Series or mapping of gene to value, or None
            Expression of a new line, instead of ``cell``; at least 90 % of the training genes.
        return_std : bool, default False
            Also return the standard deviation of a new measurement.

        Returns
        -------
        mean : ndarray, shape of ``doses``
            Predicted inhibition.
        std : ndarray
            Only with ``return_std``, from the sources that :meth:`predict` has for a pair that was not measured.

        Warns
        -----
        ApplicabilityWarning
            If the drug or the line is unlike those of the training (see :meth:`applicability`).

        Raises
        ------
        InputError
            If a side is given twice or not at all, or cannot be encoded, or for a deviation from a model that has no
            source of it.
        """
        self._check_fitted()
        doses = np.asarray(doses, dtype=float)
        broadcast_query("", "", doses)  # the checks of the doses
        if (drug is None) == (smiles is None):
            raise InputError("Give either drug= (a known name) or smiles= (a new structure).")
        if (cell is None) == (expression is None):
            raise InputError("Give either cell= (a known name) or expression= (a new line).")
        if drug is not None and cell is not None:
            return self.predict(drug, cell, doses, return_std=return_std)
        reach = self.applicability(drug=drug, cell=cell, smiles=smiles, expression=expression)
        for sentence in reach["warnings"]:
            warnings.warn(sentence, ApplicabilityWarning, stacklevel=2)
        device = resolve_device(self.device)
        flat = doses.ravel()
        d_code = 0 if drug is None else int(self._codes_drug(drug))
        c_code = 0 if cell is None else int(self._codes_cell(cell))
        drug_rows = self._drug_rows(self.drugs_, device) if smiles is None else self._new_drug(smiles, device)
        if expression is None:
            cell_rows = np.arange(len(self.cells_.cells)) if self.cells_.kind == "identity" else self.cells_.features
        else:
            cell_rows = self.cells_.transform(self.cells_.align(expression)[None])
        mean, spread = self._network(
            np.full(len(flat), d_code),
            np.full(len(flat), c_code),
            flat,
            device,
            tables=_Tables(cell_rows, drug_rows, device),
            prior_drug=np.full(len(flat), -1 if drug is None else d_code),
        )
        parts: dict[str, NDArray[np.float64]] = {}
        if len(self.modules_) > 1:
            parts["ensemble"] = spread
        if self.residual_gp_ is not None:  # nothing was measured of this pair: no correction, the whole deviation
            parts["gp"] = self.residual_gp_.predict(np.full(len(flat), -1), flat)[1]
        if self.ridge_ is not None and drug is not None and expression is not None:
            code = np.full(len(flat), d_code)
            if bool(self.ridge_.knows(code[:1])[0]):
                w = self.stack_weight_
                assert w is not None
                row = dict(zip(self.cells_.genes, self.cells_.align(expression), strict=True))
                mean = w * mean + (1.0 - w) * self.ridge_.predict_row(code, row, flat)
                if "ensemble" in parts:
                    parts["ensemble"] = w * parts["ensemble"]
            assert self.holdout_std_ is not None
            parts["holdout"] = np.full(len(flat), self.holdout_std_)
        if not return_std:
            return mean.reshape(doses.shape)
        if not parts:
            raise InputError(_NO_STD)
        return mean.reshape(doses.shape), _total(parts).reshape(doses.shape)

    def _strangers(self, drug: NDArray[Any], cell: NDArray[Any]) -> tuple[list[str], list[str]]:
        """Names of drugs and of lines that :meth:`predict` cannot take."""
        drugs, cells = self.drugs_, self.cells_
        usable = cells.trained if cells.kind == "identity" else cells.known
        return (
            [
                d
                for d in np.unique(drug.astype(str)).tolist()
                if d not in drugs.index or (drugs.kind == "identity" and not drugs.trained[drugs.index[d]])
            ],
            [c for c in np.unique(cell.astype(str)).tolist() if c not in cells.index or not usable[cells.index[c]]],
        )

    def _codes_drug(self, drug: str) -> np.int64:
        return self._codes(np.array([drug]), np.array([self._any_cell()]))[0][0]

    def _codes_cell(self, cell: str) -> np.int64:
        return self._codes(np.array([self._any_drug()]), np.array([cell]))[1][0]

    def _any_cell(self) -> str:
        return self.cells_.cells[int(np.flatnonzero(self.cells_.trained)[0])]

    def _any_drug(self) -> str:
        return self.drugs_.drugs[int(np.flatnonzero(self.drugs_.trained)[0])]

    def _new_drug(self, smiles: str, device: torch.device) -> Any:
        from assay.bio._shared.molecules import molecule_graph, morgan_fingerprints, pack_graphs

        if self.drugs_.kind == "identity":
            raise InputError("This model knows its drugs by name only; train with SMILES to predict a new structure.")
        if self.drugs_.kind == "fingerprint":
            return morgan_fingerprints([smiles])[:, self.drugs_.columns].astype(np.float32)
        return GraphTensors(pack_graphs([molecule_graph(smiles)]), device)

    def applicability(
        self,
        *,
        drug: str | None = None,
        cell: str | None = None,
        smiles: str | None = None,
        expression: pd.Series | Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """How near a drug and a line are to those of the training.

        Parameters
        ----------
        drug, cell, smiles, expression
            As in :meth:`predict_curve`; any of them may be left out.

        Returns
        -------
        dict
            ``nearest_drug``, ``tanimoto`` (1 for the same fingerprint), ``nearest_cell``, ``cell_distance`` (in units
            of the 95th percentile of the nearest-neighbour distances among training lines) as far as they apply, and
            ``warnings``, a list of sentences.
        """
        self._check_fitted()
        out: dict[str, Any] = {"warnings": []}
        structure = smiles
        if drug is not None:
            self._codes_drug(drug)
            structure = None if self.drugs_.smiles is None else self.drugs_.smiles.get(drug)
        if structure is not None and self.drugs_.kind != "identity":
            from assay.bio._shared.molecules import morgan_fingerprints

            out["nearest_drug"], out["tanimoto"] = self.drugs_.nearest(morgan_fingerprints([structure])[0])
            if out["tanimoto"] < FAR_TANIMOTO:
                out["warnings"].append(
                    f"The nearest training drug, {out['nearest_drug']}, has Tanimoto similarity "
                    f"{out['tanimoto']:.2f}: expect little more than the mean curve."
                )
        elif smiles is not None:
            self._new_drug(smiles, torch.device("cpu"))
        if expression is not None and self.cells_.kind == "identity":
            raise InputError("This model knows its lines by name only; train with expression to predict a new line.")
        if self.cells_.kind == "expression" and (expression is not None or cell is not None):
            if cell is not None:
                feature = self.cells_.features[int(self._codes_cell(cell))]
            else:
                assert expression is not None
                feature = self.cells_.transform(self.cells_.align(expression)[None])[0]
            out["nearest_cell"], out["cell_distance"] = self.cells_.nearest(feature)
            if out["cell_distance"] > FAR_LINE:
                out["warnings"].append(
                    f"The line is {out['cell_distance']:.1f} times as far from its nearest training line, "
                    f"{out['nearest_cell']}, as training lines are from each other: the prediction is an extrapolation."
                )
        return out

    def score(self, data: DoseResponseData, mask: ArrayLike | None = None) -> float:
        """Minus the mean squared error at the measured points where ``mask`` is True (None: all).

        Parameters
        ----------
        data : DoseResponseData
            Curves with the truth.
        mask : array of bool or None
            Points to score.
        """
        points = training_mask(data, mask)
        curve, place = np.nonzero(points)
        pred = self.predict(
            data.drugs[data.drug_index[curve]], data.cells[data.cell_index[curve]], data.dose[curve, place]
        )
        return -float(np.mean((pred - data.effect[curve, place]) ** 2))

    # ------------------------------------------------------------------------------------------------- files

    def save_pretrained(self, directory: str | Path) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder.

        Parameters
        ----------
        directory : path
            Created if it does not exist.

        Notes
        -----
        1. The scaled expression of the lines, the fingerprints and the residuals of the training curves are part of
           the model, because predictions by name need them.
        """
        self._check_fitted()
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Any] = {}
        for i, module in enumerate(self.modules_):
            tensors |= {f"module{i}/{n}": t for n, t in module.state_dict().items()}
        cell_arrays, cell_meta = self.cells_.state()
        drug_arrays, drug_meta = self.drugs_.state()
        groups: dict[str, Mapping[str, Any]] = {"cells": cell_arrays, "drugs": drug_arrays}
        groups["pairs"] = dict(zip(("drug", "cell", "observed"), self.pairs_, strict=True))
        if self.prior_ is not None:
            groups["prior"] = self.prior_.state()
        if self.residual_gp_ is not None:
            groups["gp"] = self.residual_gp_.to_arrays()
        if self.ridge_ is not None:
            groups["ridge"] = self.ridge_.to_arrays()
        for group, arrays in groups.items():
            for key, a in arrays.items():
                a = np.asarray(a)
                # safetensors holds no strings: they travel as UTF-8 bytes of JSON.
                if a.dtype.kind in "UOS":
                    tensors[f"{group}/{key}:json"] = np.frombuffer(json.dumps(a.tolist()).encode(), dtype=np.uint8)
                else:
                    tensors[f"{group}/{key}"] = a.astype(np.uint8) if a.dtype == bool else a
        params = self.get_params(deep=False) | {"device": str(self.device)}
        if not _is_int(params["random_state"]):
            params["random_state"] = None
        save_tensors(directory / "model.safetensors", tensors, {"format": 1})
        write_json(
            directory / "config.json",
            {
                "format": 1,
                "model": "assay.bio.dose_response.ARCANet",
                "params": params,
                "settings": self.settings_,
                "seed": self.seed_,
                "module": self.modules_[0].config.to_dict(),
                "cells": cell_meta,
                "drugs": drug_meta,
                "stack_weight": self.stack_weight_,
                "holdout_std": self.holdout_std_,
                "history": self.history_,
            },
        )

    @classmethod
    def from_pretrained(cls, directory: str | Path, device: str | torch.device = "cpu") -> ARCANet:
        """Load what :meth:`save_pretrained` wrote; predictions are those of the saved model.

        Parameters
        ----------
        directory : path
            The folder.
        device : str or torch.device, default "cpu"
            Where to predict.

        Raises
        ------
        InputError
            If the folder does not hold a model of this class.
        """
        directory = Path(directory)
        config = read_json(directory / "config.json")
        if config.get("model") != "assay.bio.dose_response.ARCANet":
            raise InputError(
                f"{directory / 'config.json'} does not describe an ARCANet; give the folder that fit wrote."
            )
        tensors, _ = load_tensors(directory / "model.safetensors")
        groups: dict[str, dict[str, Any]] = {}
        for key, a in tensors.items():
            group, _, name = key.partition("/")
            if name.endswith(":json"):
                name, a = name.removesuffix(":json"), np.array(json.loads(a.tobytes().decode()))
            groups.setdefault(group, {})[name] = a
        new = cls(**(config["params"] | {"device": device}))
        new.settings_, new.seed_, new.history_ = config["settings"], config["seed"], config["history"]
        new.clean_ = new.settings_["clean"]
        new.cells_ = CellInputs.from_state(groups["cells"], config["cells"])
        new.drugs_ = DrugInputs.from_state(groups["drugs"], config["drugs"])
        new.prior_ = DrugMeanPrior.from_state(groups["prior"]) if "prior" in groups else None
        new.residual_gp_ = None
        if "gp" in groups:
            from assay.bio.dose_response._residual import ResidualGP

            new.residual_gp_ = ResidualGP.from_arrays(groups["gp"])
        new.ridge_ = None
        if "ridge" in groups:
            from assay.bio.dose_response._stack import FrozenRidge

            new.ridge_ = FrozenRidge.from_arrays(groups["ridge"])
        new.stack_weight_, new.holdout_std_ = config["stack_weight"], config["holdout_std"]
        pairs = groups["pairs"]
        new.pairs_ = (pairs["drug"], pairs["cell"], pairs["observed"].astype(bool))
        new._index_pairs()
        new.modules_ = []
        for i in range(new.settings_["n_ensemble"]):
            module = ARCANetModule(ARCANetConfig(**config["module"]))
            module.load_state_dict({n: torch.tensor(a) for n, a in groups[f"module{i}"].items()})
            new.modules_.append(module.to(resolve_device(device)).eval())
        return new


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {key[len(prefix) :]: a for key, a in arrays.items() if key.startswith(prefix)}


def _total(parts: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.sqrt(np.sum([v**2 for v in parts.values()], axis=0))


def _fingerprint(settings: Mapping[str, Any], data: DoseResponseData, mask: NDArray[np.bool_], seed: Any) -> str:
    """Hash of everything that decides a fit, so that a checkpoint is never continued on other data."""
    digest = hashlib.sha256(json.dumps([settings, None if seed is None else int(seed)], sort_keys=True).encode())
    for a in (data.drug_index, data.cell_index, np.nan_to_num(data.dose), np.nan_to_num(data.effect), mask):
        digest.update(np.ascontiguousarray(a).tobytes())
    digest.update(json.dumps([list(map(str, data.drugs)), list(map(str, data.cells)), data.smiles]).encode())
    if data.expression is not None:
        digest.update(np.ascontiguousarray(data.expression.to_numpy(dtype=np.float64)).tobytes())
    return digest.hexdigest()


def _reset(module: ARCANetModule) -> None:
    """Draw the weights anew from the current stream by building the network once more."""
    module.load_state_dict(ARCANetModule(module.config).state_dict())
