"""Checks the archive of `make image`, and runs each image that this machine can run, as its settings say: `image.py ARCHIVE`.
Needs root, chroot, unshare and nsenter. What cannot be run is named."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

# Turns on the loopback interface of a new network, SIOCSIFFLAGS with IFF_UP and IFF_RUNNING, and becomes another program.
LOOPBACK = """
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x41))
os.execv(sys.argv[1], sys.argv[1:])
"""

files = {}
with tarfile.open(sys.argv[1]) as archive:
    for entry in archive:
        files[entry.name] = archive.extractfile(entry).read()


def blob(descriptor):
    """The content of a descriptor, whose digest and size are right."""
    kind, digest = descriptor["digest"].split(":")
    content = files[f"blobs/{kind}/{digest}"]
    assert hashlib.sha256(content).hexdigest() == digest and len(content) == descriptor["size"], descriptor
    return content


def run(root, config, word):
    """Starts, uses and stops the image that is unpacked in a directory, in a network of its own."""
    settings = config["config"]
    state = "/var/lib/poolcounter"
    assert list(settings["Volumes"]) == [state]
    assert (root / state[1:]).stat().st_uid == int(settings["User"].split(":")[0]) != 0
    environment = dict(variable.split("=", 1) for variable in settings["Env"])
    within = ["/usr/sbin/chroot", f"--userspec={settings['User']}", str(root)]
    options = ["--jobs", "--jobs-listen=0.0.0.0", f"--admin=unix:{state}/admin.sock"]
    started = within + settings["Entrypoint"] + settings["Cmd"] + options
    daemon = subprocess.Popen(["/usr/bin/unshare", "--net", sys.executable, "-c", LOOPBACK, *started], env=environment)
    try:
        def ask(*command):
            command = ["/usr/bin/nsenter", "--net", f"--target={daemon.pid}", *within, *command]
            return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        health = settings["Healthcheck"]["Test"]
        assert health[0] == "CMD"
        for _ in range(100):
            said = ask(*health[1:])
            if said.returncode == 0:
                break
            time.sleep(0.1)
        assert said.returncode == 0, said
        program = settings["Entrypoint"][0]
        said = ask(program, "jobs", "put", "mail", "Dear Ann")
        assert said.returncode == 0 and said.stdout == "INSERTED 1\n", said
        assert (root / state[1:] / "jobs.db").stat().st_uid == int(settings["User"].split(":")[0])
        said = ask(program, "admin", "LOG", "default")
        assert said.returncode == 0, said
        assert {"7531/tcp", "11300/tcp"} <= set(settings["ExposedPorts"])
        daemon.send_signal(getattr(signal, settings["StopSignal"]))
        assert daemon.wait(10) == 0
    finally:
        daemon.kill()
        daemon.wait()
    print(f"the image for {word} works")


assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
(named,) = json.loads(files["index.json"])["manifests"]
for described in json.loads(blob(named))["manifests"]:
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    (layer,) = manifest["layers"]
    word = described["platform"]["architecture"]
    assert config["architecture"] == word
    with tempfile.TemporaryDirectory() as root, tarfile.open(fileobj=io.BytesIO(blob(layer))) as tree:
        # Keeps owners, which later versions of Python would drop.
        tree.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        tree.extractall(root)
        os.chmod(root, 0o755)
        program = f"{root}{config['config']['Entrypoint'][0]}"
        try:
            subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
        except OSError:
            print(f"not tested here: the image for {word}, without qemu-user-static")
            continue
        run(Path(root), config, word)
