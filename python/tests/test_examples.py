"""The examples of the documentation, and those of python/examples."""

import doctest
import importlib.util
import itertools
import multiprocessing
import os
import pathlib
import re
import stat
import subprocess
import sys

import pytest

import forerun
from forerun import importer

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def shell_blocks(document):
    """Returns the shell commands of a document, a string for each block."""
    return re.findall(r"^```sh\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directory that the documentation has its readers make."""
    commands = next(block for block in shell_blocks(SOURCE / "docs/python.md") if "forerun.pack" in block)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
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


def need(package):
    """Skips where a package is not installed. FORERUN_EXTRAS makes that a failure, and in CI it is one of those in
    requirements-test.txt."""
    needed = os.environ.get("FORERUN_EXTRAS") or (os.environ.get("CI") and package == "ratarmountcore")
    return importlib.import_module(package) if needed else pytest.importorskip(package)


def load(name):
    spec = importlib.util.spec_from_file_location(name, SOURCE / f"python/examples/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_names(files, asked, answers):
    """Runs in a worker: for each question, answers with the first names of an epoch."""
    while asked.get():
        answers.put([name for name, _ in itertools.islice(files, 5)])


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

    # Workers that persist see the epoch that their parent sets, and a job's processes share the files.
    monkeypatch.undo()
    context = multiprocessing.get_context("fork")
    asked, answers = context.Queue(), context.Queue()
    worker = context.Process(target=first_names, args=(files, asked, answers))
    worker.start()
    order = []
    for files.epoch in (1, 2):
        asked.put(True)
        order.append(answers.get(timeout=60))
    asked.put(False)
    worker.join()
    assert order[0] != order[1] and order[1] == [name for name, _ in itertools.islice(files, 5)]
    monkeypatch.setenv("WORLD_SIZE", "3")
    ranks = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        share = example.ImageFiles(path, "/many/*")
        ranks.append([name for name, _ in share])
        assert len(share) == len(ranks[-1]) == 666
    assert len({name for names in ranks for name in names}) == 1998
    monkeypatch.undo()

    samples = example.ImageSamples(path, "/many/*")
    assert samples[5] == samples.__getitems__([9, 5])[1]


def test_a_mount_source_of_ratarmountcore(path, tree, image, tmp_path):
    need("ratarmountcore")
    from ratarmountcore.mountsource.compositing.union import UnionMountSource
    from ratarmountcore.mountsource.formats.folder import FolderMountSource

    example = load("ratarmount_source")
    with example.ForerunMountSource(path) as source:
        assert set(source.list("/")) == set(os.listdir(tree)) and source.list("/nope") is source.list("/empty") is None
        assert set(source.list_mode("many")) == set(os.listdir(tree / "many"))
        for name in ["/etc/hosts", "deep/er/lines.txt", "/deep", "/users"]:
            found, real = source.lookup(name), os.lstat(tree / name.lstrip("/"))
            assert (found.mode, found.uid, int(found.mtime)) == (real.st_mode, real.st_uid, int(real.st_mtime))
            assert found.size == (real.st_size if stat.S_ISREG(real.st_mode) else 0)
        assert source.lookup("/users").linkname == "etc/passwd" and source.lookup("/etc/shadow") is None
        assert source.is_dir("/deep/er") and not source.is_dir("/users") and source.versions("/empty") == 1
        lines = source.lookup("/deep/er/lines.txt")
        with source.open(lines) as file:
            assert file.readline() == b"line 0\n" and file.seek(-2, 2) and file.read() == b"9\n"
        assert source.read(lines, 7, 14) == b"line 2\n" and source.list_xattr(lines) == []

        (tmp_path / "changes/etc").mkdir(parents=True)
        (tmp_path / "changes/etc/hosts").write_text("changed")
        union = UnionMountSource([source, FolderMountSource(str(tmp_path / "changes"))])
        with union.open(union.lookup("/etc/hosts")) as file:
            assert file.read() == b"changed"
        with union.open(union.lookup("/etc/passwd")) as file:
            assert file.read() == b"root:x:0:0\n"
        assert set(union.list("/etc")) == {"hosts", "passwd"}
    assert example.ForerunMountSource(image).__exit__(None, None, None) is None and not image.closed


def test_handlers_of_unblob_extract_without_programs(path, tree, tmp_path):
    need("unblob")
    from unblob.processing import ExtractionConfig, process_file

    example = load("unblob_handler")
    (tmp_path / "small").mkdir()
    (tmp_path / "small/note").write_bytes(b"on a memory card")
    forerun.pack(tmp_path / "small", tmp_path / "card", format="exfat")
    forerun.pack(tmp_path / "small", tmp_path / "rom", format="romfs")
    # Firmware: a loader, images, and what is not theirs.
    parts = [b"\x90" * 4096, pathlib.Path(path).read_bytes(), bytes(8192), (tmp_path / "card").read_bytes()]
    parts += [bytes(4096), (tmp_path / "rom").read_bytes()]
    (tmp_path / "firmware.bin").write_bytes(b"".join(parts))
    handlers = tuple(one for one in example.handlers() if one.NAME in (*example.REPLACED, "exfat"))
    assert {one.NAME for one in handlers} == {*example.REPLACED, "exfat"}
    config = ExtractionConfig(extract_root=tmp_path / "out", randomness_depth=0, process_num=1, handlers=handlers)
    result = process_file(config, tmp_path / "firmware.bin")
    assert not result.errors, result.errors
    found = {
        kind: next((tmp_path / "out").glob(f"firmware.bin_extract/*.{kind}_extract"))
        for kind in ("squashfs_v4_le", "exfat", "romfs")
    }
    assert (found["squashfs_v4_le"] / "deep/er/random").read_bytes() == (tree / "deep/er/random").read_bytes()
    assert os.readlink(found["squashfs_v4_le"] / "users") == "etc/passwd"
    assert (found["exfat"] / "note").read_bytes() == (found["romfs"] / "note").read_bytes() == b"on a memory card"
    assert example.unblob_register_handlers() == [example.ExFatHandler]

    damaged = bytearray(pathlib.Path(path).read_bytes())
    damaged[64:4096] = bytes(4032)
    (tmp_path / "damaged.bin").write_bytes(damaged)
    errors = process_file(config, tmp_path / "damaged.bin").errors
    reports = [report for report in errors if "forerun" in str(report)]
    assert reports or list((tmp_path / "out").glob("damaged.bin_extract/*_extract"))


def test_tables_as_a_frame_of_pandas(place):
    need("pandas")
    frame = load("pandas_frames").read_csvs("x.sqsh", "/data/a.csv")
    assert frame["square"].sum() == 14 and frame.index.get_level_values("path")[0] == "/data/a.csv"
    import pandas

    assert len(pandas.read_csv("forerun://data/a.csv::file://x.sqsh")) == 3


def test_tables_as_a_data_set_of_pyarrow(place):
    need("pyarrow")
    import pyarrow.parquet

    os.mkdir("tables")
    for part in range(3):
        columns = {"n": range(part * 10, part * 10 + 10), "square": [n * n for n in range(part * 10, part * 10 + 10)]}
        pyarrow.parquet.write_table(pyarrow.table(columns), f"tables/{part}.parquet")
    forerun.pack(".", "../tables.sqsh")
    data = load("pyarrow_dataset").parquet_dataset("../tables.sqsh", "tables")
    query = pyarrow.dataset.field("n") >= 28
    assert data.count_rows() == 30 and data.to_table(columns=["square"], filter=query)["square"].to_pylist() == [784, 841]


def test_arrays_as_a_data_set_of_xarray(place):
    need("xarray"), need("h5netcdf")
    import xarray

    os.mkdir("weather")
    for day in range(3):
        values = xarray.DataArray([[float(day)] * 4], dims=("time", "x"), coords={"time": [day]})
        values.to_dataset(name="t").to_netcdf(f"weather/{day}.nc", engine="h5netcdf")
    forerun.pack("weather", "weather.sqsh")
    with load("xarray_arrays").open_arrays("weather.sqsh", "*.nc") as data:
        assert data["t"].shape == (3, 4) and float(data["t"].sel(time=2, x=1)) == 2.0
