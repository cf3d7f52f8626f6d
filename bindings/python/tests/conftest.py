"""Reports the outcome in the format that `cargo xtask test` counts."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    for report in stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line("SKIPPED: " + reason.removeprefix("Skipped: "))
    passed = len(stats.get("passed", []))
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    outcome = "FAILED" if failed else "ok"
    terminalreporter.write_line(f"test result: {outcome}. {passed} passed; {failed} failed; 0 ignored")
