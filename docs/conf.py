"""Sphinx configuration. Pages that follow from cards, public names, examples and results are written here, before the build."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "tools"))
# The gallery runs every example: in smoke size unless asked otherwise (ASSAY_SMOKE=0 for full-size pictures).
os.environ.setdefault("ASSAY_SMOKE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import tables  # noqa: E402
from numpydoc.docscrape import NumpyDocString  # noqa: E402

import assay  # noqa: E402
from assay._core.registry import card as find_card  # noqa: E402

project = "Assay"
author = "The Assay developers"
copyright = "The Assay developers, Apache-2.0"
release = version = assay.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "_generated/examples", "guide/_template.md", "tools"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_title = f"Assay {version}"
html_theme_options = {
    "show_toc_level": 2,
    "navbar_align": "left",
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_typehints = "none"  # types stand in the numpydoc sections
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

GENERATED = HERE / "_generated"
EXAMPLES = GENERATED / "examples"
sphinx_gallery_conf = {
    "examples_dirs": [str(EXAMPLES)],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"[\\/]plot_",
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # the times of this machine are nobody's concern
    "backreferences_dir": None,
    "remove_config_comments": True,
}


def write(path: Path, text: str) -> None:
    """Write only what changed, so that an incremental build reads only what changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def make_tables() -> None:
    """Pages of all methods and of all results."""

    def page(card: tables.Card) -> str:
        return f"../guide/{card.field}/{card.folder.name}.md"

    write(
        GENERATED / "methods.md",
        "# Methods\n\n" + tables.methods_table(page) + "\n",
    )
    parts = [
        "# Results of the claims",
        "Every row is a sentence of a paper, the rule that was fixed before running, and what came out, also where it went "
        "against the paper. `assay claims run SLUG/NAME --tier standard` repeats one.",
        tables.results_summary(page),
    ]
    for card in tables.own_cards():
        parts += [f"## {card.title}", tables.claims_table(card)]
    write(GENERATED / "results.md", "\n\n".join(parts) + "\n")


def api_page(module: str, title: str, intro: str) -> str:
    """One page of the reference: the public names of a module, classes and functions with a page each."""
    package = importlib.import_module(module)
    objects = [
        n for n in package.__all__ if inspect.isclass(getattr(package, n)) or inspect.isroutine(getattr(package, n))
    ]
    others = [n for n in package.__all__ if n not in objects and not inspect.ismodule(getattr(package, n))]
    lines = [title, "=" * len(title), "", intro, "", f".. currentmodule:: {module}", "", f"``{module}``", ""]
    lines += [".. autosummary::", "   :toctree: objects", "   :nosignatures:", "", *(f"   {n}" for n in objects), ""]
    if others:
        lines += ["Constants: " + ", ".join(f"``{n}``" for n in others) + ".", ""]
    return "\n".join(lines)


def make_api() -> None:
    """The reference, from the public names of each package."""
    pages = {
        "claims": ("assay.claims", "Claims", "Declare, run, judge and report claims."),
        "testing": ("assay.testing", "Testing", "Contract checks by kind, and helpers for a method's own tests."),
    }
    for card in tables.own_cards():
        pages[f"{card.field}-{card.slug}"] = (card.module, card.title, card.summary)
    for name, (module, title, intro) in pages.items():
        write(GENERATED / "api" / f"{name}.rst", api_page(module, title, intro))
    entries = "\n".join(f"   {name}" for name in pages)
    write(GENERATED / "api" / "index.rst", f"Reference\n=========\n\n.. toctree::\n   :maxdepth: 1\n\n{entries}\n")


def make_examples() -> None:
    """Copy the examples and give every field its heading, so that a new field needs no file of its own."""
    shutil.rmtree(EXAMPLES, ignore_errors=True)
    write(EXAMPLES / "GALLERY_HEADER.rst", "Examples\n========\n\nEach runs in seconds and ends with a picture.\n")
    for card in tables.own_cards():
        source = tables.ROOT / "examples" / card.field
        if not source.is_dir() or (EXAMPLES / card.field).exists():
            continue
        title = card.field.capitalize()
        write(EXAMPLES / card.field / "GALLERY_HEADER.rst", f"{title}\n{'-' * len(title)}\n")
        for path in source.glob("*.py"):
            shutil.copy2(
                path, EXAMPLES / card.field / path.name
            )  # keeps the time: what did not change is not run again


make_tables()
make_api()
make_examples()


def insert_claims(app: object, docname: str, source: list[str]) -> None:
    """Put the claims table, with results, in place of the line ``<!-- claims: slug -->``."""
    source[0] = re.sub(
        r"^<!-- claims: ([a-z0-9-]+) -->$",
        lambda m: tables.claims_table(find_card(m.group(1))),
        source[0],
        flags=re.MULTILINE,
    )


def move_shapes(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Turn the section "Shapes", which numpydoc does not know and would drop, into the head of "Notes"."""
    text = "\n".join(lines)
    found = re.search(r"^Shapes?\n-{3,}\n(.*?)(?=^\w[^\n]*\n-{3,}\n|\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return
    body = "**Shapes**\n\n" + found.group(1).strip() + "\n\n"
    text = text[: found.start()] + text[found.end() :]
    notes = re.search(r"^Notes\n-{3,}\n", text, re.MULTILINE)
    if notes is not None:
        text = text[: notes.end()] + body + text[notes.end() :]
    else:
        later = re.search(r"^(References|Examples)\n-{3,}\n", text, re.MULTILINE)
        place = later.start() if later is not None else len(text)
        text = f"{text[:place].rstrip()}\n\nNotes\n-----\n{body}{text[place:]}"
    lines[:] = text.split("\n")


# numpydoc also reads raw docstrings, for signatures, and warns about sections that it does not know
NumpyDocString.sections["Shapes"] = ""


def setup(app: object) -> None:
    """Connect the two hooks; the docstring one before numpydoc's own (500)."""
    app.connect("source-read", insert_claims)  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", move_shapes, priority=100)  # type: ignore[attr-defined]
