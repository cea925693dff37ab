"""One way to turn a seed into generators, so that the same seed gives the same numbers everywhere."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import torch

    RandomState = int | np.random.Generator | np.random.RandomState | None


def as_rng(random_state: RandomState = None) -> np.random.Generator:
    """Return a NumPy generator for any of the ways scikit-learn users give a seed.

    Parameters
    ----------
    random_state : int, numpy Generator, numpy RandomState or None
        None draws fresh entropy; a Generator is used (and advanced) as it is.
    """
    import numpy as np

    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    if random_state is None or isinstance(random_state, (int, np.integer, np.random.SeedSequence)):
        if isinstance(random_state, (int, np.integer)) and random_state < 0:
            raise InputError(f"random_state must be a non-negative integer, got {random_state}.")
        return np.random.default_rng(random_state)
    raise InputError(f"random_state must be an integer, a numpy Generator or None, got {type(random_state).__name__}.")


def derive(seed: int, *keys: str | int) -> int:
    """Return a stable 63-bit child seed of `seed` for the named purpose.

    Unlike ``hash`` it does not change between processes, and unlike ``seed + i`` two purposes never share a stream.
    """
    digest = hashlib.sha256(repr((int(seed), *keys)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def torch_generator(
    seed: int | np.random.Generator | None = None, device: str | torch.device = "cpu"
) -> torch.Generator:
    """Return a torch generator on `device`, seeded from an integer, a NumPy generator or fresh entropy."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(int(as_rng(seed).integers(2**63 - 1)) if not isinstance(seed, int) else seed)
    return generator


def seed_everything(seed: int) -> None:
    """Seed `random`, NumPy's legacy state and torch; for the process of one experiment cell, not for a library."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - third parties inside a cell may still use the legacy state
    torch.manual_seed(seed)
