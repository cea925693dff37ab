"""Print the requirements of dependency groups of pyproject.toml; pip before 25.1 cannot install groups itself."""

import sys
import tomllib
from pathlib import Path


def expand(groups: dict, name: str) -> list[str]:
    """Return a group's requirements with the groups it includes."""
    found: list[str] = []
    for item in groups[name]:
        found += expand(groups, item["include-group"]) if isinstance(item, dict) else [item]
    return found


if __name__ == "__main__":
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    wanted = [r for name in sys.argv[1:] for r in expand(pyproject["dependency-groups"], name)]
    # No blanks inside a requirement: the shell splits the line at blanks.
    print(" ".join(r.replace(" ", "") for r in dict.fromkeys(wanted)))
