"""Run the GPU tests and record what was seen: python examples/benchmarks/gpu_tests.py OUT.json [pytest options]"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path

import record


def main() -> int:
    out, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", f"--junitxml={report}", *options]
        code = subprocess.run(command).returncode
        cases = list(ElementTree.parse(report).iter("testcase"))
    files: dict[str, Counter] = defaultdict(Counter)
    for case in cases:
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        files[case.get("classname", "")][next(iter(kinds), "passed")] += 1
    total: Counter = sum(files.values(), Counter())
    record.write(
        out,
        {
            "what": "pytest -m gpu",
            "exit_code": code,
            "total": dict(total),
            "seconds": round(sum(float(case.get("time", 0)) for case in cases), 1),
            "files": {name: dict(counts) for name, counts in sorted(files.items())},
        },
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
