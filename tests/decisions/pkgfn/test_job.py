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
    written = pd.read_csv(folder / "a" / "artefacts" / "obs.csv")
    assert set(written.loc[written["node"] == "blend", "cost"]) == {2.0}, "the written table keeps it"
    assert written.loc[written["node"] == "cure", "cost"].isna().all()


@pytest.mark.slow  # the contract suite repeats ask as well
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
    assert cli(folder, "ask", "net.yaml", "d/artefacts/obs.csv", "--budget-left", "0.5", "--out", "e").code == 0


GROUP = """
variables: {a: [0, 1], b: [0, 1]}
nodes:
  - {name: u, inputs: [a, b], cost: 2, group: g}
  - {name: v, inputs: [a, b], cost: 1, group: g}
  - {name: w, parents: [u], cost: 5}
objective: w + v
"""
GROUP_OBS = """node,a,b,u,value
u,.1,.2,,1
v,.1,.2,,0.4
u,.7,.2,,1.5
v,.7,.2,,0.1
u,.5,.9,,-.4
v,.5,.9,,.3
w,,,1,2
w,,,1.5,3
"""


def test_a_group_is_asked_and_told_together(folder):
    (folder / "net.yaml").write_text(GROUP)
    (folder / "obs.csv").write_text(GROUP_OBS)
    done = cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "4", "--state", "s.json", "--out", "a")
    assert done.code == 0, done.err  # w costs more than is left
    query = next_query(folder, "a")["queries"][0]
    assert query["evaluates"] == ["u", "v"]
    assert query["cost"] == 3.0
    half = cli(folder, "tell", "net.yaml", "s.json", "--value", "1", "--out", "b")
    assert half.code == 2
    assert "2 --value, in the order u, v" in half.err
    told = cli(
        folder, "tell", "net.yaml", "s.json", "--value", "1.25", "--value", "-0.5", "--cost", "3.5", "--out", "c"
    )
    assert told.code == 0, told.err
    state = json.loads((folder / "s.json").read_text())
    assert [state["data"][k][1][-1] for k in (0, 1)] == [1.25, -0.5]
    assert state["spent"] == 3.5
    assert state["pending"] == []


def test_every_parallel_query_says_why(folder):
    done = cli(folder, "ask", "net.yaml", "obs.csv", "--budget-left", "30", "--q", "2", "--out", "a")
    assert done.code == 0, done.err
    body = next_query(folder, "a")
    first, second = body["queries"]
    assert first["why"] == body["why"] != second["why"]
    for query in (first, second):
        best = query["why"][0]
        assert best["gain_per_cost"] == max(e["gain_per_cost"] for e in query["why"])
        if query["reason"] == "largest expected gain per cost":
            assert (best["node"], best["inputs"]) == (query["node"], query["inputs"])
    # what to run and what is recommended stand in the report and on the screen, not in files alone
    report = (folder / "a" / "report.html").read_text()
    assert "What to run next" in report
    assert "Recommended design" in report
    assert f"{first['node']} at " in done.out


CHANGED = [
    (NET.replace("{T: [0, 1], mix: [0, 1]}", "{mix: [0, 1], T: [0, 1]}"), "variables T, mix"),
    (NET.replace("inputs: [T], parents: [blend]", "inputs: [T, mix], parents: []"), "node cure reads T, blend"),
    (NET.replace("T: [0, 1]", "T: [0, 0.5]"), "T = 0.7 lies outside"),
]


def test_a_state_of_another_network_is_refused_and_options_given_win(folder):
    asked = ("ask", "net.yaml", "--budget-left", "0.5", "--state", "s.json")
    assert cli(folder, *asked[:2], "obs.csv", *asked[2:], "--out", "a").code == 0
    for i, (net, message) in enumerate(CHANGED):
        (folder / "net.yaml").write_text(net)
        done = cli(folder, "tell", "net.yaml", "s.json", "--value", "1", "--out", f"b{i}")
        assert done.code == 2
        assert message in done.err
    (folder / "net.yaml").write_text(NET)
    assert cli(folder, *asked, "--noise", "infer", "--free", "--out", "c").code == 0
    state = json.loads((folder / "s.json").read_text())
    assert (state["noise"], state["upstream_required"]) == ("infer", False)
    assert cli(folder, *asked, "--out", "d").code == 0
    assert json.loads((folder / "s.json").read_text())["noise"] == "infer", "a default does not undo it"


def test_a_budget_that_buys_nothing_is_said(folder):
    done = cli(folder, "optimize", "net.yaml", "--functions", "steps.py", "--budget", "0.5", "--out", "o")
    assert done.code == 0, done.err
    notes = json.loads((folder / "o" / "result.json").read_text())["warnings"]
    assert any("Nothing was run" in n for n in notes)


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
        folder, "optimize", "net.yaml", "--functions", "steps.py", "--budget", "26", "--n-initial", "2", "--out", "o"
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
        "15",
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
    done = cli(folder, "optimize", "net.yaml", "--budget", "9", "--n-initial", "1", "--out", "o",
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
    ("node,T,mix,blend,value\nblend,,0.4,,1e300\n", "row 1: Node blend: the output 1e+300 is too large"),
    ("node,T,mix,blend,value,noise_var\nblend,,0.4,,1,-1\n", "row 1: noise_var must be at least 0"),
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
        (("evaluate", "pharma", "--n-initial", "0"), "--n-initial"),
        (("evaluate", "pharma", "--full-budget", "nan"), "--full-budget"),
        (("ask", "net.yaml", "obs.csv", "--budget-left", "5", "--min-gain-per-cost", "nan"), "min_gain_per_cost"),
        (("ask", "net.yaml", "obs.csv", "--budget-left", "5", "--state", "."), "is a folder"),
        (("ask", "divide.yaml", "obs.csv", "--budget-left", "5"), "no finite number"),
        (("optimize", "net.yaml", "--budget", "5", "--functions", "exit.py"), "SystemExit"),
        (
            (
                "optimize",
                "net.yaml",
                "--budget",
                "5",
                "--functions",
                "steps.py",
                "--data",
                "obs.csv",
                "--n-initial",
                "3",
            ),
            "--n-initial",
        ),
    ],
)
def test_wrong_options_give_one_sentence(folder, words, message):
    (folder / "cycle.yaml").write_text(NET.replace("inputs: [mix], parents: []", "inputs: [mix], parents: [cure]"))
    (folder / "torn.json").write_text('{"version": 1, "nodes": ["blend", "cu')
    (folder / "other.json").write_text('{"version": 1}')
    (folder / "divide.yaml").write_text(NET.replace("objective: cure", "objective: cure/(blend - blend)"))
    (folder / "exit.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "half.py").write_text("def blend(mix):\n    return 1\n")
    done = cli(folder, *words, "--out", "x")
    assert done.code == 2, done.err
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
