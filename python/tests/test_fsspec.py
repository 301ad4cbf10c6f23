"""fsspec: its own abstract tests of reading, chains, ranges."""

import os
import pickle

import pytest

import forerun

fsspec = pytest.importorskip("fsspec")
from fsspec.implementations.local import LocalFileSystem  # noqa: E402
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests  # noqa: E402

from forerun.fsspec import ForerunFileSystem  # noqa: E402

#: The trees that the abstract tests make, by their fixtures.
TREES = {
    "fs_bulk_operations_scenario_0": "_bulk_operations_scenario_0",
    "fs_glob_edge_cases_files": "_glob_edge_cases_files",
    "fs_dir_and_file_with_same_name_prefix": "_dir_and_file_with_same_name_prefix",
    "fs_10_files_with_hashed_names": "_10_files_with_hashed_names",
}


@pytest.fixture(scope="session")
def trees(tmp_path_factory):
    """An image with all of them."""
    root = tmp_path_factory.mktemp("abstract")
    for name, make in TREES.items():
        os.makedirs(root / "d" / name)
        getattr(AbstractFixtures(), make)(LocalFileSystem(auto_mkdir=True), os.path.join, str(root / "d" / name))
    os.makedirs(root / "d/top/src")
    (root / "d/top/src/file").touch()
    forerun.pack(root / "d", root / "image")
    return root / "image"


class Fixtures(AbstractFixtures):
    """The trees lie in one image, which is read-only: made before, and not removed after."""

    @pytest.fixture
    def fs(self, trees):
        return ForerunFileSystem(str(trees), skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self):
        return "top"

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self):
        return "fs_bulk_operations_scenario_0/source"

    @pytest.fixture
    def fs_glob_edge_cases_files(self):
        return "fs_glob_edge_cases_files/source"

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self):
        return "fs_dir_and_file_with_same_name_prefix/source"

    @pytest.fixture
    def fs_10_files_with_hashed_names(self):
        return "fs_10_files_with_hashed_names/source"


class TestGet(AbstractGetTests, Fixtures):
    @pytest.fixture(autouse=True)
    def makes_nothing(self, monkeypatch, request):
        """One test makes a directory itself: the image has it."""
        if request.node.name == "test_get_directory_recursive":
            for name in ("mkdir", "touch"):
                monkeypatch.setattr(ForerunFileSystem, name, lambda *_: None)


@pytest.fixture
def fs(path):
    return fsspec.filesystem("forerun", fo=path, skip_instance_cache=True)


def test_the_protocol_is_registered_by_the_package():
    assert fsspec.get_filesystem_class("forerun") is ForerunFileSystem


def test_listings(fs, tree):
    assert sorted(fs.ls("", detail=False)) == sorted(os.listdir(tree))
    assert fs.ls("etc/hosts", detail=False) == ["etc/hosts"]
    info = fs.info("etc/hosts")
    assert (info["name"], info["size"], info["type"]) == ("etc/hosts", 20, "file")
    assert fs.info("users")["islink"] and fs.info("users")["size"] == 11 and fs.isfile("users")
    assert fs.info("dangling")["type"] == "link"
    assert fs.isdir("etc") and fs.isdir("/") and not fs.exists("nope")
    assert fs.glob("**/*.txt") == ["deep/er/lines.txt"]
    assert set(fs.find("etc")) == {"etc/hosts", "etc/passwd"}
    assert {path for path, _, _ in fs.walk("deep")} == {"deep", "deep/er"}
    assert fs.du("etc") == 31 and fs.modified("etc").year > 2000
    with pytest.raises(FileNotFoundError):
        fs.ls("nope")


def test_contents(fs, tree):
    assert fs.cat("etc/hosts") == b"127.0.0.1 localhost\n"
    assert fs.cat_file("etc/hosts", start=10, end=-1) == b"localhost" and fs.tail("etc/hosts", 3) == b"st\n"
    assert fs.cat(["etc/hosts", "etc/passwd"])["etc/passwd"] == b"root:x:0:0\n"
    assert fs.cat("etc", recursive=True)["etc/hosts"] == b"127.0.0.1 localhost\n"
    assert list(fs.cat(["etc/hosts", "nope"], on_error="omit")) == ["etc/hosts"]
    with pytest.raises(FileNotFoundError):
        fs.cat(["etc/hosts", "nope"])
    with fs.open("deep/er/lines.txt") as file:
        file.seek(100)
        assert file.read() == (tree / "deep/er/lines.txt").read_bytes()[100:]
    with fs.open("etc/passwd", "r") as text:
        assert text.read() == "root:x:0:0\n"
    ranges = fs.cat_ranges(["etc/hosts", "etc/hosts", "nope", "etc/passwd"], [0, -10, 0, 2], [3, None, 5, 4])
    assert ranges[:2] == [b"127", b"localhost\n"] and ranges[3] == b"ot"
    assert isinstance(ranges[2], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["nope"], 0, 1, on_error="raise")


def test_links_to_directories_are_not_entered(tmp_path):
    root = tmp_path / "d"
    (root / "data").mkdir(parents=True)
    for name in "abc":
        (root / f"data/{name}.csv").write_text("x,y\n")
    (root / "data/self").symlink_to(".")
    (root / "also").symlink_to("data")
    (root / "data/loop").symlink_to("loop")
    forerun.pack(root, tmp_path / "x.sqsh")
    fs = fsspec.filesystem("forerun", fo=str(tmp_path / "x.sqsh"), skip_instance_cache=True)
    rows = ["data/a.csv", "data/b.csv", "data/c.csv"]
    assert fs.glob("**/*.csv") == fs.glob("data/*.csv") == rows
    assert fs.find("") == ["data/a.csv", "data/b.csv", "data/c.csv", "data/loop"]
    assert fs.du("", total=True) == 12 and fs.info("data/loop")["type"] == "link"
    assert sorted(fs.ls("also", detail=False)) == [f"also/{name}" for name in ("a.csv", "b.csv", "c.csv", "loop", "self")]
    # Those that are named are.
    assert fs.glob("also/*.csv") == ["also/a.csv", "also/b.csv", "also/c.csv"]
    assert [path for path, _, _ in fs.walk("also")] == ["also"]
    (root / "data/loop").unlink()
    forerun.pack(root, tmp_path / "y.sqsh")
    fs = fsspec.filesystem("forerun", fo=str(tmp_path / "y.sqsh"), skip_instance_cache=True)
    fs.get("", str(tmp_path / "all"), recursive=True)
    got = [os.path.relpath(os.path.join(path, name), tmp_path / "all") for path, _, names in os.walk(tmp_path / "all") for name in names]
    assert sorted(got) == rows and os.listdir(tmp_path / "all") == ["data"]


def test_chains(path, server, tree, tmp_path):
    for url in (f"forerun://etc/hosts::file://{path}", f"forerun://etc/hosts::{path}"):
        with fsspec.open(url) as file:
            assert file.read() == b"127.0.0.1 localhost\n"
    # A chain through http:// needs fsspec's own file system for it, though that is not used.
    remote = fsspec.filesystem("forerun", fo=server, options={"cache_dir": tmp_path})
    assert remote.cat("etc/hosts") == b"127.0.0.1 localhost\n"
    memory = fsspec.filesystem("memory")
    with open(path, "rb") as file:
        memory.pipe("/x.sqsh", file.read())
    with fsspec.open("forerun://deep/er/random::memory://x.sqsh") as file:
        assert file.read() == (tree / "deep/er/random").read_bytes()
    fs, inside = fsspec.url_to_fs(f"forerun://etc::file://{path}")
    assert sorted(fs.ls(inside, detail=False)) == ["etc/hosts", "etc/passwd"]
    with pytest.raises(ValueError):
        fsspec.filesystem("forerun")


def test_it_is_pickled_and_read_only(fs):
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("etc/passwd") == b"root:x:0:0\n"
    for call in (
        lambda: fs.open("new", "wb"),
        lambda: fs.mkdir("new"),
        lambda: fs.rm("etc/hosts"),
        lambda: fs.pipe("new", b""),
        lambda: fs.touch("new"),
    ):
        with pytest.raises(OSError, match="read-only"):
            call()
