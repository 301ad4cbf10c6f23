"""Packages that run from an image."""

import compileall
import importlib
import os
import shutil
import sys

import pytest

import forerun
from forerun import importer


@pytest.fixture
def packages(tmp_path):
    site = tmp_path / "site/lib"
    (site / "boxed/data").mkdir(parents=True)
    (site / "boxed/__init__.py").write_text("from . import inner\nname = __name__\n")
    (site / "boxed/inner.py").write_text("def fail():\n    raise KeyError('here')\n")
    (site / "boxed/data/table.txt").write_text("1 2 3\n")
    (site / "spaced/one").mkdir(parents=True)
    (site / "spaced/one/mod.py").write_text("value = 7\n")
    (site / "single.py").write_text("value = __file__\n")
    (site / "compiled.py").write_text("value = 'bytecode'\n")
    compileall.compile_file(site / "compiled.py", legacy=True, quiet=2)
    (site / "compiled.py").unlink()
    compileall.compile_dir(site / "boxed", quiet=2)
    path = str(tmp_path / "packages.sqsh")
    forerun.pack(tmp_path / "site", path)
    shutil.rmtree(tmp_path / "site")
    importer.install()
    entry = path + "/lib"
    sys.path.insert(0, entry)
    yield path
    sys.path.remove(entry)
    importer.uninstall()
    for name in ("boxed", "boxed.inner", "spaced", "spaced.one", "spaced.one.mod", "single", "compiled"):
        sys.modules.pop(name, None)


def test_packages_modules_and_resources(packages):
    boxed = importlib.import_module("boxed")
    assert boxed.name == "boxed" and boxed.__file__ == packages + "/lib/boxed/__init__.py"
    assert importlib.import_module("single").value == packages + "/lib/single.py"
    assert importlib.import_module("spaced.one.mod").value == 7
    assert importlib.import_module("compiled").value == "bytecode"
    import importlib.resources as resources

    assert (resources.files("boxed") / "data" / "table.txt").read_text() == "1 2 3\n"
    with resources.as_file(resources.files("boxed") / "data" / "table.txt") as file:
        assert file.read_text() == "1 2 3\n"
    with pytest.raises(ImportError):
        importlib.import_module("boxed.nope")
    assert not os.path.exists(packages + "/lib")


def test_tracebacks_have_the_source(packages):
    import traceback

    try:
        importlib.import_module("boxed.inner").fail()
    except KeyError:
        text = traceback.format_exc()
    assert "raise KeyError('here')" in text and packages in text


def test_other_entries_of_the_path_are_left_alone(packages, tmp_path):
    (tmp_path / "text").write_text("no image")
    for entry in (str(tmp_path / "text"), str(tmp_path / "nope"), str(tmp_path), packages + "/nope"):
        sys.path.insert(0, entry)
        try:
            assert importlib.import_module("single").value
            with pytest.raises(ImportError):
                importlib.import_module("does_not_exist_anywhere")
        finally:
            sys.path.remove(entry)
    with forerun.open(packages) as image:
        assert importer.packages_of(image, "/lib") == ["boxed", "compiled", "single"]
