#!/bin/sh
# Unpacks the source of MediaWiki in a suite of Debian's archive below $1 unless it is there. Nothing is installed.
set -e
dir=$1; suite=${2:-trixie}
[ -e "$dir/mediawiki/maintenance/install.php" ] && exit 0
mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
dir=$(cd "$dir" && pwd)
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sort -u | head -n 1)
echo "deb-src $mirror $suite main" >"$dir/sources"
set -- -o "Dir::Etc::sourcelist=$dir/sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache"
apt-get "$@" update >&2
cd "$dir" && apt-get "$@" source --download-only mediawiki >&2
mkdir unpacked && tar -xf mediawiki_*.orig.tar.[gx]z -C unpacked
mv unpacked/mediawiki-* mediawiki
