#!/usr/bin/env python3
"""Prints the licences of everything that is linked into a build of forerun: crates, and the C libraries that crates bring.

Usage: packaging/licences.py PACKAGE [ARGUMENT...], from the root of the source tree, with the arguments of packaging/sbom.py. Texts that are the same
are printed once. A crate without a text is an error.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from sbom import read_tree  # noqa: E402

TEXT = re.compile(r"(licen[cs]e|copying|notice|copyright|unlicense)(?!.*\.(rs|sh|py)$)", re.IGNORECASE)
# Offered besides a licence without conditions, or those of programs and scripts that are not linked.
LEFT_OUT = re.compile(r"zstd/COPYING|xz/COPYING\.(GPL|LGPL).*")
STANDARD_LIBRARY = "The standard library of Rust, (c) The Rust Project Contributors, is under MIT OR Apache-2.0 as well: https://www.rust-lang.org/policies/licenses"
MUSL = "The C library musl, Copyright (c) 2005-2025 Rich Felker, et al., is under MIT: https://git.musl-libc.org/cgit/musl/tree/COPYRIGHT"


def texts_of(directory):
    """Returns the licence texts of a crate, by their path in it. Those of C libraries lie below its top."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_file() and TEXT.match(path.name) and not LEFT_OUT.fullmatch(name):
            lines = [line.rstrip() for line in path.read_text(errors="replace").strip("\n").splitlines()]
            found[name] = "\n".join(lines)
    return found


def host():
    """Returns cargo's name of this machine."""
    about = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.search("^host: (.*)$", about, re.MULTILINE)[1]


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        sys.exit("usage: packaging/licences.py PACKAGE [ARGUMENT OF CARGO...]")
    _, components, _ = read_tree(arguments)
    # Otherwise cargo would download crates of other systems.
    target = arguments[arguments.index("--target") + 1] if "--target" in arguments else host()
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features", "--filter-platform", target]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["packages"]
    described = {(package["name"], package["version"]): package for package in packages}
    # The crates of the workspace have the licence of forerun itself.
    crates = [described[part["name"], part["version"]] for part in components.values()]
    crates = [crate for crate in crates if crate["source"]]
    texts = {crate["id"]: texts_of(Path(crate["manifest_path"]).parent) for crate in crates}
    users, printed = {}, {}
    for crate in sorted(crates, key=lambda crate: (crate["name"], crate["version"])):
        own = texts[crate["id"]]
        # Some crates leave the text at the top of a repository of several crates.
        siblings = [texts[other["id"]] for other in crates if other["repository"] == crate["repository"]]
        own = own or next((text for text in siblings if text), None)
        if not own:
            sys.exit(f"{crate['name']} {crate['version']} ({crate['license']}) brings no text of its licence")
        for name, text in own.items():
            # Copies of a licence differ in their line breaks.
            text = printed.setdefault("".join(text.split()).lower(), text)
            users.setdefault(text, []).append(f"{crate['name']} {crate['version']} ({crate['license']}): {name}")
    print("Licences of the libraries in this program.\n")
    print(STANDARD_LIBRARY)
    if "musl" in target:
        print(MUSL)
    for text, names in users.items():
        print("\n" + "=" * 80, *names, "-" * 80, text, sep="\n")


main(sys.argv[1:])
