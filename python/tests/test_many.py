"""Many files at once: order, errors, memory, signals."""

import os
import random
import threading
import time

import pytest

import forerun


@pytest.fixture
def names(image):
    names = [f"/many/{n:04}" for n in range(2000)] + ["/deep/er/random", "/empty", "/deep/zeros"]
    random.Random(3).shuffle(names)
    return names


@pytest.mark.parametrize("workers", [None, 1, 5])
def test_files_come_in_the_order_asked_for(tree, image, names, workers):
    names = names + names[:100]
    read = list(image.read_many(names, workers=workers))
    assert [name for name, _ in read] == names
    assert all(contents == (tree / name[1:]).read_bytes() for name, contents in read)


def test_files_come_in_any_order(tree, image, names):
    read = dict(image.read_many(iter(names), in_order=False))
    assert set(read) == set(names)
    assert all(contents == (tree / name[1:]).read_bytes() for name, contents in read.items())


def test_each_block_is_decoded_once(path, names):
    with forerun.open(path) as image:
        for _ in image.read_many(names):
            pass
        stats = image.stats()
    assert stats["repeated_decodes"] == 0
    with forerun.open(path) as image:
        for name in names:
            image.read(name)
        assert stats["source_requests"] < image.stats()["source_requests"]


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    """A directory of 3,000 files, about 20 to a block, and an image of it that holds more than a small cache."""
    root = tmp_path_factory.mktemp("small")
    (root / "d").mkdir()
    words = [random.Random(n).randbytes(7).hex().encode() for n in range(500)]
    for n in range(3000):
        (root / f"d/{n:04}").write_bytes(b" ".join(random.Random(n).choices(words, k=400)))
    forerun.pack(root / "d", root / "x", compressor="gzip", level=9)
    return root / "d", root / "x"


def test_blocks_larger_than_the_cache_are_decoded_once(small_files):
    """A few files of each block: no block is served to its end, and each is done with after its last file."""
    tree, path = small_files
    names = random.Random(4).sample([f"{n:04}" for n in range(3000)], 500)
    with forerun.open(path, cache=4 << 20) as image:
        read = dict(image.read_many(names, workers=2))
        stats = image.stats()
        assert all(part == b"" for _, part in image.read_ranges([(name, 9, 9) for name in names]))
        assert image.stats()["decodes"] == stats["decodes"], "empty ranges decode nothing"
    assert read == {name: (tree / name).read_bytes() for name in names}
    assert stats["repeated_decodes"] == 0 and stats["decodes"] > 100, stats


def test_a_later_list_finds_the_blocks_of_short_ones(small_files):
    _, path = small_files
    names = random.Random(5).sample([f"{n:04}" for n in range(3000)], 1000)
    with forerun.open(path, cache=256 << 20) as image:
        for start in range(0, 1000, 250):
            assert len(list(image.read_many(names[start : start + 250]))) == 250
        stats = image.stats()
        assert stats["repeated_decodes"] == 0, stats
        assert len(dict(image.read_many(names))) == 1000
        assert image.stats()["decodes"] == stats["decodes"]


def test_memory_is_bounded(tmp_path):
    (tmp_path / "d").mkdir()
    for n in range(64):
        (tmp_path / f"d/{n}").write_bytes(random.Random(n).randbytes(1 << 20))
    forerun.pack(tmp_path / "d", tmp_path / "x", format="erofs")
    with forerun.open(tmp_path / "x") as image:
        many = image.read_many([str(n) for n in range(64)], memory=8 << 20)
        next(many)
        before = -1
        # The threads stop by themselves.
        while before != (before := image.stats()["served_bytes"]) or before == 0:
            time.sleep(0.1)
        assert before <= 9 << 20
        assert len(list(many)) == 63


def test_ranges(tree, image):
    whole = (tree / "deep/er/random").read_bytes()
    ranges = [("/deep/er/random", n * 7001, n * 7001 + n) for n in range(400)] + [("/empty", 5, 9)]
    read = list(image.read_ranges(ranges))
    assert [asked for asked, _ in read] == ranges
    assert all(part == whole[a:b] for (_, a, b), part in read[:-1]) and read[-1][1] == b""


def test_an_error_concerns_one_file(image):
    wanted = ["/etc/hosts", "/nope", "/etc", "/etc/passwd"]
    many = image.read_many(wanted)
    assert next(many)[0] == "/etc/hosts"
    with pytest.raises(FileNotFoundError):
        next(many)
    with pytest.raises(IsADirectoryError):
        next(many)
    assert next(many)[0] == "/etc/passwd" and next(many, None) is None
    returned = dict(image.read_many(wanted, errors="return"))
    assert isinstance(returned["/nope"], FileNotFoundError) and returned["/etc/passwd"] == b"root:x:0:0\n"


def test_errors_of_the_paths_come_after_what_was_read(image):
    def paths():
        yield "/etc/hosts"
        raise KeyError("mine")

    many = image.read_many(paths())
    assert next(many)[1] == b"127.0.0.1 localhost\n"
    with pytest.raises(KeyError):
        next(many)
    with pytest.raises(TypeError):
        list(image.read_many([3]))
    for bad in ({"workers": 0}, {"errors": "ignore"}):
        with pytest.raises(ValueError):
            image.read_many([], **bad)
    assert list(image.read_many([])) == []


def threads():
    """Counts the threads that read ahead."""
    count = 0
    for task in os.listdir("/proc/self/task"):
        try:
            count += "forerun-many" in open(f"/proc/self/task/{task}/comm").read()
        except OSError:
            pass  # It has ended.
    return count


def wait_for_threads(count):
    """Waits: others have the name of the thread that has started them, until they take their own."""
    deadline = time.monotonic() + 30
    while threads() != count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == count


def test_an_iterator_that_is_dropped_or_closed_ends_its_threads(image, names):
    # Those of the tests before end a moment after their iterators.
    wait_for_threads(0)
    many = image.read_many(names, workers=3)
    next(many)
    wait_for_threads(3)
    many.close()
    assert next(many, None) is None
    other = image.read_many(names, workers=2)
    next(other)
    del other
    wait_for_threads(0)


def test_a_python_thread_runs_on_while_others_read(path):
    """Reads release the interpreter's lock: a loop in Python gets most of its share."""
    with forerun.open(path) as image:
        done = threading.Event()

        def read():
            while not done.is_set():
                for _ in image.read_many(["/deep/er/random"] * 3, workers=1):
                    pass

        threads = [threading.Thread(target=read) for _ in range(4)]
        [thread.start() for thread in threads]
        turns, end = 0, time.monotonic() + 0.3
        while time.monotonic() < end:
            turns += 1
        done.set()
        [thread.join() for thread in threads]
        assert turns > 1000


def test_a_bar_of_tqdm_where_it_is_installed(image):
    assert len(list(image.read_many(["/etc/hosts"], progress=True))) == 1
