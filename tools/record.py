#!/usr/bin/env python3
"""Records forerun at work, as an SVG of a terminal: tools/record.py PROGRAM >docs/figures/terminal.svg

The commands below run in an empty directory, and the picture has what they print."""

import html
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What is there before the recording starts: a firmware file, and the documents of this project.
PREPARATION = """
mkdir -p root/bin root/etc root/www
cp "$(command -v busybox)" root/bin/busybox
ln -s busybox root/bin/sh
printf 'root::0:0:root:/root:/bin/sh\\n' >root/etc/passwd
printf 'NAME="Router"\\nVERSION="22.03"\\n' >root/etc/os-release
printf '<h1>Router</h1>\\n' >root/www/index.html
forerun pack --quiet --compressor xz --mtime 2026-01-31 root root.sqsh
head -c 2M /dev/zero | tr '\\0' x >router.bin
cat root.sqsh >>router.bin
mkdir mnt
"""
COMMANDS = [
    "forerun scan router.bin",
    "forerun ls -lR --offset 2097152 router.bin /etc",
    "forerun cat --offset 2097152 router.bin /etc/os-release",
    "forerun pack --compressor zstd docs docs.sqsh",
    "forerun check --quiet docs.sqsh && forerun diff docs docs.sqsh && echo identical",
    "forerun mount docs.sqsh mnt",
    "ls -x mnt/formats",
    "forerun umount mnt",
]
COLUMNS = 92
# Pixels of one character.
WIDTH, HEIGHT = 8.43, 19
# Seconds: one typed character, the pause before a command, and the pause before what it prints.
TYPING, THINKING, RUNNING = 0.03, 0.9, 0.25

STYLE = """
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d4d4d4; white-space: pre; }
.prompt { fill: #6a9955; }
.typed { fill: #ffffff; font-weight: bold; }
.later { animation: appear 1ms both; }
@keyframes appear { from { opacity: 0; } to { opacity: 1; } }
@media (prefers-reduced-motion: reduce) { .later { animation: none; } }
"""


def record(program):
    """Returns the commands, each with the lines that it prints."""
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        (work / "bin").mkdir()
        (work / "bin/forerun").symlink_to(pathlib.Path(program).resolve())
        shutil.copytree(ROOT / "docs", work / "docs")
        path = f"{work / 'bin'}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "TZ": "UTC", "COLUMNS": str(COLUMNS)}

        def run(commands):
            ran = subprocess.run(["bash", "-euc", commands], cwd=work, env=environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if ran.returncode != 0:
                sys.exit(f"{commands}: exit status {ran.returncode}\n{ran.stdout}")
            return ran.stdout.splitlines()

        run(PREPARATION)
        return [(command, run(command)) for command in COMMANDS]


def draw(recording):
    """Returns the picture. Programs that know no animation show its end."""
    drawn, time, row = [], 0.5, 0

    def add(column, style, text):
        x, y = 16 + column * WIDTH, 50 + row * HEIGHT
        drawn.append(f'<text class="later {style}" x="{x:.1f}" y="{y}" '
                     f'style="animation-delay:{time:.2f}s">{html.escape(text)}</text>')

    for command, lines in recording:
        add(0, "prompt", "$")
        time += THINKING
        # A word at a time: a tenth of the bytes that single characters take.
        column = 2
        for word in command.split(" "):
            add(column, "typed", word)
            column += len(word) + 1
            time += TYPING * (len(word) + 1)
        row += 1
        time += RUNNING
        for line in lines:
            if len(line) > COLUMNS:
                sys.exit(f"{command}: wider than {COLUMNS} columns: {line}")
            add(0, "printed", line)
            row += 1
    add(0, "prompt", "$")
    width, height = round(32 + COLUMNS * WIDTH), 66 + row * HEIGHT
    buttons = "".join(f'<circle cx="{20 + 20 * n}" cy="18" r="6" fill="{colour}"/>'
                      for n, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>forerun in a terminal</title>", f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1e1e1e"/>', buttons, *drawn, "</svg>"])


if __name__ == "__main__":
    print(draw(record(sys.argv[1])))
