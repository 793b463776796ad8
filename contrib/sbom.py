"""Prints the bill of materials of the program as CycloneDX in JSON: each crate that `cargo metadata` finds in it, with its checksum."""

import json
import subprocess
import tomllib
import uuid
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PLATFORM = "x86_64-unknown-linux-musl"


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={PLATFORM}"]
metadata = json.loads(subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, check=True).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
locked = tomllib.loads((TOP / "Cargo.lock").read_text())["package"]
checksums = {(package["name"], package["version"]): package.get("checksum") for package in locked}


def needed_by(package):
    """Ids of the packages that get into a program with this one: not those of its build, its tests, or the compiler."""
    needs = [need["pkg"] for need in nodes[package]["deps"] if any(kind["kind"] is None for kind in need["dep_kinds"])]
    return sorted(need for need in needs if all("proc-macro" not in target["kind"] for target in packages[need]["targets"]))


root = metadata["resolve"]["root"]
found, unseen = {root}, [root]
while unseen:
    new = set(needed_by(unseen.pop())) - found
    found |= new
    unseen += new


def component(package):
    content = {"type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"], "purl": purl(package)}
    if package["license"]:
        # Older crates write / for OR.
        content["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if checksum := checksums[package["name"], package["version"]]:
        content["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return content


ordered = sorted((packages[found_id] for found_id in found), key=purl)
bill = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([purl(package) for package in ordered]))}",
    "version": 1,
    "metadata": {"component": {**component(packages[root]), "type": "application"}},
    "components": [component(package) for package in ordered if package["id"] != root],
    "dependencies": [
        {"ref": purl(package), "dependsOn": sorted(purl(packages[need]) for need in needed_by(package["id"]))} for package in ordered
    ],
}
print(json.dumps(bill, indent=1))
