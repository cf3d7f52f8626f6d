"""The description of the package as package indexes show it."""

from __future__ import annotations

import re
from importlib.metadata import metadata, version

from undrop import multicast


def test_the_package_describes_itself() -> None:
    about = metadata("undrop")
    assert about["Name"] == "undrop"
    assert version("undrop") == multicast.__version__
    assert about["Summary"] == "Multicast that recovers lost packets within milliseconds."
    assert about["License-Expression"] == "Apache-2.0 OR MIT"
    assert about.get_all("License-File") == ["LICENSE-APACHE", "LICENSE-MIT"]
    assert about["Requires-Python"] == ">=3.11"
    assert about["Description-Content-Type"].startswith("text/markdown")
    assert "Operating System :: POSIX :: Linux" in (about.get_all("Classifier") or [])
    assert about["Author"] == "The Undrop contributors"


def test_the_description_has_no_link_that_an_index_cannot_follow() -> None:
    about = metadata("undrop")
    description = str(about.json["description"])
    assert description.startswith("# Ricochet for Python"), description[:80]
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
