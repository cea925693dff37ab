"""The page that a run leaves: one HTML file, no network, legible when printed."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import read_json

if TYPE_CHECKING:
    from jinja2 import Template

    from .run import Run


@cache
def template(name: str) -> Template:
    """Return a template of this folder; everything put into it is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True).get_template(name)


def data_uri(path: Path) -> str:
    """Return a figure's file as a data address, so that the page needs no other file."""
    kind = {"svg": "svg+xml"}.get(path.suffix[1:], path.suffix[1:])
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def run_page(run: Run, seconds: float) -> str:
    """Return the HTML of a run's report."""
    from .run import cell

    sections: list[dict[str, Any]] = []
    for section in run.sections:
        if section["kind"] == "figure":
            section = section | {"src": data_uri(section["path"]), "file": f"figures/{section['path'].name}"}
        sections.append(section)
    headline = [
        (name.replace("_", " "), cell(value))
        for name, value in run.results.items()
        if not isinstance(value, (list, dict)) and value is not None
    ]
    environment = read_json(run.out / "env.json") if (run.out / "env.json").exists() else {}
    return template("report.html").render(
        title=run.title,
        subtitle=run.subtitle,
        replay=run.replay_line(),
        seed=run.seed,
        seconds=seconds,
        warnings=run.warnings,
        headline=headline,
        sections=sections,
        environment=environment,
    )
