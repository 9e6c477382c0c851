"""How long, and in how much memory, the judge's code graph of a big repository is made.

    python benchmarks/code_graph.py [--files 10000] [--folder /tmp/burnish-repository]

Writes made-up Python files that define and use one another, reads them in this process with `burnish.data.codegraph`, and
prints seconds, peak memory and the size of the graph. The bar is 20 seconds and 500 MB for 10,000 files.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from pathlib import Path

from burnish.data.codegraph import code_graph
from burnish.data.workspace import Workspace

SECONDS, MEGABYTES = 20, 500
PER_FOLDER = 100


def write(folder: Path, files: int) -> None:
    """Each file defines a class with five methods and four functions, and uses names of three other files."""
    draw = random.Random(0)
    for number in range(files):
        others = [draw.randrange(files) for _ in range(3)]
        lines = [f'"""Part {number}."""', ""]
        lines += [f"from package.part{one // PER_FOLDER}.m{one} import Thing{one}, make_{one}_0" for one in others]
        lines += ["", "", f"class Thing{number}(Thing{others[0]}):"]
        for place in range(5):
            lines += [f"    def step_{number}_{place}(self, x):", f"        y = make_{others[1]}_{place % 4}(x)"]
            lines += [f"        return self.step_{number}_{(place + 1) % 5}(y) + helper(y)", ""]
        for place in range(4):
            lines += [
                "",
                f"def make_{number}_{place}(x):",
                f"    return Thing{others[2]}().step_{others[2]}_{place}(x)",
                "",
            ]
        path = folder / "package" / f"part{number // PER_FOLDER}" / f"m{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Write, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/burnish-repository"))
    asked = parser.parse_args()
    folder = asked.folder / str(asked.files)
    if not folder.exists():
        write(folder, asked.files)
    began, used = time.monotonic(), time.process_time()
    found = code_graph(Workspace(folder))
    seconds, processor = time.monotonic() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{asked.files} files: {found.graph.number_of_nodes()} nodes, {found.graph.number_of_edges()} edges")
    print(f"{seconds:.1f} s ({processor:.1f} s of processor time; the bar is {SECONDS})")
    print(f"{peak:.0f} MB at most (the bar is {MEGABYTES})")


if __name__ == "__main__":
    main()
