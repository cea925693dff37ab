"""Write constraints.txt: the versions that a fresh environment with every extra and group resolves to.

Run by ``make constraints``; the tests are then run with the new file before it is committed.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from group import expand

ROOT = Path(__file__).parents[1]
HEAD = "# Tested versions, written by `make constraints`; `make` installs with them. Lower bounds are in pyproject.toml.\n"


def main() -> None:
    """Resolve in a throw-away environment and freeze it."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    wanted = [r for name in ("dev", "bench") for r in expand(groups, name)]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run(
            [python, "-m", "pip", "install", "-q", f"{ROOT}[all,cluster,track]", *dict.fromkeys(wanted)], check=True
        )
        frozen = subprocess.run(
            [python, "-m", "pip", "freeze", "--exclude", "assay-ml"], check=True, capture_output=True, text=True
        ).stdout
    # A local build tag (torch's "+cpu") names one platform's file, and a direct address one machine's disk.
    lines = [line.partition(" @ ")[0] if " @ " in line else line.partition("+")[0] for line in frozen.splitlines()]
    (ROOT / "constraints.txt").write_text(HEAD + "\n".join(sorted(l for l in lines if "==" in l)) + "\n")


if __name__ == "__main__":
    main()
