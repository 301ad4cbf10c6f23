"""Random small files of a SquashFS image: forerun against the packages that people use.

    python small_files.py [--files 100000] [--read 10000] [--rounds 5] [--only NAME]...

`--only memory` measures a walk's memory in MiB, `--only server` a cold `ls -lR` of the image at a server that takes
20 ms for each request, `--only two_cpus` what two threads gain here at all. `spinner.py` and `epoch.py` beside it
measure the interpreter's lock and an epoch of PyTorch.

Makes the image, and a zip and a tar archive of the same files, once, in --dir, and reads them. Each round runs every program, in
turns, each in a process of its own; the times are those of opening and reading, without the start of the
interpreter. Packages that are not installed are left out. Prints medians, and how many times longer than forerun
each takes.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
import zlib

import forerun


def make(directory: pathlib.Path, files: int) -> pathlib.Path:
    image = directory / f"{files}.sqsh"
    if all(image.with_suffix(suffix).exists() for suffix in (".sqsh", ".zip", ".tar")):
        return image
    tree = directory / "tree"
    choose = random.Random(1)
    words = [bytes(choose.choices(b"abcdefghijklmnopqrstuvwxyz \n", k=9)) for _ in range(3000)]
    for n in range(files):
        at = tree / f"{n // 1000:03}"
        at.mkdir(parents=True, exist_ok=True)
        (at / f"{n:06}.txt").write_bytes(b"".join(choose.choices(words, k=choose.randrange(20, 600))))
    forerun.pack(tree, image, compressor="gzip", replace=True)
    names = sorted(path.relative_to(tree) for path in tree.rglob("*.txt"))
    with zipfile.ZipFile(image.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        [archive.write(tree / name, str(name)) for name in names]
    with tarfile.open(image.with_suffix(".tar"), "w") as archive:
        [archive.add(tree / name, str(name)) for name in names]
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    return image


def warm(image: pathlib.Path) -> None:
    """Brings the files that the programs read into the page cache, where each of them finds them."""
    for suffix in (".sqsh", ".zip", ".tar"):
        with open(image.with_suffix(suffix), "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def chosen(files: int, count: int) -> list:
    return [f"/{n // 1000:03}/{n:06}.txt" for n in random.Random(2).sample(range(files), count)]


def with_forerun(image, paths):
    opened = forerun.open(image)
    return sum(len(opened.read(path)) for path in paths)


def with_read_many(image, paths):
    return sum(len(contents) for _, contents in forerun.open(image).read_many(paths))


def with_read_many_1(image, paths):
    os.sched_setaffinity(0, {0})
    return with_read_many(image, paths)


def with_fsspec(image, paths):
    from forerun.fsspec import ForerunFileSystem

    return sum(map(len, ForerunFileSystem(image).cat([path[1:] for path in paths]).values()))


def with_pysquashfsimage(image, paths):
    from PySquashfsImage import SquashFsImage

    with SquashFsImage.from_file(image) as opened:
        return sum(len(opened.select(path).read_bytes()) for path in paths)


def with_squashfsspec(image, paths):
    from squashfsspec import SquashFSFileSystem

    fs = SquashFSFileSystem(image)
    return sum(len(fs.cat_file(path)) for path in paths)


def with_ratarmount(image, paths):
    from ratarmountcore.mountsource.factory import open_mount_source

    source = open_mount_source(image)
    total = 0
    for path in paths:
        with source.open(source.lookup(path)) as file:
            total += len(file.read())
    return total


def beside(image, suffix):
    return pathlib.Path(image).with_suffix(suffix)


def with_zipfile(image, paths):
    with zipfile.ZipFile(beside(image, ".zip")) as archive:
        return sum(len(archive.read(path[1:])) for path in paths)


def with_forerun_zip(image, paths):
    return with_forerun(beside(image, ".zip"), paths)


def with_tarfile(image, paths):
    with tarfile.open(beside(image, ".tar")) as archive:
        # By name it would search its list for each.
        members = {member.name: member for member in archive}
        return sum(len(archive.extractfile(members[path[1:]]).read()) for path in paths)


def with_forerun_tar(image, paths):
    return with_forerun(beside(image, ".tar"), paths)


PROGRAMS = {
    name.removeprefix("with_"): value for name, value in list(globals().items()) if name.startswith("with_")
}


def memory(image, _paths):
    opened = forerun.open(image)
    count = sum(1 for _ in opened.entries())
    resident = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return count, int(resident[0].split()[1]) / 1024


def server(image, _paths):
    """Returns the entries of a cold `ls -lR` at a server, and the number of requests."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name("slow_server.py")), image]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        try:
            address = serving.stdout.readline().strip()
            with tempfile.TemporaryDirectory() as cache:
                start = time.perf_counter()
                opened = forerun.open(address, cache_dir=cache)
                lines = 0
                for entry in opened.entries():
                    lines += bool(f"{entry.stat(follow_symlinks=False).st_mode:o} {entry.stat(follow_symlinks=False).st_size} {entry.path}")
                seconds = time.perf_counter() - start
            return seconds, lines
        finally:
            serving.terminate()


def two_cpus(_image, _paths):
    """Returns how many times faster two threads of the interpreter's own zlib are than one: what `read_many` can
    gain over `read_many_1` on a machine whose CPUs share a core, or do other work."""
    words = [f"{random.Random(n).random()} ".encode() for n in range(5000)]
    packed = zlib.compress(b"".join(random.Random(1).choices(words, k=7000)))

    def work(count):
        start = time.perf_counter()
        threads = [threading.Thread(target=lambda: [zlib.decompress(packed) for _ in range(count)]) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return time.perf_counter() - start

    both = work(500)
    os.sched_setaffinity(0, {0})
    return work(500) / both


OTHERS = {"memory": memory, "server": server, "two_cpus": two_cpus}


def child(name: str, image: str, files: int, count: int) -> None:
    paths = chosen(files, count)
    start = time.perf_counter()
    answer = {**PROGRAMS, **OTHERS}[name](image, paths)
    print(json.dumps([time.perf_counter() - start, answer]))


def run(name: str, image, options):
    command = [sys.executable, __file__, "--child", name, str(image), str(options.files), str(options.read)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["?"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--read", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/var/tmp/forerun-bench"))
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    image = make(options.dir, options.files)
    warm(image)
    names = options.only or list(PROGRAMS)
    seconds = {name: [] for name in names}
    answers = {}
    for _ in range(options.rounds):
        for name in list(names):
            took, answer = run(name, image, options)
            if took is None:
                print(f"{name} is left out: {answer}")
                names.remove(name)
                continue
            seconds[name].append(took)
            answers.setdefault(name, answer)
    medians = {name: statistics.median(times) for name, times in seconds.items() if times}
    base = medians.get("forerun")
    for name, median in medians.items():
        ratio = f"{median / base:8.2f} of forerun" if base and name not in OTHERS else ""
        low, high = min(seconds[name]), max(seconds[name])
        print(f"{name:18} {median:8.3f} s ({low:.3f}-{high:.3f}) {ratio}  {answers[name]}")
    totals = {json.dumps(answers[name]) for name in medians if name in PROGRAMS}
    if len(totals) > 1:
        sys.exit(f"the programs have read different numbers of bytes: {totals}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
