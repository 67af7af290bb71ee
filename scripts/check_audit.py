"""Report of pip-audit's JSON, an object a lock file on stdin; exit code 1 for a known vulnerability."""

import json
import sys
from typing import Any


def report(packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """Exit code and lines. Packages without vulnerability data are listed, not counted as safe."""
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    found = [
        f"{package['name']} {package['version']}: {flaw['id']}, fixed in {_versions(flaw)}"
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    if len(unknown) == len(packages):
        return 0, ["audit skipped: no vulnerability data for any package"]
    known = len(packages) - len(unknown)
    lines = [*found, f"audit: {known} packages looked up, {len(found)} known vulnerabilities"]
    if unknown:
        lines.append(f"audit: not looked up: {', '.join(unknown)}")
    return (1 if found else 0), lines


def _versions(flaw: dict[str, Any]) -> str:
    return ", ".join(flaw["fix_versions"]) or "none"


def packages_of(text: str) -> list[dict[str, Any]]:
    """The packages of all JSON objects in a text, each version once."""
    found, decoder = {}, json.JSONDecoder()
    while text := text.lstrip():
        audited, end = decoder.raw_decode(text)
        text = text[end:]
        for package in audited["dependencies"]:
            found[package["name"], package.get("version", package.get("skip_reason"))] = package
    return list(found.values())


if __name__ == "__main__":
    code, lines = report(packages_of(sys.stdin.read()))
    print("\n".join(lines))
    sys.exit(code)
