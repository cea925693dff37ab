"""The command line: a whole session by hand, evaluators that fail or hang, resuming, and files that are wrong."""

import json
import sys

import pandas as pd
import pytest

from assay.testing import run_cli

NET = """
variables: {T: [0, 1], mix: [0, 1]}
nodes:
  - {name: blend, inputs: [mix], parents: [], cost: 1}
  - {name: cure, inputs: [T], parents: [blend], cost: 6}
objective: cure
"""
OBS = "node,T,mix,blend,value,cost\nblend,,0.1,,0.2,\nblend,,0.8,,0.9,2\ncure,0.3,,0.2,1.0,\ncure,0.7,,0.9,1.4,\n"
STEPS = "def blend(mix):\n    return 1.2 * mix + 0.1\n\ndef cure(T, blend):\n    return 2 - (T - 0.4) ** 2 - (blend - 0.7) ** 2\n"
EVALUATOR = """
import json, sys, pathlib, time
q = json.load(sys.stdin)
i = q["inputs"]
marker = pathlib.Path(sys.argv[1])
n = int(marker.read_text()) if marker.exists() else 0
marker.write_text(str(n + 1))
if n == int(sys.argv[2]):
    {fault}
print("log line")
print(1.2 * i["mix"] + 0.1 if q["node"] == "blend" else 2 - (i["T"] - 0.4) ** 2 - (i["blend"] - 0.7) ** 2)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "obs.csv").write_text(OBS)
    (tmp_path / "steps.py").write_text(STEPS)
    return tmp_path


def cli(folder, *words):
    return run_cli("pkgfn", *words, "--quiet", cwd=folder)


def next_query(folder, out):
    return json.loads((folder / out / "artefacts" / "next.json").read_text())


def test_ask_from_a_table(folder):
    done = cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "20", "--out", "a")
    assert done.code == 0, done.err
    body = next_query(folder, "a")
    assert len(body["queries"]) == 1
    query = body["queries"][0]
    assert query["node"] in ("blend", "cure")
    assert {e["node"] for e in body["why"]} == {"blend", "cure"}
    assert set(body["recommendation"]["x"]) == {"T", "mix"}
    if query["node"] == "cure":
        assert query["inputs"]["blend"] in (0.2, 0.9)
    assert next(e["cost"] for e in body["why"] if e["node"] == "blend") == 2.0, "the measured cost counts"


def test_same_seed_same_query(folder):
    for out in "ab":
        assert cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "20", "--seed", "4", "--out", out).code == 0
    assert next_query(folder, "a") == next_query(folder, "b")


def test_a_session_with_a_state_file(folder):
    assert cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "30", "--state", "s.json", "--out", "a").code == 0
    # two asks without a tell: two different queries
    assert cli(folder, "ask", "net.yaml", "--budget-left", "30", "--state", "s.json", "--out", "b").code == 0
    first, second = next_query(folder, "a")["queries"][0], next_query(folder, "b")["queries"][0]
    assert (first["node"], first["inputs"]) != (second["node"], second["inputs"])
    told = cli(folder, "tell", "net.yaml", "s.json", "--value", "1.1", "--cost", "3", "--out", "c")
    assert told.code == 0, told.err
    assert len(json.loads((folder / "s.json").read_text())["pending"]) == 1
    by_name = cli(
        folder, "tell", "net.yaml", "s.json", "--node", "blend", "--inputs", "mix=0.55", "--value", "0.7", "--out", "d"
    )
    assert by_name.code == 0, by_name.err
    table = pd.read_csv(folder / "d" / "artefacts" / "obs.csv")
    assert len(table) == 6
    # the written table is one that ask reads
    assert cli(folder, "ask", "net.yaml", "d/artefacts/obs.csv", "--budget-left", "9", "--out", "e").code == 0


def test_budget_below_the_cheapest_node_gives_the_recommendation(folder):
    done = cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "0.5", "--out", "a")
    assert done.code == 0
    body = next_query(folder, "a")
    assert body["queries"] == []
    assert body["recommendation"]["x"]
    result = json.loads((folder / "a" / "result.json").read_text())
    assert any("cheapest query" in w for w in result["warnings"])


def test_optimize_with_functions(folder):
    done = cli(
        folder, "optimize", "net.yaml", "--functions", "steps.py", "--budget", "30", "--n-initial", "2", "--out", "o"
    )
    assert done.code == 0, done.err
    result = json.loads((folder / "o" / "result.json").read_text())["result"]
    assert result["spent"] <= 30
    assert result["predicted"] > 1.8
    for name in ("curves", "queries", "network", "slices"):
        assert list((folder / "o" / "figures").glob(f"{name}.*")), name
    counts = pd.read_csv(folder / "o" / "artefacts" / "node_counts.csv")
    assert counts["spent"].sum() == pytest.approx(result["spent"])


FAULTS = {
    "raise SystemExit('broken oven')": "exit code 1 (broken oven)",
    "print('nan'); sys.exit()": "gave nan",
    "print('no idea'); sys.exit()": "printed 'no idea'",
    "sys.exit()": "printed nothing",
    "time.sleep(60)": "within 1 s",
}


# one of the five ways runs by default; the others cost five seconds each
SLOW = ("print('nan'); sys.exit()", "raise SystemExit('broken oven')", "print('no idea'); sys.exit()", "sys.exit()")


@pytest.mark.parametrize("fault", [pytest.param(f, marks=pytest.mark.slow) if f in SLOW else f for f in FAULTS])
def test_an_evaluator_that_fails_loses_nothing(folder, fault):
    (folder / "run.py").write_text(EVALUATOR.replace("{fault}", fault))
    words = [
        "optimize",
        "net.yaml",
        "--budget",
        "17",
        "--n-initial",
        "2",
        "--timeout",
        "1" if "sleep" in fault else "20",
        "--out",
        "o",
    ]
    words += ["--evaluator", f"{sys.executable} run.py count.txt 3"]
    done = cli(folder, *words)
    assert done.code == 1, done.err
    assert len(done.err.strip().splitlines()) == 1
    assert FAULTS[fault] in done.err
    assert "node 'cure'" in done.err or "Node 'cure'" in done.err
    again = cli(folder, *words, "--resume")
    assert again.code == 0, again.err
    runs = pd.read_csv(folder / "o" / "artefacts" / "curves.csv")
    asked = int((folder / "count.txt").read_text())
    assert asked == len(runs) + 1, "only the failed query was run twice"
    plain = cli(folder, *words[:-3], "p", "--evaluator", f"{sys.executable} run.py other.txt 999")
    assert plain.code == 0, plain.err
    other = pd.read_csv(folder / "p" / "artefacts" / "curves.csv")
    pd.testing.assert_frame_equal(runs, other)


def test_placeholders_reach_the_command(folder):
    (folder / "run.py").write_text(
        "import sys\nnode, T, mix, blend = sys.argv[1:]\n"
        "print(1.2 * float(mix) + 0.1 if node == 'blend' else 2 - (float(T) - 0.4) ** 2 - (float(blend) - 0.7) ** 2)\n"
    )
    done = cli(folder, "optimize", "net.yaml", "--budget", "15", "--n-initial", "2", "--out", "o",
               "--evaluator", f"{sys.executable} run.py {{node}} {{T}} {{mix}} {{blend}}")  # fmt: skip
    assert done.code == 0, done.err


def test_evaluate_compares_methods(folder):
    done = cli(folder, "evaluate", "pharma", "--methods", "pkgfn,random", "--seeds", "1", "--budget", "2", "--out", "e")
    assert done.code == 0, done.err
    table = pd.read_csv(folder / "e" / "artefacts" / "runtime.csv")
    assert list(table["method"]) == ["pkgfn", "random"]


ROWS = [
    ("node,T,mix,blend,value\noven,,0.1,,1\n", "row 1: there is no node 'oven'"),
    (
        "node,T,mix,blend,value\nblend,,0.1,,1\ncure,0.3,,,1\n",
        "row 2: node 'cure' needs a number in the column 'blend', it is empty",
    ),
    ("node,T,mix,value\nblend,,0.1,1\ncure,0.3,,1\n", "no column 'blend', its parent that node 'cure' (row 2) reads"),
    ("node,T,mix,blend,value\nblend,,0.1,,nan\n", "row 1: node 'blend' needs a number in the column 'value'"),
    ("node,T,mix,blend,value\nblend,,0.1,,inf\n", "row 1: node 'blend' needs a number in the column 'value'"),
    (
        "node,T,mix,blend,value\nblend,,much,,1\n",
        "row 1: node 'blend' needs a number in the column 'mix', it is 'much'",
    ),
    ("node,T,mix,blend,value\nblend,,1.4,,1\n", "row 1: Node blend: mix = 1.4 lies outside [0, 1]"),
    ("node,T,mix,blend,value\nblend,,0.4,,1\nblend,,0.4,,2\n", "row 2: Node blend: this input was observed before"),
    ("node,T,mix,blend,value,cost\nblend,,0.4,,1,-2\n", "row 1: cost must be above 0"),
    ("node,T,mix,blend,value,colour\nblend,,0.4,,1,red\n", "'colour' is no variable or node"),
    ("node,T,mix,blend\nblend,,0.4,\n", "no column 'value'"),
]


@pytest.mark.parametrize(("text", "message"), ROWS, ids=[m[:40] for _, m in ROWS])
def test_wrong_tables_name_the_row(folder, text, message):
    (folder / "obs.csv").write_text(text)
    done = cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "20", "--out", "a")
    assert done.code == 2
    assert message in done.err
    assert "obs.csv" in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_rows_on_values_nobody_observed_are_noted(folder):
    (folder / "obs.csv").write_text(OBS + "cure,0.5,,0.55,1.2,\n")
    done = cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "20", "--out", "a")
    assert done.code == 0, done.err
    notes = json.loads((folder / "a" / "result.json").read_text())["warnings"]
    assert any("1 of 3 rows of node 'cure'" in n for n in notes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ask", "net.yaml", "--budget-left", "5"), "needs the evaluations so far"),
        (("ask", "net.yaml", "obs.csv", "--budget-left", "-1"), "--budget-left"),
        (("ask", "net.yaml", "obs.csv", "--budget-left", "5", "--q", "0"), "--q"),
        (("ask", "cycle.yaml", "obs.csv", "--budget-left", "5"), "cycle"),
        (("ask", "net.yaml", "--state", "torn.json", "--budget-left", "5"), "torn.json"),
        (("ask", "net.yaml", "--state", "other.json", "--budget-left", "5"), "other.json"),
        (("tell", "net.yaml", "absent.json", "--value", "1"), "absent.json"),
        (("optimize", "net.yaml", "--budget", "5"), "--functions"),
        (("optimize", "net.yaml", "--budget", "5", "--functions", "absent.py"), "absent.py"),
        (("optimize", "net.yaml", "--budget", "5", "--functions", "half.py"), "no function 'cure'"),
        (("optimize", "net.yaml", "--budget", "5", "--evaluator", "no-such-command"), "no-such-command"),
        (("evaluate", "pharma", "--methods", "magic"), "'magic'"),
        (("evaluate", "pharma", "--costs", "1,x"), "--costs"),
    ],
)
def test_wrong_options_give_one_sentence(folder, words, message):
    (folder / "cycle.yaml").write_text(NET.replace("inputs: [mix], parents: []", "inputs: [mix], parents: [cure]"))
    (folder / "torn.json").write_text('{"version": 1, "nodes": ["blend", "cu')
    (folder / "other.json").write_text('{"version": 1}')
    (folder / "half.py").write_text("def blend(mix):\n    return 1\n")
    done = cli(folder, *words, "--out", "x")
    assert done.code == 2, done.err
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
