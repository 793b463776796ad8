# Builds, tests and installs the daemon. `make help` lists the targets.
#
# Everything needs cargo and a C compiler for linking; what a target needs beyond that, it installs with rustup, cargo or apt.
# Tests that compare with other programs are skipped where these are missing; `make test` lists them at its end.

CARGO ?= cargo
PREFIX ?= /usr/local
CARGO_TARGET_DIR ?= target
BINARY = $(CARGO_TARGET_DIR)/release/poolcounter
SHARE = $(DESTDIR)$(PREFIX)/share
SYSCONFDIR ?= /etc
# Where systemd looks for units of what is not from a package.
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system

# What `make fuzz` runs, and for how many seconds.
TARGET ?= pools_stream
TIME ?= 60
# How long `make soak` runs.
MINUTES ?= 20

# What `make static` builds for.
STATIC = $(shell uname -m)-unknown-linux-musl
# What Debian needs to make a package, and to try it out.
PACKAGING = build-essential debhelper fakeroot
PACKAGE_TESTS = $(PACKAGING) debootstrap lintian systemd-container openssl

DICTIONARY = $(wildcard fuzz/dictionaries/$(TARGET).dict)

.PHONY: all test check docs python test-browser test-mediawiki test-postgres test-upgrade golden bench fuzz sim farm soak soak-jobs static deb test-package install clean help

## all: the daemon, optimised
all:
	$(CARGO) build --release

## test: every test, short enough for each change
test:
	$(test)

## check: all that a change must pass: format, lints, tests, documentation, fuzz targets
check:
	$(CARGO) fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	$(CARGO) clippy --version >/dev/null 2>&1 || rustup component add clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace -- -D warnings
	$(CARGO) clippy -p poolcounter-client -- -D warnings
	$(CARGO) clippy -p poolcounter --no-default-features --features daemon -- -D warnings
	test $$($(CARGO) tree -p poolcounter-client -e normal --prefix none --no-dedupe | sort -u | wc -l) -le $(CLIENT_CRATES)
	$(test)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	if [ -f fuzz/Cargo.toml ]; then cd fuzz && RUSTC_BOOTSTRAP=1 $(CARGO) check; fi
	@$(tell_skipped)

# How many crates the client library may consist of, itself included.
CLIENT_CRATES = 12

# The tests note there what they cannot do on this machine.
SKIPPED = $(abspath $(CARGO_TARGET_DIR))/skipped
tell_skipped = sort -u $(SKIPPED) | sed 's/^/not tested here: /'
define test
	@mkdir -p $(dir $(SKIPPED)) && : >$(SKIPPED)
	@status=0; TESTS_SKIPPED=$(SKIPPED) $(CARGO) test --workspace --no-fail-fast || status=$$?; $(tell_skipped); exit $$status
endef

## docs: the parts of the manual and of the settings' template that are made of the tables of options
docs:
	WRITE_DOCS=1 $(CARGO) test --test commands docs::

## python: the client for Python as sdist and wheel, in $(CARGO_TARGET_DIR)/python
python:
	PYTHONDONTWRITEBYTECODE=1 python3 contrib/python/backend.py $(CARGO_TARGET_DIR)/python

# What looks at the page and complains: outside of the repository.
NPM = $(abspath $(CARGO_TARGET_DIR))/tmp/npm
PAGE_CHECKS = axe-core@4.14.1 html-validate@10.17.0 puppeteer-core@24.43.1
## test-browser: the status page in a browser, which it installs on Debian; leaves pictures in $(CARGO_TARGET_DIR)/tmp/pictures
test-browser:
	command -v chromium chromium-browser >/dev/null || { $(call apt_install,chromium); }
	command -v npm >/dev/null || { $(call apt_install,npm); }
	npm install --silent --no-audit --no-fund --no-save --prefix $(NPM) $(PAGE_CHECKS)
	NODE_PATH=$(NPM)/node_modules $(CARGO) test --test browser -- --ignored --nocapture --test-threads=1

## test-postgres: jobs in PostgreSQL, whose server fails in every way; installs Debian's package
test-postgres:
	$(call with_debian,postgresql pgbouncer)
	$(CARGO) test --test postgres -- --include-ignored --nocapture --test-threads=4
	$(CARGO) test --test crash jobs_store::suite -- --nocapture
	$(CARGO) test --test crash jobs_owners:: -- --nocapture

MEDIAWIKI = mediawiki php-cli php-sqlite3
# A newer one of Debian's archive, which is unpacked there and not installed.
NEWER_MEDIAWIKI = $(abspath $(CARGO_TARGET_DIR))/tmp/mediawiki
## test-mediawiki: MediaWiki with its job queue in the daemon, beside its own queue; installs Debian's package, and fetches a newer release
test-mediawiki:
	$(call with_debian,$(MEDIAWIKI))
	$(CARGO) test --test mediawiki -- --ignored --nocapture --test-threads=1
	tests/mediawiki/fetch.sh $(NEWER_MEDIAWIKI)
	MEDIAWIKI=$(NEWER_MEDIAWIKI)/mediawiki $(CARGO) test --test mediawiki mediawiki_has_its_jobs_here -- --ignored --nocapture

# Version 0.9.0. A shallow clone does not have it: git fetch --unshallow.
RELEASE = 3da2f0631cc1506396831217a506796b040b1189
RELEASED = $(CARGO_TARGET_DIR)/released/$(RELEASE)/debug/poolcounter

## test-upgrade: the upgrade from the present release to this program, with 10,000 connections; builds the release from its commit
test-upgrade: $(RELEASED)
	RELEASED_PROGRAM=$(abspath $(RELEASED)) $(CARGO) test --test upgrade upgrade_release:: -- --ignored --nocapture

$(RELEASED):
	rm -rf $(CARGO_TARGET_DIR)/released/src && mkdir -p $(CARGO_TARGET_DIR)/released/src
	git archive $(RELEASE) | tar -x -C $(CARGO_TARGET_DIR)/released/src
	$(CARGO) build --locked --manifest-path $(CARGO_TARGET_DIR)/released/src/Cargo.toml \
		--target-dir $(CARGO_TARGET_DIR)/released/$(RELEASE)

## golden: writes what this version hands over to tests/handovers, which later versions are to read: before each release
golden:
	$(CARGO) test --test upgrade golden:: -- --ignored --nocapture

## bench: the benchmarks
bench:
	$(CARGO) bench

## fuzz: one fuzz target for a while: make fuzz TARGET=pools_stream TIME=60
fuzz:
	$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $(TARGET) -- -max_total_time=$(TIME) $(DICTIONARY:%=-dict=$(CURDIR)/%)

## sim: random days of a simulated fleet: make sim [SEED=0x1234] [SEEDS=100] [STEPS=10000]
sim:
	$(if $(SEED),SIM_SEED=$(SEED)) $(if $(SEEDS),SIM_SEEDS=$(SEEDS)) $(if $(STEPS),SIM_STEPS=$(STEPS)) \
		$(CARGO) test --release --test protocol simulation:: -- --nocapture

## farm: what the product is for: a model of a farm with and without locks, as a table of benches/README.md
farm:
	$(CARGO) test --test protocol farm:: -- --nocapture

## soak: the daemon under load for a long time, then every service in a storm for as long: make soak MINUTES=20
soak:
	SOAK_MINUTES=$(MINUTES) $(CARGO) test --release --test sockets soak:: -- --ignored --nocapture
	STORM_SECONDS=$$(($(MINUTES) * 60)) $(CARGO) test --release --test sockets storm:: -- --nocapture

# How often `make soak-jobs` kills the daemon.
ROUNDS ?= 200

## soak-jobs: the daemon killed under load, over and over, and jobs on disks that fail: make soak-jobs ROUNDS=200
soak-jobs:
	SOAK_ROUNDS=$(ROUNDS) SIM_SEEDS=$(ROUNDS) $(CARGO) test --release --test crash jobs_crash:: -- --include-ignored --nocapture

## static: the daemon as one file that needs no libraries, for containers
static:
	command -v musl-gcc >/dev/null || { $(call apt_install,musl-tools); }
	rustup target list --installed | grep -qx $(STATIC) || rustup target add $(STATIC)
	$(CARGO) build --profile dist --target $(STATIC)
	@echo "built $(CARGO_TARGET_DIR)/$(STATIC)/dist/poolcounter"

## deb: the Debian package, in the directory above this one
deb:
	$(call with_debian,$(PACKAGING))
	dpkg-buildpackage -us -uc -b

## test-package: the Debian package from its installation to its purge, in scratch systems; needs root
test-package:
	$(call with_debian,$(PACKAGE_TESTS))
	tests/package.sh $(CARGO_TARGET_DIR)/package

# Installs the packages that are missing, which an ordinary user needs sudo for.
with_debian = dpkg -s $(1) >/dev/null 2>&1 || { $(call apt_install,$(1)); }
define apt_install
if [ "$$(id -u)" = 0 ]; then sudo=; \
elif command -v sudo >/dev/null; then sudo=sudo; \
else echo "this needs packages that only root can install: apt-get install --no-install-recommends $(1)" >&2; exit 1; fi; \
$$sudo apt-get update && $$sudo apt-get install -y --no-install-recommends $(1)
endef

## install: the program, its manual pages, documents, completions and units, under DESTDIR and PREFIX (/usr/local), and its settings in SYSCONFDIR (/etc), unless they are there
install: $(BINARY)
	install -d $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BINARY) $(DESTDIR)$(PREFIX)/sbin/poolcounter
	ln -sf poolcounter $(DESTDIR)$(PREFIX)/sbin/poolcounterd
	ln -sf ../sbin/poolcounter $(DESTDIR)$(PREFIX)/bin/poolcounter
	install -d $(SHARE)/man/man1 $(SHARE)/man/man5 $(SHARE)/man/man8
	install -m 644 poolcounter.1 man/*.1 $(SHARE)/man/man1
	install -m 644 man/*.5 $(SHARE)/man/man5
	install -m 644 poolcounter.8 $(SHARE)/man/man8
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(BINARY) completions bash > $(SHARE)/bash-completion/completions/poolcounter
	$(BINARY) completions zsh > $(SHARE)/zsh/site-functions/_poolcounter
	$(BINARY) completions fish > $(SHARE)/fish/vendor_completions.d/poolcounter.fish
	install -d $(SHARE)/doc/poolcounter/docs/protocols
	install -m 644 README.md CHANGELOG.md SECURITY.md $(SHARE)/doc/poolcounter
	install -m 644 docs/*.md $(SHARE)/doc/poolcounter/docs
	install -m 644 docs/protocols/*.md $(SHARE)/doc/poolcounter/docs/protocols
	install -d $(SHARE)/poolcounter $(DESTDIR)$(SYSCONFDIR)
	install -m 644 debian/poolcounter.toml $(SHARE)/poolcounter/poolcounter.toml
	[ -e $(DESTDIR)$(SYSCONFDIR)/poolcounter.toml ] || \
		install -m 644 debian/poolcounter.toml $(DESTDIR)$(SYSCONFDIR)/poolcounter.toml
	install -d $(UNITS)
	$(call unit,debian/poolcounter.service,poolcounter.service)
	$(call unit,debian/poolcounter.socket,poolcounter.socket)
	$(call unit,debian/poolcounter.poolcounter-tls.service,poolcounter-tls.service)

# Installs a unit of the package, with the paths of this installation.
unit = sed 's|/usr/bin/poolcounterd\{0,1\} |$(PREFIX)/sbin/poolcounter |; s|/etc/poolcounter\.toml|$(SYSCONFDIR)/poolcounter.toml|' $(1) > $(UNITS)/$(2)

# Only where nothing is built yet, so that root may install without cargo what somebody else has built.
$(BINARY):
	$(CARGO) build --release

## clean: removes what was built
clean:
	$(CARGO) clean
	if [ -f fuzz/Cargo.toml ]; then cd fuzz && $(CARGO) clean; fi

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)
