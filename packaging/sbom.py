#!/usr/bin/env python3
"""Prints what a build of forerun consists of, as a CycloneDX 1.5 document (https://cyclonedx.org).

Usage: packaging/sbom.py PACKAGE [ARGUMENT...], from the root of the source tree. The arguments are those of cargo that choose features and the
target: `packaging/sbom.py forerun-cli --no-default-features --features measure`. Same arguments, same bytes: the document has no time and no number
of its own.

`cargo tree` knows which crates these features bring. cargo-cyclonedx was tried: it lists the crates of the whole workspace's features.
"""

import json
import re
import subprocess
import sys
import tomllib

FORMAT = "{p}|{l}"
# Depth, name, version, and where a crate of the workspace lies or what it is; a crate whose dependencies were shown before has a star.
LINE = re.compile(r"(\d+)(\S+) v(\S+)( \([^|]*\))?\|(.*?)( \(\*\))?")


def checksums():
    """Returns the SHA-256 of each package from the registry."""
    with open("Cargo.lock", "rb") as lock:
        packages = tomllib.load(lock)["package"]
    return {(p["name"], p["version"]): p["checksum"] for p in packages if "checksum" in p}


def component(name, version, licence, checksum):
    """Returns the description of one crate."""
    purl = f"pkg:cargo/{name}@{version}"
    described = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if licence:
        # Some crates write the operator OR in an old way.
        described["licenses"] = [{"expression": " ".join(licence.replace("/", " OR ").split())}]
    if checksum:
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return described


def read_tree(arguments):
    """Returns the root, the components and the dependencies by name and version."""
    # Of the program only: what builds it, or tests it, is not in it.
    command = ["cargo", "tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", FORMAT, "--package", *arguments]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    known = checksums()
    components, edges, above = {}, {}, []
    for line in lines:
        parts = LINE.fullmatch(line)
        if parts is None:
            sys.exit(f"cargo tree printed a line that is not understood: {line}")
        depth, name, version, _, licence, _ = parts.groups()
        new = component(name, version, licence, known.get((name, version)))
        of = new["bom-ref"]
        components[of] = new
        edges.setdefault(of, set())
        del above[int(depth) :]
        if above:
            edges[above[-1]].add(of)
        above.append(of)
    root = next(iter(components))
    return root, components, edges


def main(arguments):
    if not arguments or arguments[0].startswith("-"):
        sys.exit("usage: packaging/sbom.py PACKAGE [ARGUMENT OF CARGO...]")
    root, components, edges = read_tree(arguments)
    program = components.pop(root) | {"type": "application"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [components[of] for of in sorted(components)],
        "dependencies": [{"ref": of, "dependsOn": sorted(edges[of])} for of in sorted(edges)],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(sys.argv[1:])
