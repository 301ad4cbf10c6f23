"""Packing, extracting, archives."""

import errno
import io
import os
import resource
import tarfile

import pytest

import forerun


@pytest.mark.parametrize("format", forerun.packable_formats())
def test_each_format_that_is_packed_is_read(tmp_path, format):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("hello")
    (tmp_path / "d/b.o").write_text("left out")
    facts = forerun.pack(tmp_path / "d", tmp_path / "image", format=format, exclude=["*.o"])
    assert facts["image_bytes"] == (tmp_path / "image").stat().st_size and facts["content_bytes"] == 5
    with forerun.open(tmp_path / "image") as image:
        assert image.format == format and image.listdir() == ["a"] and image.read("a") == b"hello"
    assert format in forerun.format_names()


def test_what_cannot_be_packed_is_refused(tmp_path):
    (tmp_path / "d").mkdir()
    forerun.pack(tmp_path / "d", tmp_path / "there")
    with pytest.raises(FileExistsError):
        forerun.pack(tmp_path / "d", tmp_path / "there")
    forerun.pack(tmp_path / "d", tmp_path / "there", replace=True)
    with pytest.raises(FileNotFoundError):
        forerun.pack(tmp_path / "nope", tmp_path / "image")
    with pytest.raises(OSError, match="no compressor brotli"):
        forerun.pack(tmp_path / "d", tmp_path / "image", compressor="brotli")
    with pytest.raises(TypeError):
        forerun.pack(tmp_path / "d", tmp_path / "image", colour=3)
    assert sorted(os.listdir(tmp_path)) == ["d", "there"]


def test_extraction(image, tree, tmp_path):
    told = []
    report = image.extract(tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    assert report["failures"] == [] and report["missing"] == 0
    for path, _, names in os.walk(tree):
        for name in names:
            ours = tmp_path / "out" / os.path.relpath(path, tree) / name
            theirs = os.path.join(path, name)
            if os.path.islink(theirs):
                assert os.readlink(ours) == os.readlink(theirs)
            else:
                assert ours.read_bytes() == open(theirs, "rb").read()
    assert told[-1][0] == told[-1][1] == report["bytes"]
    report = image.extract(tmp_path / "some", ["deep"], exclude=["random"], strip_components=1)
    assert sorted(os.listdir(tmp_path / "some")) == ["er", "zeros"] and report["files"] == 2
    again = image.extract(tmp_path / "some", ["deep"], exclude=["random"], strip_components=1)
    assert len(again["failures"]) == 2
    with pytest.raises(FileNotFoundError):
        image.extract(tmp_path / "none", ["nope"])


def test_one_pattern_or_path_is_not_its_letters(image, tmp_path):
    report = image.extract(tmp_path / "out", exclude="*.txt", include="**")
    assert report["files"] > 2000 and not (tmp_path / "out/deep/er/lines.txt").exists()
    report = image.extract(tmp_path / "some", "deep", include="*.txt")
    assert report["files"] == 1 and (tmp_path / "some/deep/er/lines.txt").exists()
    report = image.extract(tmp_path / "bytes", b"byte\xff")
    assert report["files"] == 1
    archive = io.BytesIO()
    image.tar(archive, "etc", exclude="passwd")
    names = tarfile.open(fileobj=io.BytesIO(archive.getvalue())).getnames()
    assert "etc/hosts" in names and "etc/passwd" not in names


def test_an_archive_that_fails_leaves_no_file(path, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with forerun.open(path) as image, pytest.raises(OSError) as error:
            image.tar(tmp_path / "x.tar")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error.value.errno == errno.EFBIG and os.listdir(tmp_path) == []


def test_archives(image, tree, tmp_path):
    out = io.BytesIO()
    count = image.tar(out, exclude=["many"])
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        names = archive.getnames()
        assert len(names) == count and "users" in names
        assert archive.extractfile("deep/er/lines.txt").read() == (tree / "deep/er/lines.txt").read_bytes()

    class Full(io.RawIOBase):
        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        image.tar(Full())
    image.tar(tmp_path / "a.tar", ["etc"])
    with pytest.raises(FileExistsError):
        image.tar(tmp_path / "a.tar")


def test_archives_are_read_as_images(image, tmp_path):
    image.tar(tmp_path / "a.tar", ["etc"])
    with forerun.open(tmp_path / "a.tar") as archive:
        assert archive.format == "tar" and archive.read("etc/passwd") == b"root:x:0:0\n"
