#!/usr/bin/env python3
"""Compares how strict readers are: changes one field of a real image at a time, and has the kernel, the
reference reader and forerun read all of it.

    sudo tools/strictness.py PATH-OF-FORERUN [squashfs|erofs|packed|cramfs|romfs|exfat]...

Prints the rows of docs/formats/strictness.md. Needs root and loop devices, mksquashfs and unsquashfs,
mkfs.erofs and fsck.erofs; for compressed EROFS (packed) those of version 1.9. It mounts below a
temporary directory and unmounts what it mounts. For cramfs it needs mkfs.cramfs and fsck.cramfs. For
exFAT and romfs it needs fsck.exfat and genromfs, and the kernel that `cargo xtask guest-kernel`
unpacks: the volumes are mounted in a virtual machine. No kernel at hand has cramfs, and no program
but the kernel reads romfs.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib


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
        if self.kind == "cramfs":
            return self.reference(image)
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
        if self.kind == "cramfs":
            return self.extracted("fsck.cramfs", "--extract=OUT", image)
        # Without a path, fsck.erofs 1.9 takes the packed inode for the root; 1.5 does not know the option.
        path = ["--path=/"] if "--path" in run("fsck.erofs", "--help")[1] else []
        return self.extracted("fsck.erofs", "--extract=OUT", *path, "--preserve-perms", "--force", image)

    def own(self, image):
        return self.extracted(
            self.forerun, "extract", "-q", "--keep", "privileged-xattrs,special-bits", "-C", "OUT", image
        )

    def check(self, image):
        code, said = run(self.forerun, "check", image)
        if "error:" in said:
            return "error"
        if code not in (0, 1):
            return "refuses"
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
    # A basic file: 16 bytes of header, then start of blocks, fragment, offset in it, length, words of blocks.
    for at in files:
        if struct.unpack_from("<H", image, at)[0] != 2:
            continue
        start, fragment, offset, length = struct.unpack_from("<IIII", image, at + 16)
        label = "file" if fragment == 0xFFFFFFFF else "file with fragment"
        words = length // 16384 + (fragment == 0xFFFFFFFF and length % 16384 > 0)
        fields = [
            ("start_block", 16, (0, 1, start + 1, 0xFFFFFFFF)),
            ("fragment", 20, (0, 1, 5, 0xFFFFFFFE, 0xFFFFFFFF)),
            # An offset of 2^31 and more crashes Linux 6.18.
            ("offset", 24, (0, offset + 1, 16383, 16384, 0x7FFFFFFF)),
            ("file_size", 28, (0, 1, length - 1, length + 1, length * 2, 0xFFFFFFFF)),
        ]
        for word in range(words):
            (old,) = struct.unpack_from("<I", image, at + 32 + 4 * word)
            values = 0, 1, old - 1, old + 1, old ^ 1 << 24, 1 << 24, 16384, 16385, 1 << 24 | 16384, 1 << 25 | old
            fields.append((f"block {word}", 32 + 4 * word, values + (0xFFFFFFFF,)))
        for name, place, values in fields:
            for value in values:
                yield f"{label} at {at:#x}: {name} = {value:#x}", patched(image, at + place, "I", value)
    table = struct.unpack_from("<Q", image, 80)[0]
    entry = struct.unpack_from("<Q", image, table)[0] + 2
    (start, size) = struct.unpack_from("<QI", image, entry)
    for name, at, form, values in [
        ("start", 0, "Q", (0, 1, start + 1, 1 << 40, (1 << 64) - 1)),
        ("size", 8, "I", (0, 1, size - 1, size + 1, size ^ 1 << 24, 16384, 16385, 1 << 25 | size, 0xFFFFFFFF)),
        ("unused", 12, "I", (1, 0xFFFFFFFF)),
    ]:
        for value in values:
            yield f"fragment entry: {name} = {value:#x}", patched(image, entry + at, form, value)
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


# The images of compressed EROFS, by the options that make them.
PACKED = ["-zlz4", "-zlz4hc -C65536 -Elegacy-compress", "-zlz4hc -Eztailpacking", "-zlzma -C65536 -Eall-fragments", "-zdeflate -C16384 -Efragments,dedupe"]


def packed_cases(image):
    """Fields of compressed EROFS: settings of codecs, headers of maps and their indexes."""
    incompat = struct.unpack_from("<I", image, 1024 + 80)[0]
    for bit in range(8):
        yield f"feature_incompat ^ {1 << bit:#x}", patched(image, 1024 + 80, "I", incompat ^ 1 << bit)
    for value in (0, 1, 2, 4, 15, 16, 0xFFFF):
        yield f"available_compr_algs = {value:#x}", patched(image, 1024 + 84, "H", value)
    if incompat & 2:
        for at in range(0, 16, 2):
            (old,) = struct.unpack_from("<H", image, 1152 + at)
            for value in (0, 1, old + 1, 0xFFFF):
                yield f"settings of the codec at {at} = {value:#x}", patched(image, 1152 + at, "H", value)
    for name, inode in erofs_files(image):
        form, count = struct.unpack_from("<HH", image, inode)
        layout, size = form >> 1 & 7, 64 if form & 1 else 32
        if layout not in (1, 3):
            continue
        head = (inode + size + (12 + 4 * (count - 1) if count else 0) + 7) & ~7
        for field, at, kind, values in [
            ("size", inode + 8, "I", None),
            ("compressed blocks", inode + 16, "I", None),
            ("idata_size", head + 2, "H", None),
            ("fragmentoff", head, "I", None),
            ("algorithmtype", head + 6, "B", (0, 1, 2, 3, 4, 0x10, 0x11, 0xFF)),
            ("clusterbits", head + 7, "B", (0, 1, 7, 8, 0x10, 0x80, 0xFF)),
        ]:
            (old,) = struct.unpack_from("<" + kind, image, at)
            for value in values or (0, 1, old + 1, old * 2, (1 << 8 * struct.calcsize(kind)) - 1):
                yield f"{name}: {field} = {value:#x} (was {old:#x})", patched(image, at, kind, value)
        (advise,) = struct.unpack_from("<H", image, head + 4)
        for bit in range(8):
            yield f"{name}: advise ^ {1 << bit:#x}", patched(image, head + 4, "H", advise ^ 1 << bit)
        for at in range(8, 32, 2):
            (old,) = struct.unpack_from("<H", image, head + at)
            for value in (0, 1, old ^ 0x1000, old ^ 0x2000, old + 1, 0xFFFF):
                yield f"{name}: index at {at} = {value:#x} (was {old:#x})", patched(image, head + at, "H", value)


def erofs_files(image):
    """Returns the names in the root of an EROFS image, and where their inodes are."""
    nid, meta = struct.unpack_from("<H", image, 1024 + 14)[0], struct.unpack_from("<I", image, 1024 + 40)[0]
    place = lambda nid: (meta << image[1024 + 12]) + nid * 32
    root = place(nid)
    count = struct.unpack_from("<H", image, root + 2)[0]
    entries = root + (64 if image[root] & 1 else 32) + (12 + 4 * (count - 1) if count else 0)
    total = struct.unpack_from("<H", image, entries + 8)[0] // 12
    starts = [struct.unpack_from("<QHB", image, entries + 12 * n) for n in range(total)]
    ends = [start[1] for start in starts[1:]] + [struct.unpack_from("<I", image, root + 8)[0]]
    for (nid, start, kind), end in zip(starts, ends):
        if kind == 1:
            yield image[entries + start : entries + end].split(bytes(1))[0].decode(), place(nid)


def cramfs_cases(image):
    """Fields of the superblock, of the inodes, and of the pointers of blocks."""
    edition = ("crc", 32), ("edition", 36), ("blocks", 40), ("files", 44)
    for name, at in (("size", 4), ("flags", 8), ("future", 12)) + edition:
        (old,) = struct.unpack_from("<I", image, at)
        for value in (0, 1, old + 1, old * 2, old ^ 0x100, old ^ 2, 0xFFFFFFFF):
            yield f"{name} = {value:#x} (was {old:#x})", patched(image, at, "I", value)
    yield "signature", patched(image, 16, "B", 0)
    root = 64
    start, size = (struct.unpack_from("<I", image, root + 8)[0] >> 6) * 4, struct.unpack_from("<I", image, root + 4)[0] & 0xFFFFFF
    inodes, at = [("root", root)], start
    while at < start + size:
        (word,) = struct.unpack_from("<I", image, at + 8)
        length = (word & 63) * 4
        inodes.append((image[at + 12 : at + 12 + length].rstrip(bytes(1)).decode(), at))
        at += 12 + length
    for name, at in inodes:
        mode, uid, sizes, word = struct.unpack_from("<HHII", image, at)
        for field, where, form, values in [
            ("mode", 0, "H", (0, mode ^ 0x1000, mode & 0xFFF, 0o100644, 0o120777, 0o160000)),
            ("uid", 2, "H", (0xFFFF,)),
            ("size", 4, "I", (sizes & 0xFF000000, sizes + 1, sizes - 1 & 0xFFFFFFFF, sizes + 4096, sizes | 0xFFFFFF)),
            ("name length", 8, "I", (word & ~63, word + 1, word - 1 & 0xFFFFFFFF, word | 63)),
            ("offset", 8, "I", (word & 63, word + 64, word - 64 & 0xFFFFFFFF, word | ~63 & 0xFFFFFFFF)),
        ]:
            for value in values:
                yield f"{name}: {field} = {value:#x}", patched(image, at + where, form, value)
        if name != "root":
            for byte in (ord("/"), 0, ord("z"), ord("b")):
                yield f"{name}: first byte of the name = {byte:#x}", patched(image, at + 12, "B", byte)
        if mode & 0o170000 == 0o100000:
            table = (word >> 6) * 4
            for n in range((sizes & 0xFFFFFF) // 4096 + 1):
                (old,) = struct.unpack_from("<I", image, table + 4 * n)
                for value in (0, 1, old - 1, old + 1, old | 1 << 30, old | 1 << 31, len(image), 0xFFFFFFFF):
                    yield f"{name}: block {n} = {value:#x} (was {old:#x})", patched(image, table + 4 * n, "I", value)


def romfs_cases(image):
    """Fields of the superblock and of the headers."""
    name_end = lambda at: (image.index(0, at) // 16 + 1) * 16
    for field, at in (("full_size", 8), ("checksum", 12)):
        (old,) = struct.unpack_from(">I", image, at)
        for value in (0, 1, 511, old + 1, old - 1, old * 2, 0xFFFFFFFF):
            yield f"{field} = {value:#x} (was {old:#x})", romfs_patched(image, at, value, field == "checksum")
    yield "volume name without end", image[:16] + b"x" * (len(image) - 16)
    todo, headers = [name_end(16)], []
    while todo:
        at = todo.pop()
        if at in headers or at == 0:
            continue
        headers.append(at)
        next, info = struct.unpack_from(">II", image, at)
        todo += [next & ~15] + [info] * (next & 7 == 1)
    for at in headers:
        next, info, size, total = struct.unpack_from(">IIII", image, at)
        name = image[at + 16 : image.index(0, at + 16)].decode()
        for field, where, values in [
            ("kind", 0, [next & ~7 | kind for kind in range(8) if kind != next & 7] + [next ^ 8]),
            ("next", 0, (next & 15, at | next & 15, next & 15 | 16, next & 15 | len(image), next | ~15 & 0xFFFFFFFF)),
            ("info", 4, (0, 1, 16, at, info + 16, len(image), 0xFFFFFFFF)),
            ("size", 8, (0, 1, size + 1, len(image), 0xFFFFFFFF)),
            ("checksum", 12, (0, total + 1)),
        ]:
            for value in values:
                changed = romfs_patched(image, at + where, value, field == "checksum", at)
                # Linux does not come back from a hard link that leads to itself.
                if all(romfs_link_ends(changed, header) for header in headers):
                    yield f"{name} at {at:#x}: {field} = {value:#x}", changed
        for byte in (0, ord("/"), ord("z")):
            changed = bytearray(image)
            changed[at + 16] = byte
            yield f"{name} at {at:#x}: first byte of the name = {byte:#x}", romfs_sealed(changed, at)


def romfs_link_ends(image, at):
    for _ in range(100):
        if at + 16 > len(image) or image[at + 3] & 7 != 0:
            return True
        at = struct.unpack_from(">I", image, at + 4)[0] & ~15
    return False


def romfs_patched(image, at, value, is_sum, header=0):
    out = bytearray(image)
    struct.pack_into(">I", out, at, value & 0xFFFFFFFF)
    return bytes(out) if is_sum else romfs_sealed(out, header)


def romfs_sealed(out, header):
    """Makes the checksums of a header and of the superblock right again."""
    for at, end in ((header, (bytes(out).find(0, header + 16) // 16 + 1) * 16), (0, min(512, len(out)))):
        struct.pack_into(">I", out, at + 12, 0)
        total = sum(struct.unpack_from(f">{(end - at) // 4}I", out, at)) if end > at else 0
        struct.pack_into(">I", out, at + 12, -total & 0xFFFFFFFF)
    return bytes(out)


def main():
    forerun = os.path.abspath(sys.argv[1])
    kinds = sys.argv[2:] or ["squashfs", "erofs"]
    with tempfile.TemporaryDirectory(prefix="strictness-") as work:
        top = os.path.join(work, "tree")
        os.mkdir(top)
        populate(top)
        sound = tree(top)[0]
        for kind in kinds:
            if kind == "exfat":
                compare_exfat(forerun, work)
            elif kind == "romfs":
                compare_romfs(forerun, work)
            elif kind == "packed":
                for options in PACKED:
                    compare(forerun, "erofs", work, top, sound, options.split())
            else:
                compare(forerun, kind, work, top, sound)


def compare(forerun, kind, work, top, sound, options=()):
    is_squashfs = kind == "squashfs"
    path = os.path.join(work, "image")
    if is_squashfs:
        code, said = run("mksquashfs", top, path, "-noappend", "-quiet", "-no-progress", "-noI", "-noX", "-b", "16384")
    elif kind == "cramfs":
        code, said = run("mkfs.cramfs", top, path)
    else:
        code, said = run("mkfs.erofs", "-x1", *options, path, top)
    if code != 0:
        sys.exit(said)
    with open(path, "rb") as file:
        image = file.read()
    cases = []
    for name, at, form in superblock_fields(is_squashfs) if kind != "cramfs" and not options else ():
        limit = (1 << 8 * struct.calcsize("<" + form)) - 1
        (old,) = struct.unpack_from("<" + form, image, at)
        for value in sorted({0, 1, old + 1, len(image), limit} - {old}):
            if value <= limit:
                cases.append((f"{name} = {value:#x}", patched(image, at, form, value), name))
    if is_squashfs:
        own = squashfs_cases(image)
    elif kind == "cramfs":
        own = cramfs_cases(image)
    else:
        own = packed_cases(image) if options else erofs_cases(image)
    cases += [(name, changed, "") for name, changed in own]
    readers = Readers(forerun, kind, work)
    print(f"## {' '.join([kind, *options])}\n\n| field | kernel | reference | forerun | check |\n|---|---|---|---|---|", flush=True)
    for name, changed, field in [("as it is", image, "")] + cases:
        if kind == "erofs" and field != "checksum":
            changed = with_checksum(changed)
        if kind == "cramfs" and not name.startswith("crc"):
            changed = bytearray(changed)
            struct.pack_into("<I", changed, 32, 0)
            struct.pack_into("<I", changed, 32, zlib.crc32(changed))
            changed = bytes(changed)
        if changed == image and name != "as it is":
            continue
        with open(path, "wb") as file:
            file.write(changed)
        # fsck.erofs extracts no xattrs before 1.9, and cramfs has none.
        parts = 3 if is_squashfs else 2
        own_parts = 2 if kind == "cramfs" else 3
        results = [
            verdict(readers.kernel(path), sound, own_parts),
            verdict(readers.reference(path), sound, parts),
            verdict(readers.own(path), sound, own_parts),
        ]
        mark = stricter(results)
        print(f"| {name}{mark} | {' | '.join(results)} | {readers.check(path)} |", flush=True)


# What the guest runs: mounts each volume of the disk, and prints the files with their sums.
GUEST = """
n=0
while [ $n -lt COUNT ]; do
  losetup -o $((n * LENGTH)) /dev/loop0 /dev/vda
  echo "CASE $n"
  if mount -t KIND -o OPTIONS /dev/loop0 /mnt 2> /dev/null; then
    echo MOUNTED
    timeout 5 find /mnt ! -path /mnt 2> /tmp/errors | while read -r name; do
      if [ -h "$name" ]; then echo "ENTRY $name other"
      elif [ -d "$name" ]; then echo "ENTRY $name dir"
      elif [ ! -f "$name" ]; then echo "ENTRY $name other"
      elif sum=$(md5sum "$name" 2> /dev/null); then echo "ENTRY $name ${sum%% *}"
      else echo "FAILED $name"
      fi
    done
    [ -s /tmp/errors ] && echo "FAILED listing"
    umount /mnt
  fi
  losetup -d /dev/loop0
  n=$((n + 1))
done
"""


class Exfat:
    """A small volume, and changes of it."""

    def __init__(self, image):
        self.image = image
        word = lambda at: struct.unpack_from("<I", image, at)[0]
        self.sector = 1 << image[108]
        self.cluster = self.sector << image[109]
        self.fat, self.heap = word(80) * self.sector, word(88) * self.sector
        self.root = self.at(word(96))

    def at(self, cluster):
        return self.heap + (cluster - 2) * self.cluster

    def entry(self, kind):
        for at in range(self.root, self.root + self.cluster, 32):
            if self.image[at] == kind:
                return at

    def set_of(self, name):
        units = name.encode("utf-16-le") + bytes(2)
        for at in range(self.root, len(self.image), 32):
            set = self.image[at : at + 96]
            if set[0] == 0x85 and set[32] == 0xC0 and set[66:].startswith(units):
                return at
        raise KeyError(name)

    def changed(self, *changes):
        """Returns the image with fields changed: offset, format, value."""
        out = self.image
        for change in changes:
            out = patched(out, *change)
        return out

    def sealed(self, at, *changes):
        """Returns the image with fields of the set at `at` changed, and the right checksum."""
        out = bytearray(self.changed(*changes))
        total = 0
        for n, byte in enumerate(out[at : at + 32 * (1 + out[at + 1])]):
            if n not in (2, 3):
                total = ((total << 15 | total >> 1) + byte) & 0xFFFF
        struct.pack_into("<H", out, at + 2, total)
        return bytes(out)

    def booted(self, *changes):
        """Returns the image with fields of both boot sectors changed, and the right checksums."""
        out = bytearray(self.image)
        for region in (0, 12 * self.sector):
            for at, form, value in changes:
                size = struct.calcsize("<" + form)
                struct.pack_into("<" + form, out, region + at, value % (1 << 8 * size))
            total = 0
            for n, byte in enumerate(out[region : region + 11 * self.sector]):
                if n not in (106, 107, 112):
                    total = ((total << 31 | total >> 1) + byte) & 0xFFFFFFFF
            for at in range(0, self.sector, 4):
                struct.pack_into("<I", out, region + 11 * self.sector + at, total)
        return bytes(out)

    def boot_cases(self):
        layout = "MustBeZero:B@11 PartitionOffset:Q@64 VolumeLength:Q@72 FatOffset:I@80 FatLength:I@84"
        layout += " ClusterHeapOffset:I@88 ClusterCount:I@92 FirstClusterOfRootDirectory:I@96"
        layout += " VolumeSerialNumber:I@100 FileSystemRevision:H@104 VolumeFlags:H@106"
        layout += " BytesPerSectorShift:B@108 SectorsPerClusterShift:B@109 NumberOfFats:B@110"
        layout += " DriveSelect:B@111 PercentInUse:B@112 BootCode:B@200 BootSignature:H@510"
        layout += " ExtendedBootSignature:I@1020"
        yield "JumpBoot = 0", self.booted((0, "H", 0))
        yield "FileSystemName", self.booted((3, "B", 0))
        for field in layout.split():
            name, rest = field.split(":")
            form, at = rest.split("@")
            at, limit = int(at), (1 << 8 * struct.calcsize("<" + form)) - 1
            (old,) = struct.unpack_from("<" + form, self.image, at)
            for value in sorted({0, 1, 2, 3, 4, 8, old - 1, old + 1, old * 2, limit} - {old}):
                if 0 <= value <= limit:
                    yield f"{name} = {value:#x} (was {old:#x})", self.booted((at, form, value))
        yield "checksum of the main region", self.changed((11 * self.sector, "I", 1))
        yield "both checksums", self.changed((11 * self.sector, "I", 1), (23 * self.sector, "I", 1))
        yield "backup region", self.changed((12 * self.sector, "I", 1))
        yield "main region is zero", bytes(12 * self.sector) + self.image[12 * self.sector :]

    def system_cases(self):
        bitmap, table, label = (self.entry(kind) for kind in (0x81, 0x82, 0x83))
        for name, at, form, values in [
            ("bitmap: type", bitmap, "B", (0x01, 0x05)),
            ("bitmap: flags", bitmap + 1, "B", (1, 2, 0xFF)),
            ("bitmap: reserved", bitmap + 2, "B", (1,)),
            ("bitmap: first cluster", bitmap + 20, "I", (0, 1, 3, 0xFFFFFFFF)),
            ("bitmap: length", bitmap + 24, "Q", (0, 1, 100, 4096, 1 << 40)),
            ("table: type", table, "B", (0x02, 0x05)),
            ("table: reserved", table + 1, "B", (1,)),
            ("table: checksum", table + 4, "I", (0, 1)),
            ("table: first cluster", table + 20, "I", (0, 1, 2, 0xFFFFFFFF)),
            ("table: length", table + 24, "Q", (0, 1, 2, 5835, 200000, 1 << 40)),
            ("label: length", label + 1, "B", (0, 1, 11, 12, 255)),
            ("label: type", label, "B", (0x03, 0x05)),
        ]:
            for value in values:
                yield f"{name} = {value:#x}", self.changed((at, form, value))
        first = struct.unpack_from("<I", self.image, table + 20)[0]
        yield "table: bytes", self.changed((self.at(first) + 200, "H", 7))
        yield "table: bytes of ASCII", self.changed((self.at(first) + 0x61 * 2, "H", 0x61))
        free = self.set_of("z") + 96
        spare = {
            "second bitmap": self.image[bitmap : bitmap + 32],
            "second table": self.image[table : table + 32],
            "second label": self.image[label : label + 32],
            "bitmap of a second FAT": b"\x81\x01" + self.image[bitmap + 2 : bitmap + 32],
            "unknown critical entry": b"\x84" + bytes(31),
            "unknown critical entry 0x9f": b"\x9f" + bytes(31),
            "unknown benign entry": b"\xa5" + bytes(31),
            "GUID": b"\xa0" + bytes(31),
            "padding of TexFAT": b"\xa1" + bytes(31),
            "type 0x80": b"\x80" + bytes(31),
            "secondary entry alone": b"\xc0" + bytes(31),
            "name entry alone": b"\xc1" + bytes(31),
        }
        for name, entry in spare.items():
            yield f"root: {name}", self.image[:free] + entry + self.image[free + 32 :]
            behind = free + 256
            yield f"root: {name}, behind the end", self.image[:behind] + entry + self.image[behind + 32 :]
        directory = self.at(struct.unpack_from("<I", self.image, self.set_of("dir") + 52)[0])
        for name in ["unknown critical entry", "unknown benign entry", "second bitmap", "second label", "type 0x80"]:
            at = directory + 3 * 96
            yield f"dir: {name}", self.image[:at] + spare[name] + self.image[at + 32 :]
        root = struct.unpack_from("<I", self.image, 96)[0]
        for name, word in [("0", 0), ("1", 1), ("itself", root), ("bad", 0xFFFFFFF7), ("0xfffffff8", 0xFFFFFFF8), ("far", 0x0FFFFFFF)]:
            yield f"FAT of the root = {name}", self.changed((self.fat + root * 4, "I", word))
        for index, value in [(0, 0), (1, 0)]:
            yield f"FAT word {index} = {value}", self.changed((self.fat + index * 4, "I", value))

    def set_cases(self):
        for owner in ["a", "dir"]:
            at = self.set_of(owner)
            for name, offset, form, values in [
                ("SecondaryCount", 1, "B", (0, 1, 3, 18, 19, 255)),
                ("FileAttributes", 4, "H", (0, 1, 6, 8, 0x10, 0x20, 0x40, 0x400, 0xFFFF)),
                ("Reserved1", 6, "H", (1,)),
                ("create time", 8, "I", (0, 0xFFFFFFFF)),
                ("change time", 12, "I", (0, 0xFFFFFFFF)),
                ("create 10ms", 20, "B", (200, 255)),
                ("UtcOffset", 23, "B", (0, 0x7F, 0xFF)),
                ("Reserved2", 25, "B", (1,)),
                ("stream type", 32, "B", (0xC1, 0x40, 0xE0, 0)),
                ("stream flags", 33, "B", (0, 1, 2, 3, 0xFF)),
                ("stream Reserved1", 34, "B", (1,)),
                ("NameLength", 35, "B", (0, 2, 15, 16, 255)),
                ("NameHash", 36, "H", (0, 1)),
                ("stream Reserved2", 38, "H", (1,)),
                ("ValidDataLength", 40, "Q", (0, 1, 100, 1 << 20, 1 << 63)),
                ("stream Reserved3", 48, "I", (1,)),
                ("FirstCluster", 52, "I", (0, 1, 2, 0xFFFFFFF7, 0xFFFFFFFF)),
                ("DataLength", 56, "Q", (0, 1, 100, 3000, 1 << 20, 1 << 40, 1 << 63)),
                ("name type", 64, "B", (0xC0, 0x41, 0xE1, 0)),
                ("name flags", 65, "B", (1, 3)),
                ("name unit", 66, "H", (0, 1, 0x2F, 0x3A, 0x2E, 0xD800)),
            ]:
                for value in values:
                    yield f"{owner}: {name} = {value:#x}", self.sealed(at, (at + offset, form, value))
            yield f"{owner}: SetChecksum", self.changed((at + 2, "H", 1))
            first = struct.unpack_from("<I", self.image, at + 52)[0]
            for word in (0, 1, first, 0xFFFFFFF7, 0xFFFFFFF8, 0x0FFFFFFF):
                chained = (at + 33, "B", 1)
                yield f"{owner}: FAT = {word:#x}", self.sealed(at, chained, (self.fat + first * 4, "I", word))
            index = first - 2
            bits = self.at(struct.unpack_from("<I", self.image, self.entry(0x81) + 20)[0])
            byte = self.image[bits + index // 8] & ~(1 << index % 8)
            yield f"{owner}: clusters marked free", self.changed((bits + index // 8, "B", byte))
        both = self.set_of("z")
        units = self.image[self.set_of("a") + 66 : self.set_of("a") + 68]
        (unit,) = struct.unpack("<H", units)
        yield "two files of one name", self.sealed(both, (both + 66, "H", unit))
        empty = self.set_of("empty")
        for flags in (1, 3):
            changes = (empty + 52, "I", 5), (empty + 33, "B", flags)
            yield f"empty file with a cluster, flags {flags}", self.sealed(empty, *changes)


def compare_exfat(forerun, work):
    """Prints the rows of exFAT: Linux in a guest, fsck.exfat, forerun."""
    top, path = (os.path.join(work, name) for name in ("exfat", "image"))
    os.makedirs(os.path.join(top, "dir"))
    for name in ["a", "dir/b", "dir/c", "z"]:
        with open(os.path.join(top, name), "wb") as file:
            file.write(name.encode() * 3000)
    open(os.path.join(top, "empty"), "wb").close()
    code, said = run(
        forerun, "pack", "-q", "--format", "exfat", "--volume-size", "2M", "--cluster-size", "4K", "--label", "label", top, path
    )
    if code != 0:
        sys.exit(said)
    with open(path, "rb") as file:
        volume = Exfat(file.read())
    cases = [("as it is", volume.image)]
    for made in (volume.boot_cases(), volume.system_cases(), volume.set_cases()):
        cases += [(name, image) for name, image in made if image != volume.image]

    def reference(path):
        return "clean" if run("fsck.exfat", "-n", path)[0] == 0 else "damaged"

    compare_in_guest(forerun, work, "exfat", "ro,iocharset=utf8", cases, reference)


def compare_romfs(forerun, work):
    """Prints the rows of romfs: Linux in a guest, and forerun."""
    top, path = (os.path.join(work, name) for name in ("romfs", "image"))
    os.makedirs(os.path.join(top, "dir"))
    for name in ["a", "dir/b", "dir/c", "z"]:
        with open(os.path.join(top, name), "wb") as file:
            file.write(name.encode() * 3000)
    os.link(os.path.join(top, "a"), os.path.join(top, "linked"))
    code, said = run("genromfs", "-d", top, "-f", path, "-V", "name")
    if code != 0:
        sys.exit(said)
    with open(path, "rb") as file:
        image = file.read()
    cases = [("as it is", image)] + [(name, changed) for name, changed in romfs_cases(image) if changed != image]
    compare_in_guest(forerun, work, "romfs", "ro", cases, lambda _: "")


def compare_in_guest(forerun, work, kind, options, cases, reference):
    """Prints a row for each case: Linux in a guest, the reference, forerun."""
    disk, path = os.path.join(work, "disk"), os.path.join(work, "image")
    with open(disk, "wb") as file:
        for _, image in cases:
            file.write(image)
    script = os.path.join(work, "script")
    with open(script, "w") as file:
        length = str(len(cases[0][1]))
        file.write(GUEST.replace("COUNT", str(len(cases))).replace("LENGTH", length).replace("KIND", kind).replace("OPTIONS", options))
    runner = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest-run.sh")
    code, said = run(
        runner, "--mod", "loop", "--mod", kind, "--mod", "nls_utf8", "--timeout", "600", disk, script, timeout=900
    )
    if code != 0:
        sys.exit(said)
    kernel = guest_trees(said)
    sound = kernel[0][0]
    readers = Readers(forerun, kind, work)
    print(f"## {kind}\n\n| field | Linux | reference | forerun | check |\n|---|---|---|---|---|", flush=True)
    for number, (name, image) in enumerate(cases):
        with open(path, "wb") as file:
            file.write(image)
        own = readers.extracted(forerun, "extract", "-q", "-C", "OUT", path)
        if own is not None:
            entries = {key: kind_or_sum(os.path.join(work, "out", key)) for key in own[0] if key != "."}
            own = entries, own[1]
        elif run(forerun, "info", path)[0] == 0:
            own = {}, 0
        results = [verdict(kernel.get(number), sound), verdict(own, sound)]
        mark = stricter([results[0], *results])
        print(f"| {name}{mark} | {results[0]} | {reference(path)} | {results[1]} | {readers.check(path)} |", flush=True)


def kind_or_sum(path):
    if os.path.islink(path) or not os.path.exists(path):
        return "other"
    if not os.path.isfile(path):
        return "dir" if os.path.isdir(path) else "other"
    with open(path, "rb") as file:
        return hashlib.md5(file.read()).hexdigest()


def guest_trees(said):
    """Returns what the guest read, by the number of the case. Cases that it refused are left out."""
    trees, number = {}, None
    for line in said.splitlines():
        word, _, rest = line.partition(" ")
        if word == "CASE":
            number = int(rest)
        elif word == "MOUNTED":
            trees[number] = ({}, 0)
        elif word == "ENTRY":
            name, _, sum = rest.rpartition(" ")
            trees[number][0][name.removeprefix("/mnt/")] = sum
        elif word == "FAILED":
            entries, errors = trees[number]
            trees[number] = (entries, errors + 1)
    return trees


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
