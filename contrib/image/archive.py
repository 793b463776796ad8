"""Packs static programs into an OCI archive with one image for each architecture, as the last stage of contrib/Dockerfile says:
`python3 archive.py ARCHIVE amd64:PROGRAM arm64:PROGRAM`. The same input gives the same bytes; dates are SOURCE_DATE_EPOCH, or 1970."""

import gzip
import hashlib
import io
import json
import os
import re
import shlex
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
CREATED = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
VERSION = re.findall(r'^version = "(.+)"', (TOP / "Cargo.toml").read_text(), re.MULTILINE)[0]
OCI = "application/vnd.oci.image."
SECOND = 10**9  # nanoseconds


def stage():
    """Instructions of the last stage, as pairs of a word and its text."""
    text = (HERE.parent / "Dockerfile").read_text().rsplit("\nFROM ", 1)[1]
    lines = [line for line in text.splitlines()[1:] if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def settings_of(instructions):
    """Settings of a container: the `config` of an image."""
    config = {"Labels": {"org.opencontainers.image.version": VERSION}, "Env": []}
    for word, text in instructions:
        if word == "LABEL":
            name, value = text.split("=", 1)
            config["Labels"][name] = json.loads(value)
        elif word == "ENV":
            config["Env"] += shlex.split(text)
        elif word in ("USER", "STOPSIGNAL"):
            config[{"USER": "User", "STOPSIGNAL": "StopSignal"}[word]] = text
        elif word == "VOLUME":
            config["Volumes"] = {text: {}}
        elif word == "EXPOSE":
            config["ExposedPorts"] = {f"{port}/tcp": {} for port in text.split()}
        elif word in ("ENTRYPOINT", "CMD"):
            config[word.capitalize()] = json.loads(text)
        elif word == "HEALTHCHECK":
            # Not in the specification of OCI; docker reads it all the same.
            options, command = text.split("CMD ", 1)
            config["Healthcheck"] = {"Test": ["CMD", *json.loads(command)]}
            for name, seconds in re.findall(r"--(\w+)=(\d+)s", options):
                config["Healthcheck"][name.capitalize()] = int(seconds) * SECOND
        elif word != "COPY":
            sys.exit(f"contrib/Dockerfile: {word} is not understood in its last stage")
    return config


def layer_of(instructions, program):
    """The tar archive of the files: those of the repository, the program, and empty directories for what the build makes else."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        there = set()

        def add(path, content, mode, owner=0):
            for parent in reversed(Path(path).parents[:-1]):
                if parent not in there:
                    there.add(parent)
                    add(str(parent), None, 0o755)
            entry = tarfile.TarInfo(path)
            entry.mode, entry.mtime, entry.uid, entry.gid = mode, EPOCH, owner, owner
            if content is None:
                entry.type = tarfile.DIRTYPE
                return tar.addfile(entry)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))

        for text in [text for word, text in instructions if word == "COPY"]:
            *sources, target = [word for word in text.split() if not word.startswith("--")]
            target = target.lstrip("/")
            owner = int((re.findall(r"--chown=\d+:(\d+)", text) or [0])[0])
            for source in sources:
                if "--from=" not in text:
                    add(target + Path(source).name, (TOP / source).read_bytes(), 0o644)
                elif Path(source).name == "poolcounter":
                    add(target, Path(program).read_bytes(), 0o755)
                else:
                    add(target, None, 0o700, owner)
    return archive.getvalue()


class Archive:
    """Blobs by digest, in the order in which they were added."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def add(self, kind, content):
        """Adds a blob, and returns its descriptor."""
        content = content if isinstance(content, bytes) else json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": OCI + kind, "digest": f"sha256:{digest}", "size": len(content)}

    def add_image(self, architecture, program):
        """Adds the image of an architecture, and returns the descriptor of its manifest."""
        instructions = stage()
        files = layer_of(instructions, program)
        layer = self.add("layer.v1.tar+gzip", gzip.compress(files, mtime=0))
        config = {
            "architecture": architecture,
            "os": "linux",
            "created": CREATED,
            "config": settings_of(instructions),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
            "history": [{"created": CREATED, "created_by": "make image"}],
        }
        config = self.add("config.v1+json", config)
        manifest = {"schemaVersion": 2, "mediaType": f"{OCI}manifest.v1+json", "config": config, "layers": [layer]}
        platform = {"architecture": architecture, "os": "linux"}
        return {**self.add("manifest.v1+json", manifest), "platform": platform}

    def write(self, path):
        """Writes the archive; a file that is there is replaced only by a whole one."""
        part = f"{path}.part"
        with tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as tar:
            for name, content in self.files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.mode = len(content), EPOCH, 0o644
                tar.addfile(entry, io.BytesIO(content))
        os.replace(part, path)


def main(path, programs):
    archive = Archive()
    images = [archive.add_image(*program.split(":", 1)) for program in programs]
    index = {"schemaVersion": 2, "mediaType": f"{OCI}index.v1+json", "manifests": images}
    names = {
        "org.opencontainers.image.ref.name": VERSION,
        "io.containerd.image.name": f"docker.io/library/poolcounter:{VERSION}",
    }
    named = {**archive.add("index.v1+json", index), "annotations": names}
    archive.files["index.json"] = json.dumps({**index, "manifests": [named]}, sort_keys=True).encode()
    archive.write(path)
    print(f"built {path}")


if __name__ == "__main__":
    if len(sys.argv) < 3 or any(":" not in program for program in sys.argv[2:]):
        sys.exit(__doc__)
    try:
        main(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.exit(f"no image is built: {error}")
