#!/usr/bin/env python3
"""Opens images that others made with forerun and with the reference reader of their format, and
compares what comes out.

    sudo tools/field.py PATH-OF-FORERUN [DIRECTORY]

The images are test data of published Go modules, Python packages and Rust crates, which
tools/field.txt lists with their versions. They are downloaded into DIRECTORY, or into a temporary
one. Of each image, `ls -lR`, `check`, `extract` and `tar` run; the two trees are compared with that
of the reference reader, with modes, times, owners and contents. A line is printed for each image
that differs, and for each that forerun refuses and the reference reads.

Needs root for owners and devices, and unsquashfs, fsck.erofs, bsdtar, GNU tar, exfat-fuse and loop devices.
Exit status: 0 if no image differs but those that tools/field.txt explains, 1 otherwise.
"""

import fnmatch
import hashlib
import json
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile

HERE = pathlib.Path(__file__).parent
LARGEST = 64 << 20
ENVIRONMENT = {**os.environ, "LC_ALL": "C.UTF-8"}
AGENT = {"User-Agent": "forerun-field-test"}


def get(url, **headers):
    request = urllib.request.Request(url, headers={**AGENT, **headers})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def go_address(name, version):
    # The proxy writes an upper-case letter as ! and the lower-case one.
    escaped = "".join("!" + char.lower() if char.isupper() else char for char in name)
    proxy = os.environ.get("GOPROXY", "https://proxy.golang.org").split(",")[0]
    return f"{proxy}/{escaped}/@v/{version}.zip"


def pypi_address(name, version):
    index = get(f"https://pypi.org/simple/{name}/", Accept="application/vnd.pypi.simple.v1+json")
    for file in json.loads(index)["files"]:
        if file["filename"].endswith(f"-{version}.tar.gz"):
            return file["url"]
    raise SystemExit(f"{name} {version} has no source package")


def crate_address(name, version):
    return f"https://static.crates.io/crates/{name}/{name}-{version}.crate"


ADDRESSES = {"go": go_address, "pypi": pypi_address, "crate": crate_address}


def fetch(directory, kind, name, version):
    """Downloads and unpacks a package, unless it is there."""
    place = directory / f"{kind}-{name.replace('/', '-')}-{version}"
    if place.exists():
        return place
    archive = directory / "package"
    archive.write_bytes(get(ADDRESSES[kind](name, version)))
    unpacked = directory / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    if kind == "go":
        with zipfile.ZipFile(archive) as files:
            files.extractall(unpacked)
    else:
        with tarfile.open(archive) as files:
            files.extractall(unpacked, filter="data")
    archive.unlink()
    unpacked.rename(place)
    return place


def kind_of(path):
    with open(path, "rb") as file:
        head = file.read(4096)
    if head[:4] in (b"hsqs", b"sqsh", b"qshs", b"shsq"):
        return "squashfs"
    if head[1024:1028] == b"\xe2\xe1\xf5\xe0":
        return "erofs"
    if head[3:11] == b"EXFAT   ":
        return "exfat"
    if head[32:42] == b"SIF_MAGIC\0":
        return "sif"
    if head[:4] == b"PK\x03\x04":
        return "zip"
    if head[257:262] == b"ustar":
        return "tar"
    compressed = head[:2] == b"\x1f\x8b" or head[:4] == b"\x28\xb5\x2f\xfd" or head[:3] == b"BZh"
    if compressed or head[:6] == b"\xfd7zXZ\0":
        listed = run("bsdtar", "-tf", path)
        is_tar = listed.returncode == 0 and listed.stdout.strip()
        return "tar" if is_tar else None
    return None


def run(*command):
    try:
        return subprocess.run(
            command, capture_output=True, timeout=120, stdin=subprocess.DEVNULL, env=ENVIRONMENT
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, b"", b"no end after 120 s")


def read_squashfs(image, out, offset=0):
    # Version 4 only: what unsquashfs reads of older versions, others do not.
    return run("unsquashfs", "-q", "-n", "-strict-errors", "-o", str(offset), "-d", out, image)


def read_sif(image, out):
    """Finds the primary partition, and hands it to the reader of its format."""
    with open(image, "rb") as file:
        data = file.read()
    if len(data) < 128:
        return subprocess.CompletedProcess([], 1, b"", b"no header")
    total, offset = struct.unpack_from("<q", data, 88)[0], struct.unpack_from("<q", data, 96)[0]
    for index in range(min(total, 1024)):
        at = offset + index * 585
        if at + 585 > len(data):
            break
        kind, used = struct.unpack_from("<iB", data, at)
        start, size = struct.unpack_from("<qq", data, at + 17)
        extra = at + 585 - 384
        format_, role = struct.unpack_from("<ii", data, extra)
        if used and kind == 0x4004 and role in (1, 2) and format_ == 1 and size > 0:
            return read_squashfs(image, out, start)
    return subprocess.CompletedProcess([], 1, b"", b"no partition")


def read_erofs(image, out):
    return run("fsck.erofs", f"--extract={out}", "--preserve", image)


def read_exfat(image, out):
    # exfat-fuse opens nothing but block devices.
    device = run("losetup", "--read-only", "--find", "--show", image).stdout.decode().strip()
    mounted = tempfile.mkdtemp()
    done = run("mount.exfat-fuse", "-o", "ro", device, mounted)
    if done.returncode == 0:
        shutil.copytree(mounted, out)
        run("umount", mounted)
    run("losetup", "--detach", device)
    os.rmdir(mounted)
    return done


def read_archive(image, out):
    os.mkdir(out)
    return run("bsdtar", "-xpf", image, "--numeric-owner", "-C", out)


READERS = {
    "squashfs": read_squashfs,
    "sif": read_sif,
    "erofs": read_erofs,
    "exfat": read_exfat,
    "tar": read_archive,
    "zip": read_archive,
}


def tree(top, kind):
    """Returns what is below a directory: by path, everything that the format keeps."""
    found = {}
    for directory, names, files in os.walk(top):
        for name in names + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, top)] = entry(path, kind)
    return found


def entry(path, kind):
    info = os.lstat(path)
    seen = [stat.S_IFMT(info.st_mode)]
    if kind not in ("exfat", "zip"):
        seen += [info.st_uid, info.st_gid]
        # Readers disagree about the mode of links, which has no effect.
        seen.append(0 if stat.S_ISLNK(info.st_mode) else stat.S_IMODE(info.st_mode) & 0o1777)
    if stat.S_ISREG(info.st_mode):
        # Times of directories are those of the members in them for some readers.
        seen.append(int(info.st_mtime) if kind not in ("exfat", "zip") else 0)
        with open(path, "rb") as file:
            seen.append(hashlib.file_digest(file, "sha256").hexdigest())
    elif stat.S_ISLNK(info.st_mode):
        seen.append(os.readlink(path))
    elif stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode):
        seen.append(info.st_rdev)
    return seen


def differences(ours, theirs):
    for path in sorted(ours.keys() | theirs.keys()):
        if ours.get(path) != theirs.get(path):
            yield f"{path}: {ours.get(path)} here, {theirs.get(path)} there"


def compare(forerun, image, kind, place):
    """Returns what is wrong about an image, as lines, and whether the reference reads it."""
    out = {name: os.path.join(place, name) for name in ("theirs", "ours", "tar")}
    theirs = READERS[kind](image, out["theirs"])
    commands = {
        "ls": run(forerun, "ls", "-lR", image),
        "check": run(forerun, "check", image),
        "extract": run(forerun, "extract", "-q", "--keep", "all", "-C", out["ours"], image),
        "tar": run(forerun, "tar", "-q", "-o", out["tar"] + ".tar", image),
    }
    wrong = []
    for name, done in commands.items():
        if done.returncode not in range(0, 128) or b"panicked" in done.stderr:
            wrong.append(f"{name} ended with {done.returncode}: {last(done.stderr)}")
    if theirs.returncode != 0:
        return wrong, False
    for name, done in commands.items():
        # Exit status 1 of check means warnings and damage that forerun found in what others read.
        if done.returncode != 0 and not (name == "check" and done.returncode == 1):
            wrong.append(f"{name} refused: {last(done.stderr)}")
    if wrong:
        return wrong, True
    expected = tree(out["theirs"], kind)
    wrong += differences(tree(out["ours"], kind), expected)
    os.mkdir(out["tar"])
    unpacked = run("tar", "-xpf", out["tar"] + ".tar", "--numeric-owner", "-C", out["tar"])
    if unpacked.returncode != 0:
        wrong.append(f"GNU tar refuses the archive: {last(unpacked.stderr)}")
    wrong += [f"tar: {line}" for line in differences(tree(out["tar"], kind), expected)]
    listed = commands["ls"].stdout.count(b"\n")
    if listed < len(expected):
        wrong.append(f"ls has {listed} lines for {len(expected)} files")
    return wrong, True


def last(output):
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def sources():
    packages, explained = [], []
    for line in (HERE / "field.txt").read_text().splitlines():
        words = line.split(None, 2)
        if words and words[0] in ADDRESSES:
            packages.append(words)
        elif words and words[0] == "differs":
            explained.append((words[1], words[2]))
    return packages, explained


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    forerun = os.path.abspath(sys.argv[1])
    directory = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else tempfile.mkdtemp())
    directory.mkdir(exist_ok=True, parents=True)
    packages, explained = sources()
    seen, counts, failed = set(), {}, 0
    for package in packages:
        place = fetch(directory, *package)
        for path in sorted(place.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
                continue
            digest = hashlib.sha256(path.read_bytes()).digest()
            kind = kind_of(path) if digest not in seen else None
            if kind is None:
                continue
            seen.add(digest)
            with tempfile.TemporaryDirectory() as work:
                wrong, is_read = compare(forerun, str(path), kind, work)
            count = counts.setdefault(kind, [0, 0])
            count[0] += 1
            count[1] += is_read
            name = str(path.relative_to(directory))
            reasons = [reason for glob, reason in explained if fnmatch.fnmatch(name, glob)]
            if wrong and reasons:
                print(f"{name}: explained: {reasons[0]}")
            elif wrong:
                failed += 1
                print(f"{name} ({kind}): " + "\n    ".join(wrong[:5]), flush=True)
    for kind, (images, read) in sorted(counts.items()):
        print(f"{kind}: {images} files, {read} of which the reference reads")
    print(f"{sum(count[0] for count in counts.values())} files, {failed} differ")
    sys.exit(failed != 0)


main()
