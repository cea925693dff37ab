"""From declarations to cells: finding claims through the cards, resolving data, ordering and keying what is to run."""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assay._core import registry
from assay._core.errors import AssayError, InputError, MissingData, MissingExtra
from assay._core.smoke import smoke

from ._models import Accepts, Claim, Source, Tier


class ClaimError(AssayError):
    """A claims.py is wrong; names the file and the claim."""


@dataclass(frozen=True)
class Method:
    """The claims of one method and where they come from."""

    slug: str
    field: str
    title: str
    module: str
    folder: Path
    claims: tuple[Claim, ...]
    sources: Mapping[str, Callable[..., Source]]


def load(selectors: str | Sequence[str] = "*") -> list[Method]:
    """Return the methods with the claims that the selectors name.

    Parameters
    ----------
    selectors : str or sequence of str
        Any of a method's slug or alias, a claim's id, or a pattern such as ``"slug/*"`` or ``"*"``.

    Returns
    -------
    list of Method
        Each with its claims in the order of its file.

    Raises
    ------
    InputError
        If a selector names nothing; gives the closest id.
    ClaimError
        If a ``claims.py`` is wrong.
    """
    wanted = [selectors] if isinstance(selectors, str) else list(selectors)
    cards = registry.cards()
    chosen: dict[str, set[str]] = {}
    loaded: dict[str, Method] = {}
    for selector in wanted or ["*"]:
        head, _, tail = selector.partition("/")
        slugs = [s for s in cards if fnmatch.fnmatchcase(s, head.replace("_", "-"))]
        if not slugs and not set(head) & set("*?["):
            slugs = [registry.card(head).slug]  # an alias, or an error that names the closest
        hit = False
        for slug in slugs:
            if slug not in loaded:
                found = _method(cards[slug])
                if found is None:
                    continue
                loaded[slug] = found
            ids = [c.id for c in loaded[slug].claims if fnmatch.fnmatchcase(c.id.partition("/")[2], tail or "*")]
            chosen.setdefault(slug, set()).update(ids)
            hit = hit or bool(ids)
        if not hit and not (selector == "*" and not loaded):
            known = [c.id for method in loaded.values() for c in method.claims]
            close = difflib.get_close_matches(selector, known, n=1)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"see `assay claims list {head if head != '*' else ''}`".rstrip(" `") + "`."
            )
            raise InputError(f"No claim matches {selector!r}; {hint}")
    return [
        Method(
            m.slug, m.field, m.title, m.module, m.folder, tuple(c for c in m.claims if c.id in chosen[slug]), m.sources
        )
        for slug, m in loaded.items()
        if chosen.get(slug)
    ]


def _method(card: registry.Card) -> Method | None:
    """Import one method's claims.py and check what pydantic cannot see; None where the method declares no claims."""
    path = card.folder / "claims.py"
    if not path.is_file():
        return None
    module = importlib.import_module(f"{card.module}.claims")
    claims = tuple(getattr(module, "CLAIMS", ()))
    sources = dict(getattr(module, "SOURCES", {}))
    seen: set[str] = set()
    for claim in claims:
        if not isinstance(claim, Claim):
            raise ClaimError(f"{path}: CLAIMS holds a {type(claim).__name__}; only Claim records belong there.")
        if claim.slug != card.slug:
            raise ClaimError(f"{path}: the id {claim.id!r} must begin with {card.slug + '/'!r}.")
        if claim.id in seen:
            raise ClaimError(f"{path}: the id {claim.id!r} occurs twice.")
        seen.add(claim.id)
        if not callable(getattr(module, claim.experiment, None)):
            raise ClaimError(
                f"{path}: claim {claim.id!r} names the experiment {claim.experiment!r}, which is not here."
            )
        named = [*claim.data, *(d for tier in claim.tiers.values() for d in tier.data or ())]
        unknown = sorted(set(named) - set(sources) - {"none", "user"})
        if unknown:
            raise ClaimError(f"{path}: claim {claim.id!r} names the data {unknown[0]!r}, which SOURCES does not have.")
    return Method(card.slug, card.field, card.title, card.module, card.folder, claims, sources)


# ------------------------------------------------------------------------------------------------------------ versions


@cache
def version(distribution: str) -> str:
    """Return the installed version of a distribution, "" where it is absent; imports nothing."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(distribution)
    except PackageNotFoundError:
        return ""


def sources_of(folder: Path) -> list[Path]:
    """Return the Python files that a method's results depend on: its folder and every ``_shared`` above it."""
    files = sorted(folder.rglob("*.py"))
    parent = folder.parent
    while (parent / "__init__.py").is_file():
        files += sorted((parent / "_shared").rglob("*.py"))
        parent = parent.parent
    return files


@cache
def _source_state(folder: Path) -> tuple[str, bool]:
    """Hash of the method's code (any change reruns: simple and safe), and whether any of it imports torch."""
    digest, torch = hashlib.sha256(), False
    for path in sources_of(folder):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(folder.parent.parent)}\0{len(text)}\0".encode() + text)
        torch = torch or re.search(rb"^\s*(import|from) torch\b", text, re.MULTILINE) is not None
    return digest.hexdigest(), torch


# ---------------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True)
class Cell:
    """The atom that is run, cached, resumed and distributed."""

    key: str
    slug: str
    module: str
    experiment: str
    arm: str
    seed: int
    data: str
    size: Mapping[str, Any]
    limit_s: float
    exclusive: bool
    device: str
    threads: int
    torch: bool
    user_data: bool = False


@dataclass
class Planned:
    """A claim of this run with the keys of its cells, or the reason why it is skipped."""

    claim: Claim
    tier: str
    keys: list[str] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    skipped: str = ""
    smoke: bool = False
    field: str = ""
    method: str = ""


@dataclass
class Plan:
    """What is to be run, in order, and how the data come to a cell."""

    tier: str
    claims: list[Planned]
    cells: list[Cell]
    sources: dict[tuple[str, str], tuple[str, Any]]

    def describe(self) -> dict[str, Any]:
        """Return what plan.json holds: enough to judge and report without the code that declared the claims."""
        return {
            "tier": self.tier,
            "claims": [{**asdict(p), "claim": p.claim.model_dump(mode="json")} for p in self.claims],
            "cells": [{k: v for k, v in asdict(c).items() if k != "torch"} for c in self.cells],
        }


def cell_key(parts: Mapping[str, Any]) -> str:
    """Return the sha256 of what determines a cell's result."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def plan(
    methods: Sequence[Method],
    *,
    tier: str = "standard",
    seeds: int | None = None,
    data: Sequence[str] | None = None,
    user: tuple[str, Any, Source] | None = None,
    device: str = "cpu",
    threads: int = 1,
    limit_s: float | None = None,
) -> Plan:
    """Return the cells of the claims, seed-major.

    Parameters
    ----------
    methods : sequence of Method
        From `load`.
    tier : str
        A claim without this tier is skipped with the reason.
    seeds : int, optional
        Instead of the tier's.
    data : sequence of str, optional
        Names of sources instead of each claim's first; ``["all"]`` takes every one.
    user : (kind, payload, Source), optional
        The user's data: how a cell gets it, and the data itself for checks.
    device, threads, limit_s
        Of a cell.

    Raises
    ------
    InputError
        If no claim can take the data asked for.
    """
    small = smoke()
    if small:
        tier, seeds = "quick", 1
    planned: list[Planned] = []
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    sources: dict[tuple[str, str], tuple[str, Any]] = {}
    prints: dict[tuple[str, str], str] = {}
    refusals: list[str] = []
    for method in methods:
        code, torch = _source_state(method.folder)
        for claim in method.claims:
            item = Planned(claim, tier, field=method.field, method=method.title)
            item.smoke = small or (tier == "quick" and claim.smoke_quick)
            planned.append(item)
            settings = claim.tiers.get(tier)  # type: ignore[call-overload]
            if settings is None:
                item.skipped = f"the claim declares no {tier} tier (it has: {', '.join(claim.tiers)})"
                continue
            item.skipped = next((reason for need in claim.needs if (reason := _unmet(need))), "")
            if item.skipped:
                continue
            if user is not None:
                refusal = refuse(claim, user[2])
                if refusal:
                    item.skipped = refusal
                    refusals.append(refusal)
                    continue
                item.data = [user[2].name]
                sources[method.slug, user[2].name] = (user[0], user[1])
                prints[method.slug, user[2].name] = user[2].fingerprint
            else:
                item.data = _data_names(claim, settings, data)
                if not item.data:
                    item.skipped = (
                        f"claim {claim.id} does not run on {', '.join(data or ())} (it has: {', '.join(claim.data)})"
                    )
                    refusals.append(item.skipped)
                    continue
                for name in item.data:
                    try:
                        prints.setdefault((method.slug, name), _fingerprint(method, name))
                    except (MissingData, MissingExtra) as error:
                        item.skipped = str(error)
                    sources[method.slug, name] = ("none", None) if name == "none" else ("named", name)
                if item.skipped:
                    continue
            size = {**settings.size, **(claim.smoke if small else {})}
            count = settings.seeds if seeds is None else seeds
            peers = {arm: sorted(set(claim.peers.get(arm, []))) for arm in claim.arms}
            for seed in range(claim.first_seed, claim.first_seed + count):
                for name in item.data:
                    for arm in claim.arms:
                        where = (
                            method.slug,
                            seed,
                            name,
                            claim.experiment,
                            arm,
                            json.dumps(size, sort_keys=True, default=str),
                        )
                        group = groups.setdefault(
                            where,
                            {
                                "method": method,
                                "size": size,
                                "peers": set(),
                                "claims": [],
                                "limit": 0.0,
                                "alone": False,
                            },
                        )
                        group["peers"].update(peers[arm])
                        group["claims"].append(item)
                        group["limit"] = max(group["limit"], settings.limit_s if limit_s is None else limit_s)
                        group["alone"] = group["alone"] or claim.exclusive
                        group["code"], group["torch"] = code, torch
    if refusals and not groups:
        raise InputError(refusals[0][0].upper() + refusals[0][1:] + ".")
    cells = []
    # Seed-major inside a method: an interruption leaves complete pairs, and slow drift hits all arms alike.
    order = {method.slug: i for i, method in enumerate(methods)}
    for where in sorted(groups, key=lambda w: (order[w[0]], w[1])):
        slug, seed, name, experiment, arm, _ = where
        group = groups[where]
        packages = ["torch", "numpy", "scipy", *group["peers"]]
        if not group["method"].module.startswith("assay."):
            packages.append("assay-ml")  # a third-party method also depends on what it imports from here
        parts = {
            "slug": slug,
            "experiment": experiment,
            "arm": arm,
            "seed": seed,
            "data": prints[slug, name],
            "size": group["size"],
            "source": group["code"],
            "versions": {package: version(package) for package in packages},
            # What may also change a number: the interpreter, the device, the order of sums.
            "python": list(sys.version_info[:2]),
            "device": device,
            "threads": threads,
            "smoke": small,
        }
        key = cell_key(parts)
        for item in group["claims"]:
            item.keys.append(key)
        cells.append(
            Cell(
                key,
                slug,
                group["method"].module,
                experiment,
                arm,
                seed,
                name,
                group["size"],
                group["limit"],
                group["alone"],
                device,
                threads,
                group["torch"],
                user is not None,
            )
        )
    # Cells that must run alone come after all others.
    cells.sort(key=lambda cell: cell.exclusive)
    return Plan(tier, planned, cells, sources)


def _data_names(claim: Claim, settings: Tier, asked: Sequence[str] | None) -> list[str]:
    own = [name for name in claim.data if name != "user"]
    if asked is None:
        return list(settings.data) if settings.data else own[:1]
    if list(asked) == ["all"]:
        return own
    return [name for name in asked if name in own]


def _fingerprint(method: Method, name: str) -> str:
    if name == "none":
        return "none"
    source = method.sources[name]()
    if not isinstance(source, Source):
        raise ClaimError(f"{method.folder / 'claims.py'}: SOURCES[{name!r}] must return a Source.")
    return fingerprint_of(source)


def fingerprint_of(source: Source) -> str:
    """Return the source's own fingerprint, or the hash of its data."""
    if source.fingerprint:
        return source.fingerprint
    import joblib

    return str(joblib.hash(source.data))


def refuse(claim: Claim, source: Source) -> str:
    """Return in one sentence why the claim cannot run on the user's data, "" where it can."""
    accepts: Accepts | None = claim.accepts
    if accepts is None:
        if "user" in claim.data:
            return ""
        return f"claim {claim.id} runs only on its own data ({', '.join(claim.data)})"
    if source.task not in accepts.tasks:
        return f"claim {claim.id} needs {' or '.join(accepts.tasks)} data, and {source.name} is {source.task}"
    rows = source.n_rows or 0
    if rows < accepts.min_rows:
        return f"claim {claim.id} needs at least {accepts.min_rows} rows, and {source.name} has {rows}"
    if accepts.max_rows is not None and rows > accepts.max_rows:
        return f"claim {claim.id} takes at most {accepts.max_rows} rows, and {source.name} has {rows}"
    columns, classes = source.info.get("columns"), source.info.get("classes")
    if columns is not None and columns < accepts.min_columns:
        return f"claim {claim.id} needs at least {accepts.min_columns} columns, and {source.name} has {columns}"
    if accepts.max_classes is not None and classes is not None and classes > accepts.max_classes:
        return f"claim {claim.id} takes at most {accepts.max_classes} classes, and {source.name} has {classes}"
    return ""


def _unmet(need: str) -> str:
    """Return why this machine does not meet a need, "" where it does."""
    if need == "network":
        return ""  # a download that fails is MissingData in the cell; asking here would be a second, racy answer
    if need == "gpu":
        import torch

        return "" if torch.cuda.is_available() else "needs a CUDA GPU, and torch sees none"
    if need.startswith("memory:"):
        import os

        wanted = float(need.partition(":")[2])
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        return "" if there >= wanted else f"needs {wanted:g} GiB of memory, and this machine has {there:.1f}"
    return _missing_of_extra(need)


@cache
def _missing_of_extra(extra: str) -> str:
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement

    try:
        lines = requires("assay-ml") or []
    except PackageNotFoundError:
        return ""  # run from a source tree that is not installed: the cell finds out by importing
    wanted = [Requirement(line) for line in lines if re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", line)]
    if not wanted:
        raise ClaimError(
            f"A claim needs {extra!r}, which is neither gpu, network, memory:GIB nor an extra of assay-ml."
        )
    missing = [r.name for r in wanted if not version(r.name)]
    return f"needs {', '.join(missing)}: pip install 'assay-ml[{extra}]'" if missing else ""
