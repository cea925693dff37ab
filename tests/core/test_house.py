"""Cards, seeds, devices, data files and the layers of the house."""

import json
import subprocess
import sys

import numpy as np
import pytest

import assay
from assay import InputError, MissingData, MissingExtra
from assay._core.devices import resolve_device
from assay._core.errors import require
from assay._core.registry import CardError, read_card
from assay._core.seeds import as_rng, derive, torch_generator

CARD = """
title = "T"
summary = "S"
kind = "estimator"
brings = "b"
yields = "y"
demo = "a.b:demo"
[paper]
title = "P"
authors = ["A"]
[commands]
fit = "a.b:fit"
"""


def test_a_card_is_read_without_its_method(tmp_path):
    path = tmp_path / "card.toml"
    path.write_text(CARD)
    card = read_card(path, "assay.bio.some_method", "bio")
    assert (card.slug, card.field, card.paper.authors, dict(card.commands)) == (
        "some-method",
        "bio",
        ("A",),
        {"fit": "a.b:fit"},
    )
    assert "assay.bio.some_method" not in sys.modules


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "estimator"', 'kind = "thing"', "kind 'thing'"),
        ('title = "T"\n', "", "title"),
        ('summary = "S"', 'summary = "S"\ncolour = 3', "unknown key 'colour'"),
        ('fit = "a.b:fit"', 'fit = "a.b.fit"', "module:function"),
        ('title = "P"', 'titel = "P"', "unknown key 'titel'"),
        ('summary = "S"', "summary = ", "not valid TOML"),
        ('summary = "S"', 'summary = "S"\nstatus = "new"', "status 'new'"),
    ],
)
def test_a_wrong_card_is_named(tmp_path, old, new, words):
    path = tmp_path / "card.toml"
    path.write_text(CARD.replace(old, new))
    with pytest.raises(CardError, match=words) as caught:
        read_card(path, "assay.bio.some_method", "bio")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("fault", ["taken name", "bad card", "no package"])
def test_a_bad_package_is_told_and_takes_no_other_method_away(toy, fault):
    site = toy.site
    clone = site / "assay_clone"
    clone.mkdir(exist_ok=True)
    (clone / "__init__.py").write_text("")
    text = (site / "assay_toy" / "card.toml").read_text()
    (clone / "card.toml").write_text(
        text if fault == "taken name" else text.replace('kind = "calculator"', 'kind = "x"')
    )
    info = site / "assay_clone-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: assay-clone\nVersion: 1.0\n")
    package = "assay_gone.sub" if fault == "no package" else "assay_clone"
    (info / "entry_points.txt").write_text(f"[assay.methods]\nclone = {package}\n")
    words = {"taken name": "both named 'toy'", "bad card": "kind 'x'", "no package": "not an importable package"}[fault]
    try:
        listed, doctor = toy("list"), toy("doctor")
        assert listed.returncode == doctor.returncode == 0, listed.stderr
        assert "rotational" in listed.stdout
        assert listed.stderr.count("\n") == 1
        assert words in listed.stderr
        assert words in doctor.stdout
    finally:
        for path in info.iterdir():
            path.unlink()
        info.rmdir()


def test_unknown_method_names_the_closest():
    with pytest.raises(InputError, match="did you mean 'rotational'"):
        assay.card("rotatonal")
    assert assay.card("dose_response").slug == "dose-response"


def test_seeds_are_stable_and_streams_differ():
    assert derive(1, "split") == 443599249712848576, "a change here changes every number of every claim"
    children = {derive(seed, key) for seed in range(50) for key in ("a", "b", 0)}
    assert len(children) == 150
    assert max(children) < 2**63
    np.testing.assert_array_equal(as_rng(3).normal(size=5), as_rng(3).normal(size=5))
    generator = np.random.default_rng(0)
    assert as_rng(generator) is generator
    a, b = (torch_generator(derive(0, "x")).initial_seed() for _ in range(2))
    assert a == b
    for bad in (-1, "seed", 1.5):
        with pytest.raises(InputError):
            as_rng(bad)


def test_devices():
    import torch

    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="Unknown device"):
        resolve_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device"):
            resolve_device("cuda")


def test_a_missing_extra_names_its_line():
    with pytest.raises(MissingExtra, match=r"pip install 'assay-ml\[graphs\]'"):
        require("surely_not_installed.sub", "graphs")
    with pytest.raises(MissingExtra, match="pip install pymetis2"):
        require("surely_not_installed", "pip:pymetis2")


def test_data_is_searched_in_order_and_absence_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_DATA_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(MissingData) as caught:
        assay.data.data_path("dose-response", "nothing.csv", download=False)
    assert str(tmp_path / "cache" / "dose-response" / "nothing.csv") in str(caught.value)
    assert "ASSAY_DATA_DIR" in str(caught.value)
    for root in ("cache", "mine"):
        path = tmp_path / root / "dose-response" / "nothing.csv"
        path.parent.mkdir(parents=True)
        path.write_text(root)
        assert assay.data.data_path("dose-response", "nothing.csv") == path
    with pytest.raises(InputError, match="ships no file"):
        assay.data.sample_path("dose-response", "nothing.csv")


def test_fetching_checks_the_hash(tmp_path, monkeypatch):
    """A local server stands for the network: a wrong hash must not leave a file behind."""
    import hashlib
    import threading
    from http.server import HTTPServer, SimpleHTTPRequestHandler

    from assay._core import data as data_module
    from assay._core.registry import DataFile

    served = tmp_path / "served"
    served.mkdir()
    (served / "x.csv").write_text("a,b\n1,2\n")
    digest = hashlib.sha256((served / "x.csv").read_bytes()).hexdigest()

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(served))

        def log_message(self, *_):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        monkeypatch.delenv("ASSAY_DATA_DIR", raising=False)
        monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
        url = f"http://127.0.0.1:{server.server_port}/x.csv"
        for sha, good in ((("0" * 64), False), (digest, True)):
            monkeypatch.setattr(data_module, "_entry", lambda *_, sha=sha: DataFile("x.csv", url, sha, "CC0", "here"))
            if good:
                assert data_module.data_path("dose-response", "x.csv").read_text() == "a,b\n1,2\n"
            else:
                with pytest.raises(MissingData, match="could not be fetched"):
                    data_module.data_path("dose-response", "x.csv")
                assert not (tmp_path / "cache" / "dose-response" / "x.csv").exists()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_method_imports_no_sibling_and_algorithms_no_job():
    """Read every import of every method's files: the rules that the import linter's fixed list cannot say for all methods."""
    import ast

    for card in assay.cards().values():
        if not card.module.startswith("assay."):
            continue
        siblings = {c.module for c in assay.cards().values()} - {card.module}
        for path in sorted(card.folder.glob("*.py")):
            tree = ast.parse(path.read_text())
            names = _imported(tree, card.module)
            foreign = {n for n in names for s in siblings if n == s or n.startswith(s + ".")}
            assert not foreign, f"{path} imports {foreign}"
            # The job, its pictures and the claims may import anything; the algorithm may not. A `plot` method may reach
            # for the method's own pictures when it is called, but not before.
            if path.name.startswith("_") and path.name not in {
                "_job.py",
                "_report.py",
                "_experiments.py",
                "__init__.py",
            }:
                at_import = _imported(
                    ast.Module([n for n in tree.body if not _for_types_only(n)], []), card.module, deep=False
                )
                wrong = {n for n in names if n.split(".")[0] in {"matplotlib", "cyclopts"} or "._job" in n}
                wrong |= {n for n in at_import if "._report" in n}
                assert not wrong, f"{path} imports {wrong}"


def _for_types_only(node):
    import ast

    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _imported(tree, module, deep=True):
    """Return the dotted names that a file of the package `module` imports, at any depth or at import only."""
    import ast

    names = set()
    for node in ast.walk(tree) if deep else tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {stem} | {f"{stem}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.slow  # making an MLflow store runs some fifty migrations
def test_track_mlflow_writes_to_a_real_local_store(toy, table, tmp_path):
    pytest.importorskip("mlflow", reason="the tracking extra is optional; `make test-slow` installs it")
    uri = f"sqlite:///{tmp_path / 'store.db'}"
    done = toy("toy", "fit", table, "--out", tmp_path / "a", "--track", f"mlflow:{uri}", "--steps", 3, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    failed = toy(
        "toy", "fit", table, "--out", tmp_path / "b", "--track", f"mlflow:{uri}", "--fail", "raise", cwd=tmp_path
    )
    assert failed.returncode == 1
    script = (
        "import json, mlflow\n"
        f"c = mlflow.MlflowClient(tracking_uri={uri!r})\n"
        "e = c.get_experiment_by_name('assay')\n"
        "runs = c.search_runs([e.experiment_id])\n"
        "print(json.dumps([[r.info.status, r.data.params, r.data.metrics,\n"
        "  [m.value for m in c.get_metric_history(r.info.run_id, 'total')]] for r in runs]))\n"
    )
    read = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert read.returncode == 0, read.stderr
    runs = {status: rest for status, *rest in json.loads(read.stdout.strip().splitlines()[-1])}
    assert set(runs) == {"FINISHED", "FAILED"}
    parameters, metrics, history = runs["FINISHED"]
    assert parameters["steps"] == "3"
    written = [json.loads(line)["total"] for line in (tmp_path / "a" / "history.jsonl").read_text().splitlines()]
    assert history == written
    assert metrics["result.total"] == written[-1]


def test_everything_imports_and_a_graph_is_cut_without_any_extra():
    """Stand in for an environment without extras: their packages are made impossible to import."""
    script = (
        "import sys\n"
        "for name in ('networkx', 'numba', 'rdkit', 'ray', 'mlflow', 'pymetis', 'kahip', 'sknetwork'):\n"
        "    sys.modules[name] = None\n"
        "import importlib, numpy as np, assay\n"
        "for card in assay.cards().values():\n"
        "    module = importlib.import_module(card.module)\n"
        "    for name in module.__all__:\n"
        "        getattr(module, name)\n"
        "    importlib.import_module(card.module + '.claims')\n"
        "W = np.kron(np.eye(2), np.ones((6, 6))) - np.eye(12)\n"
        "W[0, 6] = W[6, 0] = 1\n"
        "from assay.graphs.semirandom_cut import SemiRandomBisection\n"
        "print(SemiRandomBisection(random_state=0).fit(W).cut_)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:assay", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0"]
