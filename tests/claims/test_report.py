"""The page, the tables and the commands."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from assay._core.errors import InputError
from assay.claims import fingerprint, interleaved, run, stream
from assay.claims._cli import compare, diff, export, list_, show
from assay.claims._cli import report as report_command
from assay.claims._cli import run as run_command
from assay.claims._store import COLUMNS, read_rows
from assay.cli import main

RICH = """
CLAIMS = [
    claim("better", test=Superior(by=0.5), against=["theirs", "other"]),
    claim("factor", test=Ratio(at_least=1.5), expect="not supported", expect_reason="the toy is small"),
    claim("rate", test=Slope(expected=1.0, within=0.2, x="n", y="t"), against=[], unit=""),
    claim("every", test=Bound(le=1.0), against=[], metric="instances"),
    claim("absent", test=Superior(), against=["peer"]),
    claim("broken", test=Superior(), against=["broken"]),
]


def experiment(arm, seed, data, size, device):
    import numpy as np

    if arm == "peer":
        import a_package_that_nobody_has
    if arm == "broken":
        raise ValueError("<b>toy & fault</b>")
    rng = np.random.default_rng(seed)
    own = np.random.default_rng([seed, len(arm)])
    n = [10, 100, 1000]
    return {
        "score": 10 + rng.normal() + (2 if arm == "ours" else 0) + 0.1 * own.normal(),
        "n": n,
        "t": [v * float(1 + 0.01 * own.normal()) for v in n],
        "instances": rng.uniform(0, 1, 20),
        "curves": {"loss": {"x": list(range(200)), "y": np.exp(-np.arange(200) / 50), "x_label": "step", "y_label": "loss"}},
        "pictures": {"noise": own.uniform(size=(64, 64, 3))},
    }
"""


class Links(HTMLParser):
    """Everything a browser would fetch, and whether tags are balanced."""

    def __init__(self):
        super().__init__()
        self.fetched, self.stack = [], []

    def handle_starttag(self, tag, attributes):
        self.fetched += [v for k, v in attributes if k in ("src", "srcset", "data") or (tag == "link" and k == "href")]
        if tag not in ("meta", "br", "img", "link", "hr"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def check_page(text):
    assert len(text.encode()) < 3 * 2**20
    found = Links()
    found.feed(text)
    assert found.stack == []
    assert all(source.startswith("data:image/") for source in found.fetched)
    assert not re.findall(r"@import|url\(", text)
    return found


def test_the_page_is_one_file_with_everything(toy_method, tmp_path):
    toy_method("toy_rich", RICH)
    done = run("toy-rich", tier="standard", jobs=1, out=tmp_path / "run")
    text = done.report().read_text()
    found = check_page(text)
    assert len(found.fetched) >= 9  # figures of five claims, curves and pictures
    for piece in (
        "Claims of Toy toy-rich",
        "A toy paper",
        "tier standard",
        "The toy shows better.",
        "1.2 % (table 2)",
        "Superior(by=0.5)",
        "A toy.",
        "a_package_that_nobody_has",
        "pip install",
        "&lt;b&gt;toy &amp; fault",
        "1/32",
        "assay claims run toy-rich --tier standard",
        "Expected not supported: the toy is small",
    ):
        assert piece in text, piece
    assert {v.claim.partition("/")[2]: v.verdict for v in done.verdicts} == {
        "better": "supported",
        "factor": "not supported",
        "rate": "supported",
        "every": "supported",
        "absent": "inconclusive (missing comparator)",
        "broken": "error",
    }


@pytest.mark.slow
def test_a_page_with_many_seeds_and_pictures_stays_small(toy_method, tmp_path):
    toy_method(
        "toy_big",
        """
        CLAIMS = [claim(f"c{i}", test=Superior(), against=["b", "c"]) for i in range(2)]

        def experiment(arm, seed, data, size, device):
            import numpy as np

            rng = np.random.default_rng(seed)
            return {
                "score": rng.normal(),
                "curves": {"walk": list(rng.normal(size=2000).cumsum())},
                "pictures": {f"p{i}": rng.uniform(size=(200, 200, 3)) for i in range(2)},
            }
        """,
    )
    done = run("toy-big", tier="full", seeds=15, jobs=2, out=tmp_path / "run")
    check_page(done.report().read_text())


def test_several_methods_get_an_index(toy_method, gauss, tmp_path):
    toy_method("toy_rich", RICH)
    done = run(["toy-gauss", "toy-rich/rate"], tier="quick", jobs=1, out=tmp_path / "run")
    index = done.report().read_text()
    found = Links()
    found.feed(index)
    assert found.fetched == []
    assert 'href="report-toy-gauss.html"' in index
    for slug in ("toy-gauss", "toy-rich"):
        check_page((tmp_path / "run" / f"report-{slug}.html").read_text())


def test_the_committed_table_is_merged_in_place_and_sorted(toy_method, gauss, tmp_path):
    toy_method("toy_rich", RICH)
    results = tmp_path / "results"
    path = run("toy-rich/*", tier="quick", jobs=1, out=tmp_path / "a").export(results, "cpu2")
    assert path.name == "claims-quick-cpu2.csv"
    first = read_rows(path)
    run("toy-gauss", tier="quick", jobs=1, out=tmp_path / "b").export(results, "cpu2")
    both = read_rows(path)
    keys = [(row["claim"], row["comparator"]) for row in both]
    assert keys == sorted(keys)
    assert len(both) == len(first) + 1
    assert tuple(both[0]) == COLUMNS
    run("toy-rich/better", tier="quick", seeds=4, jobs=1, out=tmp_path / "c").export(results, "cpu2")
    again = read_rows(path)
    assert [(row["claim"], row["comparator"]) for row in again] == keys
    assert {row["n_pairs"] for row in again if row["claim"] == "toy-rich/better"} == {"4"}
    assert [row for row in again if "better" not in row["claim"]] == [
        row for row in both if "better" not in row["claim"]
    ]
    assert any(row["claim"] == "toy-gauss/better" for row in again)


def test_diff_of_runs_and_tables(gauss, tmp_path, capsys):
    one = run("toy-gauss", tier="quick", jobs=1, out=tmp_path / "one")
    two = run("toy-gauss", tier="standard", jobs=1, out=tmp_path / "two")
    assert [row["change"] for row in compare(one.folder, two.folder)] == ["verdict"]
    assert [row["change"] for row in compare(two.folder, two.export(tmp_path / "r"))] == [""]
    diff(one.folder, two.folder)
    diff(two.folder, two.folder)
    shown = capsys.readouterr().out
    assert "direction holds" in shown
    assert "supported" in shown
    assert "No difference in 1" in shown
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a table of claims"):
        diff(one.folder, tmp_path / "other.csv")


def test_commands(toy_method, gauss, tmp_path, capsys):
    toy_method("toy_rich", RICH)
    list_("toy-rich")
    assert "toy-rich/rate" in capsys.readouterr().out
    show("toy-rich/factor")
    shown = capsys.readouterr().out
    assert "Ratio(at_least=1.5)" in shown
    assert "5 seeds" in shown
    run_command(
        ["toy-gauss"], tier="quick", jobs=1, out=tmp_path / "run", commit_results=True, results=tmp_path / "res"
    )
    shown = capsys.readouterr().out
    assert "direction holds" in shown
    assert "report.html" in shown
    assert (tmp_path / "res").is_dir()
    before = (tmp_path / "run" / "verdicts.json").read_bytes()
    report_command(tmp_path / "run")
    export(tmp_path / "run", results=tmp_path / "res2")
    assert (tmp_path / "run" / "verdicts.json").read_bytes() == before
    with pytest.raises(SystemExit):  # an error in a cell is an exit code
        run_command(["toy-rich/broken"], tier="quick", jobs=1, out=tmp_path / "bad", report=False)


def test_the_command_line_ends_with_the_right_code_and_one_sentence(gauss, tmp_path, capsys):
    assert main(["claims", "run", "toy-gauss/*", "--tier", "quick", "--jobs", "1", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    for words in (
        ["claims", "run", "toy-gaus"],
        ["claims", "show", "toy-gauss/none"],
        ["claims", "report", str(tmp_path)],
        ["claims", "diff", str(tmp_path / "run"), str(tmp_path / "nothing.csv")],
        ["claims", "run", "toy-gauss", "--tier", "huge"],
    ):
        assert main(words) == 2, words
        errors = capsys.readouterr().err
        assert "Traceback" not in errors
        assert len(errors.strip().splitlines()) == 1


def test_an_empty_registry_is_not_an_error(monkeypatch, capsys):
    from assay._core import registry

    monkeypatch.setattr(registry, "cards", dict)
    list_()
    assert "No method" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------------- helpers


def test_interleaved_times_a_b_b_a_and_reports_the_speedup():
    calls = []

    def ours():
        calls.append("A")

    def theirs():
        calls.append("B")
        sum(range(20_000))

    found = interleaved(ours, theirs, repeats=3, warmup=1, block_s=0.0)
    assert "".join(calls) == "AB" + "AB" + "ABBA" * 3  # warm-up, sizing of blocks, rounds
    assert found["ratio"] > 5
    assert len(found["ratios"]) == 3
    assert found["ratio"] == np.median(found["ratios"])
    with pytest.raises(ValueError, match="repeats"):
        interleaved(ours, theirs, repeats=0)


def test_streams_are_shared_without_an_arm_and_separate_with_one():
    assert stream(1000).random() == stream(1000).random()
    draws = {stream(s, arm).random() for s in (1000, 1001) for arm in ("", "ours", "theirs")}
    assert len(draws) == 6


def test_fingerprints_see_values_shapes_and_kinds():
    import torch
    from scipy import sparse

    x = np.arange(6.0)
    assert fingerprint(x) == fingerprint(x.copy())
    assert fingerprint(torch.arange(6, dtype=torch.float64)) == fingerprint(x)
    W = sparse.csr_array(np.eye(3))
    distinct = [fingerprint(v) for v in (x, x[::-1], x.reshape(2, 3), x.astype("float32"), W, 2 * W)]
    assert len(set(distinct)) == 6
