"""The rooms of a method's house: what must be there for a method to be complete, seen from its card."""
# ruff: noqa: PT018 - one assert, one message

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The verbs that mean the same everywhere; a method adds its own where none of them fits.
VERBS = ("fit", "predict", "sample", "optimize", "train", "evaluate", "analyse", "serve")

# What a guide page must hold, in this order (docs/guide/_template.md).
GUIDE_SECTIONS = (
    "What it is for",
    "When not to use it",
    "The maths",
    "Run it on your data",
    "Read the report",
    "Implementation decisions",
    "Claims",
    "Peers",
)

# Modules that importing a job or a claims file must not pull in: `assay SLUG --help` and `assay claims list` pay for it.
HEAVY = ("torch", "sklearn", "pandas", "matplotlib", "scipy", "numba", "networkx", "rdkit", "botorch", "transformers")

MethodCheck = Callable[[], None]


def _resolve(target: str) -> Any:
    module, _, name = target.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise AssertionError(f"{target}: {error}") from error
    assert hasattr(loaded, name), f"{target}: {module} has no {name}"
    return getattr(loaded, name)


def check_card(card: Any, root: Path | None) -> None:
    """Every field says something: title, summary, brings, yields, limitations, the paper."""
    for name in ("title", "summary", "kind", "brings", "yields", "demo", "status", "field", "slug"):
        assert getattr(card, name).strip(), f"card.toml: {name} is empty"
    assert "\n" not in card.summary and len(card.summary) <= 120, (
        "card.toml: summary must be one line of at most 120 characters"
    )
    assert card.limitations and all(len(text) > 15 for text in card.limitations), "card.toml: say what it is not for"
    assert card.paper.title and card.paper.authors and card.paper.venue, (
        "card.toml: [paper] needs title, authors, venue"
    )
    assert card.paper.arxiv or card.paper.url, "card.toml: [paper] needs arxiv or url"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", card.slug), f"slug {card.slug!r} must be words joined by hyphens"
    assert card.folder.name == card.slug.replace("-", "_"), "the folder is the slug with underscores"


def check_commands(card: Any, root: Path | None) -> None:
    """Each verb can be imported, takes `run` by keyword, and documents every parameter."""
    assert card.commands, "card.toml: [commands] is empty"
    for verb, target in {**card.commands, "demo": card.demo}.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", verb), f"verb {verb!r} must be lower-case words"
        assert target.startswith(f"{card.module}._job:"), f"{verb}: jobs live in {card.module}._job, not {target}"
        job = _resolve(target)
        parameters = inspect.signature(job).parameters
        assert "run" in parameters, f"{target} must take run"
        assert parameters["run"].kind is inspect.Parameter.KEYWORD_ONLY, f"{target}: run is keyword-only"
        doc = inspect.getdoc(job) or ""
        assert doc.strip(), f"{target} has no docstring, which is its help"
        if verb == "demo":
            assert set(parameters) == {"run"}, f"{target}: a demo takes nothing but run"
            continue
        for name, parameter in parameters.items():
            if name != "run":
                # without numpydoc's star before *args: the help would not find it
                assert re.search(rf"^{name}\b", doc, re.MULTILINE), (
                    f"{target}: {name} is not in the docstring's Parameters"
                )
                assert parameter.annotation is not inspect.Parameter.empty, f"{target}: {name} has no type"
    own = [verb for verb in card.commands if verb not in VERBS]
    assert not set(card.commands) <= set(own), (
        f"none of the verbs {sorted(card.commands)} is a common one ({', '.join(VERBS)})"
    )


def check_cheap_imports(card: Any, root: Path | None) -> None:
    """Importing the package, its job and its claims imports nothing heavy."""
    code = (
        "import sys, importlib\n"
        f"for m in ({card.module!r}, {card.module + '._job'!r}, {card.module + '.claims'!r}): importlib.import_module(m)\n"
        f"print(*[m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
    assert not done.stdout.split(), f"importing the job or the claims imports {done.stdout.split()}"


def check_public_names(card: Any, root: Path | None) -> None:
    """Every public name is there and has a docstring in numpydoc form; the stub's `__all__` lists the same names."""
    package = importlib.import_module(card.module)
    names = list(package.__all__)
    assert names, f"{card.module} has no public name"
    stub = (card.folder / "__init__.pyi").read_text(encoding="utf-8")
    listed = [
        ast.literal_eval(node.value)
        for node in ast.parse(stub).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
    ]
    assert listed and sorted(listed[0]) == sorted(names), (
        "__init__.pyi: __all__ must list exactly the names that it imports"
    )
    faults = []
    for name in names:
        obj = getattr(package, name)
        if inspect.isclass(obj) or inspect.isroutine(obj):
            faults += [f"{name}: {fault}" for fault in docstring_faults(obj)]
    assert not faults, "\n".join(faults)


def docstring_faults(obj: Any) -> list[str]:
    """What a public docstring lacks: a sentence, Parameters, Returns, an Example, no documented parameter that is gone."""
    doc = inspect.getdoc(obj) or ""
    if not doc.strip() or (inspect.isclass(obj) and not (obj.__doc__ or "").strip()):
        return ["no docstring"]
    faults = []
    if doc.splitlines()[0].strip() in ("", "Parameters", "Returns"):
        faults.append("no sentence that says what it does")
    # a record that functions return is read, not made: its Attributes are its documentation
    record = inspect.isclass(obj) and (dataclasses.is_dataclass(obj) or issubclass(obj, tuple))
    record = record and re.search(r"^Attributes\n-+", doc, re.MULTILINE) is not None
    if ">>> " not in doc and not record:
        faults.append("no Example")
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return faults
    names = [
        n for n, p in signature.parameters.items()
        if n not in ("self", "args", "kwargs", "cls") and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]  # fmt: skip
    is_error = inspect.isclass(obj) and issubclass(obj, BaseException)
    if names and not is_error and not record:
        block = re.search(r"Parameters\n-+\n(.*?)(?=\n\w[^\n]*\n-{3,}|\Z)", doc, re.DOTALL)
        if block is None:
            faults.append("no Parameters section")
        else:
            heads = re.findall(r"^(\*{0,2}\w[^:\n]*?)(?:\s*:|$)", block.group(1), re.MULTILINE)
            documented = {n.strip().lstrip("*") for head in heads for n in head.split(",")}
            missing = [n for n in names if n not in documented]
            if missing:
                faults.append(f"parameters not documented: {', '.join(missing)}")
            varargs = {n for n, p in signature.parameters.items() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
            gone = sorted(n for n in documented - set(names) - varargs if n.isidentifier()) if not varargs else []
            if gone:
                faults.append(f"documents parameters that it does not have: {', '.join(gone)}")
    if inspect.isfunction(obj):
        returns = inspect.signature(obj).return_annotation
        nothing = returns in (None, "None") or (returns is inspect.Signature.empty and "return " not in _source(obj))
        generator = inspect.isgeneratorfunction(obj)
        if not nothing and not generator and not re.search(r"^(Returns|Yields)\n-+", doc, re.MULTILINE):
            faults.append("no Returns section")
    return faults


def _source(obj: Any) -> str:
    try:
        return inspect.getsource(obj)
    except OSError:
        return ""


def check_doctests(card: Any, root: Path | None) -> None:
    """The Examples of the public names run and give what they show."""
    import doctest

    package = importlib.import_module(card.module)
    finder, seen, examples = doctest.DocTestFinder(exclude_empty=True), set(), 0
    for name in package.__all__:
        obj = getattr(package, name)
        if not (inspect.isclass(obj) or inspect.isroutine(obj)) or id(obj) in seen:
            continue
        seen.add(id(obj))
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        output: list[str] = []
        for test in finder.find(obj, name, module=sys.modules[obj.__module__]):
            runner.run(test, out=output.append)
            examples += len(test.examples)
        assert runner.summarize(verbose=False).failed == 0, "".join(output)
    assert examples, f"{card.module}: no public docstring holds an Example"


def check_claims(card: Any, root: Path | None) -> None:
    """CLAIMS validates, ids begin with the slug and are unique, experiments and sources exist, tiers are complete."""
    module = importlib.import_module(f"{card.module}.claims")
    claims = module.CLAIMS
    assert claims, "CLAIMS is empty"
    ids = [claim.id for claim in claims]
    assert len(set(ids)) == len(ids), "two claims have one id"
    sources = getattr(module, "SOURCES", {})
    for claim in claims:
        assert claim.id.startswith(f"{card.slug}/"), f"{claim.id}: the id must begin with {card.slug}/"
        assert len(claim.says) > 20 and claim.where, f"{claim.id}: says and where must be filled"
        assert claim.better in ("higher", "lower", "equal"), f"{claim.id}: better={claim.better!r}"
        assert claim.margin_reason.strip(), f"{claim.id}: margin_reason is empty"
        experiment = getattr(module, claim.experiment, None)
        assert callable(experiment), f"{claim.id}: claims.py has no experiment {claim.experiment}"
        wanted = ["arm", "seed", "data", "size", "device"]
        assert list(inspect.signature(experiment).parameters)[:5] == wanted, f"{claim.experiment} must take {wanted}"
        assert {"quick", "standard"} <= set(claim.tiers), f"{claim.id}: tiers quick and standard are needed"
        for name in claim.data:
            assert name in ("none", "user") or name in sources, f"{claim.id}: SOURCES has no {name!r}"
        assert claim.expect != "not supported" or claim.expect_reason.strip(), f"{claim.id}: expect needs expect_reason"
    assert sum(c.tiers["quick"].limit_s for c in claims) > 0, "quick tiers need a time limit"


def check_contract_cases(card: Any, root: Path | None) -> None:
    """_contract.py gives cases, at least one of the card's kind, with names that differ."""
    from ._kinds import cases_of, checks_for

    cases = cases_of(card)
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "two cases have one name"
    assert card.kind in {case.kind for case in cases}, f"no case of the card's kind {card.kind!r}"
    for case in cases:
        assert checks_for(case), f"{case.name} has no checks"


def check_package_rooms(card: Any, root: Path | None) -> None:
    """The package holds its lazy face, job, claims, contract and a sample with its provenance, and no pickle."""
    for name in (
        "card.toml",
        "__init__.py",
        "__init__.pyi",
        "_job.py",
        "claims.py",
        "_contract.py",
        "data/PROVENANCE.md",
    ):
        assert (card.folder / name).is_file(), f"{card.folder.name} lacks {name}"
    files = [p for p in (card.folder / "data").rglob("*") if p.is_file() and p.name != "PROVENANCE.md"]
    provenance = (card.folder / "data" / "PROVENANCE.md").read_text(encoding="utf-8")
    assert re.search("licen[cs]e", provenance, re.IGNORECASE), "PROVENANCE.md names no licence"
    for path in files:
        assert path.name in provenance, f"PROVENANCE.md does not mention {path.name}"
        with path.open("rb") as handle:
            head = handle.read(2)
        assert not (head[:1] == pickle.PROTO and head[1:] in (b"\x02", b"\x03", b"\x04", b"\x05")), (
            f"{path.name} is a pickle"
        )
    size = sum(p.stat().st_size for p in files)
    assert size <= 2**20, f"data/ holds {size / 2**20:.2f} MiB; the limit is 1 MiB"
    algorithm = [
        p.name
        for p in card.folder.glob("_*.py")
        if p.name not in ("__init__.py", "_job.py", "_contract.py", "_experiments.py")
    ]
    assert algorithm, "no _<noun>.py holds the algorithm"


def check_repository_rooms(card: Any, root: Path | None) -> None:
    """Tests, parity values, benchmark, example and guide page are where everyone looks for them."""
    if root is None:
        from ._cases import not_applicable

        raise not_applicable("a method of another package keeps its tests and pages there")
    name, field = card.folder.name, card.field
    missing = []
    if not list((root / "tests" / field / name).glob("test_*.py")):
        missing.append(f"tests/{field}/{name}/test_*.py")
    parity = root / "tests" / "parity" / name
    if not list(parity.glob("test_*.py")):
        missing.append(f"tests/parity/{name}/test_*.py")
    if not [*parity.glob("*.json"), *parity.glob("*.npz"), *parity.glob("*.csv")]:
        missing.append(f"tests/parity/{name}/*.json or *.npz (the reference values)")
    for path in (f"bench/{field}/bench_{name}.py", f"examples/{field}/plot_{name}.py", f"docs/guide/{field}/{name}.md"):
        if not (root / path).is_file():
            missing.append(path)
    assert not missing, f"{card.slug} lacks {', '.join(missing)}"


def check_guide_page(card: Any, root: Path | None) -> None:
    """The guide page has the fixed form, and its claims table is generated."""
    if root is None:
        from ._cases import not_applicable

        raise not_applicable("a method of another package keeps its pages there")
    path = root / "docs" / "guide" / card.field / f"{card.folder.name}.md"
    assert path.is_file(), f"{path.relative_to(root)} is missing"
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"^## +(.+?)\s*$", text, re.MULTILINE)
    found = [next((h for h in headings if h.lower().startswith(s.lower())), None) for s in GUIDE_SECTIONS]
    absent = [s for s, h in zip(GUIDE_SECTIONS, found) if h is None]
    assert not absent, f"{path.name} lacks the sections {absent} (docs/guide/_template.md)"
    places = [headings.index(h) for h in found if h is not None]
    assert places == sorted(places), f"{path.name}: the sections must come in the order {GUIDE_SECTIONS}"
    assert f"<!-- claims: {card.slug} -->" in text, f"{path.name} lacks the line <!-- claims: {card.slug} -->"


CHECKS = (
    check_card,
    check_commands,
    check_cheap_imports,
    check_public_names,
    check_doctests,
    check_claims,
    check_contract_cases,
    check_package_rooms,
    check_repository_rooms,
    check_guide_page,
)


def checks_for_method(card: Any, root: str | Path | None = None) -> list[tuple[str, MethodCheck]]:
    """Give the checks of a method's rooms, each a function without arguments.

    Parameters
    ----------
    card : assay._core.registry.Card
        The method.
    root : path, optional
        Root of the repository. None for an installed package: the rooms outside the package are not looked at.

    Returns
    -------
    list of (str, callable)
        Name and check.

    Examples
    --------
    >>> from assay.testing import checks_for_method
    >>> [name for name, check in checks_for_method(card=None)][0]
    'check_card'
    """
    place = None if root is None else Path(root)
    return [(check.__name__, _bound(check, card, place)) for check in CHECKS]


def _bound(check: Callable[[Any, Path | None], None], card: Any, root: Path | None) -> MethodCheck:
    def run() -> None:
        check(card, root)

    run.__doc__ = check.__doc__
    return run


def check_method(card: Any, root: str | Path | None = None) -> None:
    """Check all rooms of a method and raise one AssertionError that names all faults.

    Parameters
    ----------
    card : Card or str
        The method, or its slug.
    root : path, optional
        Root of the repository, for the rooms outside the package.

    Raises
    ------
    AssertionError
        Names every fault.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from assay.testing import check_method
    >>> try:
    ...     check_method(SimpleNamespace(slug="empty"))
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[0])
    empty lacks rooms:
    """
    import unittest

    if isinstance(card, str):
        from assay._core.registry import card as find

        card = find(card)
    faults = []
    for name, check in checks_for_method(card, root):
        try:
            check()
        except unittest.SkipTest:
            continue
        except Exception as error:  # collected, raised together below
            faults.append(f"  {name}: {type(error).__name__}: {error}")
    if faults:
        raise AssertionError(f"{card.slug} lacks rooms:\n" + "\n".join(faults))
