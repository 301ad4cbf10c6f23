"""A directory with files of all kinds, and images of it."""

import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import threading

import pytest

import forerun


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> pathlib.Path:
    """A directory; never written by tests."""
    root = tmp_path_factory.mktemp("tree")
    (root / "etc").mkdir()
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "etc/passwd").write_text("root:x:0:0\n")
    (root / "users").symlink_to("etc/passwd")
    (root / "dangling").symlink_to("nowhere")
    (root / "empty").write_bytes(b"")
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/lines.txt").write_text("".join(f"line {n}\n" for n in range(50_000)))
    (root / "deep/er/random").write_bytes(random.Random(1).randbytes(3_000_000))
    (root / "deep/zeros").write_bytes(bytes(1_000_000))
    (root / "many").mkdir()
    for n in range(2000):
        (root / f"many/{n:04}").write_bytes(random.Random(n).randbytes(n % 700))
    with open(os.fsencode(root) + b"/byte\xff", "wb") as file:
        file.write(b"not UTF-8")
    return root


@pytest.fixture(scope="session")
def path(tree, tmp_path_factory) -> str:
    """A SquashFS image of the directory."""
    path = str(tmp_path_factory.mktemp("images") / "x.sqsh")
    forerun.pack(tree, path, compressor="zstd", level=3)
    return path


@pytest.fixture
def image(path):
    with forerun.open(path) as image:
        yield image


@pytest.fixture
def run_python():
    """Runs a program in another interpreter. Returns what it has printed."""

    def run(program: str, *arguments: str, check: bool = True, timeout: int = 60):
        # A program that hangs says where.
        watch = f"import faulthandler; faulthandler.dump_traceback_later({timeout - 10}, exit=True)\n"
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", watch + program, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def server(path):
    """A web server with range requests for the image. Yields its address."""
    contents = pathlib.Path(path).read_bytes()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection):
        with contextlib.suppress(ConnectionError), connection, connection.makefile("rb") as requests:
            while True:
                first = requests.readline()
                headers = {}
                while True:
                    line = requests.readline()
                    if line in (b"", b"\r\n"):
                        break
                    name, _, value = line.partition(b":")
                    headers[name.lower()] = value.strip().decode()
                if not first:
                    return
                start, end = 0, len(contents) - 1
                status = "200 OK"
                wanted = headers.get(b"range")
                if wanted:
                    low, _, high = wanted.removeprefix("bytes=").partition("-")
                    start, end = int(low), min(int(high or end), end)
                    status = "206 Partial Content"
                body = contents[start : end + 1]
                head = (
                    f"HTTP/1.1 {status}\r\nETag: \"x\"\r\nAccept-Ranges: bytes\r\nContent-Length: {len(body)}\r\n"
                    f"Content-Range: bytes {start}-{end}/{len(contents)}\r\n\r\n"
                )
                connection.sendall(head.encode() + (b"" if first.startswith(b"HEAD") else body))

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/x.sqsh"
    listener.close()


@pytest.fixture
def can_mount():
    """Skips where nothing can be mounted; in CI that is a failure."""
    reasons = []
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        reasons.append("/dev/fuse cannot be opened")
    if os.geteuid() != 0 and not shutil.which("fusermount3"):
        reasons.append("fusermount3 is not installed")
    if reasons:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(", ".join(reasons))
