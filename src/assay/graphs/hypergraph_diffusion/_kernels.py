"""Compiled loops over the members of hyperedges, each beside a numpy version with the same result.

Every kernel takes the incidence as CSR arrays (`indptr`, `indices`: members of a hyperedge are contiguous) and scores
`x` of shape (n, c), row-major, so that the columns of one vertex share a cache line.

The order of every sum is fixed (members of a hyperedge as stored, hyperedges in increasing order), and the numpy
versions add in the same order, so that both agree bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay._shared.accel import njit

Array = NDArray[np.float64]
Index = NDArray[np.int32]


def _starts(indptr: Index) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Start of every hyperedge, and the hyperedge of every incidence."""
    return indptr[:-1].astype(np.intp), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def extent_numpy(x: Array, indptr: Index, indices: Index, delta: Array) -> None:
    """Numpy version of `extent`."""
    start, _ = _starts(indptr)
    member = x[indices]
    delta[:] = np.maximum.reduceat(member, start, axis=0) - np.minimum.reduceat(member, start, axis=0)


@njit(fallback=extent_numpy, fastmath={"nnan", "nsz"})
def extent(x, indptr, indices, delta):
    """delta[h, k] = max - min of column k over hyperedge h."""
    c = x.shape[1]
    for h in range(len(indptr) - 1):
        a, b = indptr[h], indptr[h + 1]
        for k in range(c):
            high = low = x[indices[a], k]
            for p in range(a + 1, b):
                v = x[indices[p], k]
                high = v if v > high else high
                low = v if v < low else low
            delta[h, k] = high - low


def standard_numpy(x: Array, indptr: Index, indices: Index, weight: Array, d: Array, out: Array, delta: Array) -> None:
    """Numpy version of `standard`: segmented maxima and minima by `reduceat`, sums by `bincount`."""
    start, edge = _starts(indptr)
    member = x[indices]
    high = np.maximum.reduceat(member, start, axis=0)
    low = np.minimum.reduceat(member, start, axis=0)
    np.subtract(high, low, out=delta)
    m, n = len(start), len(out)
    for k in range(x.shape[1]):
        pull = weight * delta[:, k]
        open_ = delta[edge, k] > 0
        shares = np.zeros(len(edge))
        for bound, sign in ((high, 1.0), (low, -1.0)):
            tied = np.flatnonzero(open_ & (member[:, k] == bound[edge, k]))
            of = edge[tied]
            total = np.bincount(of, weights=d[indices[tied]], minlength=m)
            shares[tied] = sign * (pull[of] / total[of])
        moved = np.flatnonzero(shares)
        out[:, k] = np.bincount(indices[moved], weights=shares[moved], minlength=n)


# No NaN ever reaches a kernel (inputs are checked), and the sign of a zero means nothing: with these two promises the
# compiler may vectorise maxima. Sums keep their order. Division by zero is left to IEEE where its result is not used.
_FAST: dict[str, Any] = {"fastmath": {"nnan", "nsz"}, "error_model": "numpy"}


@njit(fallback=standard_numpy, **_FAST)
def standard(x, indptr, indices, weight, d, out, delta):
    """Subgradient of the max - min potential, divided by the degrees; ties share by degree.

    out[i] = sum_h +-w_h delta_h / (degrees of all tied vertices) over the hyperedges of which i is an extreme vertex;
    delta as in `extent`. Hyperedges of two members are written out; up to eight members there are no branches on the
    scores; above, the tied members (usually one or two) are collected while the degrees are summed.
    """
    c = x.shape[1]
    for i in range(out.shape[0]):
        for k in range(c):
            out[i, k] = 0.0
    largest = 1
    for h in range(len(indptr) - 1):
        largest = max(largest, indptr[h + 1] - indptr[h])
    value = np.empty(largest)
    tied = np.empty(largest, np.int32)
    small_d = np.empty(8)
    small_i = np.empty(8, np.int32)
    for h in range(len(indptr) - 1):
        a, b = indptr[h], indptr[h + 1]
        w = weight[h]
        size = b - a
        if size == 2:
            i, j = indices[a], indices[a + 1]
            di, dj = d[i], d[j]
            for k in range(c):
                gap = x[i, k] - x[j, k]
                delta[h, k] = abs(gap)
                pull = w * gap
                out[i, k] += pull / di
                out[j, k] -= pull / dj
        elif size == 3:
            i, j, l = indices[a], indices[a + 1], indices[a + 2]
            di, dj, dl = d[i], d[j], d[l]
            for k in range(c):
                u, v, z = x[i, k], x[j, k], x[l, k]
                high = u if u > v else v
                high = high if high > z else z
                low = u if u < v else v
                low = low if low < z else z
                gap = high - low
                delta[h, k] = gap
                top = (di if u == high else 0.0) + (dj if v == high else 0.0) + (dl if z == high else 0.0)
                bottom = (di if u == low else 0.0) + (dj if v == low else 0.0) + (dl if z == low else 0.0)
                up, down = w * gap / top, -(w * gap / bottom)
                out[i, k] += up if u == high else (down if u == low else 0.0)
                out[j, k] += up if v == high else (down if v == low else 0.0)
                out[l, k] += up if z == high else (down if z == low else 0.0)
        elif size <= 8:
            for p in range(size):
                small_i[p] = indices[a + p]
                small_d[p] = d[small_i[p]]
            for k in range(c):
                high = low = x[small_i[0], k]
                value[0] = high
                for p in range(1, size):
                    v = x[small_i[p], k]
                    value[p] = v
                    high = v if v > high else high
                    low = v if v < low else low
                gap = high - low
                delta[h, k] = gap
                top = bottom = 0.0
                for p in range(size):
                    top += small_d[p] if value[p] == high else 0.0
                    bottom += small_d[p] if value[p] == low else 0.0
                up, down = w * gap / top, -(w * gap / bottom)
                for p in range(size):
                    v = value[p]
                    out[small_i[p], k] += up if v == high else (down if v == low else 0.0)
        else:
            for k in range(c):
                for p in range(size):
                    value[p] = x[indices[a + p], k]
                high = low = value[0]
                for p in range(1, size):
                    v = value[p]
                    high = v if v > high else high
                    low = v if v < low else low
                gap = high - low
                delta[h, k] = gap
                if gap > 0.0:
                    top = bottom = 0.0
                    count = 0
                    for p in range(size):
                        v = value[p]
                        if v == high or v == low:  # noqa: SIM109 - a tuple would be built per member without numba
                            tied[count] = p
                            count += 1
                    for q in range(count):
                        p = tied[q]
                        if value[p] == high:
                            top += d[indices[a + p]]
                        else:
                            bottom += d[indices[a + p]]
                    up, down = w * gap / top, -(w * gap / bottom)
                    for q in range(count):
                        p = tied[q]
                        out[indices[a + p], k] += up if value[p] == high else down


def weighted_numpy(
    x: Array, indptr: Index, indices: Index, r: Array, weight: Array, d: Array, out: Array, delta: Array
) -> None:
    """Numpy version of `weighted`."""
    start, edge = _starts(indptr)
    m, n = len(start), len(out)
    member = x[indices]
    for k in range(x.shape[1]):
        v = member[:, k]
        high, low = np.maximum.reduceat(v, start), np.minimum.reduceat(v, start)
        # the first member that attains a bound, as in the compiled loop
        i = _first(v == high[edge], edge, m)
        j = _first(v == low[edge], edge, m)
        moving = np.ones(m, dtype=bool)
        centre, level = np.zeros(m), np.zeros(m)
        active = {1.0: i, -1.0: j}
        for _ in range(_MOST_PAIRS):
            new_level = (v[i] - v[j]) / (1.0 / r[i] + 1.0 / r[j])
            new_centre = v[i] - new_level / r[i]
            moving &= new_level > level
            level, centre = np.where(moving, new_level, level), np.where(moving, new_centre, centre)
            active = {1.0: np.where(moving, i, active[1.0]), -1.0: np.where(moving, j, active[-1.0])}
            if not moving.any():
                break
            above, below = r * (v - centre[edge]), r * (centre[edge] - v)
            i = np.where(moving, _first(above == np.maximum.reduceat(above, start)[edge], edge, m), i)
            j = np.where(moving, _first(below == np.maximum.reduceat(below, start)[edge], edge, m), j)
        delta[:, k] = 2.0 * level
        slack = level * (1.0 - _TIE)
        open_ = (level > 0)[edge]
        shares = np.zeros(len(edge))
        total, inverse = {}, {}
        ties = {}
        position = np.arange(len(edge))
        free = open_.copy()
        for sign in (1.0, -1.0):
            near = sign * (r * (v - centre[edge])) >= slack[edge]
            tied = np.flatnonzero(free & (near | (position == active[sign][edge])))
            free[tied] = False
            degree = d[indices[tied]]
            total[sign] = np.bincount(edge[tied], weights=degree, minlength=m)
            inverse[sign] = np.bincount(edge[tied], weights=degree / r[tied], minlength=m)
            ties[sign] = tied
        with np.errstate(divide="ignore", invalid="ignore"):  # hyperedges with equal scores have no tied vertices
            tau = 2.0 / (inverse[1.0] / total[1.0] + inverse[-1.0] / total[-1.0])
        for sign in (1.0, -1.0):
            of = edge[ties[sign]]
            shares[ties[sign]] = sign * (weight[of] * delta[of, k] * tau[of] / total[sign][of])
        moved = np.flatnonzero(shares)
        out[:, k] = np.bincount(indices[moved], weights=shares[moved], minlength=n)


def _first(mask: NDArray[np.bool_], edge: NDArray[np.intp], m: int) -> NDArray[np.intp]:
    """Position of the first true entry of every hyperedge."""
    at = np.flatnonzero(mask)
    found = np.zeros(m, dtype=np.intp)
    found[edge[at][::-1]] = at[::-1]  # the last write wins: the first position
    return found


# Each exchange of the active pair raises the level, so that they end by themselves; rounding could make two pairs
# alternate at one level, which the strict comparison ends. The cap only bounds the loop for the reader.
_MOST_PAIRS = 10_000
# Deviations within this relative distance of the largest count as tied with the active pair: the balanced centre carries
# rounding of a few ulp.
_TIE = 1e-12


@njit(fallback=weighted_numpy)
def weighted(x, indptr, indices, r, weight, d, out, delta):
    """As `standard` for delta_h = 2 min_u max_i r_hi |x_i - u|.

    The minimiser equalises the largest upper and the largest lower deviation. From the pair (argmax x, argmin x) the
    active pair is exchanged until no vertex deviates more: the level rises at each exchange, so this ends, usually
    after two or three passes.
    """
    c = x.shape[1]
    for i in range(out.shape[0]):
        for k in range(c):
            out[i, k] = 0.0
    for h in range(len(indptr) - 1):
        a, b = indptr[h], indptr[h + 1]
        for k in range(c):
            up = down = active_up = active_down = a
            for p in range(a + 1, b):
                v = x[indices[p], k]
                if v > x[indices[up], k]:
                    up = p
                if v < x[indices[down], k]:
                    down = p
            level = centre = 0.0
            for _ in range(10_000):
                new_level = (x[indices[up], k] - x[indices[down], k]) / (1.0 / r[up] + 1.0 / r[down])
                if not new_level > level:
                    break
                level, active_up, active_down = new_level, up, down
                centre = x[indices[up], k] - level / r[up]
                most_up = most_down = -np.inf
                for p in range(a, b):
                    v = x[indices[p], k]
                    above, below = r[p] * (v - centre), r[p] * (centre - v)
                    if above > most_up:
                        most_up, up = above, p
                    if below > most_down:
                        most_down, down = below, p
            delta[h, k] = 2.0 * level
            if level > 0.0:
                slack = level * (1.0 - 1e-12)
                top = bottom = top_inverse = bottom_inverse = 0.0
                for p in range(a, b):
                    i = indices[p]
                    deviation = r[p] * (x[i, k] - centre)
                    if p == active_up or deviation >= slack:
                        top += d[i]
                        top_inverse += d[i] / r[p]
                    elif p == active_down or -deviation >= slack:
                        bottom += d[i]
                        bottom_inverse += d[i] / r[p]
                tau = 2.0 / (top_inverse / top + bottom_inverse / bottom)
                pull = weight[h] * delta[h, k] * tau
                for p in range(a, b):
                    i = indices[p]
                    deviation = r[p] * (x[i, k] - centre)
                    if p == active_up or deviation >= slack:
                        out[i, k] += pull / top
                    elif p == active_down or -deviation >= slack:
                        out[i, k] -= pull / bottom


# Elementwise updates gain a factor of 1.6 at most from compilation: numpy it is.
def step(
    x: Array,
    a: Array,
    target: Array,
    lam: float,
    h: float,
    share: float,
    mean_x: Array,
    mean_a: Array,
    scratch: Array,
) -> None:
    """Weighted means of the point and of its subgradient, then x -= h (a + lam x - target); in place, a is used up."""
    for mean, value in ((mean_x, x), (mean_a, a)):
        np.subtract(value, mean, out=scratch)
        scratch *= share
        mean += scratch
    np.multiply(x, lam, out=scratch)
    a += scratch
    a -= target
    a *= h
    x -= a


@njit
def dual_sweep(order, indptr, indices, weight, d, lam, x, y, gamma):
    """One sweep of exact block ascent over the hyperedges in `order`, for one column (in place: x, y, gamma).

    y holds the dual of every incidence, gamma[h] the sum of its positive part, and x = (s - sum_h y_h) / (lam d). With
    b = x + y_h / (lam d), the block's optimum is x = clip(b, l, u) with
    w (u - l) = lam sum d (b - u)_+ = lam sum d (l - b)_+ = gamma.

    (u, l) is the root of a piecewise linear system: Newton's method on the active sets {b > u}, {b < l}, started from
    the extreme values, is exact once the sets repeat. Where it has not settled after 30 rounds (the map is not
    globally monotone), break points are walked in sorted order instead.
    """
    n_edges = len(indptr) - 1
    largest = 0
    for h in range(n_edges):
        largest = max(largest, indptr[h + 1] - indptr[h])
    b = np.empty(largest)
    for step_ in range(len(order)):
        h = order[step_]
        first, last = indptr[h], indptr[h + 1]
        size = last - first
        w = weight[h]
        high, low = -np.inf, np.inf
        for p in range(size):
            i = indices[first + p]
            v = x[i] + y[first + p] / (lam * d[i])
            b[p] = v
            high = max(high, v)
            low = min(low, v)
        u, l, g = high, low, 0.0
        if high > low:
            count_top = count_bottom = -1
            settled = False
            # a start just inside the extremes: the first sets are the tied maxima and minima
            u = high - 1e-12 * (high - low)
            l = low + 1e-12 * (high - low)
            for _ in range(30):
                top = top_b = bottom = bottom_b = 0.0
                n_top = n_bottom = 0
                for p in range(size):
                    v = b[p]
                    if v > u:
                        e = d[indices[first + p]]
                        top += e
                        top_b += e * (v - high)
                        n_top += 1
                    elif v < l:
                        e = d[indices[first + p]]
                        bottom += e
                        bottom_b += e * (v - low)
                        n_bottom += 1
                if n_top == count_top and n_bottom == count_bottom:
                    settled = True
                    break
                if n_top == 0 or n_bottom == 0:
                    break
                count_top, count_bottom = n_top, n_bottom
                mean_top, mean_bottom = high + top_b / top, low + bottom_b / bottom
                g = w * (mean_top - mean_bottom) / (1.0 + (w / lam) * (1.0 / top + 1.0 / bottom))
                u, l = mean_top - g / (lam * top), mean_bottom + g / (lam * bottom)
                if not u >= l:
                    break
            if not settled:
                by = np.argsort(b[:size])
                t, o = size - 1, 0
                u, l = high, low
                top = d[indices[first + by[t]]]
                bottom = d[indices[first + by[o]]]
                g = 0.0
                while True:
                    next_u = b[by[t - 1]] if t > 0 else -np.inf
                    next_l = b[by[o + 1]] if o < size - 1 else np.inf
                    need_u, need_l = lam * top * (u - next_u), lam * bottom * (next_l - l)
                    # gamma at which w (u - l) = g if no break point came before
                    rest = (w * (u - l) - g) / (1.0 + (w / lam) * (1.0 / top + 1.0 / bottom))
                    move = min(rest, need_u, need_l)
                    u -= move / (lam * top)
                    l += move / (lam * bottom)
                    g += move
                    if move >= rest:
                        break
                    if need_u <= need_l:
                        t -= 1
                        u = next_u
                        top += d[indices[first + by[t]]]
                    else:
                        o += 1
                        l = next_l
                        bottom += d[indices[first + by[o]]]
        gamma[h] = g
        for p in range(size):
            i = indices[first + p]
            v = min(max(b[p], l), u)
            y[first + p] = lam * d[i] * (b[p] - v)
            x[i] = v


def cardinality_numpy(
    x: Array,
    indptr: Index,
    indices: Index,
    table: Array,
    offset: Index,
    weight: Array,
    d: Array,
    out: Array,
    delta: Array,
) -> None:
    """Numpy version of `cardinality`: one hyperedge at a time."""
    out[:] = 0.0
    for h in range(len(indptr) - 1):
        member = indices[indptr[h] : indptr[h + 1]]
        size = len(member)
        F = table[offset[size] : offset[size] + size + 1]
        for k in range(x.shape[1]):
            v = x[member, k]
            order = np.argsort(-v, kind="stable")
            v, i = v[order], member[order]
            cut = np.concatenate(([0], np.flatnonzero(v[1:] != v[:-1]) + 1, [size]))
            total = 0.0
            y = np.zeros(size)
            for a, b in zip(cut[:-1], cut[1:], strict=True):
                gain = F[b] - F[a]
                total += v[a] * gain
                share = gain * d[i[a:b]] / np.cumsum(d[i[a:b]])[-1]
                prefix = np.cumsum(np.sort(share)[::-1])
                inside = F[a + 1 : b + 1] - F[a]
                # a share by degree must stay inside the face of the base polytope; the equal share always does
                y[a:b] = share if np.all(prefix <= inside + 1e-12) else gain / (b - a)
            delta[h, k] = max(total, 0.0)
            out[i, k] += weight[h] * delta[h, k] * y / d[i]


@njit(fallback=cardinality_numpy)
def cardinality(x, indptr, indices, table, offset, weight, d, out, delta):
    """Greedy subgradient, divided by the degrees, of a cut function of the number of members inside.

    table[offset[m] + j] = F of j out of m members. Members with equal scores share the gain of their block by degree
    where that is a point of the base polytope (largest shares first, no prefix above F), else equally.
    """
    c = x.shape[1]
    out[:] = 0.0
    for h in range(len(indptr) - 1):
        first, last = indptr[h], indptr[h + 1]
        size = last - first
        at = offset[size]
        v = np.empty(size)
        for k in range(c):
            for p in range(size):
                v[p] = -x[indices[first + p], k]
            order = np.argsort(v, kind="mergesort")
            total = 0.0
            y = np.empty(size)
            a = 0
            while a < size:
                b = a + 1
                while b < size and v[order[b]] == v[order[a]]:
                    b += 1
                gain = table[at + b] - table[at + a]
                total += -v[order[a]] * gain
                degree = 0.0
                for q in range(a, b):
                    degree += d[indices[first + order[q]]]
                share = np.empty(b - a)
                for q in range(a, b):
                    share[q - a] = gain * d[indices[first + order[q]]] / degree
                ranked = np.sort(share)
                prefix = 0.0
                fits = True
                for q in range(b - a):
                    prefix += ranked[b - a - 1 - q]
                    if prefix > table[at + a + q + 1] - table[at + a] + 1e-12:
                        fits = False
                        break
                for q in range(a, b):
                    y[q] = share[q - a] if fits else gain / (b - a)
                a = b
            delta[h, k] = max(total, 0.0)
            for q in range(size):
                i = indices[first + order[q]]
                out[i, k] += weight[h] * delta[h, k] * y[q] / d[i]
