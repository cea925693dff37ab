"""The report: one HTML file per page, with everything inside it, that opens without a network and prints."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._core import style
from assay._core.errors import AssayError
from assay._core.files import write_text

from ._models import Bound, Calibrated, Claim, Crossing, Equivalent, Identity, NonInferior, Ratio, Slope
from ._rules import ERROR, HOLDS, HOLDS_NOT, INCONCLUSIVE, NOT_SUPPORTED, RAN, SKIPPED, SUPPORTED, Comparison, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ._store import ClaimsRun

LIMIT = 3 * 2**20  # bytes of a page: what a mail attachment or a code review still opens at once
THUMBNAIL = 128  # pixels
# From generous to lean; the first that stays under LIMIT is written. (vector figures, pictures per claim)
RICHNESS = ((True, 24), (True, 8), (False, 8), (False, 0))
MANY = 400  # lines in one plot above which vector graphics are larger than a bitmap
TONES = {
    SUPPORTED: "good",
    HOLDS: "good",
    NOT_SUPPORTED: "bad",
    HOLDS_NOT: "bad",
    ERROR: "bad",
    SKIPPED: "none",
    RAN: "none",
}
COLOURS = {"good": style.OURS, "bad": style.PALETTE[1], "open": style.MUTED, "none": style.MUTED}
ORDER = (SUPPORTED, HOLDS, NOT_SUPPORTED, HOLDS_NOT, INCONCLUSIVE)


def tone(verdict: str) -> str:
    return TONES.get(verdict, "open")


def number(value: float | None, digits: int = 3) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}" if not 1e3 <= abs(value) < 1e6 else f"{value:,.0f}"


# ------------------------------------------------------------------------------------------------------------- figures


def _source(fig: Figure, vector: bool) -> str:
    import matplotlib as mpl

    stream = io.BytesIO()
    with mpl.rc_context(style.RC):  # type: ignore[arg-type]
        if vector:
            fig.savefig(stream, format="svg", metadata={"Date": None})  # undated: equal runs give equal pages
            return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode()
        fig.savefig(stream, format="png", dpi=130)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _title(ax: Axes, text: str) -> None:
    ax.set_title(text, loc="left", fontsize=11, fontweight="bold")


def _axis(claim: Claim) -> tuple[str, float | None, list[float]]:
    """What the rule's axis is called, its point of no effect, and the margins to mark."""
    rule, unit = claim.test, f" [{claim.unit}]" if claim.unit else ""
    if isinstance(rule, Slope):
        if rule.expected is not None:
            return (
                f"log-log slope of {rule.y} on {rule.x}",
                None,
                [rule.expected - rule.within, rule.expected + rule.within],
            )
        return (
            f"log-log slope of {rule.y} on {rule.x}",
            None,
            [e for e in (rule.at_least, rule.at_most) if e is not None],
        )
    if isinstance(rule, Crossing):
        return f"crossing point ({rule.x if rule.level is not None else claim.metric})", None, [rule.before]
    if isinstance(rule, Calibrated):
        return "measured coverage", None, [rule.level]
    if isinstance(rule, Bound):
        return f"{claim.metric}{unit}, range of the instances", None, [e for e in (rule.ge, rule.le) if e is not None]
    if isinstance(rule, Identity):
        return f"{claim.metric}{unit}, range of the instances", None, [] if rule.target is None else [rule.target]
    if isinstance(rule, Ratio):
        return f"{claim.metric}: factor by which ours is better", 1.0, [rule.at_least]
    if not claim.against:
        ends = [-rule.within, rule.within] if isinstance(rule, Equivalent) else [rule.margin or 0.0]
        return f"{claim.metric}{unit}", None, ends
    if isinstance(rule, Equivalent):
        return f"{claim.metric}: ours − theirs{unit}", 0.0, [-rule.within, rule.within]
    margin = -rule.within if isinstance(rule, NonInferior) else rule.margin
    name = f"{claim.metric}: ours − theirs{unit}" if claim.sign > 0 else f"{claim.metric}: theirs − ours{unit}"
    return name, 0.0, [margin or 0.0]


def _forest(ax: Axes, claim: Claim, comparisons: Sequence[Comparison]) -> None:
    label, neutral, margins = _axis(claim)
    rows = list(reversed(comparisons))
    if isinstance(claim.test, Ratio):
        from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

        ax.set_xscale("log")
        # Factors are read as 1.2, not as 1.2 x 10^0; few decades lie between two factors, so ticks are linear.
        ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ends = [e for c in rows for e in (c.low, c.high, c.effect) if e is not None] + margins + [1.0]
        if max(ends) < 20 * min(ends):
            ax.xaxis.set_major_locator(MaxNLocator(5))
    if neutral is not None:
        ax.axvline(neutral, color="#B8BDC5", lw=1.2, zorder=1)
    for i, margin in enumerate(margins):
        name = "margin" if i == 0 else None
        ax.axvline(margin, color="#1d2430", ls=(0, (4, 3)), lw=1.1, zorder=2, label=name)
    for y, c in enumerate(rows):
        if c.effect is None:
            ax.text(0.5, y, c.verdict, transform=ax.get_yaxis_transform(), ha="center", va="center", color=style.MUTED)
            continue
        colour = COLOURS[tone(c.verdict)]
        if c.low is not None and c.high is not None:
            ax.plot([c.low, c.high], [y, y], color=colour, lw=2.6, solid_capstyle="round", zorder=3)
        ax.plot([c.effect], [y], "o", ms=7, color=colour, mec="white", mew=1.2, zorder=4)
    ax.set_yticks(range(len(rows)), [f"against {c.comparator}" if c.comparator else "ours" for c in rows])
    ax.set_ylim(-0.7, len(rows) - 0.3)
    ax.set_xlabel(label)
    _title(ax, "Effect with 95 % interval" if claim.test.statistical else "Range of the instances")
    ax.grid(axis="y", visible=False)
    ax.margins(x=0.12)
    if margins:
        ax.legend(loc="upper right", fontsize=8, bbox_to_anchor=(1, 1.12))


def _every_seed(ax: Axes, claim: Claim, comparisons: Sequence[Comparison]) -> int:
    """Paired dots, joined; or, without a comparator, one dot per unit. Returns how many lines were drawn."""
    drawn = 0
    with_pairs = [c for c in comparisons if any(p.ours is not None for p in c.pairs)]
    paired = [c for c in with_pairs if c.comparator and any(p.theirs is not None for p in c.pairs)]
    unit = f" [{claim.unit}]" if claim.unit else ""
    if paired:
        ticks, names = [], []
        for i, c in enumerate(paired):
            left, right = 2.2 * i, 2.2 * i + 1
            ticks += [left, right]
            names += [c.comparator, claim.ours]
            good = [p for p in c.pairs if p.ours is not None and p.theirs is not None]
            alpha = min(0.85, max(0.08, 12 / len(good)))
            for p in good:
                assert p.ours is not None
                assert p.theirs is not None
                better = claim.sign * (p.ours - p.theirs)
                colour = style.OURS if better > 0 else style.PALETTE[1] if better < 0 else style.MUTED
                if claim.better == "equal":
                    colour = style.MUTED
                ax.plot([left, right], [p.theirs, p.ours], "-", color=colour, lw=1.3, alpha=alpha, zorder=2)
                ax.plot([left], [p.theirs], "o", ms=4.5, color=style.MUTED, alpha=max(alpha, 0.3), zorder=3)
                ax.plot([right], [p.ours], "o", ms=4.5, color=style.OURS, alpha=max(alpha, 0.3), zorder=3)
                drawn += 1
        ax.set_xticks(
            ticks, names, rotation=0 if len(paired) <= 2 else 25, ha="center" if len(paired) <= 2 else "right"
        )
        ax.set_xlim(-0.5, ticks[-1] + 0.5)
        _title(
            ax, f"Every pair (blue: ours better; {claim.better} is better)" if claim.better != "equal" else "Every pair"
        )
        values = [v for c in paired for p in c.pairs for v in (p.ours, p.theirs) if v is not None]
        if isinstance(claim.test, Ratio) and min(values) > 0 and max(values) > 20 * min(values):
            ax.set_yscale("log")
    else:
        for c in with_pairs:
            good = [p for p in c.pairs if p.ours is not None]
            for i, p in enumerate(good):
                assert p.ours is not None
                ax.plot([i], [p.ours], "o", ms=5.5, color=style.OURS, zorder=3)
                drawn += 1
            step = max(1, math.ceil(len(good) / 12))
            ax.set_xticks(
                range(0, len(good), step), [p.unit for p in good][::step], rotation=25 if len(good) > 6 else 0
            )
            for margin in _axis(claim)[2]:
                ax.axhline(margin, color="#1d2430", ls=(0, (4, 3)), lw=1.1)
        many = any(" / " in p.unit for c in with_pairs for p in c.pairs)
        ax.set_xlabel(" / ".join(claim.pairs if many else [p for p in claim.pairs if p != "data"] or claim.pairs))
        _title(ax, "Every seed")
    named = {Slope: "slope", Crossing: "crossing point", Calibrated: "coverage"}
    ax.set_ylabel(next((text for kind, text in named.items() if isinstance(claim.test, kind)), f"{claim.metric}{unit}"))
    ax.grid(axis="x", visible=False)
    return drawn


def _curves(
    claim: Claim, cells: Sequence[Mapping[str, Any]]
) -> list[tuple[str, dict[str, list[tuple[list[float], list[float]]]], bool]]:
    """The curves of a claim: (title, arm -> list of (x, y), log-log)."""
    rule = claim.test
    found: dict[str, dict[str, list[tuple[list[float], list[float]]]]] = {}
    logs: dict[str, bool] = {}
    for cell in cells:
        if cell["status"] != "ok":
            continue
        own: dict[str, Any] = dict(cell["metrics"].get("curves") or {})
        if isinstance(rule, Slope) or (isinstance(rule, Crossing) and rule.level is not None):
            own[rule.y] = {"x": cell["metrics"].get(rule.x), "y": cell["metrics"].get(rule.y), "x_label": rule.x}
            logs[rule.y] = isinstance(rule, Slope)
        for name, curve in own.items():
            if not isinstance(curve, Mapping):
                curve = {"x": list(range(1, len(curve) + 1)), "y": curve}
            x, y = curve.get("x"), curve.get("y")
            if isinstance(x, list) and isinstance(y, list) and len(x) == len(y) > 1:
                title = f"{curve.get('y_label', name)}|{curve.get('x_label', 'step')}"
                logs.setdefault(title, logs.get(name, False))
                found.setdefault(title, {}).setdefault(cell["arm"], []).append((x, y))
    return [(title, arms, logs[title]) for title, arms in found.items()]


def _plot_curves(title: str, arms: Mapping[str, Any], log: bool, ours: str) -> Figure:
    import numpy as np

    fig, ax = style.figure(7.0, 3.6)
    y_label, _, x_label = title.partition("|")
    others = [c for c in style.PALETTE if c != style.OURS]
    for i, (arm, curves) in enumerate(sorted(arms.items(), key=lambda item: item[0] != ours)):
        colour = style.OURS if arm == ours else others[(i - 1) % len(others)]
        for x, y in curves:
            ax.plot(x, y, color=colour, lw=0.8, alpha=0.35)
        grids = {tuple(x) for x, _ in curves}
        if len(grids) == 1:  # a median over seeds exists only on a common grid
            ax.plot(curves[0][0], np.median([y for _, y in curves], axis=0), color=colour, lw=2.2, label=arm)
        else:
            ax.plot([], [], color=colour, lw=2.2, label=arm)
    if log:
        ax.set_xscale("log")
        ax.set_yscale("log")
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.legend()
    return fig


def _figures(claim: Claim, verdict: Verdict, cells: Sequence[Mapping[str, Any]], vector: bool) -> list[dict[str, str]]:
    shown = [c for c in verdict.comparisons if c.pairs]
    figures = []
    if any(c.effect is not None for c in shown):
        rows = len(verdict.comparisons)
        fig, axes = style.figure(10.4, max(2.9, 1.9 + 0.42 * rows), ncols=2, width_ratios=[1.15, 1])
        _forest(axes[0], claim, verdict.comparisons)
        lines = _every_seed(axes[1], claim, shown)
        caption = (
            "Left: the effect against each comparator with its 95 % interval; dashed: the margin fixed beforehand. "
            "Right: every pair, unaveraged."
            if claim.test.statistical
            else "Left: range of all instances with the extreme one marked; dashed: the bound. Right: the mean of every cell."
        )
        figures.append({"src": _source(fig, vector and lines <= MANY), "caption": caption})
    for title, arms, log in _curves(claim, cells):
        fig = _plot_curves(title, arms, log, claim.ours)
        size = sum(len(x) for curves in arms.values() for x, _ in curves)
        caption = f"{title.partition('|')[0]}: thin, every seed; thick, the median."
        # 20000 points are about a megabyte of SVG path.
        figures.append({"src": _source(fig, vector and size < 20_000), "caption": caption})
    return figures


def _pictures(run: ClaimsRun, cells: Sequence[Mapping[str, Any]], limit: int) -> tuple[list[dict[str, str]], int]:
    from PIL import Image

    all_of_them = [(cell, name) for cell in cells for name in cell.get("pictures") or []]
    sheet = []
    for cell, name in all_of_them[:limit]:
        path = run.folder / "artefacts" / cell["key"] / name
        if not path.is_file():
            continue
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail((2 * THUMBNAIL, 2 * THUMBNAIL))
        stream = io.BytesIO()
        small.save(stream, format="PNG", optimize=True)
        source = "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
        sheet.append({"src": source, "caption": f"{cell['arm']}, seed {cell['seed']}: {path.stem}"})
    return sheet, len(all_of_them) - len(sheet)


# ---------------------------------------------------------------------------------------------------------------- text


def _effect(claim: Claim, c: Comparison) -> str:
    if c.effect is None:
        return "–"
    ratio = isinstance(claim.test, Ratio)
    bare = isinstance(claim.test, (Slope, Calibrated, Crossing))
    unit = "×" if ratio else f" {claim.unit}" if claim.unit and not bare else ""
    sign = "+" if claim.against and claim.test.statistical and not ratio and c.effect > 0 else ""
    text = f"{sign}{number(c.effect)}{unit}"
    if c.low is not None and c.high is not None:
        text += f" [{number(c.low)}, {number(c.high)}]"
    return text


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.0001" if value < 1e-4 else f"{value:.4f}".rstrip("0").rstrip(".")


def _best(claim: Claim, verdict: Verdict) -> Comparison | None:
    known = [c for c in verdict.comparisons if c.effect is not None]
    with_theirs = [c for c in known if c.theirs is not None]
    if with_theirs and claim.better != "equal":
        return max(with_theirs, key=lambda c: claim.sign * (c.theirs or 0.0))
    return known[0] if known else None


def _describe(
    run: ClaimsRun, claim: Claim, verdict: Verdict, figures: list[dict[str, str]], pictures: int
) -> dict[str, Any]:
    cells = run.cells_of(claim.id)
    best = _best(claim, verdict)
    unit = f" {claim.unit}" if claim.unit and not isinstance(claim.test, (Slope, Crossing, Calibrated)) else ""
    own = {c.get("arm"): c for c in cells if c["status"] in ("error", "timeout")}
    errors = [
        {
            "head": f"{c['arm']}, seed {c['seed']}: {c['status']}: {c.get('reason', '')}",
            "text": "\n".join(t for t in (c.get("traceback", ""), c.get("output", "")) if t) or c.get("reason", ""),
        }
        for c in own.values()
    ]
    rows = [
        {
            "comparator": c.comparator or "(alone)",
            "ours": number(c.ours),
            "theirs": number(c.theirs),
            "effect": _effect(claim, c),
            "ratio": number(c.ratio),
            "n": f"{c.n_pairs}" + (f" ({c.n_failed} failed)" if c.n_failed else ""),
            "p": _p(c.p),
            "holm": _p(c.holm_p),
            "method": c.method,
            "verdict": c.verdict,
            "tone": tone(c.verdict),
            "reason": c.reason if len(verdict.comparisons) > 1 else "",
        }
        for c in verdict.comparisons
    ]
    notes = [f"{n[0].upper()}{n[1:]}." for n in verdict.notes]
    remarks: dict[str, list[str]] = {}
    for c in verdict.comparisons:
        for text in c.notes:
            remarks.setdefault(text, []).append(c.comparator)
        if c.counterexample:
            shown = ", ".join(f"{k} {v}" for k, v in c.counterexample.items() if v is not None)
            remarks.setdefault(f"counterexample: {shown}", []).append(c.comparator)
    for text, comparators in remarks.items():
        # A remark that holds for every comparator is said once.
        who = "" if len(comparators) == len(verdict.comparisons) else f"Against {', '.join(comparators)}: "
        notes.append(f"{who}{text}." if who else f"{text[0].upper()}{text[1:]}.")
    sheet, more = _pictures(run, cells, pictures)
    size: dict[str, Any] = next((c["size"] for c in run.plan["cells"] if c["key"] in {x["key"] for x in cells}), {})
    wording = f"{verdict.verdict} {verdict.scope}".strip()
    return {
        "anchor": claim.id.replace("/", "-"),
        "short": claim.id.partition("/")[2] if len({c.slug for c in run.claims}) == 1 else claim.id,
        "says": claim.says,
        "where": claim.where,
        "paper": claim.paper,
        "ours_value": number(best.ours) + unit if best and best.ours is not None else "–",
        "best": (f"{best.comparator}: {number(best.theirs)}{unit}" if best and best.comparator else "–"),
        "effect": _effect(claim, best) if best else "–",
        "rule": str(claim.test),
        "verdict": wording,
        "tone": tone(verdict.verdict),
        "unexpected": verdict.as_expected is False,
        "expect": claim.expect,
        "expect_reason": claim.expect_reason if claim.expect != "supported" else "",
        "reason": verdict.reason[:1].upper() + verdict.reason[1:],
        "reason_head": "Skipped:" if verdict.verdict == SKIPPED else "",
        "notes": notes,
        "figures": figures,
        "table": rows,
        "count_name": {True: "trials", False: "instances"}.get(isinstance(claim.test, Calibrated))
        if not claim.test.statistical or isinstance(claim.test, Calibrated)
        else "pairs",
        "pictures": sheet,
        "more_pictures": more,
        "metric": f"{claim.metric}{f' [{claim.unit}]' if claim.unit else ''}, {claim.better}".replace(", equal", "")
        + ("" if claim.better == "equal" else " is better"),
        "pairs": ", ".join(claim.pairs),
        "data": ", ".join(verdict.data) or "none",
        "size": "size " + (", ".join(f"{k} = {v}" for k, v in size.items()) if size else "fixed by the experiment"),
        "margin_reason": claim.margin_reason,
        "caveat": claim.caveat,
        "skipped": sorted(verdict.skipped.items()),
        "errors": errors,
    }


def _counts(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    found = Counter(v.verdict for v in verdicts)
    names = [n for n in ORDER if n in found] + sorted(n for n in found if n not in ORDER)
    return [{"verdict": n, "n": found[n], "tone": tone(n)} for n in names]


def _environment(run: ClaimsRun) -> list[tuple[str, str]]:
    env = run.env
    packages = ", ".join(f"{k} {v}" for k, v in env["packages"].items())
    rows = [
        ("processor", f"{env['cpu']}, {env['cores']} cores, {env['memory_gib']} GiB"),
        (
            "workers",
            f"{env['jobs']} of {env['threads']} thread{'s' if env['threads'] > 1 else ''}, back-end {env['backend']}",
        ),
        ("system", env["os"]),
        ("Python", env["python"]),
        ("packages", packages),
        ("commit", (env["commit"] or "not in a repository") + (" with uncommitted changes" if env["dirty"] else "")),
    ]
    return rows + ([("GPU", env["gpu"])] if env["gpu"] else [])


def _render(run: ClaimsRun, **values: Any) -> str:
    import jinja2

    template = (Path(__file__).parent / "report.html").read_text(encoding="utf-8")
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(template)
    blank: dict[str, Any] = {"methods": [], "columns": [], "claims": [], "legend": "", "back": ""}
    return page.render({**blank, "environment": _environment(run), "command": run.plan["command"], **values})


def _legend(run: ClaimsRun) -> str:
    if run.tier == "quick":
        return (
            "The quick tier is small: it only says whether the effect points in the claimed direction, by the mean. "
            "Positive effects are in favour of ours."
        )
    return (
        "Positive effects are in favour of ours. Supported: the whole 95 % interval is beyond the margin; not supported: "
        "the whole interval is short of it; inconclusive: it straddles. Intervals: Student's t on paired differences below "
        "20 pairs, BCa bootstrap from 20 on; p by exact sign flips up to 12 pairs, Wilcoxon beyond; Holm's correction over "
        "the claims of the method is beside it and does not enter the verdict. The paper's number is shown, never used."
    )


def _page(run: ClaimsRun, slug: str, title: str, back: str) -> str:
    chosen = [(c, v) for c, v in zip(run.claims, run.verdicts, strict=True) if c.slug == slug]
    keys = {cell["key"] for c, _ in chosen for cell in run.cells_of(c.id)}
    total = sum(run.records[k].get("seconds", 0.0) for k in keys if k in run.records)
    env = run.env
    paper = _paper(slug)
    lines = ([paper] if paper else []) + [
        " · ".join(
            [
                f"tier {run.tier}",
                run.plan["date"][:10],
                f"commit {env['commit']}{'+' if env['dirty'] else ''}" if env["commit"] else "no commit",
                f"{env['cpu']}, {env['cores']} cores" + (f", {env['gpu']}" if env["gpu"] else ""),
                f"{total:.0f} s in {len(keys)} cells",
            ]
        )
    ]
    drawn: dict[bool, list[list[dict[str, str]]]] = {}
    for vector, pictures in RICHNESS:
        if vector not in drawn:
            drawn[vector] = [_figures(c, v, run.cells_of(c.id), vector) for c, v in chosen]
        described = [_describe(run, c, v, drawn[vector][i], pictures) for i, (c, v) in enumerate(chosen)]
        _once(described)
        text = _render(
            run,
            title=f"Claims of {title}",
            lines=lines,
            counts=_counts([v for _, v in chosen]),
            claims=described,
            legend=_legend(run),
            back=back,
        )
        if len(text.encode()) < LIMIT:
            return text
    raise AssayError(f"The report of {slug} would exceed 3 MiB even without pictures; report fewer claims at once.")


def _once(claims: list[dict[str, Any]]) -> None:
    """Claims that read the same cells would repeat curves and pictures: show each once and say where it is."""
    shown: dict[str, str] = {}
    for claim in claims:
        elsewhere = []
        for kind in ("figures", "pictures"):
            kept = []
            for item in claim[kind]:
                if item["src"] in shown:
                    elsewhere.append(shown[item["src"]])
                else:
                    shown[item["src"]] = claim["short"]
                    kept.append(item)
            claim[kind] = kept
        if elsewhere:
            where = ", ".join(dict.fromkeys(elsewhere))
            claim["notes"] = [*claim["notes"], f"Curves and pictures of the same cells are shown at {where}."]


def _paper(slug: str) -> str:
    from assay._core import registry

    card = registry.cards().get(slug)  # a run is reported also where the method is no longer installed
    if card is None:
        return ""
    paper = card.paper
    where = ", ".join(t for t in (paper.venue, f"arXiv {paper.arxiv}" if paper.arxiv else "") if t)
    return f"{paper.title}. {', '.join(paper.authors)}. {where}."


def write_report(run: ClaimsRun, path: Path) -> Path:
    """Write the report: one page for one method; an index and a page per method (beside it) for several.

    Parameters
    ----------
    run : ClaimsRun
        The run.
    path : Path
        The HTML file.

    Returns
    -------
    Path
        `path`.
    """
    slugs = list(dict.fromkeys(c.slug for c in run.claims))
    titles = {p["claim"]["id"].partition("/")[0]: (p["method"], p["field"]) for p in run.plan["claims"]}
    if len(slugs) == 1:
        write_text(path, _page(run, slugs[0], titles[slugs[0]][0], ""))
        return path
    counted = _counts(run.verdicts)
    columns = [c["verdict"] for c in counted]
    methods = []
    for slug in slugs:
        page = path.with_name(f"{path.stem}-{slug}.html")
        write_text(page, _page(run, slug, titles[slug][0], path.name))
        found = Counter(v.verdict for v in run.verdicts if v.claim.partition("/")[0] == slug)
        keys = {cell["key"] for c in run.claims if c.slug == slug for cell in run.cells_of(c.id)}
        methods.append(
            {
                "field": titles[slug][1],
                "title": titles[slug][0],
                "page": page.name,
                "counts": [found.get(name, 0) for name in columns],
                "seconds": sum(run.records[k].get("seconds", 0.0) for k in keys if k in run.records),
            }
        )
    env = run.env
    line = f"tier {run.tier} · {run.plan['date'][:10]} · commit {env['commit'] or 'none'} · {env['cpu']}, {env['cores']} cores"
    write_text(
        path,
        _render(
            run,
            title=f"Claims of {len(slugs)} methods",
            lines=[line],
            counts=counted,
            methods=sorted(methods, key=lambda m: (m["field"], m["title"])),
            columns=columns,
        ),
    )
    return path
