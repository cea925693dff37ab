"""Write reference.json: the round of the paper in 50-digit decimal arithmetic, from the formulas alone.

Run by hand; it shares no code with the library. The tables come from a linear congruential generator, so that they do not
depend on any package.
"""

import json
from decimal import Decimal as D
from decimal import getcontext
from pathlib import Path

getcontext().prec = 50
T, K = 60, 4


def stream(seed):
    """Numbers in [0, 1) with six digits."""
    x = seed
    while True:
        x = (1103515245 * x + 12345) % 2**31
        yield (x >> 11) % 10**6


def play(feedback, seed, budget, omega):
    source = stream(seed)
    f = [[0] + [next(source) for _ in range(K - 1)] for _ in range(T)]
    c = [[0] + [next(source) for _ in range(K - 1)] for _ in range(T)]
    draws = [next(source) for _ in range(T)]
    F = [[D(x) / 10**6 for x in row] for row in f]
    C = [[D(x) / 10**6 for x in row] for row in c]
    B, om, n = D(budget), D(omega), D(T)
    rho = B / n
    eta_b, eta_r = 1 / (rho * n.sqrt()), (2 if feedback == "full" else 1) / n.sqrt()
    share = 1 / n
    if feedback == "full":
        eta, gamma = 16 * (8 * (D(K) * n).ln() / n).sqrt(), D(0)
    elif feedback == "bandit":
        eta = 4 * (2 * D(K).ln() / (D(K) * n)).sqrt()
        gamma = eta / 2
    else:
        eta, gamma = (8 * (D(K) * n).ln() / n).sqrt(), 1 / (10 * n.sqrt())
    w, R, lam, mu, left = [1 / D(K)] * K, D(1), D(0), D(0), B
    actions, multipliers = [], []
    for t in range(T):
        p, x, total, a = w, D(draws[t]) / 10**6, D(0), K - 1
        for k in range(K):
            total += p[k]
            if x < total:
                a = k
                break
        forced = a > 0 and left < 1
        a = 0 if forced else a
        u = [F[t][k] - lam * C[t][k] - mu * (om * C[t][k] - F[t][k]) for k in range(K)]
        logs = [D(0)] * K
        if feedback == "full":
            R = max(R, max(u) - min(u))
            logs = [eta * x / R for x in u]
        elif not forced:
            upper = 1 + mu
            R = max(R, upper + lam + om * mu)
            for k in range(K):
                if k == a or (feedback == "one_sided" and k < a):
                    seen = p[k] if feedback == "bandit" else sum(p[k:])
                    logs[k] = -eta * ((upper - u[k]) / R) / (seen + gamma)
        if feedback == "full" or not forced:
            w = [w[k] * logs[k].exp() for k in range(K)]
            w = [(1 - share) * x / sum(w) + share / K for x in w]
        lam = min(max(D(0), lam + eta_b * (C[t][a] - rho)), 1 / rho)
        mu = max(D(0), mu + eta_r * (om * C[t][a] - F[t][a]))
        left -= C[t][a]
        actions.append(a)
        multipliers.append([float(lam), float(mu)])
    return {
        "feedback": feedback, "budget": budget, "omega": omega, "reward": f, "cost": c, "draws": draws, "actions": actions,
        "multipliers": multipliers, "weights": [float(x) for x in w], "spend": float(B - left),
    }  # fmt: skip


if __name__ == "__main__":
    cases = [play(fb, s, "14", "1.25") for fb, s in (("full", 1), ("bandit", 2), ("one_sided", 3), ("full", 4))]
    path = Path(__file__).with_name("reference.json")
    path.write_text(json.dumps({"made_by": "make_reference.py, 50 digits", "cases": cases}) + "\n", encoding="utf-8")
