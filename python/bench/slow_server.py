"""A web server for one file that sleeps before each answer: a network with a latency, and no limit of its bytes.

    python slow_server.py FILE [SECONDS]

Prints the address. A request takes 20 ms by default; requests of several connections wait side by side.
"""

from __future__ import annotations

import http.server
import os
import socketserver
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The head of an answer must not wait for the acknowledgement of the one before.
    disable_nagle_algorithm = True

    def answer(self, with_body: bool) -> None:
        time.sleep(SECONDS)
        size = os.path.getsize(FILE)
        start, end, status = 0, size, 200
        wanted = self.headers.get("Range")
        if wanted:
            low, _, high = wanted.removeprefix("bytes=").partition("-")
            start, end, status = int(low), min(int(high or size - 1) + 1, size), 206
        self.send_response(status)
        self.send_header("ETag", '"x"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.end_headers()
        if with_body:
            with open(FILE, "rb") as file:
                file.seek(start)
                self.wfile.write(file.read(end - start))

    def do_GET(self):
        self.answer(True)

    def do_HEAD(self):
        self.answer(False)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


if __name__ == "__main__":
    FILE, SECONDS = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.02
    serving = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{serving.server_address[1]}/image", flush=True)
    serving.serve_forever()
