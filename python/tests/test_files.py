"""File objects against those of the system."""

import io
import random
import threading

import pytest


def test_random_reads_and_seeks_agree_with_a_file_of_the_system(tree, image):
    choose = random.Random(7)
    with image.open("/deep/er/lines.txt") as ours, open(tree / "deep/er/lines.txt", "rb") as theirs:
        for _ in range(2000):
            match choose.randrange(6):
                case 0:
                    at = choose.randrange(700_000)
                    assert ours.seek(at) == theirs.seek(at)
                case 1:
                    at = choose.randrange(1000)
                    assert ours.seek(-at, 2) == theirs.seek(-at, 2)
                case 2:
                    assert ours.readline() == theirs.readline()
                case 3:
                    a, b = bytearray(5000), bytearray(5000)
                    assert ours.readinto(a) == theirs.readinto(b)
                    assert a == b
                case _:
                    size = choose.choice([0, 1, 10, 4096, 200_000])
                    assert ours.read(size) == theirs.read(size)
            assert ours.tell() == theirs.tell()
        assert ours.read() == theirs.read() and ours.read(1) == b""


def test_it_is_a_raw_file(image):
    file = image.open("/etc/hosts")
    assert isinstance(file, io.RawIOBase)
    assert file.readable() and file.seekable() and not file.writable()
    assert file.pread(9, 10) == b"localhost" and file.tell() == 0
    assert file.peek()[:4] == b"127." and file.tell() == 0
    assert list(file) == [b"127.0.0.1 localhost\n"]
    assert io.BufferedReader(image.open("/etc/hosts")).readline()
    with pytest.raises(ValueError):
        file.seek(-1)
    with pytest.raises(OSError):
        file.fileno()
    file.seek(1000)
    assert file.read() == b"" and file.peek() == b""
    file.close()
    assert file.closed
    with pytest.raises(ValueError):
        file.read()


def test_text(tree, image):
    with image.open("/deep/er/lines.txt", "r") as ours:
        assert ours.readlines() == (tree / "deep/er/lines.txt").read_text().splitlines(keepends=True)
    for mode in ("w", "rb+", "a"):
        with pytest.raises(io.UnsupportedOperation):
            image.open("/etc/hosts", mode)
    with pytest.raises(ValueError):
        image.open("/etc/hosts", "q")


def test_threads_that_share_a_file_get_each_byte_once(tree, image):
    file = image.open("/deep/er/random")
    parts, lock = [], threading.Lock()

    def read():
        while part := file.read(10_007):
            with lock:
                parts.append(part)

    threads = [threading.Thread(target=read) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    whole = (tree / "deep/er/random").read_bytes()
    assert sum(map(len, parts)) == len(whole)
    assert all(part in whole for part in parts[:20])


def test_other_libraries_read_from_it(image, tree, tmp_path):
    import csv
    import tarfile
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "zipped")
    import forerun

    forerun.pack(tmp_path, tmp_path.parent / "zip.sqsh", exclude=["*.sqsh"])
    with forerun.open(tmp_path.parent / "zip.sqsh") as zipped:
        assert zipfile.ZipFile(zipped.open("a.zip")).read("a") == b"zipped"
    assert next(csv.reader(image.open("/etc/passwd", "r", newline=""), delimiter=":")) == ["root", "x", "0", "0"]
    image.tar(tmp_path / "all.tar", ["etc"])
    with tarfile.open(tmp_path / "all.tar") as archive:
        assert archive.extractfile("etc/hosts").read() == (tree / "etc/hosts").read_bytes()
