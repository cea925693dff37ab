"""Cards: what each method says about itself, found by walking the folders and the entry points `assay.methods`.

A card is data only: reading all of them imports no method. Validation is by hand rather than by pydantic because every
command pays for it at start-up (pydantic alone costs a third of the budget of ``assay list``).
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .errors import AssayError, InputError

ENTRY_POINT_GROUP = "assay.methods"
STATUSES = ("experimental", "stable", "broken")
KINDS = (
    "estimator",
    "optimizer",
    "init / sparsity",
    "torch module",
    "generative model",
    "acquisition",
    "decoding / LLM training",
    "agent",
    "graph algorithm",
    "online learner",
    "calculator",
    "app",
)
# Folders of the package that are not fields.
_ROOMS = {"_core", "_shared", "cli", "claims", "testing", "serve", "__pycache__"}


class CardError(AssayError):
    """A card.toml is wrong; names the file and the key."""


@dataclass(frozen=True)
class Paper:
    """The paper behind a method."""

    title: str
    authors: tuple[str, ...]
    venue: str = "ICML 2024"
    year: int = 2024
    arxiv: str = ""
    url: str = ""
    code: str = ""
    code_licence: str = ""


@dataclass(frozen=True)
class DataFile:
    """A file that a method uses and the repository does not hold."""

    name: str
    url: str = ""
    sha256: str = ""
    licence: str = ""
    citation: str = ""


@dataclass(frozen=True)
class Card:
    """What a method says about itself; the text of its ``card.toml``.

    Parameters
    ----------
    slug : str
        Its one name: the folder's with hyphens.
    field, module, folder : str, str, Path
        Where it lives; derived from the place of the file.
    title, summary, kind, brings, yields : str
        For tables and help.
    extras, limitations, aliases : tuple of str
        Extras to install; what it is not for; former names.
    demo : str
        ``module:function`` that runs on the shipped sample.
    commands : mapping of str to str
        Verb to ``module:function``.
    data : tuple of DataFile
        Files outside the repository.
    """

    slug: str
    field: str
    module: str
    folder: Path
    title: str
    summary: str
    kind: str
    brings: str
    yields: str
    paper: Paper
    commands: Mapping[str, str]
    demo: str
    extras: tuple[str, ...] = ()
    limitations: tuple[str, ...] = ()
    status: str = "experimental"
    aliases: tuple[str, ...] = ()
    data: tuple[DataFile, ...] = ()


def _table(path: Path, where: str, kind: Any, raw: Any) -> Any:
    known = {f.name for f in dataclass_fields(kind)}
    unknown = sorted(set(raw) - known)
    if unknown:
        raise CardError(f"{path}: unknown key {unknown[0]!r} in {where}; known: {', '.join(sorted(known))}.")
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()})
    except TypeError as error:
        raise CardError(f"{path}: {where} is incomplete ({error}).") from error


def read_card(path: Path, module: str, field_name: str | None = None) -> Card:
    """Read one ``card.toml``.

    Parameters
    ----------
    path : Path
        The file.
    module : str
        Dotted name of the method's package.
    field_name : str, optional
        The field; a third-party card gives it as a key of its own.

    Raises
    ------
    CardError
        If the file is not TOML or a key is missing, unknown or of a wrong value.
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CardError(f"{path} is not valid TOML ({error}).") from error
    paper = _table(path, "[paper]", Paper, raw.pop("paper", {}))
    data = tuple(_table(path, "[[data]]", DataFile, item) for item in raw.pop("data", []))
    slug = raw.pop("slug", module.rpartition(".")[2].replace("_", "-"))
    field_name = raw.pop("field", field_name) or "other"
    commands = MappingProxyType(dict(raw.pop("commands", {})))
    card = _table(
        path,
        "the card",
        Card,
        raw
        | {"slug": slug, "field": field_name, "module": module, "folder": path.parent, "paper": paper}
        | {"data": data, "commands": commands},
    )
    if card.kind not in KINDS:
        raise CardError(f"{path}: kind {card.kind!r} is none of {', '.join(KINDS)}.")
    if card.status not in STATUSES:
        raise CardError(f"{path}: status {card.status!r} is none of {', '.join(STATUSES)}.")
    for name, target in {**commands, "demo": card.demo}.items():
        if target.count(":") != 1:
            raise CardError(f"{path}: {name} must be 'module:function', got {target!r}.")
    return card


def cards() -> Mapping[str, Card]:
    """Return every method's card by slug, sorted by field and slug.

    Methods of this package are the folders ``assay/<field>/<method>`` that hold a ``card.toml``; others come from
    installed packages through the entry point group ``assay.methods``, whose values name the package of the method.

    A card of an installed package that is wrong, or bears a name that is taken, is left out and told by `problems`: one bad
    package must not take the other methods away.

    Raises
    ------
    CardError
        If a card of this package is wrong.
    """
    return _walk()[0]


def problems() -> tuple[str, ...]:
    """Return one sentence for each installed package whose method could not be added."""
    return _walk()[1]


@cache
def _walk() -> tuple[Mapping[str, Card], tuple[str, ...]]:
    import assay

    found: dict[str, Card] = {}
    root = Path(assay.__file__).parent
    for path in sorted(root.glob("*/*/card.toml")):
        field_name = path.parent.parent.name
        if field_name not in _ROOMS:
            _add(found, read_card(path, f"assay.{field_name}.{path.parent.name}", field_name))
    faults = []
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            _add(found, _foreign_card(point.name, point.value))
        except CardError as error:
            faults.append(str(error))
    ordered = dict(sorted(found.items(), key=lambda item: (item[1].field, item[0])))
    return MappingProxyType(ordered), tuple(faults)


def _foreign_card(name: str, package: str) -> Card:
    try:
        spec = importlib.util.find_spec(package)  # imports parents only, never the method itself
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise CardError(f"The entry point {name!r} names {package!r}, which is not an importable package.")
    path = Path(spec.origin).parent / "card.toml"
    if not path.is_file():
        raise CardError(f"The entry point {name!r} names {package!r}, which holds no card.toml.")
    return read_card(path, package)


def _add(found: dict[str, Card], new: Card) -> None:
    if new.slug in found:
        raise CardError(f"{new.folder} and {found[new.slug].folder} are both named {new.slug!r}; rename one.")
    found[new.slug] = new


def card(name: str) -> Card:
    """Return the card of a method by its slug, its folder's name or a former name.

    Raises
    ------
    InputError
        If there is no such method; names the closest.
    """
    import difflib

    known = cards()
    slug = name.replace("_", "-")
    if slug in known:
        return known[slug]
    for item in known.values():
        if slug in item.aliases or name in item.aliases:
            return item
    close = difflib.get_close_matches(slug, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "see `assay list`."
    raise InputError(f"There is no method {name!r}; {hint}")
