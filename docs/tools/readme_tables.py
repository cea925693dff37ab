"""Rewrite the generated tables of README.md between their markers; with --check only say whether they are current.

The markers are ``<!-- methods:begin -->`` ... ``<!-- methods:end -->`` and the same with ``results``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tables


def guide(card: tables.Card) -> str:
    """Address of the guide page, from the root of the repository."""
    return f"docs/guide/{card.field}/{card.folder.name}.md"


def updated(text: str) -> str:
    """The README with its tables made anew."""
    for name, table in (("methods", tables.methods_table(guide)), ("results", tables.results_summary(guide))):
        pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(\n?<!-- {name}:end -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"README.md must hold <!-- {name}:begin --> and <!-- {name}:end --> exactly once.")
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        text = text[: text.index(begin)] + f"{begin}\n\n{table}\n\n" + text[text.index(end) :]
    return text


def main(argv: list[str]) -> int:
    """Write, or compare under ``--check``; 1 if the tables were old."""
    path = tables.ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = updated(old)
    if "--check" in argv:
        if new != old:
            print("README.md: the generated tables are old; run: python docs/tools/readme_tables.py", file=sys.stderr)
        return int(new != old)
    path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
