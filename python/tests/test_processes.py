"""Forked and spawned processes, signals, and the end of the interpreter."""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

import forerun


def read_in_child(image, path):
    """What a worker of a pool does: the image came by a fork, or by a pickle."""
    return sum(len(contents) for _, contents in image.read_many([path] * 3)), image.read(path)


def answer_of_fork(call):
    """Returns what `call` returns in a forked process."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(writable, repr(call()).encode())
            code = 0
        except BaseException as error:
            os.write(writable, f"failed: {error!r}".encode())
        finally:
            os._exit(code)
    os.close(writable)
    with os.fdopen(readable, "rb") as answer:
        text = answer.read().decode()
    assert os.waitpid(pid, 0)[1] == 0, text
    return text


def test_a_forked_process_reads_on_while_threads_read(path, tree):
    """The threads of the parent hold locks at most moments; the child has none of them."""
    with forerun.open(path) as image:
        done = threading.Event()

        def read():
            while not done.is_set():
                for _ in image.read_many([f"/many/{n:04}" for n in range(0, 2000, 7)]):
                    pass

        threads = [threading.Thread(target=read) for _ in range(3)]
        [thread.start() for thread in threads]
        file = image.open("/deep/er/lines.txt")
        file.readline()
        for _ in range(10):
            answer = answer_of_fork(lambda: (image.read("/etc/hosts"), file.readline(), file.tell()))
            assert answer == repr((b"127.0.0.1 localhost\n", b"line 1\n", 14))
        done.set()
        [thread.join() for thread in threads]
        assert file.readline() == b"line 1\n"


def test_a_forked_process_reads_the_same_file_though_another_has_its_name(path, tmp_path):
    copy = tmp_path / "copy"
    copy.write_bytes(pathlib.Path(path).read_bytes())
    with forerun.open(copy) as image:
        copy.rename(tmp_path / "moved")
        copy.write_text("another")
        assert answer_of_fork(lambda: image.read("/etc/passwd")) == repr(b"root:x:0:0\n")


def test_iterators_do_not_survive_a_fork(image):
    entries, many = image.entries(), image.read_many(["/etc/hosts"] * 9)
    next(entries), next(many)
    for iterator in (entries, many):
        assert "before this process was forked" in answer_of_fork(lambda: pytest.raises(RuntimeError, next, iterator))
    assert len(list(many)) == 8


def test_a_forked_process_reads_from_a_server(server, tmp_path):
    with forerun.open(server, cache_dir=tmp_path / "cache") as image:
        assert image.read("/etc/passwd") == b"root:x:0:0\n"
        assert answer_of_fork(lambda: image.read("/etc/hosts")) == repr(b"127.0.0.1 localhost\n")
        assert answer_of_fork(lambda: len(image.read("/deep/er/random"))) == "3000000"
        assert image.read("/etc/hosts")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_pool(path, tree, method):
    with forerun.open(path) as image, multiprocessing.get_context(method).Pool(2) as pool:
        paths = ["/etc/hosts", "/deep/er/lines.txt", "/many/0100"]
        answers = pool.starmap(read_in_child, [(image, path) for path in paths])
        for path, (count, contents) in zip(paths, answers):
            assert contents == (tree / path[1:]).read_bytes() and count == 3 * len(contents)


def test_ctrl_c_ends_read_many_that_waits(path, run_python):
    """The file object blocks, so that the iterator waits; the signal comes then.

    A process that a shell has started in the background ignores the signal, and so do its children: without the
    handler it would never end here.
    """
    done = run_python(
        """
import os, signal, sys, threading, forerun
signal.signal(signal.SIGINT, signal.default_int_handler)
go, blocked = threading.Event(), threading.Event()
class Slow:
    def __init__(self, path): self.file, self.slow = open(path, "rb"), False
    def seek(self, *at): return self.file.seek(*at)
    def read(self, size):
        if self.slow:
            blocked.set()
            go.wait()
        return self.file.read(size)
slow = Slow(sys.argv[1])
image = forerun.open(slow, readahead=0)
slow.slow = True
def interrupt():
    blocked.wait()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    next(image.read_many(["/deep/er/random"]))
except KeyboardInterrupt:
    print("interrupted")
slow.slow = False
go.set()
print(len(image.read("/deep/er/random")))
""",
        path,
    )
    assert done.stdout == "interrupted\n3000000\n"


def test_the_interpreter_ends_with_everything_open(path, run_python):
    done = run_python(
        """
import sys, forerun
image = forerun.open(sys.argv[1])
file = image.open("/deep/er/random"); file.read(10)
many = image.read_many(["/deep/er/random"] * 1000); next(many)
entries = image.entries(); next(entries)
of_object = forerun.open(open(sys.argv[1], "rb"))
more = of_object.read_many(["/deep/er/random"] * 1000); next(more)
print("end")
""",
        path,
    )
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_ctrl_c_ends_an_extraction_and_leaves_no_half_file(path, tmp_path, run_python):
    done = run_python(
        """
import os, signal, sys, forerun
signal.signal(signal.SIGINT, signal.default_int_handler)
image = forerun.open(sys.argv[1])
def report(done, total):
    os.kill(os.getpid(), signal.SIGINT)
try:
    image.extract(sys.argv[2], progress=report)
    print("done")
except KeyboardInterrupt:
    print("interrupted")
""",
        path,
        str(tmp_path / "out"),
    )
    # The report comes at the end of a short extraction, or in the middle of a long one.
    assert done.stdout in ("interrupted\n", "done\n")
    lines = tmp_path / "out/deep/er/lines.txt"
    assert not lines.exists() or lines.stat().st_size == forerun.open(path).stat("/deep/er/lines.txt").st_size


@pytest.mark.skipif(sys.platform != "linux", reason="FUSE")
def test_a_mount_ends_with_its_block_and_with_the_interpreter(path, tree, tmp_path, run_python, can_mount):
    place = tmp_path / "mnt"
    place.mkdir()
    with forerun.open(path) as image:
        with image.mount(place) as mounted:
            assert os.path.realpath(place) == mounted
            assert (place / "deep/er/lines.txt").read_bytes() == (tree / "deep/er/lines.txt").read_bytes()
            assert answer_of_fork(lambda: os.listdir(place)) != "[]"
        assert os.listdir(place) == []
        with pytest.raises(forerun.Error) as raised:
            image.mount(tmp_path / "nope")
        assert raised.value.errno
    done = run_python(
        """
import os, sys, forerun
mount = forerun.open(sys.argv[1]).mount(sys.argv[2])
print(len(os.listdir(sys.argv[2])))
""",
        path,
        str(place),
    )
    assert done.stdout == f"{len(os.listdir(tree))}\n"
    assert os.listdir(place) == []
    program = """
import os, signal, sys, forerun
mount = forerun.open(sys.argv[1]).mount(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program, path, str(place)])
    assert killed.returncode == -signal.SIGKILL
    patience = time.monotonic() + 60
    while os.path.ismount(place) or is_dead(place):
        assert time.monotonic() < patience, "the mount of a killed process is still there"
        time.sleep(0.01)
    assert os.listdir(place) == []


def is_dead(place):
    try:
        os.statvfs(place)
    except OSError:
        return True
    return False


def test_signals_reach_handlers_of_the_program(image):
    caught = []
    before = signal.signal(signal.SIGALRM, lambda *_: caught.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not caught:
            for _ in image.read_many([f"/many/{n:04}" for n in range(100)]):
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
