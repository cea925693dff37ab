"""Subset sums: which weights can be packed on one side without cutting anything."""

from __future__ import annotations

import numpy as np

__all__ = ["reachable_sums", "subset_sum"]

# Largest total for the exact bitset (2^22 bits = half a MiB per stored row).
BITSET_LIMIT = 1 << 22
# Cells of the grid for weights that are not small integers.
GRID = 1 << 16
# Up to this many real weights all subsets are compared by meeting in the middle (2 x 2^10 sums).
MEET_LIMIT = 20


def _items(weights: np.ndarray) -> list[tuple[int, int, int]]:
    """(value, multiplicity, packed weight) by binary splitting: c equal weights become O(log c) items."""
    items = []
    for value, count in zip(*np.unique(weights, return_counts=True), strict=True):
        step, left = 1, int(count)
        while left > 0:
            take = min(step, left)
            items.append((int(value), take, int(value) * take))
            left -= take
            step *= 2
    return items


def reachable_sums(weights: np.ndarray) -> np.ndarray:
    """Boolean array over 0..sum(weights): which totals some subset of positive integers `weights` has.

    Parameters
    ----------
    weights : ndarray of positive integers
        Their sum must stay below 2^22.

    Returns
    -------
    ndarray of bool, shape (sum + 1,)
    """
    total = int(weights.sum())
    bits = 1
    for _, _, size in _items(weights):
        bits |= bits << size
    raw = np.frombuffer(bits.to_bytes(total // 8 + 1, "little"), dtype=np.uint8)
    return np.unpackbits(raw, bitorder="little")[: total + 1].astype(bool)


def _integer_subset(weights: np.ndarray, low: int, high: int) -> np.ndarray | None:
    items = _items(weights)
    rows = [1]
    for _, _, size in items:
        rows.append(rows[-1] | (rows[-1] << size))
    window = rows[-1] >> max(low, 0)
    window &= (1 << (high - max(low, 0) + 1)) - 1
    if not window:
        return None
    middle = (low + high) // 2 - max(low, 0)
    # the reachable total nearest to the middle of the window
    below = (window & ((1 << (middle + 1)) - 1)).bit_length() - 1
    above_bits = window >> (middle + 1)
    above = middle + 1 + ((above_bits & -above_bits).bit_length() - 1) if above_bits else -1
    offset = below if above < 0 or (below >= 0 and middle - below <= above - middle) else above
    target = max(low, 0) + offset
    take: dict[int, int] = {}
    for (value, multiplicity, size), row in zip(reversed(items), reversed(rows[:-1]), strict=True):
        if not (row >> target) & 1:
            take[value] = take.get(value, 0) + multiplicity
            target -= size
    chosen = np.zeros(weights.size, dtype=bool)
    for value, count in take.items():
        chosen[np.flatnonzero(weights == value)[:count]] = True
    return chosen


def _all_sums(weights: np.ndarray) -> np.ndarray:
    sums = np.zeros(1)
    for w in weights:
        sums = np.concatenate([sums, sums + w])
    return sums


def subset_sum(weights: np.ndarray, low: float, high: float) -> np.ndarray | None:
    """Find a subset of positive `weights` whose sum lies in [low, high], near the middle where there is a choice.

    Parameters
    ----------
    weights : ndarray of shape (c,)
        Positive weights.
    low, high : float
        Window for the sum.

    Returns
    -------
    ndarray of bool, shape (c,), or None
        None: no such subset (exact for integers with a sum below 2^22 and for up to 20 reals), or, for more real
        weights, none on a grid of 2^16 cells or by the greedy packing.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.graphs.semirandom_cut._packing import subset_sum
    >>> subset_sum(np.array([7, 5, 3]), 8, 9)
    array([False,  True,  True])
    """
    weights = np.asarray(weights, dtype=np.float64)
    total = float(weights.sum())
    if low > high or high < 0 or low > total:
        return None
    if np.all(weights == np.rint(weights)) and total <= BITSET_LIMIT:
        first, last = int(np.ceil(low - 1e-9)), int(np.floor(min(high, total) + 1e-9))
        return _integer_subset(np.rint(weights).astype(np.int64), first, last) if first <= last else None
    slack = 1e-12 * total  # sums in another order differ in the last digits
    if weights.size <= MEET_LIMIT:
        half = weights.size // 2
        left, right = _all_sums(weights[:half]), _all_sums(weights[half:])
        order = np.argsort(right)
        middle = (low + high) / 2
        at = np.clip(np.searchsorted(right[order], middle - left), 1, right.size - 1) if right.size > 1 else None
        pairs = (
            [(left + right[order[0]], np.zeros(left.size, dtype=np.int64))]
            if at is None
            else [(left + right[order[a]], a) for a in (at - 1, at)]
        )
        gaps = np.stack([np.abs(sums - middle) for sums, _ in pairs])
        which, row = np.unravel_index(int(gaps.argmin()), gaps.shape)
        if not low - slack <= pairs[which][0][row] <= high + slack:
            return None
        column = int(order[pairs[which][1][row]])
        bits = [(int(row) >> i) & 1 for i in range(half)]
        bits += [(column >> i) & 1 for i in range(weights.size - half)]
        return np.array(bits, dtype=bool)
    chosen = np.zeros(weights.size, dtype=bool)
    filled = 0.0
    for i in np.argsort(-weights, kind="stable"):  # largest first, while it fits
        if filled + weights[i] <= (low + high) / 2 or (filled < low and filled + weights[i] <= high):
            chosen[i] = True
            filled += weights[i]
    if low <= filled <= high:
        return chosen
    cell = total / GRID
    coarse = np.maximum(np.rint(weights / cell).astype(np.int64), 1)
    best = _integer_subset(coarse, int(np.floor(low / cell)), int(np.ceil(high / cell)))
    if best is not None and low - slack <= weights[best].sum() <= high + slack:
        return best
    return None
