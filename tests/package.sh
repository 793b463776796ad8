#!/usr/bin/env bash
# Builds the Debian package twice, the second time as a later version; runs lintian, and installs, upgrades and removes the
# package in scratch systems of Debian's stable releases: with the init script, and booted with systemd. Needs root and the
# tools that `make test-package` installs. Its files are below the directory of the argument, and are used again the next time.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(realpath -m "${1:-target/package}")
export CARGO_TARGET_DIR=$work/cargo
# Linked in less time than a release.
export CARGO_PROFILE_{DIST,RELEASE}_LTO=off CARGO_PROFILE_{DIST,RELEASE}_CODEGEN_UNITS=16
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages=$work/packages
sources=$work/sources

step() { echo "== $SECONDS s: $*"; }

# Builds $sources/poolcounter, and puts the package into the directory of the argument.
build() {
    (cd "$sources/poolcounter" && dpkg-buildpackage -us -uc -b) >"$work/build.log" 2>&1 ||
        { tail -n 30 "$work/build.log"; return 1; }
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$sources"/poolcounter_*.changes
    mv "$sources"/poolcounter_*.deb "$1"
    rm "$sources"/poolcounter_*
}

step "the package"
rm -rf "$sources" "$packages"
mkdir -p "$sources/poolcounter" "$packages"/{ours,next,original}
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C "$sources/poolcounter"
build "$packages/ours"

step "the package of a later version"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
sed -i "s/version = \"$version\"/version = \"$version-next\"/" "$sources"/poolcounter/{,src/*/}Cargo.toml
sed -i "/^name = \"poolcounter[-a-z]*\"/{n;s/.*/version = \"$version-next\"/}" "$sources/poolcounter/Cargo.lock"
sed -i "1s/(.*)/(1:$version+next)/" "$sources/poolcounter/debian/changelog"
build "$packages/next"

step "a certificate for the terminator of TLS"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 10 -subj /CN=localhost \
    -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=IP:127.0.0.1,DNS:localhost \
    -keyout "$packages/tls.key" -out "$packages/tls.pem" 2>/dev/null

step "the C daemon's package"
(cd "$packages/original" && apt-get download poolcounter=1.1.3* >/dev/null 2>&1)

# Makes a minimal system of a release of Debian, with libevent for the C daemon.
make_root() {
    local root=$work/root libevent=libevent-2.1-7
    [ "$1" = bookworm ] || libevent=libevent-2.1-7t64
    rm -rf "$root"
    debootstrap --variant=minbase --include=adduser,$libevent,logrotate,procps,systemd,systemd-sysv,sysvinit-utils \
        "$1" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail "$work/debootstrap.log"; return 1; }
    tar -C "$root" -cf "$work/$1.tar.part" .
    mv "$work/$1.tar.part" "$work/$1.tar"
    rm -rf "$root"
}

# Runs a command in a fresh system with a network of its own, whose name is the first argument.
in_system() {
    local root=$work/$1
    shift
    timeout 300 systemd-nspawn --quiet --register=no --keep-unit --private-network -D "$root" \
        --bind-ro="$packages:/packages" --bind-ro="$PWD/tests/package:/tests" "$@" </dev/null
}

# Unpacks a release of Debian into a directory.
unpack() {
    rm -rf "${work:?}/$2"
    mkdir "$work/$2"
    tar -C "$work/$2" -xf "$work/$1.tar"
}

for debian in bookworm trixie; do
    if [ ! -e "$work/$debian.tar" ]; then
        step "a system of $debian to install it in"
        make_root "$debian"
    fi

    step "its life with the init script of $debian"
    unpack "$debian" sysv
    # No init runs there; its tools act as in the runlevel that one would have reached.
    rm -f "$work/sysv/sbin/runlevel"
    printf '#!/bin/sh\necho N 2\n' | install -m 755 /dev/stdin "$work/sysv/sbin/runlevel"
    in_system sysv --as-pid2 /bin/bash /tests/life.sh sysv

    step "its life with the systemd of $debian"
    unpack "$debian" systemd
    cat >"$work/systemd/etc/systemd/system/life.service" <<'UNIT'
[Unit]
After=multi-user.target

[Service]
Type=exec
ExecStart=/bin/bash -c '/bin/bash /tests/life.sh systemd; echo $? >/life.status; systemctl poweroff --no-block'
StandardOutput=append:/life.log
StandardError=append:/life.log
UNIT
    ln -s ../life.service "$work/systemd/etc/systemd/system/multi-user.target.wants/life.service"
    in_system systemd --boot >"$work/boot.log" 2>&1 || tail "$work/boot.log"
    cat "$work/systemd/life.log"
    [ "$(cat "$work/systemd/life.status")" = 0 ]
    rm -rf "$work/sysv" "$work/systemd"
done
step "all is well"
