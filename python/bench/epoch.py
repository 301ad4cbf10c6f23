"""An epoch over small files, shuffled, with a cold page cache: an image against a directory, and against tar archives.

    python epoch.py [--files 60000] [--rounds 5] [--workers 2] [--dir DIR]

All are data sets for PyTorch's DataLoader; without PyTorch the bench iterates over them itself, in this process. The
image is read by `ImageFiles` of python/examples, which reads ahead of the batches, the directory by a data set that
opens and reads each file, as `ImageFolder` does. The archives are shards as webdataset has them: each is streamed from
its start, in a shuffled order, through a buffer from which samples are drawn, so only near neighbours change places. Each
batch is a list of bytes: nothing is decoded, so that the reading is what is measured. Needs root, to drop the page cache
before each round. They take turns.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import statistics
import subprocess
import sys
import tarfile
import time

import forerun

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples"))

from torch_dataset import Dataset, ImageFiles, IterableDataset, get_worker_info  # noqa: E402

try:
    from torch.utils.data import DataLoader, RandomSampler
except ImportError:
    DataLoader = None

BATCH = 256
# Both as webdataset's documentation recommends: shards of many samples, and a buffer of some thousand.
SHARDS = 12
BUFFER = 1000


class Files(Dataset):
    """Files of a directory by number."""

    def __init__(self, tree: pathlib.Path) -> None:
        self.paths = sorted(str(path) for path in tree.rglob("*.bin"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        with open(self.paths[index], "rb") as file:
            return file.read()


class Shards(IterableDataset):
    """Files of tar archives, streamed, and shuffled within a buffer."""

    def __init__(self, shards: list) -> None:
        self.shards, self.epoch = shards, 0

    def __iter__(self):
        worker = get_worker_info()
        index, count = (worker.id, worker.num_workers) if worker else (0, 1)
        choose = random.Random(f"{index} {self.epoch}")
        shards = self.shards[index::count]
        choose.shuffle(shards)
        buffer: list = []
        for shard in shards:
            with tarfile.open(shard, "r|") as archive:
                for member in archive:
                    buffer.append(archive.extractfile(member).read())
                    if len(buffer) >= BUFFER:
                        at = choose.randrange(len(buffer))
                        buffer[at], buffer[-1] = buffer[-1], buffer[at]
                        yield buffer.pop()
        choose.shuffle(buffer)
        yield from buffer


def make_shards(tree: pathlib.Path) -> list:
    shards = [tree.with_suffix(f".{n:02}.tar") for n in range(SHARDS)]
    paths = sorted(tree.rglob("*.bin"))
    for n, shard in enumerate(shards):
        if not shard.exists():
            part = shard.with_suffix(".part")
            with tarfile.open(part, "w") as archive:
                [archive.add(path, str(path.relative_to(tree))) for path in paths[n::SHARDS]]
            part.rename(shard)
    return [str(shard) for shard in shards]


def make(directory: pathlib.Path, count: int):
    tree, image = directory / f"epoch{count}", directory / f"epoch{count}.sqsh"
    if not image.exists():
        choose = random.Random(3)
        for n in range(count):
            at = tree / f"{n % 100:02}"
            at.mkdir(parents=True, exist_ok=True)
            # As photographs are: they do not compress.
            (at / f"{n:06}.bin").write_bytes(choose.randbytes(choose.randrange(2_000, 14_000)))
        forerun.pack(tree, image, compressor="zstd", level=3)
    return tree, image


def drop_caches() -> None:
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def contents_only(_path: str, contents: bytes) -> bytes:
    return contents


def epoch(data, workers: int) -> int:
    if DataLoader is None and isinstance(data, Shards):
        return sum(map(len, data))
    if DataLoader is None:
        order = list(range(len(data)))
        random.shuffle(order)
        return sum(map(len, data if isinstance(data, ImageFiles) else (data[n] for n in order)))
    sampler = None if isinstance(data, IterableDataset) else RandomSampler(data)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=workers, collate_fn=list)
    return sum(len(contents) for batch in loader for contents in batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/var/tmp/forerun-bench"))
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    tree, image = make(options.dir, options.files)
    listed, shards = Files(tree), make_shards(tree)
    makers = {
        "directory": lambda: listed,
        "shards": lambda: Shards(shards),
        "image": lambda: ImageFiles(str(image), "/*/*.bin", contents_only),
    }
    seconds: dict = {name: [] for name in makers}
    totals = set()
    for number in range(options.rounds):
        for name, make_data in makers.items():
            drop_caches()
            start = time.perf_counter()
            data = make_data()
            data.epoch = number
            totals.add(epoch(data, options.workers))
            seconds[name].append(time.perf_counter() - start)
    if len(totals) != 1:
        sys.exit(f"different numbers of bytes were read: {totals}")
    base = statistics.median(seconds["image"])
    for name, took in seconds.items():
        median = statistics.median(took)
        print(f"{name:10} {median:7.2f} s ({min(took):.2f}-{max(took):.2f}) {median / base:6.2f} of the image")


if __name__ == "__main__":
    main()
