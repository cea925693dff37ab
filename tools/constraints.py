"""Write constraints.txt: the versions that a fresh environment with every extra and group resolves to.

Run by ``make constraints``; the tests are then run with the new file before it is committed.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from group import expand

ROOT = Path(__file__).parents[1]
HEAD = (
    "# Tested versions, written by `make constraints`; `make` installs with them. Lower bounds are in pyproject.toml.\n"
)


def main() -> None:
    """Let pip resolve everything as if nothing were installed, and keep the versions."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    wanted = dict.fromkeys(r for name in ("dev", "bench") for r in expand(groups, name))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
            + ["--report", report, f"{ROOT}[all,cluster,track]", *wanted],
            check=True,
        )
        items = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    # A local build tag (torch's "+cpu") names one platform's file; the public version is what others can install.
    lines = sorted(f"{m['name'].lower()}=={m['version'].partition('+')[0]}" for m in items if m["name"] != "assay-ml")
    (ROOT / "constraints.txt").write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
