# SPDX-License-Identifier: Apache-2.0
"""Processes of contestants, as compare_torch.py sees them, and its progress line."""
import json
import os
import select
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = ["eager", "compiled"]  # variants of PyTorch


class Failed(Exception):
    """A contestant, or a comparison with it, failed; the text is one line."""


class Contestant:
    def __init__(self, name, case, threads, library, folder):
        self.name, self.unread = name, b""
        self.errors = open(os.path.join(folder, f"{name}.stderr"), "w+")
        order = {"contestant": name, "threads": threads, "library": library, "case": case}
        # A session of its own: whatever it starts (compilers) ends with it. Caches of torch.compile end with this run.
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "contestants.py"), json.dumps(order)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        start_new_session=True,
                                        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
                                             "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)})
        try:
            self.about = self.answer()["about"]
        except BaseException:
            self.stop()
            raise

    def ask(self, command, limit=None):
        """The answer to a command; raises Failed on an error, or after limit seconds."""
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says what happened
        return self.answer(limit)

    def answer(self, limit=None):
        end = None if limit is None else time.monotonic() + limit
        while b"\n" not in self.unread:
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        None if end is None else max(0, end - time.monotonic()))
            if not ready:
                raise Failed(f"{self.name}: a step takes more than {limit} s")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                raise Failed(f"{self.name}: ended with status {self.process.wait()}: {self.last_line()}")
            self.unread += piece
        line, self.unread = self.unread.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def last_line(self):
        self.errors.seek(0)
        lines = self.errors.read().split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for file in [self.process.stdin, self.process.stdout, self.errors]:
            try:
                file.close()
            except BrokenPipeError:
                pass


class Progress:
    """One line on a terminal, rewritten; nothing elsewhere. Notes stay, everywhere."""

    def __init__(self, total):
        self.total, self.done, self.title, self.shown = total, 0, "", sys.stderr.isatty()

    def next(self, title):
        self.done, self.title = self.done + 1, title

    def say(self, what):
        if self.shown:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # some terminals say 0
            print("\r\033[K" + f"[{self.done}/{self.total}] {self.title}: {what}"[:columns - 1], end="",
                  file=sys.stderr, flush=True)

    def clear(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def note(self, line):
        self.clear()
        print(line, file=sys.stderr, flush=True)
