"""The round loop, compiled: one source for the batch over a whole log and for the single step of a live learner.

A call plays ``n`` rounds and changes its state arrays in place. `phase` splits a round at the point where the world
answers, so that the live classes (one row per call, `ACT` then `UPDATE`) and the replay (all rows, `BOTH`) run the same
instructions in the same order and agree to the last bit.

State that every loop shares
    duals[m], totals[m, 2]      multipliers; sum of g_j and the largest sum so far, in units of `unit`
    num[6]                      R, spend, reserved, reward, rounds begun, first round that the budget forced to void (-1)
Constraint j reads  coef[j, 0] f + coef[j, 1] c + coef[j, 2:] usage - limit_j <= 0  on average; where `par[5]` is 1,
constraint 0 is the budget and its limit is pace[t].
"""

from __future__ import annotations

import math

import numpy as np

from assay._shared.accel import njit

BOTH, ACT, UPDATE = 0, 1, 2
FULL, BANDIT, ONE_SIDED = 0, 1, 2
RANGE, SPEND, RESERVED, REWARD, ROUNDS, STOPPED = range(6)
# what play_multiplier can set the bid by
CLOSED_FORM, PACING, PI, FIXED = range(4)
# auctions that it knows by heart
FIRST, SECOND, SOFT_FLOOR, GSP = range(4)


@njit
def play_grid(
    phase, feedback, rewards, costs, usage, worst, pace, draws, context, weights, p, coef, limit, cap, step, duals, totals,
    num, par, actions, forced, trace, stride,
):  # fmt: skip
    """Play rounds over a finite grid of actions, of which action 0 is void.

    rewards, costs, worst: n x K (currency); usage: n x E x K (in [0, 1]); pace, draws, context: n; weights: C x K, for
    each context probabilities where par[2] (the share) is positive, else log-weights; p: K, the probabilities that the
    action was drawn with; par: eta, gamma, share, unit, budget, has_budget; forced: 1 where the budget made the action
    void, 2 where the learner is not to be taught; trace: multipliers after every `stride` rounds (0: none).
    """
    n, K = rewards.shape
    m = duals.shape[0]
    E = usage.shape[1]
    eta = par[0]
    gamma = par[1]
    share = par[2]
    unit = par[3]
    budget = par[4]
    # One value far above the unit would stretch R, and nothing would be learnt any more: the learner sees it as the unit.
    # Without constraints (a learner on its own) utilities are what they are.
    most = unit if m > 0 else math.inf
    u = np.zeros(K)
    wu = np.zeros(E)
    for t in range(n):
        w = weights[context[t]]
        if phase != 2:
            if share > 0.0:
                for k in range(K):
                    p[k] = w[k]
            else:
                z = 0.0
                for k in range(K):
                    p[k] = math.exp(w[k])  # the largest log-weight is 0, so nothing overflows
                    z += p[k]
                for k in range(K):
                    p[k] /= z
            below = 0.0
            a = -1
            last = 0
            for k in range(K):
                below += p[k]
                if p[k] > 0.0:
                    last = k
                if draws[t] < below:
                    a = k
                    break
            if a < 0:  # probabilities that sum to a hair less than 1
                a = last
            forced[t] = 0
            # The sum of spend and worst case rounds to at least the later spend, so that the budget holds exactly.
            if a != 0 and num[1] + num[2] + worst[t, a] > budget:
                a = 0
                forced[t] = 1
                if num[5] < 0.0:
                    num[5] = num[4]
            actions[t] = a
            num[4] += 1.0
        if phase != 1:
            a = actions[t]
            wf = 1.0
            wc = 0.0
            for e in range(E):
                wu[e] = 0.0
            for j in range(m):
                wf -= duals[j] * coef[j, 0]
                wc += duals[j] * coef[j, 1]
                for e in range(E):
                    wu[e] += duals[j] * coef[j, 2 + e]
            teach = forced[t] == 0 or (feedback == 0 and forced[t] == 1)
            if feedback == 0 and teach:
                high = -math.inf
                low = math.inf
                for k in range(K):
                    x = (wf * min(rewards[t, k], most) - wc * costs[t, k]) / unit
                    for e in range(E):
                        x -= wu[e] * usage[t, e, k]
                    u[k] = x
                    high = max(high, x)
                    low = min(low, x)
                num[0] = max(num[0], high - low)
                rate = eta / num[0]
                if share > 0.0:
                    z = 0.0
                    for k in range(K):
                        w[k] *= math.exp(rate * (u[k] - high))
                        z += w[k]
                else:
                    for k in range(K):
                        w[k] += rate * (u[k] - high)
            elif teach:  # an action that was not drawn carries no importance weight
                upper = max(wf, 0.0) + max(-wc, 0.0)
                lower = min(wf, 0.0) - max(wc, 0.0)
                for e in range(E):
                    upper += max(-wu[e], 0.0)
                    lower -= max(wu[e], 0.0)
                num[0] = max(num[0], upper - lower)
                tail = 0.0
                for i in range(K):
                    k = K - 1 - i
                    tail += p[k]
                    if (feedback == 1 and k != a) or k > a:
                        continue
                    x = (wf * min(rewards[t, k], most) - wc * costs[t, k]) / unit
                    for e in range(E):
                        x -= wu[e] * usage[t, e, k]
                    loss = min(max((upper - x) / num[0], 0.0), 1.0)
                    chance = (p[k] if feedback == 1 else tail) + gamma
                    if share > 0.0:
                        w[k] *= math.exp(-eta * loss / chance)
                    else:
                        w[k] -= eta * loss / chance
                if share > 0.0:
                    z = 0.0
                    for k in range(K):
                        z += w[k]
            if teach:
                if share > 0.0:
                    for k in range(K):
                        w[k] = (1.0 - share) * (w[k] / z) + share / K
                else:
                    high = w[0]
                    for k in range(1, K):
                        high = max(high, w[k])
                    for k in range(K):
                        w[k] -= high
            f = rewards[t, a] / unit
            c = costs[t, a] / unit
            for j in range(m):
                bound = pace[t] if j == 0 and par[5] == 1.0 else limit[j]
                g = coef[j, 0] * f + coef[j, 1] * c - bound
                for e in range(E):
                    g += coef[j, 2 + e] * usage[t, e, a]
                totals[j, 0] += g
                totals[j, 1] = max(totals[j, 1], totals[j, 0])
                duals[j] = min(cap[j], max(0.0, duals[j] + step[j] * g))
            num[1] += costs[t, a]
            num[3] += rewards[t, a]
            if stride > 0 and t % stride == 0:
                for j in range(m):
                    trace[t // stride, j] = duals[j]


@njit
def play_multiplier(
    phase, kind, mechanism, values, competing, floor, pace, coef, limit, cap, step, duals, totals, num, par, setting,
    bids, gained, paid, trace, stride,
):  # fmt: skip
    """Play rounds with a bid that is a multiple of the value: the closed form of second price, pacing rules, fixed ones.

    values, floor, pace: n; competing: n x M, largest first; bids, gained, paid: n (currency; given in phase `UPDATE`).
    par: the largest multiplier, the fixed one, kp, unit, budget, has_budget, ki, the integral and the target of the
    controller; setting: soft floor, then the click shares of the positions.
    """
    n = values.shape[0]
    m = duals.shape[0]
    M = competing.shape[1]
    top = par[0]
    unit = par[3]
    for t in range(n):
        v = values[t]
        if phase != 2:
            b = 0.0
            if kind == 0:
                wf = 1.0
                wc = 0.0
                for j in range(m):
                    wf -= duals[j] * coef[j, 0]
                    wc += duals[j] * coef[j, 1]
                if wf > 0.0:
                    b = v * wf / max(wc, wf / top)
            elif kind == 1:
                b = v / (1.0 + duals[0])
            elif kind == 2:
                error = par[8] - num[1] / unit  # how far spending is behind, in units
                b = v * min(top, math.exp(min(par[2] * error + par[6] * par[7], 50.0)))
            else:
                b = v * par[1]
            b = min(b, unit)
            if b > 0.0 and num[1] + num[2] + b > par[4]:
                b = 0.0
                if num[5] < 0.0:
                    num[5] = num[4]
            bids[t] = b
            num[4] += 1.0
        b = bids[t]
        if phase == 0:
            f = 0.0
            c = 0.0
            if b > 0.0 and b >= floor[t]:
                if mechanism == 3:
                    place = 0
                    while place < M and competing[t, place] > b:
                        place += 1
                    if place < setting.shape[0] - 1:
                        below = competing[t, place] if place < M else 0.0
                        f = setting[1 + place] * v
                        c = setting[1 + place] * max(below, floor[t])
                elif b >= competing[t, 0]:
                    f = v
                    d = max(competing[t, 0], floor[t])
                    if mechanism == 0 or (mechanism == 2 and b < setting[0]):
                        c = b
                    elif mechanism == 2:
                        c = max(d, setting[0])
                    else:
                        c = d
            gained[t] = f
            paid[t] = c
        if phase != 1:
            f = gained[t] / unit
            c = paid[t] / unit
            for j in range(m):
                bound = pace[t] if j == 0 and par[5] == 1.0 else limit[j]
                g = coef[j, 0] * f + coef[j, 1] * c - bound
                totals[j, 0] += g
                totals[j, 1] = max(totals[j, 1], totals[j, 0])
                duals[j] = min(cap[j], max(0.0, duals[j] + step[j] * g))
            num[1] += paid[t]
            num[3] += gained[t]
            if kind == 2:
                par[8] += pace[t]
                # a controller that winds up while the multiplier is at its end takes as long to come back
                wanted = par[2] * (par[8] - num[1] / unit) + par[6] * par[7]
                if -3.0 < wanted < math.log(top):
                    par[7] += par[8] - num[1] / unit
            if stride > 0 and t % stride == 0:
                for j in range(m):
                    trace[t // stride, j] = duals[j]
