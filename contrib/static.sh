#!/bin/sh
# Builds the program for an architecture, x86_64 or aarch64, as one file that needs no libraries. C is compiled with musl's headers
# from Debian's package for that architecture, which is unpacked below the target directory and not installed.
set -eu
cd "$(dirname "$0")/.."
limit=12000000 # bytes
case $1 in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*) echo "there is no static program for $1: x86_64 and aarch64" >&2; exit 2 ;;
esac
target=$1-unknown-linux-musl
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")
musl=$built/musl-$debian
rustup target list --installed | grep -qx "$target" || rustup target add "$target"

if [ ! -e "$musl/usr" ]; then
	command -v apt-get >/dev/null || { echo "the headers of musl are fetched by apt-get, which is not here" >&2; exit 1; }
	rm -rf "$musl" && mkdir -p "$musl/lists/partial" "$musl/cache/archives/partial"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sort -u | head -n 1)
	echo "deb $mirror $(. /etc/os-release && echo "$VERSION_CODENAME") main" >"$musl/sources"
	set -- "$1" -o "Dir::Etc::sourcelist=$musl/sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$musl/lists" \
		-o "Dir::Cache=$musl/cache" -o "APT::Architecture=$debian" -o "APT::Architectures=$debian"
	(arch=$1 && shift && apt-get "$@" update >&2 && cd "$musl" && apt-get "$@" download musl-dev >&2)
	dpkg-deb -x "$musl"/musl-dev_*.deb "$musl/unpacked"
	mv "$musl/unpacked/usr" "$musl/usr"
fi

# Paths of this machine do not get into the program.
home=${CARGO_HOME:-$HOME/.cargo}
variable=$(echo "$target" | tr - _)
gcc=$1-linux-gnu-gcc
headers="-nostdinc -isystem $musl/usr/include/$1-linux-musl -isystem $($gcc -print-file-name=include)"
export "CC_$variable=$gcc" "AR_$variable=$1-linux-gnu-ar"
export "CFLAGS_$variable=$headers -ffile-prefix-map=$PWD=. -ffile-prefix-map=$built=target -ffile-prefix-map=$home=cargo"
flags=
for place in "$PWD=." "$built=target" "$home=cargo" "$(rustc --print sysroot)=rust"; do
	flags="$flags --remap-path-prefix=$place"
done
# Only this program can be loaded anywhere; its table of addresses to adapt is 300 kB otherwise.
[ "$1" != x86_64 ] || flags="$flags -Clink-arg=-Wl,-z,pack-relative-relocs"
variable=$(echo "$variable" | tr a-z A-Z)
export "CARGO_TARGET_${variable}_LINKER=$gcc" "CARGO_TARGET_${variable}_RUSTFLAGS=$flags"
cargo build --locked --profile dist --target "$target"

program=$built/$target/dist/poolcounter
size=$(stat -c %s "$program")
if [ "$size" -ge $limit ]; then
	rm "$program"
	echo "the program for $1 has $size bytes; it may have $limit" >&2
	exit 1
fi
echo "built $program, $size bytes"
