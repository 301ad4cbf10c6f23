"""Paths, metadata, listings, errors."""

import errno
import os
import pathlib
import pickle
import stat
import subprocess

import pytest

import forerun


def files_of(tree):
    for dir, _, names in os.walk(os.fsencode(tree)):
        for name in names:
            path = os.path.join(dir, name)
            if not os.path.islink(path):
                yield "/" + os.fsdecode(os.path.relpath(path, os.fsencode(tree)))


def test_contents_are_those_of_the_directory(tree, image):
    for path in files_of(tree):
        assert image.read(path) == (tree / path[1:]).read_bytes(), path


def test_metadata_is_that_of_the_directory(tree, image):
    for path in ["etc", "etc/hosts", "users", "deep/er/random", "empty"]:
        for follow in (True, False):
            found, expected = (
                image.stat(path, follow_symlinks=follow),
                os.stat(tree / path, follow_symlinks=follow),
            )
            assert found.st_mode == expected.st_mode, path
            assert found.st_mtime == expected.st_mtime // 1
            if not stat.S_ISDIR(expected.st_mode):
                assert found.st_size == expected.st_size
    assert image.lstat("users").kind == "symlink"
    assert image.readlink("users") == "etc/passwd"
    assert image.realpath("users") == "/etc/passwd"


def test_a_walk_is_that_of_os_walk(tree, image):
    def of(walk, root):
        return {os.path.relpath(path, root): (sorted(dirs), sorted(names)) for path, dirs, names in walk}

    expected = of(os.walk(tree), tree)
    assert of(image.walk(), "/") == expected

    pruned = []
    for path, dirs, _ in image.walk():
        pruned.append(path)
        dirs[:] = [name for name in dirs if name != "deep"]
    assert pruned == ["/", "/etc", "/many"]

    entries = list(image.entries())
    assert len(entries) == 1 + sum(len(d) + len(n) for d, n in expected.values())
    kinds = {entry.path: entry.kind for entry in entries}
    assert kinds["/"] == "directory" and kinds["/users"] == "symlink"
    assert [entry.stat().st_size for entry in entries if entry.path == "/etc/hosts"] == [20]


def test_names_may_be_bytes_and_paths(image):
    assert "byte\udcff" in image.listdir()
    for path in (b"/byte\xff", "byte\udcff", pathlib.PurePosixPath("/byte\udcff")):
        assert image.read(path) == b"not UTF-8"
    with pytest.raises(TypeError):
        image.read(3)


def test_patterns(image):
    assert image.glob("/etc/*") == ["/etc/hosts", "/etc/passwd"]
    assert image.glob("**/*.txt") == ["deep/er/lines.txt"]
    assert image.glob("/many/00[01]?") == [f"/many/{n:04}" for n in range(20)]
    assert image.glob("/etc/hosts") == ["/etc/hosts"]
    assert image.glob("/etc/shadow") == image.glob("*.exe") == []


def linked(tmp_path):
    """Returns an image of three files, with links to directories: one to its own directory, one that loops."""
    root = tmp_path / "linked"
    (root / "data").mkdir(parents=True)
    for name in "abc":
        (root / f"data/{name}.csv").write_text("x,y\n1,2\n")
    (root / "data/self").symlink_to(".")
    (root / "also").symlink_to("data")
    (root / "data/loop").symlink_to("loop")
    os.mkdir(os.fsencode(root) + b"/d\xff")
    (root / "d\udcff/e.csv").write_text("not UTF-8\n")
    forerun.pack(root, tmp_path / "linked.sqsh")
    return root, forerun.open(tmp_path / "linked.sqsh")


def test_a_pattern_matches_neither_the_root_nor_misses_names_that_are_no_text(tmp_path):
    root, image = linked(tmp_path)
    assert sorted(image.glob("*")) == sorted(os.listdir(root))
    assert image.glob("/*") == sorted("/" + name for name in os.listdir(root))
    assert "" not in image.glob("**") and "/" not in image.glob("/**")
    assert image.glob(b"d\xff/*.csv") == image.glob("d\udcff/*") == ["d\udcff/e.csv"]
    assert [str(path) for path in (image.path() / "d\udcff").glob("*.csv")] == ["/d\udcff/e.csv"]
    assert image.glob(b"d\xfe/*") == []


def test_entries_follow_links_as_os_direntry_does(tmp_path):
    root, image = linked(tmp_path)
    for directory in (".", "data"):
        theirs = {entry.name: entry for entry in os.scandir(root / directory)}
        for entry in image.scandir(directory):
            their = theirs.pop(entry.name)
            for options in ({}, {"follow_symlinks": False}):
                for ask in ("is_file", "is_dir", "stat"):
                    answers = []
                    for asked in (entry, their):
                        try:
                            answer = getattr(asked, ask)(**options)
                            answers.append(answer.st_mode if ask == "stat" else answer)
                        except OSError as error:
                            answers.append(error.errno)
                    assert answers[0] == answers[1], (entry.name, ask, options)
        assert not theirs
    walked = {path: (sorted(dirs), sorted(names)) for path, dirs, names in image.walk()}
    assert walked["/"] == (["also", "data", "d\udcff"], []) and "/also" not in walked
    assert walked["/data"] == (["self"], ["a.csv", "b.csv", "c.csv", "loop"]) and len(walked) == 3


def test_a_hole_that_no_memory_holds_is_an_error(tmp_path):
    (tmp_path / "d").mkdir()
    size = 1 << 40
    with open(tmp_path / "d/hole", "wb") as file:
        file.truncate(size)
    subprocess.run(["tar", "--sparse", "-cf", tmp_path / "x.tar", "-C", tmp_path / "d", "hole"], check=True)
    with forerun.open(tmp_path / "x.tar") as image, image.open("hole") as file:
        with pytest.raises(MemoryError):
            file.read()
        with pytest.raises(MemoryError):
            file.pread(size, 0)
        assert file.tell() == 0
        assert file.read(3) == bytes(3)
        file.seek(-2, os.SEEK_END)
        assert file.read() == bytes(2)


def test_an_address_is_shown_without_its_secrets(path, server, tmp_path):
    address = server.replace("http://", "http://me:hunter2@") + "?X-Amz-Signature=s3cret"
    image = forerun.open(address, cache_dir=tmp_path)
    shown = [repr(image), image.name, image._repr_html_(), repr(image.path("/etc"))]
    for text in shown:
        assert "hunter2" not in text and "s3cret" not in text, text
    with pytest.raises(FileNotFoundError) as error:
        image.read("/nope")
    assert "hunter2" not in str(error.value) + str(error.value.image)
    # What opens it elsewhere has them.
    assert pickle.loads(pickle.dumps(image)).read("/etc/passwd") == b"root:x:0:0\n"


def test_extents_cover_the_file(image):
    extents = image.map("/deep/er/random")
    assert extents[0].start == 0 and extents[-1].end == 3_000_000
    assert all(a.end == b.start for a, b in zip(extents, extents[1:]))
    assert {extent.kind for extent in extents} <= {"stored", "encoded"}
    assert {extent.kind for extent in image.map("/deep/zeros")} == {"zero"}
    assert image.map("/empty") == []


@pytest.mark.parametrize(
    "call, error, number",
    [
        (lambda i: i.read("/nope"), FileNotFoundError, errno.ENOENT),
        (lambda i: i.open("/nope/x"), FileNotFoundError, errno.ENOENT),
        (lambda i: i.read("/etc/hosts/x"), NotADirectoryError, errno.ENOTDIR),
        (lambda i: i.read("/etc"), IsADirectoryError, errno.EISDIR),
        (lambda i: i.listdir("/empty"), NotADirectoryError, errno.ENOTDIR),
        (lambda i: i.readlink("/etc"), forerun.Error, errno.EINVAL),
        (lambda i: i.stat("/dangling"), FileNotFoundError, errno.ENOENT),
        (lambda i: i.xattrs("/nope"), FileNotFoundError, errno.ENOENT),
    ],
)
def test_errors_are_those_of_the_system(image, call, error, number):
    with pytest.raises(error) as raised:
        call(image)
    assert isinstance(raised.value, forerun.Error)
    assert raised.value.errno == number
    assert raised.value.image == image.name
    assert raised.value.path in str(raised.value)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.path, type(again)) == (str(raised.value), raised.value.path, type(raised.value))


def test_errors_of_opening(tmp_path, path):
    with pytest.raises(FileNotFoundError) as raised:
        forerun.open(tmp_path / "nope")
    assert raised.value.filename == str(tmp_path / "nope")
    (tmp_path / "text").write_text("no image\n" * 1000)
    with pytest.raises(forerun.UnknownFormatError):
        forerun.open(tmp_path / "text")
    with pytest.raises(TypeError, match="colour"):
        forerun.open(path, colour=3)
    with pytest.raises(forerun.Error):
        forerun.open(path, format="romfs")


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(forerun.Error) as raised:
            forerun.open(tmp_path / "pipe")
        assert raised.value.errno == errno.EINVAL
    finally:
        os.close(writer)


def test_damage_is_named_with_its_place(path, tmp_path):
    bytes = bytearray(pathlib.Path(path).read_bytes())
    at = forerun.open(path).map("/deep/er/lines.txt")[0].offset
    bytes[at + 20 : at + 40] = b"\xaa" * 20
    (tmp_path / "damaged").write_bytes(bytes)
    with forerun.open(tmp_path / "damaged") as damaged:
        with pytest.raises(forerun.DamagedImageError) as raised:
            damaged.read("/deep/er/lines.txt")
        assert raised.value.offset == at
        assert raised.value.path == "/deep/er/lines.txt"
        assert damaged.read("/etc/hosts")
    (tmp_path / "short").write_bytes(bytes[:4000])
    with pytest.raises(forerun.Error):
        forerun.open(tmp_path / "short").read("/etc/hosts")


def test_a_limit_of_whole_reads(path):
    with forerun.open(path, read_limit=1000) as image:
        with pytest.raises(forerun.LimitError):
            image.read("/deep/er/random")
        assert len(image.open("/deep/er/random").read()) == 3_000_000


def test_a_closed_image_says_so(path):
    image = forerun.open(path)
    file = image.open("/etc/hosts")
    image.close()
    image.close()
    assert image.closed and "closed" in repr(image)
    for call in (image.listdir, lambda: image.read("/etc/hosts"), image.facts):
        with pytest.raises(ValueError):
            call()
    assert file.read() == b"127.0.0.1 localhost\n"


def test_sources(path, tree, tmp_path):
    with open(path, "rb") as file, forerun.open(file) as image:
        assert image.read("/deep/er/random") == (tree / "deep/er/random").read_bytes()
        assert image.name == path
        with pytest.raises(TypeError):
            pickle.dumps(image)
    (tmp_path / "upper").mkdir()
    (tmp_path / "upper/new").write_text("new")
    forerun.pack(tmp_path / "upper", tmp_path / "upper.erofs", format="erofs")
    with forerun.open([path, tmp_path / "upper.erofs"]) as layers:
        assert layers.read("new") == b"new" and layers.read("/etc/passwd")
    bytes = pathlib.Path(path).read_bytes()
    (tmp_path / "behind").write_bytes(bytes_before := b"x" * 4096 + bytes)
    assert forerun.open(tmp_path / "behind", offset=4096).exists("users")
    del bytes_before


def test_counters_and_facts(image):
    image.read("/etc/hosts")
    assert image.stats()["served_bytes"] == 20
    assert image.facts()["format"] == image.format == "squashfs"


def test_show(image):
    assert "hosts  20 B" in str(image.tree("/etc"))
    assert "byte\\xff" in str(image.tree()) or "byte\\udcff" in str(image.tree())
    assert str(image.tree(most=3)).endswith("...")
    html = image._repr_html_()
    assert "<svg" in html and "many" in html
    html.encode()


def test_paths_are_traversable(image, tree):
    try:
        from importlib.resources.abc import Traversable
    except ImportError:
        from importlib.abc import Traversable
    root = image.path()
    assert isinstance(root, Traversable)
    hosts = root / "etc" / "hosts"
    assert (hosts.name, hosts.parent.name, str(hosts)) == ("hosts", "etc", "/etc/hosts")
    assert hosts.is_file() and root.joinpath("etc").is_dir() and not (root / "nope").exists()
    assert hosts.read_text() == "127.0.0.1 localhost\n" and hosts.read_bytes() == hosts.open("rb").read()
    assert {path.name for path in root.iterdir()} == set(os.listdir(tree))
    assert [str(path) for path in (root / "deep").glob("**/*.txt")] == ["/deep/er/lines.txt"]
    assert (root / "users").is_symlink() and str((root / "users").resolve()) == "/etc/passwd"
    assert str(root / "../../etc") == "/etc"
    assert hosts.relative_to("/etc") == "hosts" and hosts == image.path("/etc/hosts")
