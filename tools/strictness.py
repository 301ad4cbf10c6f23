#!/usr/bin/env python3
"""Compares how strict readers are: changes one field of a real image at a time, and has the kernel, the
reference reader and forerun read all of it.

    sudo tools/strictness.py PATH-OF-FORERUN [squashfs|erofs]

Prints the rows of docs/formats/strictness.md. Needs root and loop devices, mksquashfs and unsquashfs,
mkfs.erofs and fsck.erofs. It mounts below a temporary directory and unmounts what it mounts.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile


def run(*command, timeout=20):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        return 124, "timeout"


def tree(top):
    """Returns what can be read below a directory: by path, the contents or the error."""
    found, errors = {}, 0

    def failed(_):
        nonlocal errors
        errors += 1

    for directory, names, files in os.walk(top, onerror=failed):
        for name in names + files:
            path = os.path.join(directory, name)
            key = os.path.relpath(path, top)
            try:
                found[key] = what(path)
            except OSError:
                errors += 1
    return found, errors


def what(path):
    stat = os.lstat(path)
    data = b""
    if os.path.islink(path):
        data = os.readlink(path).encode()
    elif os.path.isfile(path):
        with open(path, "rb") as file:
            data = file.read()
    xattrs = {}
    for name in os.listxattr(path, follow_symlinks=False):
        xattrs[name] = os.getxattr(path, name, follow_symlinks=False)
    return oct(stat.st_mode), hashlib.sha256(data).hexdigest(), tuple(sorted(xattrs.items()))


def verdict(result, sound, parts=3):
    """Says how much of the sound tree was read: modes, contents, and as the third part xattrs."""
    if result is None:
        return "refuses"
    found, errors = result
    same = sum(1 for key, value in sound.items() if found.get(key, ())[:parts] == value[:parts])
    if same == len(sound):
        return "reads all" if errors == 0 else "reads all, with an error"
    return f"reads {same} of {len(sound)}"


class Readers:
    def __init__(self, forerun, kind, work):
        self.forerun, self.kind, self.work = forerun, kind, work

    def kernel(self, image):
        point = os.path.join(self.work, "mnt")
        os.makedirs(point, exist_ok=True)
        code, _ = run("mount", "-t", self.kind, "-o", "ro,loop", image, point)
        if code != 0:
            return None
        try:
            return tree(point)
        finally:
            run("umount", point)

    def extracted(self, *command):
        out = os.path.join(self.work, "out")
        if os.path.isfile(out):
            os.remove(out)
        shutil.rmtree(out, ignore_errors=True)
        code, _ = run(*[word.replace("OUT", out) for word in command])
        if not os.path.isdir(out):
            return None
        found, errors = tree(out)
        if not found:
            return None
        return found, errors + (code != 0)

    def reference(self, image):
        if self.kind == "squashfs":
            return self.extracted("unsquashfs", "-q", "-n", "-d", "OUT", image)
        return self.extracted("fsck.erofs", "--extract=OUT", "--preserve-perms", "--force", image)

    def own(self, image):
        return self.extracted(
            self.forerun, "extract", "-q", "--privileged-xattrs", "--special-bits", "-C", "OUT", image
        )

    def check(self, image):
        _, said = run(self.forerun, "check", image)
        if "error:" in said:
            return "error"
        return "warning" if "warning:" in said else "silent"


def populate(top):
    os.makedirs(os.path.join(top, "dir"))
    for name in ["a", "dir/b", "dir/c", "z"]:
        with open(os.path.join(top, name), "wb") as file:
            file.write(name.encode() * 3000)
    with open(os.path.join(top, "big"), "wb") as file:
        file.write(os.urandom(20000))
    os.symlink("a", os.path.join(top, "link"))
    os.setxattr(os.path.join(top, "a"), "user.one", b"value")


def superblock_fields(squashfs):
    """Returns the fields of the superblock: name, offset, bytes, and values to try."""
    if squashfs:
        layout = "inodes:I mkfs_time:I block_size:I fragments:I compression:H block_log:H flags:H no_ids:H"
        layout += " s_major:H s_minor:H root_inode:Q bytes_used:Q id_table_start:Q xattr_id_table_start:Q"
        layout += " inode_table_start:Q directory_table_start:Q fragment_table_start:Q lookup_table_start:Q"
        at = 4
    else:
        layout = "checksum:I feature_compat:I blkszbits:B sb_extslots:B root_nid:H inos:Q epoch:Q fixed_nsec:I"
        layout += " blocks_lo:I meta_blkaddr:I xattr_blkaddr:I uuid:QQ volume_name:QQ feature_incompat:I"
        layout += " available_compr_algs:H extra_devices:H devt_slotoff:H dirblkbits:B xattr_prefix_count:B"
        layout += " xattr_prefix_start:I packed_nid:Q xattr_filter_res:B reserved:BBBBBBB"
        at = 1024 + 4
    for field in layout.split():
        name, form = field.split(":")
        for one in form:
            yield name, at, one
            at += struct.calcsize("<" + one)
            break
        at += struct.calcsize("<" + form) - struct.calcsize("<" + form[0])


def patched(image, at, form, value):
    out = bytearray(image)
    struct.pack_into("<" + form, out, at, value % (1 << 8 * struct.calcsize("<" + form)))
    return bytes(out)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def with_checksum(image):
    """Makes the checksum of an EROFS superblock right again."""
    out = bytearray(image)
    if struct.unpack_from("<I", out, 1024 + 8)[0] & 1:
        struct.pack_into("<I", out, 1028, 0)
        block = 1 << out[1024 + 12]
        struct.pack_into("<I", out, 1028, crc32c(out[1024:max(block, 2048)]))
    return bytes(out)


def squashfs_cases(image):
    """Fields of the inode, directory and xattr tables, which are stored as they are (-noI -noX)."""
    inodes, listings, xattr = (struct.unpack_from("<Q", image, at)[0] for at in (64, 72, 56))
    root = inodes + 2 + (struct.unpack_from("<Q", image, 32)[0] & 0xFFFF)
    files = [inodes + 2 + at for at in positions(image, inodes + 2, listings)]
    yield "metadata header: length 0", patched(image, inodes, "H", 0x8000)
    yield "metadata header: length over 8192", patched(image, inodes, "H", 0x8000 | 9000)
    # The basic directory: 16 bytes of header, then start_block, nlink, file_size, offset, parent.
    for name, at, form in [("nlink", 20, "I"), ("file_size", 24, "H"), ("offset", 26, "H"), ("parent", 28, "I")]:
        for value in (0, 1, 2, 0xFFFF):
            yield f"root {name} = {value}", patched(image, root + at, form, value)
    file = files[0]
    for name, at, form in [("type", 0, "H"), ("mode", 2, "H"), ("uid", 4, "H"), ("number", 12, "I")]:
        for value in (0, 15, 0xFFFF):
            yield f"inode {name} = {value}", patched(image, file + at, form, value)
    # Entries of the root, after the header of 12 bytes: offset, number, type, size, name.
    start = listings + 2 + struct.unpack_from("<H", image, root + 26)[0]
    for name, at, form, values in [
        ("run count", 0, "I", (0, 2, 256, 0xFFFF)),
        ("run start", 4, "I", (1, 0xFFFF)),
        ("run number", 8, "I", (0, 0xFFFF)),
        ("entry offset", 12, "H", (1, 8192, 0xFFFF)),
        ("entry number", 14, "H", (0, 0xFFFF)),
        ("entry type", 16, "H", (0, 1, 8, 0xFFFF)),
        ("entry size", 18, "H", (1, 255, 256, 0xFFFF)),
        ("entry name /", 20, "B", (ord("/"),)),
        ("entry name NUL", 20, "B", (0,)),
        ("entry name out of order", 20, "B", (ord("y"),)),
        ("entry name twice", 20, "B", (ord("z"),)),
    ]:
        for value in values:
            yield f"{name} = {value}", patched(image, start + at, form, value)
    if xattr != 0xFFFFFFFFFFFFFFFF:
        pairs, sets = struct.unpack_from("<Q", image, xattr)[0], struct.unpack_from("<Q", image, xattr + 16)[0]
        for name, at, form, values in [
            ("xattr set place", sets + 2, "Q", (1, 1 << 40)),
            ("xattr set count", sets + 10, "I", (0, 2, 1 << 31)),
            ("xattr set size", sets + 14, "I", (0, 1, 0xFFFFFFFF)),
            ("xattr pair prefix", pairs + 2, "H", (3, 0x200)),
            ("xattr pair name length", pairs + 4, "H", (0, 300)),
            ("xattr pair value length", pairs + 9, "I", (65537,)),
            ("xattr ids", xattr + 8, "I", (0, 2, 1 << 30)),
        ]:
            for value in values:
                yield f"{name} = {value}", patched(image, at, form, value)


def positions(image, start, end):
    """Returns where inodes of files are: type 2 or 9 with a mode of a few bits."""
    table = image[start:end]
    for at in range(0, len(table) - 16):
        kind, mode = struct.unpack_from("<HH", table, at)
        if kind in (2, 9) and mode == 0o644:
            yield at


def erofs_cases(image):
    """Fields of the root's inode and of its entries."""
    bits, nid = image[1024 + 12], struct.unpack_from("<H", image, 1024 + 14)[0]
    meta = struct.unpack_from("<I", image, 1024 + 40)[0]
    root = (meta << bits) + nid * 32
    size = 64 if image[root] & 1 else 32
    for name, at, form, values in [
        ("format", 0, "H", (8, 0x20, 0xFFFF)),
        ("xattr_icount", 2, "H", (1, 0xFFFF)),
        ("mode", 4, "H", (0, 0o100644)),
        ("nlink", 6 if size == 32 else 44, "H", (0, 1, 9)),
        ("size", 8, "I", (0, 5, 1 << 30)),
        ("ino", 20, "I", (0, 9)),
    ]:
        for value in values:
            yield f"root {name} = {value}", patched(image, root + at, form, value)
    entries = root + size + 4 * ((struct.unpack_from("<H", image, root + 2)[0] + 2) if image[root + 2] else 0)
    first = struct.unpack_from("<H", image, entries + 8)[0]
    count = first // 12
    names = entries + first
    for name, at, form, values in [
        ("first nameoff", 8, "H", (0, 13, 12 * count + 12, 0xFFFF)),
        ("entry 3 nid", 36, "Q", (0, 1 << 40)),
        ("entry 3 nameoff", 44, "H", (12, first, 4000)),
        ("entry 3 type", 46, "B", (0, 2, 8)),
        ("entry 3 reserved", 47, "B", (1,)),
        ("itself", 0, "Q", (1,)),
    ]:
        for value in values:
            yield f"{name} = {value}", patched(image, entries + at, form, value)
    for name, value in [("/", ord("/")), ("NUL", 0), ("out of order", ord("y"))]:
        yield f"entry name {name}", patched(image, names + 3, "B", value)


def main():
    forerun = os.path.abspath(sys.argv[1])
    kinds = sys.argv[2:] or ["squashfs", "erofs"]
    with tempfile.TemporaryDirectory(prefix="strictness-") as work:
        top = os.path.join(work, "tree")
        os.mkdir(top)
        populate(top)
        sound = tree(top)[0]
        for kind in kinds:
            compare(forerun, kind, work, top, sound)


def compare(forerun, kind, work, top, sound):
    is_squashfs = kind == "squashfs"
    path = os.path.join(work, "image")
    if is_squashfs:
        code, said = run("mksquashfs", top, path, "-noappend", "-quiet", "-no-progress", "-noI", "-noX", "-b", "16384")
    else:
        code, said = run("mkfs.erofs", "-x1", path, top)
    if code != 0:
        sys.exit(said)
    with open(path, "rb") as file:
        image = file.read()
    cases = []
    for name, at, form in superblock_fields(is_squashfs):
        limit = (1 << 8 * struct.calcsize("<" + form)) - 1
        (old,) = struct.unpack_from("<" + form, image, at)
        for value in sorted({0, 1, old + 1, len(image), limit} - {old}):
            if value <= limit:
                cases.append((f"{name} = {value:#x}", patched(image, at, form, value), name))
    own = squashfs_cases(image) if is_squashfs else erofs_cases(image)
    cases += [(name, changed, "") for name, changed in own]
    readers = Readers(forerun, kind, work)
    print(f"## {kind}\n\n| field | kernel | reference | forerun | check |\n|---|---|---|---|---|", flush=True)
    for name, changed, field in [("as it is", image, "")] + cases:
        if not is_squashfs and field != "checksum":
            changed = with_checksum(changed)
        if changed == image and name != "as it is":
            continue
        with open(path, "wb") as file:
            file.write(changed)
        # fsck.erofs extracts no xattrs before 1.9.
        parts = 3 if is_squashfs else 2
        results = [
            verdict(readers.kernel(path), sound),
            verdict(readers.reference(path), sound, parts),
            verdict(readers.own(path), sound),
        ]
        mark = stricter(results)
        print(f"| {name}{mark} | {' | '.join(results)} | {readers.check(path)} |", flush=True)


def stricter(results):
    """Marks rows in which both others read more than forerun."""

    def share(result):
        if result.startswith("reads all"):
            return 1.0
        if result == "refuses":
            return -1.0
        _, same, _, count = result.split()
        return int(same) / int(count)

    kernel, reference, own = map(share, results)
    return " (!)" if min(kernel, reference) > own else ""


if __name__ == "__main__":
    main()
