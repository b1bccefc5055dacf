"""Headless LibreOffice as an independent calculator of the workbooks."""

import math
import shutil
import subprocess
from pathlib import Path

import openpyxl

SOFFICE = shutil.which("soffice") or shutil.which("libreoffice")
ALWAYS = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load"><prop oor:name="OOXMLRecalcMode"
 oor:op="fuse"><value>0</value></prop></item>
</oor:items>
"""
"""A profile that recalculates every formula of a loaded file, whatever values it holds."""


def converted(paths: list[Path], folder: Path, to: str = "xlsx") -> list[Path]:
    """Files opened, recalculated and saved again in one run of LibreOffice."""
    profile = folder / "profile"
    (profile / "user").mkdir(parents=True, exist_ok=True)
    (profile / "user" / "registrymodifications.xcu").write_text(ALWAYS)
    out = folder / "out"
    subprocess.run(
        [str(SOFFICE), f"-env:UserInstallation={profile.as_uri()}", "--headless", "--convert-to",
         to, "--outdir", str(out), *map(str, paths)],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    return [out / path.with_suffix(f".{to}").name for path in paths]


def values(path: Path) -> dict[str, dict[str, object]]:
    """What each cell shows, by sheet and address."""
    book = openpyxl.load_workbook(path, data_only=True)
    return {
        sheet.title: {cell.coordinate: cell.value for row in sheet.iter_rows() for cell in row}
        for sheet in book
    }


def same(a: object, b: object) -> bool:
    """Equal text, or numbers within 1e-9; no text is as good as an empty cell."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return (a or "") == (b or "")
