"""Memory of `metafun play` over many requests of all kinds, on Linux.

The growth is that of the server's memory after the requests, relative to its memory after the first tenth of them.

    python scripts/play_memory.py --beside 0 >> results/play-memory.jsonl
    python scripts/play_memory.py --requests 500
"""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from provenance import parser, provenance

# A request every three seconds for a day.
REQUESTS = 28_800
# Of a hundred requests, so many ask for sampled functions, the class of a drawing, and the prediction of a table.
FUNCTIONS, DRAWINGS, TABLES = 10, 10, 1
TABLE_ROWS = (20, 35, 60, 90)


def requests(count: int, letters: list[dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Path and body of each request.

    Args:
        count: how many.
        letters: examples of drawings.
    """
    rng = np.random.default_rng(0)
    for i in range(count):
        turn = i % 100
        if turn < TABLES:
            yield "table?name=t.csv&target=y&problem=regression", table(rng, TABLE_ROWS[i // 100 % len(TABLE_ROWS)])
        elif turn < TABLES + DRAWINGS:
            strokes = [rng.uniform(0, 1, (12, 2)).tolist()]
            yield "glyphs", json.dumps({"strokes": strokes, "examples": letters})
        else:
            points = rng.uniform(-2, 2, (rng.integers(0, 40), 2)).tolist()
            path = "functions" if turn < TABLES + DRAWINGS + FUNCTIONS else "curves"
            yield path, json.dumps({"model": "gp-rbf", "points": points, "exact": turn % 2 == 0})


def table(rng: np.random.Generator, rows: int) -> str:
    """A CSV file with a fifth of y missing."""
    x = rng.normal(size=(rows, 3))
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{a + b:.3f}" for a, b, c in x]
    lines[::5] = [line.rpartition(",")[0] + "," for line in lines[::5]]
    return "\n".join(["a,b,c,y", *lines, ""])


def resident_megabytes(process: int) -> float:
    """The memory that a process has, in megabytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def measure(count: int) -> dict[str, float]:
    """Megabytes after the first tenth of the requests and after all of them.

    Args:
        count: number of requests.
    """
    command = [sys.executable, "-m", "metafun", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = urlsplit(next(line for line in server.stdout if line.startswith("http")).strip())
            connection = http.client.HTTPConnection(address.netloc, timeout=300)

            def answer(path: str, body: str) -> bytes:
                connection.request("POST", f"{address.path}{path}", body)
                response = connection.getresponse()
                content = response.read()
                if response.status != 200:
                    sys.exit(f"error: {path} was answered with {response.status}: {content[:200]!r}")
                return content

            letters = json.loads(answer("letters", "{}"))[:6]
            megabytes = []
            for i, request in enumerate(requests(count, letters)):
                answer(*request)
                if i in (count // 10, count - 1):
                    megabytes.append(resident_megabytes(server.pid))
        finally:
            server.terminate()
    return {"megabytes_first": megabytes[0], "megabytes_last": megabytes[1], "growth": megabytes[1] / megabytes[0] - 1}


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--requests", type=int, default=REQUESTS)
    given = options.parse_args()
    found = {name: round(value, 4) for name, value in measure(given.requests).items()}
    print(json.dumps({"requests": given.requests, **found, **provenance([0], given.beside)}))
