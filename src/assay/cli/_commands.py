"""The commands that belong to no method."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from .._core.errors import DISTRIBUTION, InputError
from .._core.registry import Card, card, cards, problems
from .._version import __version__


def _rows(rows: Sequence[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """Lay out rows in columns; the last column wraps to the terminal's width."""
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header) - 1)]
    room = max(30, shutil.get_terminal_size((120, 24)).columns - sum(widths) - 2 * len(widths))
    lines = []
    for number, row in enumerate([header, *rows]):
        left = "  ".join(text.ljust(w) for text, w in zip(row, widths))
        wrapped = textwrap.wrap(row[-1], room) or [""]
        lines.append(f"{left}  {wrapped[0]}".rstrip())
        lines += [" " * (sum(widths) + 2 * len(widths)) + more for more in wrapped[1:]]
        if number == 0:
            lines.append("-" * min(len(lines[0]) + room, sum(widths) + 2 * len(widths) + room))
    return "\n".join(lines)


def list_(*, field: str | None = None, kind: str | None = None, json: bool = False) -> None:
    """List the methods.

    Parameters
    ----------
    field
        Only this field, e.g. bio.
    kind
        Only this kind, e.g. estimator.
    json
        Print the cards as JSON.
    """
    items = list(cards().values())
    if field is not None:
        known = sorted({c.field for c in items})
        if field not in known:
            raise InputError(f"--field {field!r} is unknown; there are: {', '.join(known)}.")
        items = [c for c in items if c.field == field]
    if kind is not None:
        known = sorted({c.kind for c in items})
        if kind not in known:
            raise InputError(f"--kind {kind!r} is unknown here; there are: {', '.join(known)}.")
        items = [c for c in items if c.kind == kind]
    if json:
        print(_as_json(items))
        return
    print(
        _rows(
            [(c.slug, c.field, c.kind, c.status, c.summary) for c in items],
            ("method", "field", "kind", "status", "what it does"),
        )
    )
    print("\nassay demo METHOD runs one on its real sample; assay show METHOD tells more.")
    for sentence in problems():
        print(f"left out: {sentence}", file=sys.stderr)


def _as_json(items: list[Card]) -> str:
    import json
    from dataclasses import asdict, replace

    return json.dumps(
        [{**asdict(replace(c, commands=dict(c.commands))), "folder": str(c.folder)} for c in items], indent=1
    )


def show(method: str) -> None:
    """Show what a method is for, what it needs, and its commands.

    Parameters
    ----------
    method
        Its name, as `assay list` prints it.
    """
    c = card(method)
    print(f"{c.title}  ({c.slug}; {c.field}, {c.kind}, {c.status})\n{c.summary}\n")
    entries: list[tuple[str, str]] = [
        ("You bring", c.brings),
        ("You get", c.yields),
        *[("Not for" if i == 0 else "", text) for i, text in enumerate(c.limitations)],
        (
            "Paper",
            f"{', '.join(c.paper.authors)}: {c.paper.title}. {c.paper.venue}"
            + (f", arXiv {c.paper.arxiv}" if c.paper.arxiv else ""),
        ),
        (
            "Their code",
            f"{c.paper.code} ({c.paper.code_licence or 'no licence stated'})" if c.paper.code else "none published",
        ),
        ("Extra", ", ".join(f"pip install '{DISTRIBUTION}[{e}]'" for e in c.extras) or "none"),
        ("Try", f"assay demo {c.slug}"),
        *[("Commands" if i == 0 else "", f"assay {c.slug} {verb} --help") for i, verb in enumerate(c.commands)],
        ("Claims", f"assay claims list {c.slug}"),
    ]
    for name, text in entries:
        lines = textwrap.wrap(text, max(40, shutil.get_terminal_size((110, 24)).columns - 14)) or [""]
        print(f"{name + ':' if name else '':<13}{lines[0]}")
        for more in lines[1:]:
            print(f"{'':<13}{more}")


def demo(
    method: str,
    *,
    out: Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    resume: Annotated[bool, Parameter(negative="")] = False,
    force: Annotated[bool, Parameter(negative="")] = False,
    quiet: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Run a method end to end on the real sample that ships with it; under two minutes.

    Parameters
    ----------
    method
        Its name, as `assay list` prints it.
    out
        Output folder. Default: runs/demo-METHOD-TIME below the working folder.
    seed
        The same seed gives the same numbers.
    device
        cpu, cuda, cuda:INDEX or auto.
    resume
        Go on with the interrupted demo in --out.
    force
        Start over in an --out that is not empty.
    quiet
        No messages or progress on the screen.
    """
    from ._verbs import execute, load

    c = card(method)
    job = load(c.demo)
    options: dict[str, Any] = {
        "out": out, "seed": seed, "device": device, "resume": resume, "force": force, "track": None, "quiet": quiet,
    }  # fmt: skip
    execute(f"demo {c.slug}", lambda run: job(run=run), {}, options)


def extras() -> dict[str, list[str]]:
    """Extra -> its packages, as this installation declares them."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires(DISTRIBUTION) or []:
        match = re.match(r"([\w.-]+).*;.*extra == [\"'](\w+)[\"']", line)
        if match and match[1] != DISTRIBUTION:  # the extra "all" names the others
            found.setdefault(match[2], []).append(match[1])
    return found


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def doctor() -> None:
    """Say what this installation has and what is missing, with the line that installs it."""
    import os

    from .._core.data import cache_dir
    from .._core.run import _cpu_model
    from .._shared.sandbox import sandbox_report

    print(f"assay    {__version__}  ({Path(__file__).parents[1]})")
    print(f"python   {platform.python_version()}  ({sys.executable})")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"machine  {_cpu_model()}, {cores} cores, {platform.system()}")
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(f"torch    {torch.__version__}, {torch.get_num_threads()} threads, devices: {', '.join(['cpu', *gpus])}")
    for extra, packages in extras().items():
        missing = [p for p in packages if not _installed(p)]
        users = [c.slug for c in cards().values() if extra in c.extras]
        for_whom = f" (for {', '.join(users)})" if users else ""
        state = "installed" if not missing else f"missing: pip install '{DISTRIBUTION}[{extra}]'"
        print(f"extra    {extra:<8} {state}{for_whom}")
    print(f"sandbox  {sandbox_report()}")
    root = os.environ.get("ASSAY_DATA_DIR")
    print(f"data     ASSAY_DATA_DIR {root if root else 'not set'}; cache {cache_dir()}")
    if root and not Path(root).is_dir():
        print("         ASSAY_DATA_DIR names a folder that does not exist: correct or unset it")
    for sentence in problems():
        print(f"problem  {sentence}")


def data_list(method: str | None = None) -> None:
    """List the data files of the methods, where each one is, and its licence.

    Parameters
    ----------
    method
        Only this method's.
    """
    from .._core.data import data_path as find
    from .._core.errors import MissingData

    rows = []
    for c in [card(method)] if method else cards().values():
        for path in sorted((c.folder / "data").glob("*")):
            if path.name != "PROVENANCE.md":
                rows.append((c.slug, path.name, "shipped", "see PROVENANCE.md beside it"))
        for item in c.data:
            try:
                find(c.slug, item.name, download=False)
                state = "here"
            except MissingData:
                state = "to fetch" if item.url else "by hand"
            rows.append((c.slug, item.name, state, f"{item.licence}; {item.citation}"))
    print(_rows(rows, ("method", "file", "state", "licence and source")))


def data_fetch(method: str, name: str | None = None) -> None:
    """Fetch a method's data files into the cache, or say where to get them by hand.

    Parameters
    ----------
    method
        The method.
    name
        One file; default all.
    """
    from .._core.data import data_path as find

    c = card(method)
    names = [item.name for item in c.data]
    if name is not None and name not in names:
        raise InputError(f"The method {c.slug!r} has no data file {name!r} (it has: {', '.join(names) or 'none'}).")
    for item in [name] if name is not None else names:
        print(find(c.slug, item))
    if not names:
        print(f"{c.slug} needs no data from outside.")


def data_path(method: str, name: str) -> None:
    """Print the path of a data file, shipped or fetched.

    Parameters
    ----------
    method
        The method.
    name
        The file's name.
    """
    from .._core.data import data_path as find
    from .._core.data import sample_path

    c = card(method)
    shipped = sorted(p.name for p in (c.folder / "data").glob("*") if p.name != "PROVENANCE.md")
    known = [*shipped, *(item.name for item in c.data)]
    if name not in known:
        raise InputError(f"The method {c.slug!r} has no data file {name!r} (it has: {', '.join(known) or 'none'}).")
    if name in shipped:
        print(sample_path(c.slug, name))
    else:
        print(find(c.slug, name, download=False))
