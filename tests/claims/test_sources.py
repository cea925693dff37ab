"""The user's own data: every kind of file is read, damaged ones are refused in one sentence, and claims run on them."""

import gzip

import numpy as np
import pytest
from PIL import Image
from scipy import io, sparse

from assay._core.errors import InputError
from assay.claims import Source, read_images, read_user_data, run

EDGES = "a b 1\nb c 2.0\nc a 1\n"


def table(path, n=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    y = (x[:, 0] + 0.3 * rng.normal(size=n) > 0).astype(int)
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{'yes' if t else 'no'},{i % 6}" for i, ((a, b, c), t) in enumerate(zip(x, y))]
    path.write_text("u,v,w,label,batch\n" + "\n".join(lines) + "\n")
    return path


def test_a_table(tmp_path):
    source = read_user_data(table(tmp_path / "t.csv"), target="label", group="batch")
    assert (source.name, source.task, source.n_rows) == ("user", "classification", 60)
    assert list(source.data["X"].columns) == ["u", "v", "w"]
    train, test = source.split(0)
    assert not set(source.groups[train]) & set(source.groups[test])
    assert source.fingerprint != read_user_data(tmp_path / "t.csv", target="label").fingerprint
    assert read_user_data(tmp_path / "t.csv", target="u").task == "regression"


def test_the_split_of_the_user_is_kept(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y,split\n1,0.5,train\n2,1.5,train\n3,2.5,test\n")
    train, test = read_user_data(path, target="y", split="file").split(5)
    assert (train.tolist(), test.tolist()) == ([0, 1], [2])
    (tmp_path / "s.txt").write_text("test\ntrain\ntrain\n")
    assert read_user_data(path, target="y", split=f"file:{tmp_path / 's.txt'}").split(5)[1].tolist() == [0]
    assert len(read_user_data(path, target="y", split="random:0.34").split(5)[0]) == 1
    for wrong in ("random:2", "half", "random:x"):
        with pytest.raises(InputError, match="--split"):
            read_user_data(path, target="y", split=wrong)
    path.write_text("a,y,split\n1,0.5,train\n2,1.5,tset\n")
    with pytest.raises(InputError, match="row 2 says 'tset'"):
        read_user_data(path, target="y", split="file")


@pytest.mark.parametrize("name", ["g.edges", "g.csv", "g.mtx", "g.graph", "g.npz", "g.gml", "g.edges.gz"])
def test_a_graph(tmp_path, name):
    path = tmp_path / name
    W = sparse.csr_array(np.array([[0, 1, 1], [1, 0, 2.0], [1, 2, 0]]))
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(EDGES.encode()))
    elif name == "g.mtx":
        io.mmwrite(path, W, symmetry="symmetric")
    elif name == "g.npz":
        sparse.save_npz(path, sparse.csr_matrix(W))
    elif name == "g.graph":
        path.write_text("% a comment\n3 3 001\n2 1 3 1\n1 1 3 2\n1 1 2 2\n")
    elif name == "g.gml":
        networkx = pytest.importorskip("networkx", reason="GML is read by networkx, of the extra `graphs`")
        networkx.write_gml(networkx.from_scipy_sparse_array(W), path)
    else:
        path.write_text(
            "source,target,weight\na,b,1\nb,c,2.0\nc,a,1\n" if name == "g.csv" else "# made by hand\n" + EDGES
        )
    source = read_user_data(path, tasks=["graph"])
    assert (source.task, source.n_rows, source.info["edges"]) == ("graph", 3, 3)
    got = source.data["W"]
    assert (got != got.T).nnz == 0
    assert np.array_equal(got.toarray(), W.toarray())


def test_sequences(tmp_path):
    (tmp_path / "p.fasta").write_text(">one first\nMKV\nLLA\n>two\nMKT\n")
    source = read_user_data(tmp_path / "p.fasta")
    assert source.data["sequences"] == ["MKVLLA", "MKT"]
    assert source.data["names"] == ["one", "two"]
    (tmp_path / "m.smi").write_text("CCO ethanol\nc1ccccc1\n")
    assert read_user_data(tmp_path / "m.smi").data["names"] == ["ethanol", "molecule2"]
    (tmp_path / "m.csv").write_text("smiles,active\nCCO,1\nCC,0\n")
    source = read_user_data(tmp_path / "m.csv", target="active", tasks=["sequences"])
    assert source.data["sequences"] == ["CCO", "CC"]
    assert source.data["y"].tolist() == [1, 0]


def picture(path, value, size=(6, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size[1], size[0], 3), value, dtype=np.uint8)).save(path)


def test_a_folder_of_images(tmp_path):
    for name, value in (("cat/a.png", 0), ("cat/b.png", 51), ("dog/a.jpg", 255)):
        picture(tmp_path / "pets" / name, value)
    source = read_user_data(tmp_path / "pets")
    assert (source.task, source.n_rows, source.data["classes"]) == ("images", 3, ["cat", "dog"])
    assert source.data["y"].tolist() == [0, 0, 1]
    images = read_images(source, (4, 6))
    assert images.shape == (3, 4, 6, 3)
    assert images[1].mean() == pytest.approx(0.2)
    assert read_images(source, 5, grey=True).shape == (3, 5, 5)
    for side in ("train", "test"):
        picture(tmp_path / "fixed" / side / "cat" / "x.png", 9)
    fixed = read_user_data(tmp_path / "fixed")
    assert fixed.data["classes"] == ["cat"]
    assert [s.tolist() for s in fixed.split(0)] == [[1], [0]]


def test_arrays(tmp_path):
    np.savez(tmp_path / "d.npz", X=np.eye(4), y=[0, 1, 0, 1], site=[1, 1, 2, 2])
    source = read_user_data(tmp_path / "d.npz", group="site")
    assert (source.task, source.n_rows, source.info["classes"]) == ("classification", 4, 2)
    assert {int(g) for g in source.groups[source.split(0)[0]]} in ({1}, {2})
    np.savez(tmp_path / "o.npz", X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match=r"o\.npz"):  # a pickle inside is not opened
        read_user_data(tmp_path / "o.npz")


BAD = {
    "empty.csv": (b"", {}, "empty"),
    "constant.csv": (b"a,y\n1,2\n3,2\n", {"target": "y"}, "single value"),
    "hole.csv": (b"a,y\n1,2\n3,\n", {"target": "y"}, "row 3"),
    "nocolumn.csv": (b"a,label\n1,2\n", {"target": "labels"}, "label"),
    "cut.npz": (b"PK\x03\x04garbage", {}, "cut.npz"),
    "cut.mtx": (b"%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 2 1.0\n", {}, "MatrixMarket"),
    "negative.edges": (b"a b -1\n", {}, "non-negative"),
    "words.edges": (b"a b 1\na b c d\n", {}, "line 2"),
    "weight.edges": (b"a b 1\nb c heavy\n", {}, "line 2.*heavy"),
    "count.graph": (b"3 5\n2\n1 3\n2\n", {}, "announces 5 edges"),
    "cut.graph": (b"3 2\n2\n", {}, "announces 3 vertices"),
    "head.fasta": (b"MKV\n", {}, "line 1"),
    "void.fasta": (b">a\n>b\nMK\n", {}, "'a' is empty"),
    "digits.fasta": (b">a\nMK1V\n", {}, "line 2"),
    "text.smi": (b"CCO\nnot a smiles!!\n?!x\n", {}, "not a SMILES"),
    "loop.edges": (b"a a\n", {}, "at least 2"),
    "data.xyz": (b"1", {}, "not known"),
    "broken.png": (b"", {}, ""),
}


@pytest.mark.parametrize("name", [n for n in BAD if n != "broken.png"])
def test_damaged_files_are_refused_in_one_sentence(tmp_path, name):
    content, options, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_user_data(tmp_path / name, **options)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_a_broken_image_is_named(tmp_path):
    picture(tmp_path / "x" / "good.png", 3)
    data = (tmp_path / "x" / "good.png").read_bytes()
    (tmp_path / "x" / "cut.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"cut\.png"):
        read_user_data(tmp_path / "x")


# ------------------------------------------------------------------------------------------------------- end to end

KINDS = """
CLAIMS = [
    claim("tabular", experiment="tabular", test=Superior(), accepts=Accepts(task="classification", min_rows=20)),
    claim("images", experiment="images", test=Superior(), accepts=Accepts(task="images", min_rows=4)),
    claim("graph", experiment="graph", against=[], test=Bound(ge=0.0), accepts=Accepts(task="graph")),
    claim("sequences", experiment="sequences", test=Superior(), accepts=Accepts(task="sequences")),
    claim("own", experiment="tabular", test=Superior()),
]


def tabular(arm, seed, data, size, device):
    import numpy as np

    X, y = np.asarray(data.data["X"], dtype=float), np.asarray(data.data["y"])
    train, test = data.split(seed)
    values, counts = np.unique(y[train], return_counts=True)
    if arm == "theirs":
        guess = np.full(len(test), values[counts.argmax()])
    else:  # nearest class mean, fitted on the training rows
        means = np.stack([X[train][y[train] == v].mean(0) for v in values])
        guess = values[((X[test, None] - means) ** 2).sum(-1).argmin(1)]
    return {"score": 100 * float((guess == y[test]).mean()), "same_split": str(test.tolist())}


def images(arm, seed, data, size, device):
    from assay.claims import read_images

    mean = float(read_images(data, 4).mean())
    return {"score": mean + seed % 3 if arm == "ours" else 0.0, "pictures": {"first": read_images(data, 8)[0]}}


def graph(arm, seed, data, size, device):
    return {"score": float(data.data["W"].sum())}


def sequences(arm, seed, data, size, device):
    return {"score": len(data.data["sequences"][0]) + seed % 3 if arm == "ours" else 0.0}
"""


@pytest.fixture
def kinds(toy_method):
    return toy_method("toy_kinds", KINDS)


def test_a_users_table_runs_end_to_end(kinds, tmp_path):
    path = table(tmp_path / "t.csv", n=300)
    done = run(
        "toy-kinds/tabular", tier="standard", data=path, target="label", group="batch", jobs=1, out=tmp_path / "r"
    )
    verdict = done.verdicts[0]
    assert verdict.verdict == "supported"
    assert (verdict.scope, verdict.data) == ("on your data", ["user"])
    assert "on your data" in done.report().read_text()
    with pytest.raises(InputError, match="stay with their run"):
        done.export(tmp_path / "results")


@pytest.mark.parametrize("kind", ["images", "graph", "sequences"])
def test_other_kinds_run_end_to_end(kinds, tmp_path, kind):
    if kind == "images":
        for i in range(4):
            picture(tmp_path / "d" / f"{i}.png", 50 * i + 20)
        path = tmp_path / "d"
    elif kind == "graph":
        path = tmp_path / "d.csv"
        path.write_text("a,b\nb,c\n")
    else:
        path = tmp_path / "d.fa"
        path.write_text(">a\nMKVL\n")
    done = run(f"toy-kinds/{kind}", tier="quick", data=str(path), jobs=1, out=tmp_path / "r")
    assert done.verdicts[0].verdict == "direction holds"
    assert done.verdicts[0].scope == "on your data"
    if kind == "images":
        assert len(list((tmp_path / "r" / "artefacts").rglob("*.png"))) == 6
        assert "Pictures" in done.report().read_text()


def test_arrays_and_sources_from_python(kinds, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = (X[:, 0] > 0).astype(int)
    frame = run("toy-kinds/tabular", data=(X, y), tier="quick", jobs=1, out=tmp_path / "a").to_frame()
    assert frame["verdict"].tolist() == ["direction holds"]
    source = Source("mine", {"X": X, "y": y}, "classification", n_rows=80)
    again = run("toy-kinds/tabular", data=source, tier="quick", jobs=1, out=tmp_path / "b").to_frame()
    assert again["effect"].tolist() == frame["effect"].tolist()


def test_data_of_the_wrong_kind_is_refused_in_one_sentence(kinds, tmp_path):
    path = tmp_path / "small.csv"
    path.write_text("a,y\n1,0\n2,1\n")
    with pytest.raises(InputError, match="at least 20 rows, and user has 2"):
        run("toy-kinds/tabular", data=path, target="y")
    with pytest.raises(InputError, match="needs images data, and user is classification"):
        run("toy-kinds/images", data=path, target="y")
    with pytest.raises(InputError, match="only on its own data"):
        run("toy-kinds/own", data=path, target="y")
    with pytest.raises(InputError, match="--target"):
        run("toy-kinds/tabular", data=path)
    # With several claims, those that cannot take the data are skipped with the reason.
    done = run("toy-kinds/*", data=table(tmp_path / "t.csv"), target="label", tier="quick", jobs=1, out=tmp_path / "r")
    assert [v.verdict for v in done.verdicts] == ["direction holds", "skipped", "skipped", "skipped", "skipped"]
