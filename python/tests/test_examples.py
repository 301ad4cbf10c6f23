"""The examples of the documentation, and those of python/examples."""

import doctest
import importlib.util
import pathlib
import sys

import pytest

import forerun
from forerun import importer

SOURCE = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directory that the documentation speaks of."""
    (tmp_path / "t/etc").mkdir(parents=True)
    (tmp_path / "t/data").mkdir()
    (tmp_path / "t/etc/hosts").write_text("127.0.0.1 localhost\n")
    (tmp_path / "t/etc/passwd").write_text("root:x:0:0\n")
    (tmp_path / "t/users").symlink_to("etc/passwd")
    (tmp_path / "t/data/a.csv").write_text("n,square\n1,1\n2,4\n3,9\n")
    (tmp_path / "t/data/b.csv").write_text("n,cube\n1,1\n2,8\n3,27\n4\n")
    (tmp_path / "p/lib").mkdir(parents=True)
    (tmp_path / "p/lib/boxed.py").write_text("greeting = 'hello from an image'\n")
    forerun.pack(tmp_path / "t", tmp_path / "x.sqsh")
    forerun.pack(tmp_path / "p", tmp_path / "packages.sqsh")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    importer.uninstall()
    sys.modules.pop("boxed", None)


@pytest.mark.parametrize("document", ["docs/python.md"])
def test_examples_of_documents(place, document):
    pytest.importorskip("fsspec")
    failed, tried = doctest.testfile(str(SOURCE / document), module_relative=False, encoding="utf-8")
    assert tried > 20 and failed == 0


def test_examples_of_the_package(place):
    failed, tried = doctest.testmod(forerun)
    assert tried and failed == 0


def load(name):
    spec = importlib.util.spec_from_file_location(name, SOURCE / f"python/examples/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_data_set_yields_each_file_once_in_an_epoch(path, tree, monkeypatch):
    """Without PyTorch, which is too large for a test: its protocol is iteration, and who the worker is."""
    example = load("torch_dataset")
    files = example.ImageFiles(path, "/many/*")
    first = list(files)
    assert len(first) == len(files) == 2000 and len(dict(first)) == 2000
    assert all(contents == (tree / name[1:]).read_bytes() for name, contents in first[:50])
    assert [name for name, _ in files] == [name for name, _ in first]
    files.epoch = 1
    assert [name for name, _ in files] != [name for name, _ in first]

    class Worker:
        num_workers = 3

    shares = []
    for Worker.id in range(3):
        monkeypatch.setattr(example, "get_worker_info", Worker)
        shares += [name for name, _ in files]
    assert sorted(shares) == sorted(files.paths)

    samples = example.ImageSamples(path, "/many/*")
    assert samples[5] == samples.__getitems__([9, 5])[1]
