#!/usr/bin/env python3
"""Builds the documents as a site, in target/site. zensical does that, and checks the links.

docs/README.md is the table of contents. Pages link to files outside of docs/, so the site has those
too, at the same places."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
SITE = ROOT / "target/site"
PARTS = [
    "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs",
    "crates/forerun/examples", "crates/front/c/examples", "crates/front/c/include",
    "python/examples",
]


def install():
    """Returns a directory with zensical, after installing what docs/requirements.txt names."""
    requirements = ROOT / "docs/requirements.txt"
    directory = ROOT / "target/tools/site"
    # Written last: it says what is installed.
    installed = directory / "requirements.txt"
    if not installed.exists() or installed.read_bytes() != requirements.read_bytes():
        try:
            venv.create(directory, clear=True, with_pip=True)
        except subprocess.CalledProcessError:
            sys.exit("python3 cannot make an environment (Debian: install python3-venv)")
        pip = [directory / "bin/python", "-m", "pip", "--disable-pip-version-check", "install",
               "--quiet", "--no-deps", "--only-binary=:all:", "--requirement", requirements]
        if subprocess.run(pip).returncode != 0:
            sys.exit("pip cannot install what docs/requirements.txt names")
        shutil.copy(requirements, installed)
    return directory / "bin"


def contents():
    """Returns the sections of the table of contents, each with titles and paths of its pages."""
    _, *parts = re.split(r"^## (.*)$", (ROOT / "docs/README.md").read_text(), flags=re.MULTILINE)
    sections = [
        (title, [(text, os.path.normpath(f"docs/{target}"))
                 for text, target in re.findall(r"\[(.*?)\]\((.*?)\)", body)])
        for title, body in zip(parts[::2], parts[1::2])
    ]
    listed = {path for _, pages in sections for _, path in pages}
    for directory in "docs", "docs/formats", "docs/tutorials":
        for page in sorted((ROOT / directory).glob("*.md")):
            path = str(page.relative_to(ROOT))
            if path not in listed and path != "docs/README.md":
                sys.exit(f"docs/README.md has no link to {path}")
    return sections


def main():
    tools, sections = install(), contents()
    source = ROOT / "target/site-source"
    for directory in SITE, source:
        shutil.rmtree(directory, ignore_errors=True)
    for part in PARTS:
        copy = source / "pages" / part
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, copy)
    # What JSON writes for strings is TOML too.
    navigation = ["nav = [", '  { "forerun" = "README.md" },']
    for title, pages in sections:
        navigation.append(f"  {{ {json.dumps(title)} = [")
        navigation += [f"    {{ {json.dumps(text)} = {json.dumps(path)} }},"
                       for text, path in pages]
        navigation.append("  ] },")
    config = (ROOT / "docs/site.toml").read_text().replace("nav = []", "\n".join(navigation) + "\n]")
    (source / "zensical.toml").write_text(config)
    build = [tools / "zensical", "build", "--strict", "--config-file", source / "zensical.toml"]
    if subprocess.run(build).returncode != 0:
        sys.exit("zensical failed")
    (source / "site").rename(SITE)
    print(f"{SITE}/index.html; with search: python3 -m http.server --directory {SITE}")


if __name__ == "__main__":
    main()
