"""Every method's example runs as a script in smoke size, draws, and uses the public face only."""

import re
import sys

import pytest

# CPU seconds in smoke size, as for a demo: 10 s, and a factor 2 for slow machines.
BUDGET = 20.0


@pytest.fixture
def example(card, repository_of):
    root = repository_of(card)
    if root is None:
        pytest.skip("a method of another package keeps its example there")
    return root / "examples" / card.field / f"plot_{card.folder.name}.py"


def test_example_runs(example, child, tmp_path):
    code = (
        "import runpy, sys, warnings, matplotlib\nmatplotlib.use('Agg')\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')\n"
        "import matplotlib.pyplot as plt\nprint('FIGURES', len(plt.get_fignums()))"
    )
    # style.figure may make figures without pyplot; sphinx-gallery shows only those of pyplot
    result = child([sys.executable, "-c", code, example], ASSAY_SMOKE="1", MPLBACKEND="Agg", OMP_NUM_THREADS="1")
    assert result.code == 0, result.err[-2000:]
    assert int(result.out.rsplit("FIGURES", 1)[1]) > 0, "the example leaves no figure for the gallery"
    assert result.cpu < BUDGET, f"{result.cpu:.1f} s CPU in smoke size"


def test_example_is_written_for_readers(example):
    text = example.read_text(encoding="utf-8")
    assert re.match(r'r?"""\n?[^\n]+\n[=]{3,}', text), "begin with a docstring whose first line is an underlined title"
    private = re.findall(r"^\s*(?:from|import) assay\S*\._\w+.*$", text, re.MULTILINE)
    allowed = [line for line in private if re.search(r"assay\._core\.(style|smoke)\b", line)]
    assert private == allowed, f"examples use public names: {private}"
